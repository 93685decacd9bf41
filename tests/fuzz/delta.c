/* A delta of any bytes: two bytes say how many elements the array has, one their size. Bytes that are a delta are
 * applied twice, and found again as a delta that is not longer; others leave the array as it is. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bus/delta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static unsigned char *array(size_t bytes, int fill)
{
    unsigned char *a = malloc(bytes + 1);
    must(a != NULL);
    memset(a, fill, bytes);
    return a;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    size_t count = (data[0] | (size_t)data[1] << 8) % (3 * DELTA_BLOCK), element = (size_t)1 << data[2] % 5;
    size_t bytes = count * element, changed = 0, written = 0;
    uint64_t added;
    unsigned char *base = array(bytes, 0x55), *now = array(bytes, 0x55);
    unsigned char *in = array(size - 3, 0); /* as long as it is, so that a load behind it is seen */
    memcpy(in, data + 3, size - 3);
    if (!delta_check(in, size - 3, count, element, &changed)) {
        must(!delta_apply(now, in, size - 3, count, element, &added) && !memcmp(now, base, bytes));
    } else {
        must(changed <= count);
        must(delta_apply(now, in, size - 3, count, element, &added));
        for (size_t i = 0; i < count; i++)
            written += memcmp(now + i * element, base + i * element, element) != 0;
        must(written <= changed);
        unsigned char *found = array(delta_most(count, element), 0);
        size_t length = delta_find(now, base, count, element, found);
        must(length <= size - 3);
        must(delta_apply(base, found, length, count, element, &added) && !memcmp(base, now, bytes));
        must(delta_apply(base, in, size - 3, count, element, &added) && !memcmp(base, now, bytes));
        free(found);
    }
    free(in);
    free(now);
    free(base);
    return 0;
}
