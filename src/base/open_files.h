/* How many files this process may have open. Most systems let a process have 1,024 until it asks for more. */
#ifndef WEFT_BASE_OPEN_FILES_H
#define WEFT_BASE_OPEN_FILES_H
#include <stdbool.h>
#include <stddef.h>

size_t open_files_limit(void); /* files that this process may have open now */
size_t open_files_count(void); /* files that it has open; it looks at each of them */
/* Lets this process have n files open, if it may: raises the soft limit up to the hard one. False: it may not have that
 * many, and the limit is as high as it can be. */
bool open_files_allow(size_t n);
/* The same for n files beyond those that it has open. *need is how many that makes. */
bool open_files_allow_more(size_t n, size_t *need);
#endif
