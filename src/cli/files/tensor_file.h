/* safetensors files as arrays in memory: mapped for reading, and written at once. */
#ifndef WEFT_CLI_FILES_TENSOR_FILE_H
#define WEFT_CLI_FILES_TENSOR_FILE_H
#include "base/arena.h"
#include "checkpoint/safetensors.h"
#include "tool/failure.h"

struct tensor_file {
    struct arena arena;
    struct safetensors_header header;
    void *map;
    size_t size;
    const unsigned char *data; /* of its tensors */
};

int tensor_file_map(const char *path, struct tensor_file *out, struct failure *why); /* CLI_OK or another code */
void tensor_file_unmap(struct tensor_file *f);                                       /* also one that is zeroed */
/* Writes a file whose tensors have these arrays, dense. It appears complete or not at all. force: replaces one. */
int tensor_file_write(const char *path, const struct safetensors_header *h, const void *const *arrays, bool force,
                      struct failure *why);
#endif
