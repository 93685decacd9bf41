/* The header of a .npy file from any bytes: read, or refused with a reason; what is read is consistent, and what is
 * written of it reads back to the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void use(const struct npy *h, size_t size)
{
    int64_t count = 1;
    must(h->ndim >= 0 && h->ndim <= WEFT_MAX_DIMS && h->bytes >= 0 && h->data > 0 && (size_t)h->data <= size);
    for (int d = 0; d < h->ndim; d++) {
        must(h->shape[d] >= 0);
        count = h->shape[d] ? count : 0;
    }
    for (int d = 0; d < h->ndim && count; d++)
        must(!__builtin_mul_overflow(count, h->shape[d], &count));
    must(h->bytes == count * (int64_t)weft_dtype_size(h->dtype));

    unsigned char again[512];
    char why[NPY_WHY];
    struct npy same;
    size_t n = npy_write_header(h->dtype, h->ndim, h->shape, again, sizeof again);
    must(n > 0 && !npy_parse(again, n, &same, why));
    must(same.dtype == h->dtype && same.ndim == h->ndim && same.bytes == h->bytes && (size_t)same.data == n);
    must(!memcmp(same.shape, h->shape, sizeof h->shape));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy h;
    char why[NPY_WHY] = "";
    int64_t length = 0;
    int known = npy_header_length(data, size < NPY_PRELUDE ? size : NPY_PRELUDE, &length, why) == 0;
    must(!known || (length >= 10 && length <= NPY_HEADER_MAX + NPY_PRELUDE));
    if (npy_parse(data, size, &h, why) == 0) {
        must(known && h.data == length);
        use(&h, size);
    } else {
        must(why[0] != 0 && memchr(why, 0, sizeof why) != NULL);
    }
    return 0;
}
