/* weft_plan_load on any bytes. Length and checksum are made right first, so that a change reaches what is behind
 * them. Bytes that load must give a plan that can be explained, counted, saved and loaded again to the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void use(const weft_plan *p)
{
    for (int json = 0; json < 2; json++) {
        size_t len = 0, again = 0;
        must(!weft_plan_explain(p, json, NULL, 0, &len));
        char *text = malloc(len + 1);
        must(text && !weft_plan_explain(p, json, text, len + 1, &again));
        must(again == len && strlen(text) == len);
        free(text);
    }
    weft_stats st = {.size = sizeof st};
    must(!weft_plan_stats(p, &st));
    must(st.sent >= 0 && st.received >= 0 && st.copied >= 0 && st.folded >= 0 && st.sends + st.recvs <= st.steps);
    for (size_t i = 0; i < weft_plan_tensors(p); i++) {
        weft_move m;
        must(!weft_plan_tensor(p, i, &m) && m.name && m.src && m.dst);
    }
}

static unsigned char *save(const weft_plan *p, size_t *len)
{
    must(!weft_plan_save(p, NULL, 0, len));
    unsigned char *buf = malloc(*len);
    must(buf && !weft_plan_save(p, buf, *len, len));
    return buf;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    must(bytes != NULL);
    memcpy(bytes, data, size);
    if (size >= 32) {
        uint64_t total = size;
        memcpy(bytes + 16, &total, 8);
        uint64_t sum = hash_bytes(1, bytes, size - 8);
        memcpy(bytes + size - 8, &sum, 8);
    }
    weft_plan *p = NULL, *q = NULL;
    if (weft_plan_load(bytes, size, &p) == 0) {
        size_t len = 0, len2 = 0;
        use(p);
        unsigned char *saved = save(p, &len);
        must(!weft_plan_load(saved, len, &q) && weft_plan_equal(p, q) && weft_plan_equal(q, p));
        unsigned char *again = save(q, &len2);
        must(len == len2 && !memcmp(saved, again, len));
        free(saved);
        free(again);
        weft_plan_free(q);
        weft_plan_free(p);
    }
    free(bytes);
    return 0;
}
