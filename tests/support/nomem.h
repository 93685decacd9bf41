/* Memory that runs out: the linker sends the library's allocations here (WRAP malloc calloc realloc in
 * tests/CMakeLists.txt), and this thread's n-th one fails. */
#ifndef WEFT_TESTS_NOMEM_H
#define WEFT_TESTS_NOMEM_H
#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static _Thread_local long until_failure = -1; /* allocations that still succeed; negative: all do */

static bool fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}
#endif
