/* The control words of a group, on which its ranks meet: a bell and a pulse for each rank, meetings with a vote, and
 * the one failure of a group. Threads and processes use the same core; nothing in it is a pointer.
 *
 * A bell is a futex word: a rank that has nothing to do sleeps on its bell, and its peers ring it.
 *
 * core_signal advances the counters that a peer waits for. Each of these stores and each poll is seq_cst, for the
 * reason that core.c gives at core_signal. This implies the release and the acquire that make the data behind a counter
 * visible. On x86-64 and AArch64 a seq_cst load costs as much as an acquire. */
#ifndef WEFT_TRANSPORT_CORE_H
#define WEFT_TRANSPORT_CORE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_LINE 128 /* bytes between words of different writers: two cache lines, since some machines fetch pairs */
/* Memory orders for loads and stores that get their order from a separate fence: CORE_LOOK, several loads and then one
 * fence; CORE_TELL_FENCED, one fence and then several stores. ThreadSanitizer does not understand fences; for it the
 * loads and stores have the order themselves. */
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
#define CORE_FLAT 16 /* up to 16 ranks look at the votes of all; more ranks meet by a tree */
#define CORE_CORES 1024
#define CORE_LACKS 16 /* ranks of other hosts that are named when time runs out */

enum core_state { CORE_ABSENT, CORE_HERE, CORE_LEFT, CORE_SETTLED /* left, and does not look at the group any more */ };

/* A rank's vote in a meeting: which call it is in, whether it failed there, and values that must be equal on all ranks
 * or that the others must know. */
struct core_vote {
    _Alignas(CORE_LINE) _Atomic uint64_t entered; /* the number of the meeting, plus 1 */
    uint32_t call;
    int32_t code; /* 0, or the error for which the rank cannot go on; `text` is its text */
    uint64_t object, digest;
    uint64_t place;
    uint64_t note; /* another value that ranks tell each other in some calls */
    char text[CORE_TEXT];
};

struct core_rank {
    _Alignas(CORE_LINE) _Atomic uint32_t bell; /* futex word: changes when the owner is to wake */
    _Atomic int32_t awaits;                    /* how many signals are to wake it; 0 or less: it does not sleep */
    int64_t door; /* bytes from here to the core_rank whose bell is used instead; 0: this one's */
    /* set before state is HERE, and not changed any more: */
    _Alignas(CORE_LINE) int32_t number; /* 1, 2, ... among the ranks that are here; 0: it is on another host. There its
                                           words stay zero, as long as nothing is heard of it */
    int32_t indexed;                    /* of the ith rank, from 0 on: the rank whose number is i + 1 */
    _Atomic int32_t cpu; /* the CPU core on which the rank last noted itself, plus 1; 0: none. It changes seldom */
    _Alignas(CORE_LINE) char apart[CORE_LINE]; /* an odd number of lines: the same word of many ranks is in many sets of
                                                  a cache */
    _Alignas(CORE_LINE) _Atomic uint64_t pulse; /* changes with every pass of the owner: it is alive and at work */
    _Atomic uint32_t state;                     /* enum core_state */
    _Atomic uint32_t went_on;                   /* after a failure: it has opened a comm again with other survivors */
    _Atomic uint32_t quits;                     /* after a failure: it closes the comm, and does not go on */
    _Atomic uint64_t gave_up;                   /* the attempt to open a comm again (again.c) that it has given up */
    _Atomic int32_t gave_up_for;                /* the rank that was gone, plus 1; 0: for another reason */
    _Atomic uint64_t survive; /* the place of its words of the survivor agreement, plus 1; 0: it has none */
    uint64_t meetings;        /* meetings that the owner has entered; only the owner uses it */
    _Atomic uint32_t
        failing;  /* a thread of this rank has found a failure and reports it; other threads wait for that */
    int32_t code; /* the code of that failure */
    char text[CORE_TEXT];
    struct core_vote votes[2]; /* the vote of meeting m is votes[m % 2] */
};

/* What the votes of some ranks have in common. */
struct core_tally {
    bool differ;          /* they differ in call, object or digest, or one of them has a code */
    uint64_t note, first; /* the bits that all their notes have, and the note of the lowest rank */
};

