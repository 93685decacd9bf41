/* Structs of the interface that start with their size. The caller's struct may be shorter or longer than this
 * library's, because the two were compiled with different versions of weft.h. Structs grow only at their end. The rule
 * is the same for all of them; the top of weft.h states it. */
#ifndef WEFT_BASE_SIZED_H
#define WEFT_BASE_SIZED_H
#include <stddef.h>

#define SIZED_MOST 4096 /* most bytes of a caller's struct: a larger size was never initialised */

/* Reads the caller's struct `from` into *to, which is `bytes` long: fields that the caller lacks are zero, and to's
 * size becomes `bytes`. `from` may be NULL: all fields are zero. `call` and `type` ("weft_comm_opts") are for the text.
 * WEFT_EINVAL if the size is not possible, or if the caller sets fields that this library does not know. */
int sized_read(const char *call, const char *type, void *to, size_t bytes, const void *from);

/* Checks the size of the caller's output `to` before anything is done. */
int sized_check(const char *call, const char *type, const void *to);

/* Writes *from, which is `bytes` long, into the caller's output, as far as its size allows. The caller's size stays;
 * what the output has beyond this library's struct becomes zero. sized_check has accepted it. */
void sized_write(void *to, const void *from, size_t bytes);

#endif
