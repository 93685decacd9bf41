/* A reader's side of part_link.h. A code that is WEFT_EPEER means that the process, or the part, has gone: the caller
 * may look for another holder. */
#ifndef WEFT_VERSION_PART_CLIENT_H
#define WEFT_VERSION_PART_CLIENT_H
#include "version/catalog.h"
#include "version/part_link.h"

struct part_client {
    struct part_link link;
    const struct catalog_slot *slot;
    const char *set;
    bool local;      /* on this host */
    int64_t silence; /* ns after which a process that says nothing is taken for gone */
    char name[128];
};

/* Which part is meant. */
struct part_client_of {
    weft_epoch_step version;
    int rank;
    uint64_t generation; /* of its record */
    bool digests;        /* it has some, with this hash */
    unsigned char hash[CATALOG_PART];
};
struct part_client_of part_client_of(const struct catalog_part *p);

/* host: of this process. The slot and the set's name must outlive *out. */
int part_client_open(const char *host, const char *set, const struct catalog_slot *slot, int64_t silence, int64_t until,
                     struct part_client *out);
void part_client_close(struct part_client *c);
/* The schema's bytes, in memory that the caller frees. */
int part_client_layouts(struct part_client *c, int64_t until, unsigned char **bytes, size_t *size);
/* The digests of a part, `size` bytes. On this host also its memory's file, which the caller closes, otherwise -1, and
 * the generation that it has. */
int part_client_part(struct part_client *c, const struct part_client_of *of, unsigned char *digests, size_t size,
                     int64_t until, int *file, uint64_t *generation);
/* Bytes [at, at + n) of a part. *torn: its memory was reused meanwhile. */
int part_client_read(struct part_client *c, const struct part_client_of *of, int64_t at, int64_t n, void *to,
                     int64_t until, bool *torn);
/* TAKE of part_link.h: *m has at, count, most, who, flags and base. *out becomes the reply: none if its blocks were
 * torn. */
struct part_client_blocks {
    unsigned char *payload; /* heads and bytes, in memory of which the caller has none at first, and frees it at last */
    size_t room, size, n;   /* n: blocks */
};
int part_client_take(struct part_client *c, const struct part_client_of *of, struct part_link_message *m,
                     const unsigned char *wanted, int64_t until, struct part_client_blocks *out);
/* KEEP of part_link.h: the agent has the part. */
int part_client_keep(struct part_client *c, const struct part_client_of *of, int64_t until);
/* AWAIT of part_link.h. flags: PART_LINK_WAIT, PART_LINK_WRONG. */
int part_client_await(struct part_client *c, const struct part_client_of *of, int64_t at, int64_t count,
                      const unsigned char *wanted, uint32_t flags, int64_t until, int64_t *missing);
#endif
