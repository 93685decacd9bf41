/* The catalog: what the directory has about one set, at one revision. */
#ifndef WEFT_VERSION_CATALOG_H
#define WEFT_VERSION_CATALOG_H
#include "base/arena.h"
#include "version/keeper.h"
#include "version/schema.h"

#define CATALOG_PART 16 /* bytes of a part's hash */
#define CATALOG_PLACE 320

/* How a rank of a publisher, or the relay of a host, is reached. */
struct catalog_slot {
    bool relay, agent; /* agent: it is the agent of a host, or what that has of a publisher that has gone */
    int64_t epoch;     /* of a publisher */
    int rank;
    int64_t revision; /* of its record */
    char job[WEFT_BUS_NAME + 1];
    char host[64], socket[64]; /* for processes of the same host */
    char address[CATALOG_PLACE], secret[80];
};
struct catalog_part {
    weft_epoch_step version;
    const char *key;
    int64_t revision; /* of its record */
    int rank;
    uint64_t generation, sketch[2];
    bool digests; /* it has some */
    unsigned char hash[CATALOG_PART];
    const struct catalog_slot *slot; /* NULL: its owner is gone */
};
struct catalog_version {
    weft_epoch_step version;
    int64_t revision, bytes;
    int ranks, holders;
    unsigned char layouts[SCHEMA_HASH], digest[SCHEMA_HASH];
    unsigned char *hashes;       /* of each rank's part, CATALOG_PART bytes each */
    struct catalog_part **parts; /* by rank; NULL: no live process has it */
    const char *meta;
};
struct catalog_reader {
    weft_epoch_step version;
    bool reads; /* it copies now; otherwise it has the version staged */
};
struct catalog {
    struct arena arena;
    struct directory_items items;
    int64_t epoch; /* 0: the set was never published */
    size_t nslots, nparts, nversions, nreaders, nrelays;
    struct catalog_slot *slots; /* by epoch and rank; parts and versions in ascending order, too */
    struct catalog_part *parts;
    struct catalog_version *versions;
    struct catalog_reader *readers;
    struct catalog_slot *relays;
};

/* Records that are damaged, or of another version of weft, are left out. */
int catalog_get(struct keeper *k, const char *set, int64_t until, struct catalog *out);
void catalog_free(struct catalog *c);
/* The record of the agent of host `host`, as this user runs it; a slot of revision 0: there is none. */
void catalog_agent_key(const char *host, char key[RECORD_KEY]);
int catalog_agent(struct keeper *k, const char *host, int64_t until, struct catalog_slot *out);
const struct catalog_slot *catalog_slot(const struct catalog *c, int64_t epoch, int rank); /* NULL: there is none */
/* Does a reader copy this version now? */
bool catalog_is_read(const struct catalog *c, const weft_epoch_step *v);
const struct catalog_version *catalog_find(const struct catalog *c, const weft_epoch_step *v); /* NULL: there is none */
#endif
