/* The words on which ranks that share memory meet: a doorbell and a pulse for each rank, meetings
 * with a vote, and the one failure of a group. Threads and processes use the same core; nothing in
 * it is a pointer.
 *
 * Counters that a peer waits for are advanced by core_signal. The order of every such store and of
 * every poll is seq_cst, for the reason that stands at core_signal; it implies the release and the
 * acquire that make the data behind a counter visible. On both of weft's machines the poll costs
 * what an acquire costs. */
#ifndef WEFT_TRANSPORT_CORE_H
#define WEFT_TRANSPORT_CORE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_LINE 128 /* bytes between words of different writers: two lines, since some machines fetch pairs */
/* Orders where a fence stands apart from the load or the store: looks that one fence follows, stores that one comes
 * behind. ThreadSanitizer knows no fences; for it the loads and stores have the order themselves. */
#if defined(__SANITIZE_THREAD__)
#define CORE_TSAN 1
#elif defined(__has_feature)
#define CORE_TSAN __has_feature(thread_sanitizer)
#else
#define CORE_TSAN 0
#endif
#if CORE_TSAN
#define CORE_LOOK memory_order_seq_cst
#define CORE_TELL memory_order_seq_cst
#define CORE_TELL_FENCED memory_order_seq_cst
#define core_fence_looks() ((void)0)
#define core_fence_tells() ((void)0)
#define core_fence_all() ((void)0)
#else
#define CORE_LOOK memory_order_relaxed
#define CORE_TELL memory_order_release
#define CORE_TELL_FENCED memory_order_relaxed
#define core_fence_looks() atomic_thread_fence(memory_order_acquire)
#define core_fence_tells() atomic_thread_fence(memory_order_release)
#define core_fence_all() atomic_thread_fence(memory_order_seq_cst)
#endif

#define CORE_TEXT 640
#define CORE_CORES 1024

enum core_state { CORE_ABSENT, CORE_HERE, CORE_LEFT, CORE_SETTLED /* left, and looks at the group no more */ };

/* What a rank says in a meeting: which call it is in, whether it failed there, and what must be equal or known. */
struct core_vote {
    _Alignas(CORE_LINE) _Atomic uint64_t entered; /* one more than the meeting that it is for */
    uint32_t call;
    int32_t code; /* 0 or why it cannot go on; then text says it */
    uint64_t object, digest;
    uint64_t place;
    uint64_t note; /* what else the call lets ranks say */
    char text[CORE_TEXT];
};

struct core_rank {
    _Alignas(CORE_LINE) _Atomic uint32_t bell; /* futex word: changes when the owner shall wake */
    _Atomic int32_t awaits;                    /* signals until it shall; 0 or less: it does not sleep */
    int64_t door; /* bytes from here to the core_rank whose bell is rung instead; 0: none */
    _Alignas(CORE_LINE) _Atomic uint64_t pulse; /* the owner is alive and at work: changes with every pass */
    _Atomic uint32_t state;                     /* enum core_state */
    uint64_t cores[CORE_CORES / 64];            /* that the owner may run on, from when it is here */
    _Atomic uint32_t survives;                  /* after a failure: how often it has asked who else does */
    _Atomic uint32_t answers;                   /* that it has given on that */
    uint64_t meetings;                          /* that it has entered; only the owner looks at it */
    _Atomic uint32_t failing; /* a thread of it has found a failure: the others leave it to that one */
    int32_t code;             /* of that failure */
    char text[CORE_TEXT];
    struct core_vote votes[2]; /* of meeting m in m % 2 */
};

struct core_group {
    int32_t size;
    int32_t shared;                              /* other processes wake us: futexes are not private */
    _Alignas(CORE_LINE) _Atomic uint32_t failed; /* 0, or one more than the rank that has the failure's code and text */
    struct core_rank ranks[];
};

/* Where the rank's bell is. */
static inline struct core_rank *core_door(const struct core_group *g, int rank)
{
    const struct core_rank *r = &g->ranks[rank];
    return (struct core_rank *)((uintptr_t)r + (uintptr_t)r->door);
}

size_t core_bytes(int size);
void core_init(struct core_group *g, int size, bool shared); /* in zeroed memory of core_bytes(size) */
/* The same for a group of ranks of another, `ranks` of it (-1: one that is not in it, and never sleeps on a bell), at
 * the same distance from it for all of them. A rank has one bell for all its groups: it sleeps in one of them and hears
 * the others. The other group must outlive this one. */
void core_init_split(struct core_group *g, const struct core_group *of, const int *ranks, int size);

void core_arrive(struct core_group *g, int rank); /* the rank is here */
int core_cores(const struct core_group *g);       /* on which the ranks that are here may run, all together */

/* Stores a new value where the rank polls it: a signal, which wakes the rank if it sleeps and awaits no other. */
void core_signal(struct core_group *g, int rank, _Atomic uint64_t *counter, uint64_t value);
void core_call(struct core_group *g, int rank); /* what a signal does beside the store, which was seq_cst */
/* Several signals at once: core_fence_tells, the stores, core_fence_all, and a call for each of them. */
static inline void core_tell(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, CORE_TELL_FENCED);
}
static inline void core_call_fenced(struct core_group *g, int rank)
{
    if (atomic_load_explicit(&core_door(g, rank)->awaits, CORE_LOOK) > 0)
        core_call(g, rank);
}
void core_ring(struct core_group *g, int rank); /* wakes the rank if it sleeps, whatever it awaits */
void core_ring_all(struct core_group *g);

/* Sleep: arm; look once more at everything that could have changed (seq_cst loads) and count the signals that are
 * lacking; then doze until so many more have come, or disarm. */
uint32_t core_arm(struct core_group *g, int rank);
void core_disarm(struct core_group *g, int rank);
void core_doze(struct core_group *g, int rank, uint32_t bell, int lacking, int64_t ns); /* and disarms */
/* The parts of core_doze, for who sleeps while another may arm and disarm the bell in its place: core_expect says how
 * many signals are lacking (false: they have come), core_sleep sleeps at the rank's door until it is rung or ns are
 * over (negative: never), core_knock rings it whether or not it is armed. */
bool core_expect(struct core_group *g, int rank, int lacking);
void core_sleep(struct core_rank *door, bool shared, uint32_t bell, int64_t ns);
void core_knock(struct core_rank *door, bool shared);
void core_relax(void);  /* one turn of a spin */
int64_t core_now(void); /* nanoseconds that only grow */

/* The first failure of a group stays; all ranks are woken. `rank` is the caller's. */
void core_fail(struct core_group *g, int rank, int code, const char *text);
int core_failure(const struct core_group *g, const char **text); /* 0: none */
static inline bool core_failed(const struct core_group *g)
{
    return atomic_load_explicit(&g->failed, memory_order_seq_cst) != 0;
}

/* Enters the rank's next meeting with its vote and returns the number of the meeting. */
uint64_t core_enter(struct core_group *g, int rank, const struct core_vote *vote);
/* The same for a rank that is on another host, from which its vote came. */
void core_put_vote(struct core_group *g, int rank, uint64_t meeting, const struct core_vote *vote);
static inline bool core_entered(const struct core_group *g, int rank, uint64_t meeting)
{
    return atomic_load_explicit(&g->ranks[rank].votes[meeting % 2].entered, memory_order_seq_cst) > meeting;
}
/* A rank's vote in a meeting that is complete; valid until the caller enters the next one. */
static inline const struct core_vote *core_vote_of(const struct core_group *g, int rank, uint64_t meeting)
{
    return &g->ranks[rank].votes[meeting % 2];
}
#endif
