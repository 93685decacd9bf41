/* Snapshots: memory files that hold a rank's part of one version. The publisher writes them, readers map them
 * read-only. A snapshot is reused for later versions, so it has a generation word, and both sides follow the rules of a
 * seqlock:
 *
 *   writer   generation = odd            relaxed store
 *            fence (release)             W1: orders the odd number before every store to the data
 *            stores to the data
 *            generation = next even      release store: orders the data before the even number
 *
 *   reader   g = generation              acquire load; it must be the even number of the version's record
 *            loads of the data
 *            fence (acquire)             R1: orders every load of the data before the next load
 *            generation == g             relaxed load; otherwise the data was torn
 *
 * Why a reader that accepts has read one version: suppose that one of its loads of the data saw a store of a later
 * writer. The writer's odd number stands before W1, and that store behind it. The load stands before R1, and the second
 * load of the generation behind it. A load before an acquire fence that sees a store behind a release fence orders the
 * two fences: what stands before W1 is seen by what stands behind R1. So the second load sees the odd number or a later
 * one, and the reader rejects. (C states this for atomic loads and stores. The copies are plain ones, between
 * processes, and the argument for them is the machine's: on AArch64 W1 is "dmb ish" and R1 "dmb ishld", which order all
 * loads and stores of the core, and memory is multi-copy atomic; x86-64 keeps both orders by itself, and memory_copy
 * ends its nontemporal stores with a fence.)
 *
 * The file is sealed: its length cannot change, so that a reader's loads are never outside of it, and (Linux 5.1 and
 * later) it can no longer be mapped for writing. */
#ifndef WEFT_VERSION_SNAPSHOT_H
#define WEFT_VERSION_SNAPSHOT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_DATA 4096 /* where the data begins in the file */

struct snapshot_head;
struct snapshot {
    int fd; /* -1: none */
    struct snapshot_head *head;
    unsigned char *data;
    size_t size; /* of the file */
};

/* A new file with room for `bytes` of data, all of it taken from the system now. WEFT_ENOMEM: there is not enough. */
int snapshot_create(int64_t bytes, struct snapshot *out);
/* A new file with room for `bytes` of data and `more` behind it. Only the latter is taken from the system; data has to
 * be taken before it is stored. */
int snapshot_create_sparse(int64_t bytes, int64_t more, struct snapshot *out);
int snapshot_take(struct snapshot *s, int64_t at, int64_t n); /* memory for data[at] to data[at + n - 1] */
/* Maps a file of another process for reading, and closes the descriptor: fd is -1 afterwards. `source` is for the text.
 * WEFT_EMISMATCH: it is not a snapshot with that many bytes. */
int snapshot_map(const char *source, int fd, int64_t bytes, struct snapshot *out);
void snapshot_close(struct snapshot *s); /* also one that is zeroed with fd -1 */

void snapshot_begin(struct snapshot *s);                            /* the writer is about to change the data */
uint64_t snapshot_end(struct snapshot *s);                          /* the data is whole: its generation */
bool snapshot_is(const struct snapshot *s, uint64_t generation);    /* before the first load of the data */
bool snapshot_still(const struct snapshot *s, uint64_t generation); /* after the last load of the data */
#endif
