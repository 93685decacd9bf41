#define _GNU_SOURCE
#include "window_stress.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/hash.h"

enum stress_signal { STRESS_GO, STRESS_TOKEN, STRESS_ADDED, STRESS_PING, STRESS_SIGNALS };

enum stress_buffer { STRESS_STAMP, STRESS_SUM, STRESS_WORD, STRESS_BULK };
#define STRESS_WORDS 512   /* of STRESS_BULK */
#define STRESS_FLOATS 1000 /* of the exec */

static void stress_skew(struct stress *s)
{
    window_skew(&s->own);
    if (random_once_in(&s->own, 20))
        sched_yield();
    if (random_once_in(&s->own, 200)) /* long enough for the others to fall asleep */
        nanosleep(&(struct timespec){.tv_nsec = random_in(&s->own, 1000, 200000)}, NULL);
}
#define STRESS_CHECK(s, condition)                                                                           \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            ranks_note((s)->r, __FILE__, __LINE__, "round %lld: %s (%s)", (long long)(s)->round, #condition, \
                       weft_errmsg());                                                                       \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

static int stress_stamp(const struct stress *s, int rank)
{
    return window_store(s->w, STRESS_STAMP, rank, s->r->rank, &s->round, 1, sizeof s->round);
}

static void stress_barrier(struct stress *s)
{
    for (int q = 0; q < s->r->size; q++)
        STRESS_CHECK(s, !stress_stamp(s, q));
    stress_skew(s);
    STRESS_CHECK(s, !weft_window_barrier(s->w, WINDOW_LONG));
    values_begin();
    for (int q = 0; q < s->r->size; q++)
        VALUES_CHECK(q, s->stamps[q], s->round);
    STRESS_CHECK(s, !values_wrong());
    STRESS_CHECK(s, !weft_window_barrier(s->w, WINDOW_LONG));
}

/* Neighbours at a distance that all choose alike. */
static void stress_neighbours(struct stress *s)
{
    int size = s->r->size, far = (int)random_in(&s->common, 1, size - 1);
    int beside[2] = {(s->r->rank + far) % size, (s->r->rank + size - far) % size}, n = beside[0] == beside[1] ? 1 : 2;
    for (int i = 0; i < n; i++)
        STRESS_CHECK(s, !stress_stamp(s, beside[i]));
    stress_skew(s);
    STRESS_CHECK(s, !weft_window_barrier_with(s->w, beside, (size_t)n, WINDOW_LONG));
    values_begin();
    for (int i = 0; i < n; i++)
        VALUES_CHECK(beside[i], s->stamps[beside[i]], s->round);
    STRESS_CHECK(s, !values_wrong());
    STRESS_CHECK(s, !weft_window_barrier_with(s->w, beside, (size_t)n, WINDOW_LONG));
}

/* A word goes round; each adds its own. */
static void stress_token(struct stress *s)
{
    struct ranks_rank *r = s->r;
    int64_t *word = weft_window_pointer(s->w, STRESS_WORD, r->rank), sum = 0;
    s->tokens++;
    for (int q = 0; q < r->size; q++)
        sum += q + s->round;
    if (r->rank > 0)
        STRESS_CHECK(s, !weft_window_wait(s->w, STRESS_TOKEN, WEFT_EQ, s->tokens, WINDOW_LONG));
    int64_t next = (r->rank ? *word : 0) + r->rank + s->round;
    stress_skew(s);
    STRESS_CHECK(s, !weft_window_put(s->w, STRESS_WORD, (r->rank + 1) % r->size, 0, &next, 1));
    STRESS_CHECK(s, !weft_window_notify(s->w, (r->rank + 1) % r->size, STRESS_TOKEN, WEFT_NOTIFY_SET, s->tokens));
    if (r->rank == 0) {
        STRESS_CHECK(s, !weft_window_wait(s->w, STRESS_TOKEN, WEFT_GE, s->tokens, WINDOW_LONG));
        STRESS_CHECK(s, *word == sum);
    }
}

