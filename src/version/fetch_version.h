/* Reading one version on this rank: what the files of it share.
 *
 *     fetch_sources.c   which rank of the publisher is read for which piece, and how: mapped, by the relay, by a socket
 *     fetch_pieces.c    the pieces, one after the other, and checking their digests
 *     fetch_copy.c      copying a piece, by several threads if it is long
 *     fetch_share.c     checking them together with the other ranks of the job
 *     fetch_version.c   the whole: lease, layouts, sources, pieces, generations */
#ifndef WEFT_VERSION_FETCH_VERSION_H
#define WEFT_VERSION_FETCH_VERSION_H
#include "version/copy_threads.h"
#include "version/part_client.h"
#include "version/subscribe.h"

#define FETCH_AGAIN 1 /* instead of an error: the version has gone or was torn; the subscriber's `why` says it */

/* What is read from one rank of the publisher. */
struct fetch_source {
    const struct catalog_part *part;
    struct part_client_of of;
    struct part_client client;
    struct snapshot snapshot;       /* of this host: the rank's, or the relay's; data NULL: pulled from another host */
    uint64_t generation;            /* of the snapshot */
    const _Atomic uint8_t *present; /* the relay's blocks that are there; NULL: all are */
    struct schema_part places;
    uint64_t *digests;
    size_t pieces;
    int64_t bytes;
    bool opened, used, borrowed; /* borrowed: the snapshot is the mapping of the relay in this process */
};

struct fetch_attempt {
    weft_subscriber *s;
    const struct catalog *c;
    const struct catalog_version *v;
    struct part_client relay; /* of this host */
    struct catalog_slot relay_slot;
    bool related, no_relay;       /* it is open; there is none that can be used */
    struct fetch_source *sources; /* by rank */
    int *rank;              /* for each piece of the plan: the publisher's rank from which this rank reads it. -1: this
                               rank reads another piece that has the same elements */
    unsigned char *scratch; /* for pieces of other hosts */
    int64_t room, done;
    int64_t until;
    int64_t checking; /* ns for comparing digests */
    bool wrong;       /* one of them is */
    size_t settled;   /* pieces that are staged, in the order of the plan */
    struct subscribe_buffer *to;
    struct copy_threads threads;
};

/* ---- fetch_sources.c ---- */
int fetch_sources_again(weft_subscriber *s); /* FETCH_AGAIN, and the text of the last error is why */
/* A holder that has gone or says nothing is not an error of this rank. */
int fetch_sources_judge(weft_subscriber *s, int rank, int err);
/* Chooses the rank from which each piece is read. FETCH_AGAIN: no rank that holds one of the pieces lives. */
int fetch_sources_assign(struct fetch_attempt *a);
int fetch_sources_open(struct fetch_attempt *a);
void fetch_sources_close(struct fetch_attempt *a);
const char *fetch_sources_name(const struct fetch_attempt *a, const struct fetch_source *o);
/* Was the memory of a source, if it is mapped, reused since it was opened? */
bool fetch_sources_torn(const struct fetch_attempt *a, const struct fetch_source *o);

/* ---- fetch_pieces.c ---- */
/* Stages all pieces, and tells the caller of them. Those that ranks do not check together are checked, too. */
int fetch_pieces_copy(struct fetch_attempt *a);

/* ---- fetch_copy.c ---- */
/* Copies the steps of a piece out of an array of `bytes` bytes. With sums: also adds all bytes of its blocks to them,
 * or, if ranks check them together, those that are copied. */
void fetch_copy(struct fetch_attempt *a, const struct reader_piece *p, int64_t bytes, const unsigned char *array,
                uint64_t *sums);

/* ---- fetch_version.c ---- */
/* The publisher's layouts of a version, and the plan for them, unless they are those that the subscriber has. */
int fetch_version_layouts(weft_subscriber *s, const struct catalog_version *v, int64_t until);
/* Stages a version. dry: only proves that all is there. */
int fetch_version_try(weft_subscriber *s, const struct catalog *c, const weft_epoch_step *v, bool dry, int64_t until);
#endif
