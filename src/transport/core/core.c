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

size_t core_bytes(int size)
{
    return sizeof(struct core_group) + (size_t)size * sizeof(struct core_rank);
}

void core_init(struct core_group *g, int size, bool shared)
{
    g->size = size;
    g->shared = shared;
}

void core_arrive(struct core_group *g, int rank)
{
    struct core_rank *r = &g->ranks[rank];
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        for (size_t i = 0; i < CORE_CORES && i < CPU_SETSIZE; i++)
            r->cores[i / 64] |= (uint64_t)(CPU_ISSET(i, &set) != 0) << i % 64;
    atomic_store_explicit(&r->state, CORE_HERE, memory_order_seq_cst); /* also releases r->cores */
}

int core_cores(const struct core_group *g)
{
    int n = 0;
    for (int w = 0; w < CORE_CORES / 64; w++) {
        uint64_t all = 0;
        for (int r = 0; r < g->size; r++)
            all |= g->ranks[r].cores[w];
        n += __builtin_popcountll(all);
    }
    return n ? n : 1;
}

void core_init_split(struct core_group *g, const struct core_group *of, const int *ranks, int size)
{
    core_init(g, size, of->shared);
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

/* A meeting is complete when all ranks have entered it. Two votes a rank are enough: a rank writes its vote of meeting
 * m + 2 only after meeting m + 1 was complete, and every rank had finished with meeting m and its votes before it
 * entered meeting m + 1. The store of `entered` releases the vote. */
uint64_t core_enter(struct core_group *g, int rank, const struct core_vote *vote)
{
    uint64_t meeting = g->ranks[rank].meetings++;
    core_put_vote(g, rank, meeting, vote);
    return meeting;
}

void core_put_vote(struct core_group *g, int rank, uint64_t meeting, const struct core_vote *vote)
{
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
    for (int i = 0; i < g->size; i++)
        if (i != rank)
            core_call(g, i);
}
