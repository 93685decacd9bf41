/* Files for tests of checkpoints: a folder of the test's own, safetensors files written by a few lines that share
 * nothing with the library's, and read back. */
#ifndef WEFT_TESTS_CHECKPOINT_FILES_H
#define WEFT_TESTS_CHECKPOINT_FILES_H
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/safetensors.h"

enum { PATH = 600 };

extern char scratch[64];
__attribute__((format(printf, 2, 3))) char *scratch_place(char path[PATH], const char *fmt, ...);
void scratch_folder(const char *path);
int scratch_make(void **state);

/* All files below a folder, however deep; how many there were. */
int scratch_empty(const char *path);
int scratch_clear(void);
int scratch_drop(void **state);

struct naive_tensor {
    const char *name;
    int dtype, ndim;
    int64_t shape[WEFT_MAX_DIMS];
    void *data;
};
void scratch_write(const char *path, const void *data, size_t n);
void scratch_write_text(const char *path, const char *text);

/* A header as it is given, and data behind it. */
void scratch_write_raw(const char *path, const char *header, uint64_t length, const void *data, size_t n);
void naive_write(const char *path, const struct naive_tensor *t, int n);

struct loaded {
    struct arena arena;
    struct safetensors_header header;
    unsigned char *all, *data;
};
void naive_load(const char *path, struct loaded *out);
void naive_unload(struct loaded *f);

/* The index of part0.safetensors, part1.safetensors, ... in a folder. */
void naive_index(const char *folder, int files);
#endif
