/* Buffers between pages that cannot be touched, at the beginning or the end of their own. */
#ifndef WEFT_TESTS_MEMORY_GUARDED_H
#define WEFT_TESTS_MEMORY_GUARDED_H
#include <stddef.h>
#include <stdint.h>

struct guarded {
    unsigned char *map, *at;
    size_t bytes;
};

/* Random bytes. */
unsigned char *guarded_make(struct guarded *g, int64_t bytes, uint64_t *seed);
void guarded_free(const struct guarded *g);
#endif
