/* Bells, meetings and the failure of a group, in words that threads and processes share. */
#define _GNU_SOURCE
#include "transport/core/core.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The number of nodes that n ranks or nodes have above them. */
static int nodes_above(int n)
{
    return (n + CORE_FLAT - 1) / CORE_FLAT;
}

static size_t all_nodes(int size)
{
    size_t all = 0;
    for (int n = size; n > 1; all += (size_t)n)
        n = nodes_above(n);
    return all;
}

size_t core_bytes(int size)
{
    return sizeof(struct core_group) + (size_t)size * sizeof(struct core_rank) +
           all_nodes(size) * sizeof(struct core_node);
}

static void begin(struct core_group *g, int size, bool shared)
{
    g->size = size;
    g->here = 0;
    g->shared = shared;
    g->tree = size > CORE_FLAT;
}

/* The next of the ranks that are here. */
static void count_in(struct core_group *g, int rank)
{
    g->ranks[g->here++].indexed = rank;
    g->ranks[rank].number = g->here;
}

void core_init(struct core_group *g, int size, bool shared)
{
    begin(g, size, shared);
    for (int r = 0; r < size; r++)
        count_in(g, r);
}

void core_arrive(struct core_group *g, int rank)
{
    uint64_t own[CORE_CORES / 64] = {0};
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        for (size_t i = 0; i < CORE_CORES && i < CPU_SETSIZE; i++)
            own[i / 64] |= (uint64_t)(CPU_ISSET(i, &set) != 0) << i % 64;
    /* Relaxed: the store of the state releases it. Most ranks find that others have set their bits. */
    for (int w = 0; w < CORE_CORES / 64; w++)
        if (own[w] & ~atomic_load_explicit(&g->cores[w], memory_order_relaxed))
            atomic_fetch_or_explicit(&g->cores[w], own[w], memory_order_relaxed);
    atomic_store_explicit(&g->ranks[rank].state, CORE_HERE, memory_order_seq_cst);
}

void core_depart(struct core_group *g, int rank)
{
    atomic_store_explicit(&g->ranks[rank].state, CORE_LEFT, memory_order_seq_cst);
    /* After the state: a rank that sees the new number sees the state, too. */
    atomic_fetch_add_explicit(&g->departures, 1, memory_order_seq_cst);
    if (!g->tree) {
        core_ring_all(g);
        return;
    }
    int number = g->ranks[rank].number, from = number ? (number - 1) / CORE_FLAT * CORE_FLAT : 0;
    for (int i = from; i < from + CORE_FLAT && i < g->here; i++)
        core_ring(g, g->ranks[i].indexed);
}

int core_cores(const struct core_group *g)
{
    int n = 0;
    for (int w = 0; w < CORE_CORES / 64; w++)
        n += __builtin_popcountll(atomic_load_explicit(&g->cores[w], memory_order_relaxed));
    return n ? n : 1;
}

/* Relaxed: a hint. */
void core_note_cpu(struct core_group *g, int rank)
{
    int32_t cpu = sched_getcpu() + 1; /* 0 if it is not known */
    if (atomic_load_explicit(&g->ranks[rank].cpu, memory_order_relaxed) != cpu)
        atomic_store_explicit(&g->ranks[rank].cpu, cpu, memory_order_relaxed);
}

bool core_shares_cpu(struct core_group *g, int rank)
{
    if (g->size > CORE_LOOKS)
        return false;
    core_note_cpu(g, rank);
    int32_t cpu = atomic_load_explicit(&g->ranks[rank].cpu, memory_order_relaxed);
    for (int r = 0; r < g->size && cpu; r++)
        if (r != rank && atomic_load_explicit(&g->ranks[r].cpu, memory_order_relaxed) == cpu)
            return true;
    return false;
}