/* All add to all. */
static void stress_add(struct stress *s)
{
    struct ranks_rank *r = s->r;
    int64_t one = r->rank + 1;
    stress_skew(s);
    for (int k = 0; k < r->size; k++) {
        int q = (r->rank + k) % r->size;
        STRESS_CHECK(s, !weft_window_put_add(s->w, STRESS_SUM, q, 0, &one, 1));
        STRESS_CHECK(s, !weft_window_notify(s->w, q, STRESS_ADDED, WEFT_NOTIFY_ADD, 1));
    }
    s->added++;
    STRESS_CHECK(s, !weft_window_wait(s->w, STRESS_ADDED, WEFT_EQ, s->added * (uint64_t)r->size, WINDOW_LONG));
    const int64_t *sum = weft_window_pointer(s->w, STRESS_SUM, r->rank);
    STRESS_CHECK(s, *sum == (int64_t)s->added * r->size * (r->size + 1) / 2);
    STRESS_CHECK(s, !weft_window_barrier(s->w, WINDOW_LONG));
}

/* What travels with a signal: how many words, and the value of each, of rank `from`. */
static int stress_words(uint64_t turn)
{
    return 1 + (int)(hash_mix(turn) % STRESS_WORDS);
}

static int64_t stress_word(const struct stress *s, int from, uint64_t turn, int i)
{
    return (int64_t)hash_mix((uint64_t)s->round * 1000003 + turn * 16 + (uint64_t)from) + i;
}

/* Writes them by put, or by plain stores from the last to the first, and says so by a signal. */
static void stress_send(struct stress *s, int to, uint64_t turn)
{
    int n = stress_words(turn), from = s->r->rank;
    int64_t *there = weft_window_pointer(s->w, STRESS_BULK, to);
    if (turn % 2 || !there) {
        int64_t words[STRESS_WORDS];
        for (int i = 0; i < n; i++)
            words[i] = stress_word(s, from, turn, i);
        STRESS_CHECK(s, !weft_window_put(s->w, STRESS_BULK, to, 0, words, n));
    } else {
        for (int i = n; i-- > 0;)
            there[i] = stress_word(s, from, turn, i);
    }
    STRESS_CHECK(s, !weft_window_notify(s->w, to, STRESS_PING, WEFT_NOTIFY_ADD, 1));
}

/* Who has seen the signal sees all that was written before it. */
static void stress_receive(struct stress *s, int from, uint64_t turn, uint64_t signal)
{
    const int64_t *here = weft_window_pointer(s->w, STRESS_BULK, s->r->rank);
    STRESS_CHECK(s, !weft_window_wait(s->w, STRESS_PING, WEFT_GE, signal, WINDOW_LONG));
    values_begin();
    for (int n = stress_words(turn), k = 0; k < n; k++) {
        int i = turn % 2 ? n - 1 - k : k; /* what was written last comes first: it had the least time */
        VALUES_CHECK(i, here[i], stress_word(s, from, turn, i));
    }
    STRESS_CHECK(s, !values_wrong());
}

/* Two ranks, back and forth; the others have the time to sleep. */
static void stress_ping(struct stress *s)
{
    struct ranks_rank *r = s->r;
    int a = (int)random_in(&s->common, 0, r->size - 1), b = (a + (int)random_in(&s->common, 1, r->size - 1)) % r->size;
    int turns = (int)random_in(&s->common, 1, 20), other = r->rank == a ? b : a;
    if (r->rank != a && r->rank != b)
        return;
    uint64_t base;
    STRESS_CHECK(s, !weft_window_signal(s->w, STRESS_PING, &base));
    STRESS_CHECK(s, !weft_window_barrier_with(s->w, &other, 1, WINDOW_LONG)); /* both know where they begin */
    for (uint64_t t = 1; t <= (uint64_t)turns; t++) {
        if (r->rank == b)
            stress_receive(s, other, t, base + t);
        stress_skew(s);
        if (!r->failed[0])
            stress_send(s, other, t);
        if (r->rank == a && !r->failed[0])
            stress_receive(s, other, t, base + t);
        if (r->failed[0])
            return;
    }
}

