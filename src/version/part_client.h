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

/* host: of this process. The slot and the set's name must outlive *out. */
int part_client_open(const char *host, const char *set, const struct catalog_slot *slot, int64_t silence, int64_t until,
                     struct part_client *out);
void part_client_close(struct part_client *c);
/* The schema's bytes, in memory that the caller frees. */
int part_client_layouts(struct part_client *c, int64_t until, unsigned char **bytes, size_t *size);
/* The digests of a part, `size` bytes. On this host also its snapshot's file, which the caller closes; otherwise -1. */
int part_client_part(struct part_client *c, const struct catalog_part *part, unsigned char *digests, size_t size,
                     int64_t until, int *file);
/* Bytes [at, at + n) of a part. *torn: its memory was reused meanwhile. */
int part_client_read(struct part_client *c, const struct catalog_part *part, int64_t at, int64_t n, void *to,
                     int64_t until, bool *torn);
#endif