/* How a meeting ended. */
struct core_result {
    struct core_tally tally; /* of all ranks */
    int32_t code;            /* of a group on several hosts: the error for all ranks, or 0 */
    char text[CORE_TEXT];
};

/* A node of the tree by which many ranks meet: up to CORE_FLAT ranks, or nodes. The last of them that arrives sums up
 * their votes and arrives at the node above. */
struct core_node {
    _Alignas(CORE_LINE) _Atomic uint64_t arrived; /* over all meetings */
    struct core_tally tally[2];                   /* of meeting m: tally[m % 2] */
};

struct core_group {
    int32_t size;
    int32_t shared; /* between processes: its futexes are not private */
    int32_t here;   /* how many of the ranks meet in these words; the others are on other hosts */
    /* Of the group of a host's ranks: the place of the control words of the group on several hosts that has them, plus
     * 1; 0: there is none yet. */
    _Atomic uint64_t outer;
    bool tree;                                   /* they meet by the tree of nodes that stands behind the ranks */
    _Alignas(CORE_LINE) _Atomic uint32_t failed; /* 0, or the rank that has the failure's code and text, plus 1 */
    /* tree: */
    _Alignas(CORE_LINE) _Atomic uint64_t met;  /* meetings that are complete */
    _Alignas(CORE_LINE) _Atomic uint64_t home; /* meetings that all ranks which are here have entered */
    struct core_result results[2];             /* of meeting m: results[m % 2] */
    _Atomic uint64_t lacks_in;                 /* the meeting, plus 1, to which the ranks below have not come yet */
    _Atomic int32_t lacks[CORE_LACKS];         /* for texts; -1: no rank */
    _Alignas(CORE_LINE) _Atomic uint64_t cores[CORE_CORES / 64]; /* CPU cores that the ranks may run on, all together */
    _Atomic uint64_t departures; /* grows when a rank has left, or has given up opening a comm again */
    /* After a failure of a group on several hosts: the rank that tells other hosts of it, plus 1; 0: none (mail.c). */
    _Atomic int32_t speaks;
    /* After a failure, in survivor agreement: */
    _Atomic uint64_t
        words; /* grows when a leader has published its word; the low bits say which rank has (survive_words.c) */
    _Atomic uint64_t agreement; /* the newest one that a rank has begun */
    struct core_rank ranks[];
};

/* The core_rank whose bell the rank uses. */
static inline struct core_rank *core_door(const struct core_group *g, int rank)
{
    const struct core_rank *r = &g->ranks[rank];
    return (struct core_rank *)((uintptr_t)r + (uintptr_t)r->door);
}

size_t core_bytes(int size);
void core_init(struct core_group *g, int size, bool shared); /* in zeroed memory of core_bytes(size) */
/* The same for a group g whose ranks are `ranks` of another group (-1: a rank that is not in it, and never sleeps on a
 * bell). The distance between the two groups is the same in all processes. A rank has one bell for all its groups: it
 * sleeps in one of them and is woken by signals of all. The other group must outlive this one. */
void core_init_split(struct core_group *g, const struct core_group *of, const int *ranks, int size);

void core_arrive(struct core_group *g, int rank); /* adds the rank's cores, and sets its state to HERE */
/* Sets the rank's state to LEFT. Wakes those that wait, or of many some: if the rank has left too early, one that has
 * seen it fails the group for all, and any rank looks when its sleep ends. */
void core_depart(struct core_group *g, int rank);
int core_cores(const struct core_group *g); /* how many CPU cores the ranks that are here may use together */

/* A signal: stores a new value where the rank polls it, and wakes the rank if it sleeps and this is the last signal
 * that it waits for. */
void core_signal(struct core_group *g, int rank, _Atomic uint64_t *counter, uint64_t value);
void core_call(struct core_group *g,
               int rank); /* the wake-up of a signal; the caller has stored the value with seq_cst */
