/* Memory that runs out: the linker sends the library's allocations here (WRAP malloc calloc realloc in
 * tests/CMakeLists.txt), and this thread's n-th one fails. */
#ifndef WEFT_TESTS_NOMEM_H
#define WEFT_TESTS_NOMEM_H
#include <stdbool.h>
#include <stddef.h>

extern _Thread_local long nomem_until;
bool nomem_fails(void);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
#endif
