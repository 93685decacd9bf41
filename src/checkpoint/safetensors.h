/* The header of a safetensors file, read and written; pure functions of bytes.
 *
 * A file is 8 bytes with the length of the header (little-endian), the header, which is a JSON object, and the data.
 * Each member of the object is a tensor with its dtype, its shape and the bytes it takes in the data; "__metadata__"
 * maps texts to texts. Tensors lie one behind the other without gaps and fill the data to its end. */
#ifndef WEFT_CHECKPOINT_SAFETENSORS_H
#define WEFT_CHECKPOINT_SAFETENSORS_H
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/text.h"
#include "weft.h"

#define SAFETENSORS_PRELUDE 8
#define SAFETENSORS_HEADER_MAX 100000000 /* bytes; the limit of the format's own library */

struct safetensors_tensor {
    const char *name;
    int dtype, ndim;
    int64_t shape[WEFT_MAX_DIMS];
    int64_t begin, bytes; /* offset in the data, and length */
};

struct safetensors_note { /* of "__metadata__" */
    const char *key, *value;
};

struct safetensors_header {
    struct safetensors_tensor *tensors; /* in the order of their bytes */
    size_t ntensors;
    struct safetensors_note *notes; /* by key */
    size_t nnotes;
};

/* Reads the length of the header from the first 8 bytes of a file of `size` bytes. path is for messages, here and
 * below. */
int safetensors_length(const char *path, const unsigned char *prelude, int64_t size, int64_t *length);
/* Reads the header. `bytes` is malloc'd and has `length` bytes and a zero; the function takes it over, also on failure.
 * `data` is how many bytes follow the header. The result lives in the arena. Everything is checked, so the caller may
 * trust it. */
int safetensors_read(const char *path, char *bytes, size_t length, int64_t data, struct arena *arena,
                     struct safetensors_header *out);
/* Makes the first bytes of a file, up to its data: the prelude and the header, padded so that the data is aligned to 8.
 * Ignores `begin`: the data is in the order of the list. The result is malloc'd. */
int safetensors_write(const struct safetensors_header *h, char **out, size_t *len);
const char *safetensors_dtype(int dtype); /* "BF16" */
/* The value of a note of a header that was read; NULL: there is none. */
const char *safetensors_note(const struct safetensors_header *h, const char *key);
/* A name as messages show it: quoted, without control characters, and cut if it is long. Returns buf. */
#define SAFETENSORS_SHOWN 200
const char *safetensors_show(const char *name, char buf[SAFETENSORS_SHOWN]);
#endif
