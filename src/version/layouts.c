#include "version/layouts.h"

#include <stdlib.h>
#include <string.h>

#include "base/blake2s.h"
#include "base/error.h"
#include "version/part_client.h"

static int read_from(weft_bus *b, const char *set, const struct catalog_version *v, const struct catalog_slot *slot,
                     int64_t until, struct schema **out)
{
    struct part_client c;
    struct blake2s hash;
    unsigned char *bytes = NULL, digest[SCHEMA_HASH];
    size_t size = 0;
    int err = part_client_open(b->host, set, slot, b->keeper.lease_ns, until, &c);
    if (err)
        return err;
    err = part_client_layouts(&c, until, &bytes, &size);
    if (!err) {
        blake2s_begin(&hash, SCHEMA_HASH, NULL, 0);
        blake2s_add(&hash, bytes, size);
        blake2s_end(&hash, digest);
        err = memcmp(digest, v->layouts, SCHEMA_HASH)
                  ? error_set(WEFT_EMISMATCH, "%s has a list of tensors that is not the one of the version's record",
                              c.name)
                  : schema_load(c.name, bytes, size, out);
    }
    part_client_close(&c);
    free(bytes);
    return err;
}

int layouts_read(weft_bus *b, const char *set, const struct catalog_version *v, bool *avoid, int64_t until,
                 struct schema **out)
{
    int err = error_set(WEFT_EPEER, "no live process has a part of it");
    for (int r = 0; r < v->ranks && err == WEFT_EPEER; r++) {
        if (!v->parts[r])
            continue;
        err = read_from(b, set, v, v->parts[r]->slot, until, out);
        if (err == WEFT_EPEER && avoid)
            avoid[r] = true;
    }
    return err;
}