/* Several signals at once: core_fence_tells, the stores (core_tell), core_fence_all, and a call for each of them. */
static inline void core_tell(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, CORE_TELL_FENCED);
}
static inline void core_call_fenced(struct core_group *g, int rank)
{
    if (atomic_load_explicit(&core_door(g, rank)->awaits, CORE_LOOK) > 0)
        core_call(g, rank);
}
void core_ring(struct core_group *g, int rank); /* wakes the rank if it sleeps, whatever it waits for */
void core_ring_all(struct core_group *g);

/* How to sleep: arm; look once more at everything that could have changed (seq_cst loads) and count the signals that
 * are lacking; then doze until that many have come, or disarm. */
uint32_t core_arm(struct core_group *g, int rank);
void core_disarm(struct core_group *g, int rank);
void core_doze(struct core_group *g, int rank, uint32_t bell, int lacking, int64_t ns); /* and then disarms */
/* The parts of core_doze, for a thread that sleeps while another thread may arm and disarm the bell for it. core_expect
 * sets how many signals are lacking (false: they have come). core_sleep sleeps on a bell until it is rung or ns are
 * over (negative: without limit). core_knock rings it whether or not it is armed. */
bool core_expect(struct core_group *g, int rank, int lacking);
void core_sleep(struct core_rank *door, bool shared, uint32_t bell, int64_t ns);
void core_knock(struct core_rank *door, bool shared);
void core_relax(void); /* a pause within a spin loop */
/* Notes on which CPU core this rank runs, for core_shares_cpu of the others. */
void core_note_cpu(struct core_group *g, int rank);
/* Did another rank last note itself on the core that this rank runs on? Each rank may have a core to itself, but the
 * scheduler may have put two of them on one, and leaves them there if other programs keep the other cores busy. Then a
 * rank that spins keeps its peer from the work that it waits for. Groups of more than CORE_LOOKS ranks do not look. */
#define CORE_LOOKS 64
bool core_shares_cpu(struct core_group *g, int rank);
int64_t core_now(void); /* nanoseconds of a clock that only goes forward */

/* Records a failure of the group and wakes all ranks. Only the first one counts. `rank` is the caller's. */
void core_fail(struct core_group *g, int rank, int code, const char *text);
int core_failure(const struct core_group *g, const char **text); /* 0: none */
static inline bool core_failed(const struct core_group *g)
{
    return atomic_load_explicit(&g->failed, memory_order_seq_cst) != 0;
}

/* Enters the rank's next meeting with its vote. Returns the number of the meeting. */
uint64_t core_enter(struct core_group *g, int rank, const struct core_vote *vote);
static inline bool core_entered(const struct core_group *g, int rank, uint64_t meeting)
{
    return atomic_load_explicit(&g->ranks[rank].votes[meeting % 2].entered, memory_order_seq_cst) > meeting;
}
/* Is the meeting complete? *next: all ranks with a lower number have entered; 0 at first. */
static inline bool core_met(const struct core_group *g, uint64_t meeting, int *next)
{
    if (g->tree)
        return atomic_load_explicit(&g->met, memory_order_seq_cst) > meeting;
    while (*next < g->size && core_entered(g, *next, meeting))
        ++*next;
    return *next == g->size;
}
/* A rank that has seen that a meeting is complete wakes those that it is to wake. */
void core_met_wake(struct core_group *g, int rank);
/* Of a group on several hosts, when all ranks that are here have entered (`home`): ends the meeting for them. The first
 * of them calls it. */
void core_conclude(struct core_group *g, uint64_t meeting, const struct core_result *result);
/* What all votes of a complete meeting have in common. It is valid as long as the votes. */
struct core_tally core_tally(const struct core_group *g, uint64_t meeting);
/* Of a group on several hosts: notes that some ranks have not come to the meeting, as far as hosts have told each
 * other. By the first rank that is here. */
void core_put_lacks(struct core_group *g, uint64_t meeting, const int32_t *ranks, int n);
/* Has the rank not entered the meeting, as far as it is known here? For texts. */
bool core_lacks(const struct core_group *g, int rank, uint64_t meeting);
/* The vote of a rank that is here, in a meeting that is complete. It is valid until the caller enters the next meeting.
 */
static inline const struct core_vote *core_vote_of(const struct core_group *g, int rank, uint64_t meeting)
{
    return &g->ranks[rank].votes[meeting % 2];
}
#endif