void core_init_split(struct core_group *g, const struct core_group *of, const int *ranks, int size)
{
    begin(g, size, of->shared);
    for (int r = 0; r < size; r++)
        if (ranks[r] >= 0)
            count_in(g, r);
    g->tree |= g->here < size;
    for (int r = 0; r < size; r++)
        if (ranks[r] >= 0)
            g->ranks[r].door = (int64_t)((uintptr_t)core_door(of, ranks[r]) - (uintptr_t)&g->ranks[r]);
}

void core_knock(struct core_rank *r, bool shared)
{
    atomic_fetch_add_explicit(&r->bell, 1, memory_order_seq_cst);
    syscall(SYS_futex, &r->bell, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Why no wake-up is lost, and no system call is made if no rank sleeps: the waker stores the counter and then loads
 * `awaits`; the sleeper stores `awaits` (core_arm) and then loads the counter once more. All four are seq_cst, so there
 * is one order of them that all threads agree on. In this order one of the two loads comes after the other side's
 * store: either the sleeper sees the new counter and does not sleep, or the waker sees that the sleeper is armed. In
 * the second case the waker changes the bell. The sleeper has read the bell before it stored `awaits`, so the futex
 * either does not begin to sleep or is woken.
 *
 * A rank that can do nothing before n signals have come is not woken before. It arms with MANY, counts the n counters
 * that have not advanced, and subtracts MANY - n from `awaits`. Each of these n counters is stored after the rank has
 * looked at it, so the waker that stores it sees the rank armed and subtracts 1. The waker that reaches 0 wakes the
 * rank. Other wakers may also subtract 1: their counter was seen already, or the rank does not wait for it, or it was
 * stored before an earlier sleep ended. They wake the rank too early, which is harmless. */
#define MANY (1 << 30)

void core_signal(struct core_group *g, int rank, _Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_seq_cst);
    core_call(g, rank);
}

void core_call(struct core_group *g, int rank)
{
    struct core_rank *r = core_door(g, rank);
    if (atomic_load_explicit(&r->awaits, memory_order_seq_cst) > 0 &&
        atomic_fetch_sub_explicit(&r->awaits, 1, memory_order_seq_cst) == 1)
        core_knock(r, g->shared);
}

void core_ring(struct core_group *g, int rank)
{
    struct core_rank *r = core_door(g, rank);
    if (atomic_load_explicit(&r->awaits, memory_order_seq_cst) > 0)
        core_knock(r, g->shared);
}

void core_ring_all(struct core_group *g)
{
    for (int r = 0; r < g->size; r++)
        core_ring(g, r);
}

uint32_t core_arm(struct core_group *g, int rank)
{
    struct core_rank *r = core_door(g, rank);
    uint32_t bell = atomic_load_explicit(&r->bell, memory_order_seq_cst);
    atomic_store_explicit(&r->awaits, MANY, memory_order_seq_cst);
    core_fence_all(); /* the loads that follow may then be relaxed */
    return bell;
}

void core_disarm(struct core_group *g, int rank)
{
    atomic_store_explicit(&core_door(g, rank)->awaits, 0,
                          memory_order_relaxed); /* a waker that sees it late makes a needless wake-up */
}

bool core_expect(struct core_group *g, int rank, int lacking)
{
    int32_t spare = MANY - lacking;
    return atomic_fetch_sub_explicit(&core_door(g, rank)->awaits, spare, memory_order_seq_cst) > spare;
}

void core_sleep(struct core_rank *r, bool shared, uint32_t bell, int64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    syscall(SYS_futex, &r->bell, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, bell, ns < 0 ? NULL : &t, NULL, 0);
}

void core_doze(struct core_group *g, int rank, uint32_t bell, int lacking, int64_t ns)
{
    if (ns > 0 && core_expect(g, rank, lacking))
        core_sleep(core_door(g, rank), g->shared, bell, ns);
    core_disarm(g, rank);
}

void core_relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#elif defined(__x86_64__)
    __asm__ volatile("pause" ::: "memory");
#endif
}

