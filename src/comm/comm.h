/* A comm: this rank's end of a group, its limits, the execs it has in flight, and how it waits.
 *
 * A comm that was opened and those that were split from it are kin. They have nothing in common but this rank, its bell
 * and its attention: each has its own meetings, staging and failure, and whoever waits in one makes progress in all. */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H
#include "comm/flight.h"
#include "comm/staging.h"
#include "transport/transport.h"
#include "weft.h"

enum comm_call {
    COMM_BARRIER = 1,
    COMM_BIND,
    COMM_BOUND,
    COMM_REBIND,
    COMM_REBOUND,
    COMM_WINDOW,
    COMM_WINDOWED,
    COMM_SPLIT,
    COMM_SPLITTED,
    COMM_SPLIT_WIRED,
    COMM_EXCHANGE,
    COMM_EXCHANGED
};

/* A block of shared memory whose owner is done with it while peers may still look at it. */
struct comm_grave {
    struct comm_grave *next;
    const _Atomic uint32_t *holders;
    void *memory;
};

struct comm_window {
    struct comm_window *next;
    void *memory;
};

/* Something beside execs that the comm's waits, tests and progress thread move along. Its owner embeds it and fills in
 * the functions, all of which are required; they are called by whoever makes progress, one at a time, and may not wait.
 * They may add and remove tasks. One that calls back to the user does so between comm_callback(c, true) and
 * comm_callback(c, false). */
struct comm_task {
    struct comm_task *next, *prev;
    bool (*pass)(struct comm_task *t, bool eager);   /* does what can be done without waiting; true: something moved */
    int (*lacking)(struct comm_task *t);             /* signals without which it cannot go on; 0: it waits for none */
    void (*watch)(struct comm_task *t, int64_t now); /* fails the comm if a peer that is waited for will not come */
    void (*fail)(struct comm_task *t);               /* the comm has failed: called once, pass no more */
    bool failed;                                     /* fail has been called */
};

/* What a comm and those split from it have in common, for as long as one of them is there. */
struct comm_family {
    int comms;
    unsigned forks; /* of forks.h, when it was made */
    weft_comm *any; /* one of them */
    int spin_turns; /* turns that find nothing before the progress thread sleeps */
    _Atomic uint32_t nudges;
    _Atomic int64_t looked_at,
        back_at;                     /* watch.c: when this rank last looked at its peers, and after a break in that */
    atomic_bool away;                /* the last look was such a one */
    struct comm_seat *seat;          /* progress.c; NULL: no progress thread */
    _Atomic uint32_t walked;         /* exchange_put.c: somebody is in the list of exchanges */
    struct weft_exchange *exchanges; /* of all the comms */
};

struct weft_comm {
    const struct transport *transport;
    struct transport_link *link;
    struct core_group *group;
    int rank, size;
    weft_comm_opts opts; /* as they were settled at open */
    int64_t deadline_ns;
    int64_t beat_ns; /* longest sleep: peers see our pulse at least so often */
    bool staged;
    int channel_buckets;
    bool dedicated_cores; /* every rank of a host has a core to itself */
    int spin_turns;       /* turns before the first yield; 0 without dedicated cores */
    int stretch;          /* times that, before a sleep: meet.c */
    struct staging staging;

    weft_exec *first, *last;   /* in flight, in order of their starts */
    weft_exec *bound;          /* all, those bound last first */
    struct comm_task *tasks;   /* those added last stand first */
    struct comm_task *task_at; /* the next to be looked at in a walk through tasks */
    struct comm_family *family;
    struct mail *mail;       /* on several hosts; else NULL */
    struct remote *remote;   /* likewise, once it has had a window */
    struct boot *boot;       /* how it was opened; NULL: split from another */
    struct split *splitting; /* of split.c, while this rank is in it; else NULL */
    struct pipes *pipes;     /* those that far ranks may speak of; else NULL */
    struct verdict *verdict; /* of survive.c: what far ranks have said; else NULL */
    bool threaded;           /* its family has a seat: it has a progress thread, or is on several hosts */
    int execs;               /* bound and not freed; windows count, too */
    bool closed;             /* by the caller; freed with the last exec */
    bool in_callback;
    bool barrier_open; /* a barrier's timeout ran out in this meeting */
    uint64_t barrier;
    int64_t watched_at; /* when comm_watch last looked */
    int64_t missed_at;  /* when it was last looked who of a meeting has gone */
    unsigned tests;     /* that found a run in flight */
    struct comm_grave *graves;
    struct comm_window *windows; /* that weft_comm_alloc has given out */
    weft_comm *kin;              /* a ring of those of this rank */
    bool tainted;                /* one of them had failed when it was closed */
    struct flight flight;
};

/* Fills a zeroed comm over a link; it is its own kin then. The family counts it. */
void comm_begin(weft_comm *c, struct transport_link *l, const weft_comm_opts *o, bool dedicated_cores,
                struct comm_family *f);

#define COMM_DEADLINE_MOST (INT64_MAX / 4) /* ns: the clock and it do not overflow */

/* What a wait is for. */
struct comm_need {
    bool (*met)(void *arg);
    int (*lacking)(void *arg); /* signals without which nothing can be done, at least 1; NULL: 1 */
    void *arg;
    int64_t until; /* core_now() at which it has waited long enough; negative: never */
};

