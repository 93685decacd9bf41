/* A comm: this rank's end of a group, its limits, what it has in flight, and how it waits.
 *
 * A comm that was opened and the comms that were split from it are a family, and sibling comms of each other. They
 * share only this rank, its bell and their progress: each has its own meetings, staging and failure, and a wait in one
 * makes progress in all.
 *
 *   comm.c       opening and closing; open.c how ranks find each other; environment.c; serve.c the rendezvous server
 *   fail.c       the failure of a comm; names.c how ranks are named in texts
 *   lock.c       the progress lock: one thread at a time drives a family of siblings
 *   family.c     the family and its progress thread
 *   task.c       what is moved along: execs in flight, exchanges, windows and mail of comms on several hosts
 *   progress.c   one pass over all of that; liveness.c peers that are gone or silent
 *   callback.c   functions of the user, in which no comm of the family may wait
 *   wait.c       waiting; meeting.c meetings of all ranks: barriers and agreement
 *   relay.c      meetings of several hosts; ballot.c what votes say together
 *   mail.c       what ranks on different hosts tell each other; split.c, split_hosts.c
 *   survive.c    survivor agreement (survive_state.h); again.c opening a comm again with the survivors
 *   flight.c     the flight recorder; flight_text.c its text; event.c the names of events;
 *                trace.c traces, trace_clock.c the clocks of hosts; metrics.c
 *   alloc.c      window memory; staging.c staging memory; deferred.c memory that is freed when no peer looks at it
 *
 * The layers above (engine, window, exchange) add tasks and handlers of mail. A comm knows nothing else of them. */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H
#include "base/forks.h"
#include "comm/flight.h"
#include "comm/metrics.h"
#include "comm/staging.h"
#include "comm/trace.h"
#include "transport/transport.h"
#include "weft.h"

/* What a meeting is about. A collective call that takes several meetings has a name for each. */
enum comm_call {
    COMM_BARRIER = 1,
    COMM_BIND,
    COMM_BIND_DONE,
    COMM_REBIND,
    COMM_REBIND_DONE,
    COMM_WINDOW,
    COMM_WINDOW_DONE,
    COMM_SPLIT,
    COMM_SPLIT_GROUPS, /* the new groups exist */
    COMM_SPLIT_DONE,   /* on several hosts: their wires exist, too */
    COMM_EXCHANGE,
    COMM_EXCHANGE_DONE
};

struct comm_deferred;

struct comm_window {
    struct comm_window *next;
    void *memory;
    size_t lead;           /* bytes of the transport's block that are before it */
    struct device *device; /* on which it is; NULL: host memory */
};

/* What siblings share, for as long as one of them is open. */
struct comm_family {
    int comms;
    unsigned forks; /* forks_count() when the family was made */
    weft_comm *any; /* one comm of the family */
    int spin_turns; /* turns that find nothing before the progress thread sleeps */
    _Atomic uint32_t nudges;
    _Atomic int64_t looked_at;       /* liveness.c: when this rank last looked at its peers */
    _Atomic int64_t back_at;         /* when it last did so after a break */
    atomic_bool away;                /* the last look came after a break */
    struct progress_lock *lock;      /* lock.c; NULL: one thread at a time makes all calls */
    _Atomic uint32_t walked;         /* exchange_put.c: a thread walks the list of exchanges */
    struct weft_exchange *exchanges; /* of all the comms; only src/exchange looks into it */
};

struct weft_comm {
    const struct transport *transport;
    struct transport_link *link;
    struct core_group *group;
    struct core_rank *me; /* this rank's words in the group */
    int rank, size;
    weft_comm_opts opts; /* as they were settled at open */
    int64_t deadline_ns;
    int64_t beat_ns; /* longest sleep: peers see our pulse at least this often */
    bool staged;
    int channel_buckets;
    bool dedicated_cores; /* every rank of a host has a core to itself */
    int spin_turns;       /* turns before the first yield; 0 without dedicated cores */
    int stretch;          /* factor on spin_turns before a sleep: wait.c */
    unsigned waits;       /* with dedicated cores: waits so far */
    int64_t cma_least;    /* tests set it: bytes in one piece from which on private memory is read (engine/ways/cma.c);
                           * 0: bind measures it */
    struct staging staging;