/* Rank 0 says whether there is another round. */
static bool stress_goes_on(struct stress *s, int64_t until)
{
    struct ranks_rank *r = s->r;
    uint64_t value = (uint64_t)s->round * 2;
    if (r->rank == 0) {
        value += clock_now() < until;
        for (int q = 1; q < r->size; q++)
            if (weft_window_notify(s->w, q, STRESS_GO, WEFT_NOTIFY_SET, value))
                return false;
    } else if (weft_window_wait(s->w, STRESS_GO, WEFT_GE, value, WINDOW_LONG) ||
               weft_window_signal(s->w, STRESS_GO, &value)) {
        ranks_note(r, __FILE__, __LINE__, "round %lld: %s", (long long)s->round, weft_errmsg());
        return false;
    }
    return value % 2;
}

/* An allreduce whose values change with the round. */
struct stress_exec {
    weft_exec *x;
    float *in, *out;
};

static void stress_start(struct stress *s, const struct stress_exec *e)
{
    for (int i = 0; i < STRESS_FLOATS; i++)
        e->in[i] = (float)(s->round % 1000 + i + s->r->rank);
    STRESS_CHECK(s, !weft_exec_start(e->x));
}

static void stress_finish(struct stress *s, const struct stress_exec *e)
{
    int p = s->r->size;
    STRESS_CHECK(s, !weft_exec_wait(e->x, WINDOW_LONG));
    values_begin();
    for (int i = 0; i < STRESS_FLOATS; i++)
        VALUES_CHECK(i, e->out[i], (float)(p * (s->round % 1000 + i) + p * (p - 1) / 2));
    STRESS_CHECK(s, !values_wrong());
}

static void stress_rounds(struct stress *s, const struct stress_exec *e, int64_t ns)
{
    static void (*const kinds[])(struct stress *) = {stress_barrier, stress_neighbours, stress_token, stress_add,
                                                     stress_ping};
    int64_t until = clock_now() + ns;
    do {
        s->round++;
        bool run = random_once_in(&s->common, 4);
        if (run)
            stress_start(s, e);
        for (int k = 0; k < 16 && !s->r->failed[0]; k++)
            kinds[random_in(&s->common, 0, 4)](s);
        if (s->r->failed[0])
            return;
        if (run)
            stress_finish(s, e);
        if (s->r->failed[0])
            return;
        /* Stamps are not written in the next round before all have looked at them in this one: each kind sees to it. */
    } while (stress_goes_on(s, until));
}

void stress_body(struct ranks_rank *r)
{
    const weft_buffer b[] = {WEFT_BUFFER("stamp", WEFT_I64, RANKS_MAX), WEFT_BUFFER("sum", WEFT_I64, 1),
                             WEFT_BUFFER("word", WEFT_I64, 1), WEFT_BUFFER("bulk", WEFT_I64, STRESS_WORDS)};
    struct stress s = {.r = r, .common = {5}, .own = {100 + (uint64_t)r->rank}};
    weft_layout *from, *to;
    weft_plan *p;
    float in[STRESS_FLOATS], out[STRESS_FLOATS];
    struct stress_exec e = {.in = in, .out = out};
    char text[60];
    snprintf(text, sizeof text, "f32[%d] @x%d +sum(x)", STRESS_FLOATS, r->size);
    RANKS_OK(r, weft_layout_parse(text, &from));
    snprintf(text, sizeof text, "f32[%d] @x%d", STRESS_FLOATS, r->size);
    RANKS_OK(r, weft_layout_parse(text, &to));
    RANKS_OK(r, weft_lower(&(weft_move){"g", from, to}, 1, r->rank, NULL, &p));
    RANKS_OK(r, weft_bind(p, r->comm, &(weft_view){.data = in, .bytes = sizeof in},
                          &(weft_view){.data = out, .bytes = sizeof out}, NULL, &e.x));
    RANKS_OK(r, weft_window_open(r->comm, b, 4, STRESS_SIGNALS, &s.w));
    s.stamps = weft_window_pointer(s.w, STRESS_STAMP, r->rank);
    stress_rounds(&s, &e, *(const int64_t *)r->arg);
    r->code = (int)s.round;
    if (!r->failed[0])
        RANKS_OK(r, weft_window_barrier(s.w, WINDOW_LONG));
    weft_window_close(s.w);
    weft_exec_close(e.x);
    weft_plan_free(p);
    weft_layout_free(from);
    weft_layout_free(to);
}