int64_t core_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void core_fail(struct core_group *g, int rank, int code, const char *text)
{
    struct core_rank *r = &g->ranks[rank];
    uint32_t none = 0;
    if (atomic_load_explicit(&g->failed, memory_order_seq_cst))
        return;
    if (atomic_exchange_explicit(
            &r->failing, 1, memory_order_relaxed)) { /* another thread of this rank is about to publish a failure */
        while (!atomic_load_explicit(&g->failed, memory_order_seq_cst))
            sched_yield();
        return;
    }
    r->code = code;
    snprintf(r->text, sizeof r->text, "%s", text);
    /* Publishes code and text; pairs with the load in core_failure. */
    if (atomic_compare_exchange_strong_explicit(&g->failed, &none, (uint32_t)rank + 1, memory_order_seq_cst,
                                                memory_order_relaxed))
        core_ring_all(g);
}

int core_failure(const struct core_group *g, const char **text)
{
    uint32_t rank = atomic_load_explicit(&g->failed, memory_order_seq_cst);
    if (!rank)
        return 0;
    *text = g->ranks[rank - 1].text;
    return g->ranks[rank - 1].code;
}

/* ---- meetings ---- */

/* A meeting is complete when all ranks have entered it. Two votes a rank are enough: a rank writes its vote of meeting
 * m + 2 only after meeting m + 1 was complete, and every rank had finished with meeting m and its votes before it
 * entered meeting m + 1. The store of `entered` releases the vote.
 *
 * Up to CORE_FLAT ranks look at the votes of all, which takes the least time. More ranks meet by a tree: each arrives
 * at its node, and the last to arrive at a node sums up what stands below it and arrives at the next. So a meeting
 * costs a rank a few steps, however many ranks there are, and no rank has to be there for another one's sake. Why the
 * sums are right: all arrivals at a node are one chain of atomic additions (acq_rel), so the last one sees the votes,
 * or tallies, that were written before the others. A node's count tells the last one of meeting m, since no rank
 * arrives for m + 1 before m is complete. The tally of m + 2 replaces that of m when every rank has left m, as with
 * votes. `met` is stored with seq_cst and looked at as other counters are: core_signal. */

static struct core_node *nodes(const struct core_group *g)
{
    return (struct core_node *)(uintptr_t)(g->ranks + g->size);
}

static void add_vote(struct core_tally *t, const struct core_vote *first, const struct core_vote *v)
{
    t->differ |= v->code || v->call != first->call || v->object != first->object || v->digest != first->digest;
    t->note &= v->note;
}

/* The sum of `n` ranks or nodes of level `level` from number `from` on; `below`: the nodes of that level. If no votes
 * differ below a node, the vote of its first rank is that of all its ranks. */
static struct core_tally sum_up(const struct core_group *g, const struct core_node *below, int level, int from, int n,
                                uint64_t meeting)
{
    int ranks = 1; /* below each node */
    for (int i = 0; i < level; i++)
        ranks *= CORE_FLAT;
    const struct core_vote *first = core_vote_of(g, g->ranks[from * ranks].indexed, meeting);
    struct core_tally t = {.note = UINT64_MAX, .first = first->note};
    for (int i = from; i < from + n; i++) {
        add_vote(&t, first, core_vote_of(g, g->ranks[i * ranks].indexed, meeting));
        if (level) {
            t.differ |= below[i].tally[meeting % 2].differ;
            t.note &= below[i].tally[meeting % 2].note;
        }
    }
    return t;
}

struct core_tally core_tally(const struct core_group *g, uint64_t meeting)
{
    if (g->tree)
        return g->results[meeting % 2].tally;
    const struct core_vote *first = core_vote_of(g, 0, meeting);
    struct core_tally t = {.note = UINT64_MAX, .first = first->note};
    for (int r = 0; r < g->size; r++)
        add_vote(&t, first, core_vote_of(g, r, meeting));
    return t;
}

/* The top of the tree by which ranks wake each other (core_met_wake). */
static void wake_top(struct core_group *g, int rank)
{
    for (int i = 0; i < g->here && i < CORE_FLAT; i++)
        if (g->ranks[i].indexed != rank)
            core_call(g, g->ranks[i].indexed);
}