    struct comm_task *tasks, *last_task; /* in the order in which they were added */
    struct comm_task *task_at;           /* the next task of a pass that is under way */
    struct comm_task *described;         /* what the flight recorder describes, those made last first */
    struct comm_family *family;
    struct mail *mail;           /* on several hosts; otherwise NULL */
    struct relay *relay;         /* on several hosts; otherwise NULL */
    struct opening *opening;     /* how it was opened; NULL: split from another */
    struct split *splitting;     /* of split.c, while this rank is in it; otherwise NULL */
    struct survivors *survivors; /* of survive.c: what ranks of other hosts have said; otherwise NULL */
    struct remote *remote;       /* windows on several hosts; only src/window looks into it */
    struct pipes *pipes;         /* pipes that mail of other hosts may name; only src/exchange looks into it */
    struct kept_list *kept;      /* plans of collectives in one call; only src/collective looks into it */
    bool has_lock;               /* its family has a progress lock, because of a progress thread or of several hosts */
    int refcount; /* one for each exec, window and exchange that is not freed, and for each pass under way */
    bool closed;  /* the caller has closed it; it is freed with the last reference */
    bool in_callback;
    bool barrier_open; /* a barrier's timeout ran out in this meeting */
    uint64_t barrier;
    int64_t watched_at; /* when liveness_watch last looked */
    int64_t missed_at;  /* when a meeting last looked for ranks that are gone */
    unsigned tests;     /* tests that found a run in flight */
    int polled;         /* tasks that go on without a signal, because a device does their work */
    struct comm_deferred *deferred;
    struct comm_window *windows;  /* memory that weft_comm_alloc has given out */
    uint32_t large_windows;       /* how many large ones it has given out (alloc.c) */
    weft_comm *sibling;           /* a ring of the comms of this rank */
    bool tainted;                 /* a sibling had failed when it was closed */
    void (*forget)(weft_comm *c); /* of src/collective: closes what is in `kept`, before the comm is closed */
    struct trace *trace;          /* NULL: nobody asked for one */
    bool profiled;                /* a profiler is attached (base/nvtx.h) */
    struct metrics metrics;
    struct flight_recorder flight;
};

#define COMM_DEADLINE_MOST (INT64_MAX / 4) /* ns: added to the clock it does not overflow */

/* ---- comm.c ---- */

/* Fills a zeroed comm over a link, without siblings at first. The family counts it. */
void comm_begin(weft_comm *c, struct transport_link *l, const weft_comm_opts *o, bool dedicated_cores,
                struct comm_family *f);
void comm_begin_mail(weft_comm *c, struct mail *mail); /* for a comm on several hosts */
static inline void comm_hold(weft_comm *c)
{
    c->refcount++;
}
void comm_drop(weft_comm *c); /* frees a closed comm with its last reference */
/* Was the comm made before this process was forked? Then the parent frees and closes it. */
static inline bool comm_inherited(const weft_comm *c)
{
    return c->family->forks != forks_count();
}
/* Checks a timeout of the interface. WEFT_DEADLINE becomes the comm's deadline; -1 stays and means no limit. Other
 * negative values are WEFT_EINVAL, with `call` in the error text. */
int comm_timeout_named(const weft_comm *c, const char *call, int64_t *timeout_ns);
static inline int comm_timeout(const weft_comm *c, const char *call, int64_t *timeout_ns)
{
    return *timeout_ns >= WEFT_FOREVER ? 0 : comm_timeout_named(c, call, timeout_ns);
}

/* ---- deferred.c ---- */

/* A block of shared memory whose owner is done with it while peers may still look at it. */
struct comm_deferred {
    struct comm_deferred *next;
    const _Atomic uint32_t *refcount;
    void *memory;
    struct device *device; /* and memory on a device that goes with it; NULL: none */
    void *on_device;
    const _Atomic unsigned char *let_go;
};
/* Memory of a device that is freed with shared memory. */
struct comm_on_device {
    struct device *device;
    void *memory;
    const _Atomic unsigned char *let_go; /* by rank, in the shared memory: it does not use this memory any more */
};
/* Releases shared memory once its refcount is 0. The caller has allocated d, which is freed at the same time. */
void comm_deferred_add(weft_comm *c, struct comm_deferred *d, const _Atomic uint32_t *refcount, void *memory,
                       const struct comm_on_device *on); /* on: NULL: none */
/* When the comm ends. The group keeps what peers still look at. It cannot keep memory of a device: the call waits,
 * until the deadline, for peers that are there to let go of it. */
void comm_deferred_close(weft_comm *c);

/* ---- alloc.c ---- */

void comm_alloc_free_windows(weft_comm *c); /* frees the list only: the memory is freed with the group */
/* Touches memory that the transport has just allocated, before peers know of it. Uses huge pages where the system has
 * them. */
void comm_alloc_populate(char *memory, size_t bytes);

/* ---- fail.c ---- */