/* Makes progress until the need is met: 0. COMM_LATE when its time runs out first; the comm's failure, with this
 * thread's error text set, when it fails first. */
#define COMM_LATE 1
int comm_wait(weft_comm *c, const struct comm_need *need);

/* One meeting of all ranks: 0 when all are in the same call about the same object with equal digests and none voted a
 * failure; else every rank gets the same code and the same text, which names the first rank that is to blame. vote
 * needs call, object, digest, place and code; its text is taken from this thread's error. On 0, *meeting says where the
 * votes are. When the deadline runs out the comm has failed. */
int comm_agree(weft_comm *c, struct core_vote *vote, int64_t deadline_ns, uint64_t *meeting);
const char *comm_call_name(uint32_t call); /* the function of weft.h */
/* In the middle of a call of all ranks: makes progress until none of these is lacked, numbered from 0 on. When one of
 * them goes first, or the deadline runs out, the comm has failed. */
struct comm_await {
    const int *ranks;
    int n;
    bool (*lacks)(void *arg, int i);
    void *arg;
    const char *call; /* of weft.h */
};
int comm_await(weft_comm *c, const struct comm_await *a);

/* Fails the comm for all its ranks; returns the failure that stays, with this thread's error text set. */
int comm_fail(weft_comm *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int comm_told(weft_comm *c); /* the failure of a comm that has failed, with this thread's error text set */
static inline int comm_failure(weft_comm *c) /* 0, or comm_told */
{
    return core_failed(c->group) ? comm_told(c) : 0;
}
/* May peers, after a failure of the comm or of its kin, still touch memory that was bound there? */
bool comm_tainted(const weft_comm *c);

/* Releases shared memory once nobody holds it any more; grave is freed then. */
void comm_bury(weft_comm *c, struct comm_grave *grave, const _Atomic uint32_t *holders, void *memory);
void comm_exec_gone(weft_comm *c); /* an exec or a window was freed */
/* Is it a parent's, of whom this process was forked? Then it is not this one's to free or to close anything of it. */
bool comm_inherited(const weft_comm *c);
void comm_windows_free(weft_comm *c); /* from memory.c */
/* Touches memory that the transport has just given, before others know of it, in huge pages where the system has them.
 * From memory.c. */
void comm_memory_ready(char *memory, size_t bytes);

/* "rank 1", and for a comm that was split "rank 1 (opened as rank 5)"; on several hosts " on host NAME" follows. In a
 * buffer of COMM_WHO bytes. */
#define COMM_WHO 128
const char *comm_who(const weft_comm *c, int rank, char *buf);
const char *comm_ended(const weft_comm *c, int rank); /* what is known of one that is gone without a word */

/* A list of ranks for a text, each with a note of up to 40 letters: "rank 3", "ranks 1 on host a, 2 on host b and 5
 * more". Start with {0}. */
struct comm_names {
    char text[400];
    size_t len;
    int n, left;
};
void comm_name(struct comm_names *names, const weft_comm *c, int rank, const char *note);
const char *comm_named(struct comm_names *names);

/* From run.c, for waits: one pass over all that is in flight on the comm and its kin; ends what is on one that has
 * failed. True if something moved. `eager`: the rank has nothing better to do, so that work which might go better later
 * is done now. */
bool comm_progress(weft_comm *c, bool eager);
/* Before a sleep, with the bell armed: from here on it rings also for what comes by the wires of the comm and its kin,
 * and *ns is no longer than one may sleep that has to be looked at. False: something has come. *wired is set if
 * there is a wire. */
bool comm_listen(const weft_comm *c, bool *wired, int64_t *ns);
bool comm_kin_fly(const weft_comm *c);     /* has one of its kin something in flight, or a task that lacks signals? */
void comm_callback(weft_comm *c, bool is); /* around what a user wrote: waits in it are refused, in all the kin */
bool comm_in_callback(void);               /* is this thread in one? For calls that several threads may make */
/* From watch.c: fails the comm, or one of its kin, if a peer that is waited for there is gone or stalled. Unless it
 * must, it looks only every so often. */
void comm_watch(weft_comm *c, int64_t now, bool must);
/* Of watch.c, for whoever watches peers: this rank looks at them now. From any thread. */
void comm_looks(weft_comm *c, int64_t now);
/* For how long a peer has shown nothing while this rank looked. Who was stopped itself, with all others maybe, cannot
 * say what they did meanwhile: they have their time again. */
int64_t comm_silence(const weft_comm *c, int64_t seen_at, int64_t now);

/* ---- task.c ---- */

/* Not from another thread than those that may make calls on the comm. Remove returns when no function of the task runs
 * any more, unless it is called by one of them; it may be called for a task that was never added (zeroed links). */
void comm_task_add(weft_comm *c, struct comm_task *t);
void comm_task_remove(weft_comm *c, struct comm_task *t);
/* There is new work for a task: from any thread, after the work was made visible (at least release). Whoever sleeps on
 * behalf of the comm wakes and passes; without a progress thread and a wait nobody does before the next call. */
void comm_nudge(weft_comm *c);
bool comm_tasks_pass(weft_comm *c, bool eager); /* all; or fails them, if the comm has failed */
void comm_tasks_watch(weft_comm *c, int64_t now);
/* Does any task but `except` (may be NULL) lack signals? Then a wait for several signals must hear each. */
bool comm_tasks_lack(const weft_comm *c, const struct comm_task *except);
#endif
