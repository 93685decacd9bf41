/* A safetensors file from any bytes: read, or refused with a reason that names it; what is read is consistent, and what is
 * written of it reads back to the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static char *copy(const void *from, size_t n)
{
    char *p = malloc(n + 1);
    must(p != NULL);
    memcpy(p, from, n);
    p[n] = 0;
    return p;
}

static void use(const struct safetensors_header *h, int64_t data)
{
    int64_t at = 0;
    for (size_t i = 0; i < h->ntensors; i++) {
        const struct safetensors_tensor *t = &h->tensors[i];
        int64_t bytes = (int64_t)weft_dtype_size(t->dtype);
        must(bytes > 0 && t->ndim >= 0 && t->ndim <= WEFT_MAX_DIMS && t->begin == at && t->bytes >= 0);
        for (int d = 0; d < t->ndim; d++)
            bytes *= t->shape[d];
        must(bytes == t->bytes);
        at += t->bytes;
    }
    must(at == data);

    char *bytes;
    size_t len;
    int64_t length;
    struct arena arena = {0};
    struct safetensors_header same;
    must(!safetensors_write(h, &bytes, &len));
    must(!safetensors_length("again", (unsigned char *)bytes, (int64_t)len + data, &length) && (size_t)length + 8 == len);
    must(!safetensors_read("again", copy(bytes + 8, len - 8), len - 8, data, &arena, &same));
    must(same.ntensors == h->ntensors && same.nnotes == h->nnotes);
    for (size_t i = 0; i < h->ntensors; i++)
        must(!strcmp(same.tensors[i].name, h->tensors[i].name) && same.tensors[i].begin == h->tensors[i].begin);
    for (size_t i = 0; i < h->nnotes; i++)
        must(!strcmp(safetensors_note(&same, h->notes[i].key), h->notes[i].value));
    free(bytes);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char prelude[8] = {0};
    struct arena arena = {0};
    struct safetensors_header h;
    int64_t length;
    memcpy(prelude, data, size < 8 ? size : 8);
    int rc = safetensors_length("file", prelude, (int64_t)size, &length);
    if (!rc) {
        must(length >= 0 && (size_t)length + 8 <= size);
        rc = safetensors_read("file", copy(data + 8, (size_t)length), (size_t)length, (int64_t)size - 8 - length, &arena, &h);
        if (!rc)
            use(&h, (int64_t)size - 8 - length);
    }
    must(!rc || !strncmp(weft_errmsg(), "file: ", 6));
    arena_free(&arena);
    return 0;
}