/* Fails the comm for all its ranks; returns the failure that stays, with this thread's error text set. */
int comm_fail(weft_comm *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int comm_fail_error(weft_comm *c); /* the failure of a comm that has failed, with this thread's error text set */
static inline int comm_failure(weft_comm *c) /* 0, or comm_fail_error */
{
    return core_failed(c->group) ? comm_fail_error(c) : 0;
}
/* Has the comm or a sibling failed, so that peers may still touch memory that was bound there? */
bool comm_fail_tainted(const weft_comm *c);

/* ---- names.c ---- */

const char *names_call(uint32_t call); /* the function of weft.h */
/* "rank 1", and for a comm that was split "rank 1 (opened as rank 5)"; on several hosts " on host NAME" follows. In a
 * buffer of NAMES_RANK bytes. */
#define NAMES_RANK 128
const char *names_rank(const weft_comm *c, int rank, char *buf);
const char *names_gone(const weft_comm *c, int rank); /* what is known of a rank that has failed (transport_failed) */

/* A list of ranks for a text, each with a note of up to 40 letters: "rank 3", "ranks 1 on host a, 2 on host b and 5
 * more". Start with {0}. */
struct comm_names {
    char text[400];
    size_t len;
    int n, left;
};
void names_add(struct comm_names *names, const weft_comm *c, int rank, const char *note);
const char *names_text(struct comm_names *names);

/* ---- progress.c ---- */

/* One pass over all tasks of the comm and its siblings. It ends the tasks of a comm that has failed. True if something
 * moved. `idle`: the rank has nothing else to do, so tasks do now what they would otherwise postpone. */
bool comm_progress(weft_comm *c, bool idle);

/* ---- callback.c ---- */

/* Called before (true) and after (false) a function of the user, in which no sibling may wait. */
void comm_callback(weft_comm *c, bool is);
bool comm_callback_active(void); /* is this thread in a callback? For calls that several threads may make */

/* ---- liveness.c ---- */

/* Fails the comm, or a sibling, if a task there waits for a peer that is gone or stalled. Without `must` it looks at
 * most once a millisecond. */
void liveness_watch(weft_comm *c, int64_t now, bool must);
/* Of the comm and its siblings: a number that grows when a rank is gone, or has given up opening a comm again. False:
 * it is not known, and the caller looks at each rank. */
bool liveness_departures(weft_comm *c, uint64_t *n);
/* For code that watches peers: this rank looks at them now. From any thread. */
void liveness_look(weft_comm *c, int64_t now);
/* For how long a peer has shown nothing while this rank looked. A rank that was stopped does not count that time, since
 * it did not look: its peers get the whole deadline again. */
int64_t liveness_silence(const weft_comm *c, int64_t seen_at, int64_t now);

/* ---- wait.c ---- */

/* What a wait is for. */
struct comm_need {
    bool (*met)(void *arg);
    int (*lacking)(void *arg); /* signals that must come before anything can be done, at least 1; NULL: 1 */
    void *arg;
    int64_t until; /* core_now() at which the time runs out; negative: never */
};

/* Makes progress until the need is met, and returns 0. Returns COMM_LATE if the time runs out first. Returns the comm's
 * failure, with this thread's error text set, if the comm fails first. */
#define COMM_LATE 1
int comm_wait(weft_comm *c, const struct comm_need *need);
/* The same for a wait that takes long: the rank sleeps without letting others run first. */
int comm_wait_asleep(weft_comm *c, const struct comm_need *need);
/* Spins, or yields, for a short time. It reads no clock and makes no progress. True: met(arg). */
bool comm_wait_spin(const weft_comm *c, bool (*met)(void *arg), void *arg);

/* In the middle of a collective call: makes progress until lacks(arg, i) is false for each i, the index of a rank in
 * `ranks`. The comm fails if one of them is gone first, or if the deadline runs out. */
struct comm_wait_ranks {
    const int *ranks;
    int n;
    bool (*lacks)(void *arg, int i);
    void *arg;
    const char *call; /* of weft.h */
};
int comm_wait_ranks(weft_comm *c, const struct comm_wait_ranks *a);

/* ---- meeting.c ---- */

/* One meeting of all ranks. Returns 0 if all are in the same call about the same object with equal digests and none
 * voted a failure. Otherwise every rank gets the same code and the same text, which names the first rank that is to
 * blame. The caller fills in call, object, digest, place and code of its vote; the text comes from this thread's error.
 * On 0, *meeting says where the votes are. If the deadline runs out the comm has failed. */
int meeting_agree(weft_comm *c, struct core_vote *vote, int64_t deadline_ns, uint64_t *meeting);
#endif
