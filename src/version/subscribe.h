/* A subscriber: its tensors, the plan for the publisher's layouts that it saw last, and memory for two versions. One of
 * them may be live, the other one is where the next version is staged. */
#ifndef WEFT_VERSION_SUBSCRIBE_H
#define WEFT_VERSION_SUBSCRIBE_H
#include <stdatomic.h>

#include "base/error.h"
#include "base/vec.h"
#include "version/bus.h"
#include "version/catalog.h"
#include "version/reader_plan.h"
#include "version/snapshot.h"

#define SUBSCRIBE_GROUP 96
#define SUBSCRIBE_SHARE_WORDS 256

struct subscribe_buffer {
    unsigned char *data; /* NULL: not taken yet */
    void *there;         /* of tensors on a device; NULL: there are none, or it is not taken yet */
    weft_epoch_step version;
    char *meta;
    int pins;
};

/* What the last verify or fetch has found about one rank of the publisher. */
struct subscribe_source {
    int rank;
    bool local;      /* on this host */
    const char *way; /* "pinned" (mapped, and pinned for a device), "mapped", "relay", "socket" or "tcp" */
    char job[WEFT_BUS_NAME + 1];
    size_t pieces;
    int64_t bytes;
};

/* A snapshot of this host that is mapped. Mappings stay from fetch to fetch, since the first touch of a page costs more
 * than copying it. Those of other epochs than the one that was read last are given back. */
struct subscribe_map {
    int64_t epoch;
    uint64_t device, inode; /* of its file */
    bool pinned;            /* for the device of the subscriber's tensors */
    struct snapshot snapshot;
};

struct weft_subscriber {
    weft_bus *bus;
    char set[WEFT_BUS_NAME + 1];
    weft_comm *comm;
    int rank, ranks; /* of the layouts; ranks: of the comm, or 1 */
    bool only, check, alone, no_delta;
    int threads;             /* that copy, with the one that fetches */
    int64_t least;           /* bytes of a piece that one thread copies, at least; tests set it */
    bool together;           /* the ranks of the comm may check digests together (fetch_share.h) */
    struct bus_relay *relay; /* of this host, if it is in this process */
    int (*progress)(void *arg, int64_t done, int64_t total);
    void *arg;
    int (*arrived)(void *arg, const weft_epoch_step *v, size_t i, const void *data, int64_t bytes);
    void **into; /* the caller's arrays, by tensor; NULL: versions live in the buffers */
    bool *there; /* tensors on a device; NULL: there are none, and no device */
    struct fetch_device *device;
    bool direct; /* fetch writes into them */
    bool packed; /* tensors that are boxes are staged packed, for swap to copy them into the arrays (packed.h) */
    struct schema *mine;
    struct schema_part part; /* as it is staged. Host memory and the device have places that begin at 0 each */
    int64_t bytes[2];        /* of it: in host memory, and on the device */
    struct schema *theirs;   /* NULL: none was seen yet */
    struct reader_plan plan;
    struct directory *directory; /* of the watch; NULL: not opened yet */
    struct directory_watch *watch;
    /* The keys of this job's ranks are readers/GROUP/RANK and readers/GROUP/decided. */
    char group[SUBSCRIBE_GROUP];
    struct job_metrics_lag lag;
    int64_t count;    /* fetches, the same on all ranks */
    int64_t begun;    /* when the version was chosen that is being read */
    int64_t revision; /* of this rank's key, when it had staged */
    bool sharing;     /* the ranks check the version together that is being read */
    uint64_t share[SUBSCRIBE_SHARE_WORDS];
    int64_t checking; /* ns for comparing its digests */
    weft_epoch_step found;
    struct subscribe_source *sources;
    size_t nsources;
    VEC(struct subscribe_map) maps;
    bool avoid[WEFT_BUS_RANKS]; /* ranks of the publisher that did not answer in this fetch: others come first */
    char why[ERROR_TEXT];       /* why the last version could not be read */

    pthread_mutex_t lock;
    pthread_cond_t unpinned;
    /* guarded by the lock: */
    struct subscribe_buffer buffers[2];
    int live, staged;               /* numbers of buffers; -1: none */
    bool undecided;                 /* a swap to the staged version was voted for, and its outcome is not known here */
    bool writing;                   /* swap is about to write into the caller's arrays: new pins wait */
    bool mixed;                     /* a fetch has begun to write into the caller's arrays: there are no pins */
    struct weft_fetching *fetching; /* NULL: none */

    /* Of the fetch that runs, for other threads: */
    _Atomic bool cancelled;
    _Atomic int64_t done, total;
};

/* Refuses a call while a fetch runs in the background. */
int subscribe_idle(weft_subscriber *s, const char *call);
int subscribe_stopped(const weft_subscriber *s);             /* the error of a fetch that the caller has cancelled */
int64_t subscribe_bytes(const weft_subscriber *s, size_t i); /* of the rank's own array of tensor i */
/* Where tensor i is staged in a buffer. */
unsigned char *subscribe_place(const weft_subscriber *s, const struct subscribe_buffer *b, size_t i);
/* Keeps new pins away and waits until all are given back; subscribe_write_end lets them come again. */
int subscribe_write_begin(weft_subscriber *s, int64_t until);
void subscribe_write_end(weft_subscriber *s);
/* The buffer for the next version: waits until its pins are given back. */
int subscribe_room(weft_subscriber *s, int64_t until, struct subscribe_buffer **out);
/* Maps a snapshot, or finds its mapping, and closes the file. Valid until subscribe_unmap. */
int subscribe_map(weft_subscriber *s, const char *source, int64_t epoch, int file, int64_t bytes, struct snapshot *out);
void subscribe_unmap(weft_subscriber *s, int64_t but); /* those of all epochs except this one */
bool subscribe_pinned(const weft_subscriber *s, const struct snapshot *mapped); /* for the device */
void subscribe_key(const weft_subscriber *s, int rank, char key[RECORD_KEY]);   /* rank -1: that of the decision */
#endif
