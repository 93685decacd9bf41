#define _GNU_SOURCE
#include "nomem.h"

void *__real_malloc(size_t n);

void *__real_calloc(size_t n, size_t size);

void *__real_realloc(void *p, size_t n);

_Thread_local long nomem_until = -1; /* allocations that still succeed; negative: all do */

bool nomem_fails(void)
{
    return nomem_until >= 0 && nomem_until-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return nomem_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return nomem_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return nomem_fails() ? NULL : __real_realloc(p, n);
}