static void arrive(struct core_group *g, int rank, uint64_t meeting)
{
    const struct core_node *below = NULL;
    struct core_node *level_nodes = nodes(g);
    int at = g->ranks[rank].number - 1, all = g->here; /* the number of the rank or node, and how many its level has */
    for (int level = 0; all > 1; level++) {
        int node = at / CORE_FLAT, from = node * CORE_FLAT, n = all - from < CORE_FLAT ? all - from : CORE_FLAT;
        struct core_node *here = &level_nodes[node];
        uint64_t before = atomic_fetch_add_explicit(&here->arrived, 1, memory_order_acq_rel);
        if (before + 1 != (meeting + 1) * (uint64_t)n)
            return;
        here->tally[meeting % 2] = sum_up(g, below, level, from, n, meeting);
        below = level_nodes;
        at = node;
        all = nodes_above(all);
        level_nodes += all;
    }
    if (g->here < g->size) { /* the first rank that is here asks the other hosts */
        core_signal(g, g->ranks[0].indexed, &g->home, meeting + 1);
        return;
    }
    g->results[meeting % 2].tally = below[0].tally[meeting % 2];
    atomic_store_explicit(&g->met, meeting + 1, memory_order_seq_cst);
    wake_top(g, rank);
}

void core_conclude(struct core_group *g, uint64_t meeting, const struct core_result *result)
{
    g->results[meeting % 2] = *result;
    atomic_store_explicit(&g->met, meeting + 1, memory_order_seq_cst);
    wake_top(g, g->ranks[0].indexed);
}

void core_put_lacks(struct core_group *g, uint64_t meeting, const int32_t *ranks, int n)
{
    for (int i = 0; i < CORE_LACKS; i++)
        atomic_store_explicit(&g->lacks[i], i < n ? ranks[i] : -1, memory_order_relaxed);
    atomic_store_explicit(&g->lacks_in, meeting + 1, memory_order_release);
}

bool core_lacks(const struct core_group *g, int rank, uint64_t meeting)
{
    if (g->ranks[rank].number)
        return !core_entered(g, rank, meeting);
    bool lacks = false;
    /* Acquire: pairs with the store in core_put_lacks. A later call of that may change the list meanwhile. */
    for (int i = 0; i < CORE_LACKS && atomic_load_explicit(&g->lacks_in, memory_order_acquire) == meeting + 1; i++)
        lacks |= atomic_load_explicit(&g->lacks[i], memory_order_relaxed) == rank;
    return lacks;
}

/* Rank r wakes CORE_FLAT others, and each of these as many: a tree over all ranks, of which `arrive` wakes the top. If
 * a rank of it does not wait, those below it wake by themselves soon (weft_comm.beat_ns). */
void core_met_wake(struct core_group *g, int rank)
{
    int64_t first = (int64_t)g->ranks[rank].number * CORE_FLAT;
    for (int64_t i = first; g->tree && i < g->here && i < first + CORE_FLAT; i++)
        core_call(g, g->ranks[i].indexed);
}

uint64_t core_enter(struct core_group *g, int rank, const struct core_vote *vote)
{
    uint64_t meeting = g->ranks[rank].meetings++;
    struct core_vote *mine = &g->ranks[rank].votes[meeting % 2];
    mine->call = vote->call;
    mine->code = vote->code;
    mine->object = vote->object;
    mine->digest = vote->digest;
    mine->place = vote->place;
    mine->note = vote->note;
    if (vote->code)
        snprintf(mine->text, sizeof mine->text, "%s", vote->text);
    atomic_store_explicit(&mine->entered, meeting + 1, memory_order_seq_cst);
    if (g->tree)
        arrive(g, rank, meeting);
    for (int i = 0; i < g->size && !g->tree; i++)
        if (i != rank)
            core_call(g, i);
    return meeting;
}
