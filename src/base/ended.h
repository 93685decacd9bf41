/* What a launcher tells its ranks about ranks that have ended. A rank that ends before it has opened the comm has told
 * nobody that it was there; only the process that started it knows. weft run has a small file in its memory for this,
 * which ranks that wait for the others look at. WEFT_ENDED is its name. */
#ifndef WEFT_BASE_ENDED_H
#define WEFT_BASE_ENDED_H
#include <stddef.h>
#include <stdint.h>

#define ENDED_MAGIC UINT32_C(0x77656e64)
#define ENDED_LOOK_MS 50 /* how often a rank that waits looks at the file */

/* The file, as the launcher writes it. */
struct ended_record {
    uint32_t magic;
    int32_t rank; /* the first that has ended; -1: none */
    int32_t code; /* its exit code; if a signal ended it, minus the signal's number */
    int32_t size; /* ranks of the job */
};

/* Opens the file of that name for a job of `size` ranks; -1: there is no such file, or it is another one. */
int ended_open(const char *path, int size);
/* The rank that has ended first, and `text` says how: "rank 2 ended with code 0". -1: none has, or the file is -1. */
int ended_look(int file, char *text, size_t cap);
#endif
