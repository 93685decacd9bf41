/* Rules of checkpoints from any bytes, and a name behind the first zero: parsed, or refused with the line; a name is
 * matched by some rule or none, fused or not, and renamed there and back. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void use(const struct rules *r, const char *name, struct arena *arena)
{
    struct rules_match m;
    int part;
    if (rules_match_find(r, name, &m)) {
        must(m.rule >= r->rule && m.rule < r->rule + r->nrules && m.n >= 0 && m.n <= WEFT_MAX_AXES);
        for (int i = 0; i < m.n; i++)
            must(m.number[i].at >= 0 && m.number[i].at <= RULES_NUMBER_MAX);
    }
    const struct rules_fuse *f = rules_match_fused(r, name);
    if (f) {
        char *other = rules_match_renamed(name, f->fused, f->part[0], arena);
        must(other && strlen(other) + strlen(f->fused) == strlen(name) + strlen(f->part[0]));
        must(rules_match_part(r, other, &part) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct rules r;
    size_t len = 0;
    while (len < size && data[len])
        len++;
    if (!rules_parse("rules", (const char *)data, len, &arena, &r)) {
        size_t n = size > len ? size - len - 1 : 0;
        char *name = malloc(n + 1);
        must(name != NULL);
        memcpy(name, data + size - n, n);
        name[n] = 0;
        use(&r, name, &arena);
        free(name);
    } else {
        must(!strncmp(weft_errmsg(), "rules:", 6));
    }
    arena_free(&arena);
    return 0;
}
