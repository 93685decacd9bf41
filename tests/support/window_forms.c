#define _GNU_SOURCE
#include "window_forms.h"

#include <string.h>

#define FORMS_C 64  /* elements a rank */
#define FORMS_N 256 /* of the broadcast */

enum forms_signal { FORMS_GATHERED, FORMS_SENT, FORMS_GOT, FORMS_RIGHT, FORMS_LEFT, FORMS_SIGNALS };
#define FORMS_OK(f, call)                                                           \
    do {                                                                            \
        if (call) {                                                                 \
            ranks_note((f)->r, __FILE__, __LINE__, "%s: %s", #call, weft_errmsg()); \
            return;                                                                 \
        }                                                                           \
    } while (0)

static void forms_barrier(struct forms *f)
{
    FORMS_OK(f, weft_window_barrier(f->w, WINDOW_LONG));
}

static void forms_expect(struct forms *f, const char *what, int i, float got, int want)
{
    if (got != (float)want)
        ranks_note(f->r, __FILE__, __LINE__, "%s on %d ranks, run %d: element %d is %g, not %d", what, f->p, f->run, i,
                   (double)got, want);
}

/* The input of all reductions, i + 100 r, and what their sum is. */
static void forms_fill(struct forms *f)
{
    for (int i = 0; i < f->p * FORMS_C; i++)
        f->x[i] = (float)(i + 100 * f->me + f->run);
}

/* Shows n elements of this rank's in or out from `from` on to those who cannot look at them. */
static void forms_show(struct forms *f, int buffer, int from, int n)
{
    const float *mine = (buffer == f->in ? f->x : f->y) + from;
    for (int q = 0; q < f->p; q++)
        if (!weft_window_pointer(f->w, buffer, q))
            FORMS_OK(f,
                     weft_window_put(f->w, f->shown, q, (2 * f->me + (buffer == f->out)) * f->whole + from, mine, n));
}

static int forms_sum(const struct forms *f, int i)
{
    return f->p * i + 100 * f->p * (f->p - 1) / 2 + f->p * f->run;
}

static void forms_all_summed(struct forms *f, const char *what)
{
    for (int i = 0; i < f->p * FORMS_C; i++)
        forms_expect(f, what, i, f->y[i], forms_sum(f, i));
}

static void forms_fold(struct forms *f, int from, int n)
{
    for (int i = from; i < from + n; i++) {
        float sum = 0;
        for (int q = 0; q < f->p; q++)
            sum += f->ins[q][i];
        f->y[i] = sum;
    }
}

/* Put to all, one counter of arrivals. */
static void forms_allgather(struct forms *f)
{
    for (int i = 0; i < FORMS_C; i++)
        f->x[i] = (float)(100 * f->me + i + f->run);
    for (int k = 0; k < f->p; k++) {
        int q = (f->me + k) % f->p;
        FORMS_OK(f, weft_window_put(f->w, f->out, q, f->me * FORMS_C, f->x, FORMS_C));
        FORMS_OK(f, weft_window_notify(f->w, q, FORMS_GATHERED, WEFT_NOTIFY_ADD, 1));
    }
    FORMS_OK(f, weft_window_wait(f->w, FORMS_GATHERED, WEFT_GE, (uint64_t)(f->run * f->p), WINDOW_LONG));
    for (int i = 0; i < f->p * FORMS_C; i++)
        forms_expect(f, "allgather", i, f->y[i], 100 * (i / FORMS_C) + i % FORMS_C + f->run);
    forms_barrier(f);
}

static void forms_reduce_scatter(struct forms *f)
{
    forms_fill(f);
    forms_show(f, f->in, 0, f->p * FORMS_C);
    forms_barrier(f);
    forms_fold(f, f->me * FORMS_C, FORMS_C);
    for (int j = 0; j < FORMS_C; j++)
        forms_expect(f, "reduce-scatter", j, f->y[f->me * FORMS_C + j], forms_sum(f, f->me * FORMS_C + j));
    forms_barrier(f);
}

/* The root sets a generation, the others tell it when they have read. */
static void forms_broadcast(struct forms *f)
{
    if (f->me == 0) {
        for (int i = 0; i < FORMS_N; i++)
            f->y[i] = (float)(i + f->run);
        for (int q = 1; q < f->p; q++) {
            FORMS_OK(f, weft_window_put(f->w, f->out, q, 0, f->y, FORMS_N));
            FORMS_OK(f, weft_window_notify(f->w, q, FORMS_SENT, WEFT_NOTIFY_SET, (uint64_t)f->run));
        }
    } else {
        FORMS_OK(f, weft_window_wait(f->w, FORMS_SENT, WEFT_EQ, (uint64_t)f->run, WINDOW_LONG));
    }
    for (int i = 0; i < FORMS_N; i++)
        forms_expect(f, "broadcast", i, f->y[i], i + f->run);
    if (f->me == 0)
        FORMS_OK(f, weft_window_wait(f->w, FORMS_GOT, WEFT_GE, (uint64_t)(f->run * (f->p - 1)), WINDOW_LONG));
    else
        FORMS_OK(f, weft_window_notify(f->w, 0, FORMS_GOT, WEFT_NOTIFY_ADD, 1));
}

/* Stores through pointers, where there are any. */
static void forms_alltoall(struct forms *f)
{
    for (int q = 0; q < f->p; q++) {
        float piece[FORMS_C];
        for (int j = 0; j < FORMS_C; j++)
            piece[j] = (float)(1000 * f->me + 100 * q + j + f->run);
        FORMS_OK(f, window_store(f->w, f->out, q, f->me * FORMS_C, piece, FORMS_C, sizeof *piece));
    }
    forms_barrier(f);
    for (int i = 0; i < f->p * FORMS_C; i++)
        forms_expect(f, "all-to-all", i, f->y[i], 1000 * (i / FORMS_C) + 100 * f->me + i % FORMS_C + f->run);
    forms_barrier(f);
}

static void forms_one_phase(struct forms *f)
{
    forms_fill(f);
    forms_show(f, f->in, 0, f->p * FORMS_C);
    forms_barrier(f);
    forms_fold(f, 0, f->p * FORMS_C);
    forms_all_summed(f, "allreduce in one phase");
    forms_barrier(f);
}

static void forms_two_phases(struct forms *f)
{
    forms_fill(f);
    forms_show(f, f->in, 0, f->p * FORMS_C);
    forms_barrier(f);
    forms_fold(f, f->me * FORMS_C, FORMS_C);
    forms_show(f, f->out, f->me * FORMS_C, FORMS_C);
    forms_barrier(f);
    for (int k = 1; k < f->p; k++) {
        int q = (f->me + k) % f->p;
        memcpy(f->y + q * FORMS_C, f->outs[q] + q * FORMS_C, FORMS_C * sizeof *f->y);
    }
    forms_all_summed(f, "allreduce in two phases");
    forms_barrier(f);
}

/* One way round, for n elements of each piece from `from` on: P - 1 steps that fold, P - 1 that hand on. Step s lands
 * in slot s, so nobody needs to be told that a slot is free: who begins the next run has seen a piece to which every
 * rank added after it had read its slots. */
struct forms_way {
    int to, sign, signal, from, n, slot;
    uint64_t steps; /* of all runs before */
};

static int forms_piece(const struct forms *f, int k)
{
    return ((f->me + k) % f->p + f->p) % f->p * FORMS_C;
}

static void forms_ring_send(struct forms *f, const struct forms_way *way, int s)
{
    int last = f->p - 1;
    /* Piece me - s travels in step s, then piece me + 1 - s, the first of which this rank has finished. */
    int piece = forms_piece(f, way->sign * (s < last ? -s : 1 - (s - last))) + way->from;
    const float *src = (s == 0 ? f->x : f->y) + piece;
    if (s < last)
        FORMS_OK(f, weft_window_put(f->w, f->slots, way->to, way->slot + s * FORMS_C, src, way->n));
    else
        FORMS_OK(f, weft_window_put(f->w, f->out, way->to, piece, src, way->n));
    FORMS_OK(f, weft_window_notify(f->w, way->to, way->signal, WEFT_NOTIFY_ADD, 1));
}

static void forms_ring_take(struct forms *f, const struct forms_way *way, int s)
{
    FORMS_OK(f, weft_window_wait(f->w, way->signal, WEFT_GE, way->steps + (uint64_t)s + 1, WINDOW_LONG));
    if (s >= f->p - 1)
        return;
    const float *slot = (const float *)weft_window_pointer(f->w, f->slots, f->me) + way->slot + s * FORMS_C;
    int piece = forms_piece(f, way->sign * (-s - 1)) + way->from;
    for (int i = 0; i < way->n; i++)
        f->y[piece + i] = slot[i] + f->x[piece + i];
}

static void forms_rings(struct forms *f, struct forms_way *ways, int n, const char *what)
{
    int steps = 2 * (f->p - 1);
    forms_fill(f);
    for (int s = 0; s < steps && !f->r->failed[0]; s++) {
        for (int k = 0; k < n; k++)
            forms_ring_send(f, &ways[k], s);
        for (int k = 0; k < n; k++)
            forms_ring_take(f, &ways[k], s);
    }
    forms_all_summed(f, what);
}

static uint64_t forms_steps(const struct forms *f)
{
    return (uint64_t)((f->run - 1) * 2 * (f->p - 1));
}

static void forms_ring(struct forms *f)
{
    struct forms_way way = {(f->me + 1) % f->p, 1, FORMS_RIGHT, 0, FORMS_C, 0, forms_steps(f)};
    forms_rings(f, &way, 1, "allreduce in a ring");
}

static void forms_ring2(struct forms *f)
{
    struct forms_way ways[2] = {
        {(f->me + 1) % f->p, 1, FORMS_RIGHT, 0, FORMS_C / 2, 0, forms_steps(f)},
        {(f->me + f->p - 1) % f->p, -1, FORMS_LEFT, FORMS_C / 2, FORMS_C / 2, f->p * FORMS_C, forms_steps(f)},
    };
    forms_rings(f, ways, 2, "allreduce in rings both ways");
}

/* One form, `runs` times on one window. */
static void forms_run(struct ranks_rank *r, void (*form)(struct forms *), int runs)
{
    int whole = r->size * FORMS_C > FORMS_N ? r->size * FORMS_C : FORMS_N;
    const weft_buffer b[] = {WEFT_BUFFER("in", WEFT_F32, whole), WEFT_BUFFER("out", WEFT_F32, whole),
                             WEFT_BUFFER("slots", WEFT_F32, 2 * r->size * FORMS_C),
                             WEFT_BUFFER("shown", WEFT_F32, 2 * r->size * whole)};
    struct forms f = {.r = r, .p = r->size, .me = r->rank, .whole = whole};
    RANKS_OK(r, weft_window_open(r->comm, b, 4, FORMS_SIGNALS, &f.w));
    f.in = window_number(f.w, "in");
    f.out = window_number(f.w, "out");
    f.slots = window_number(f.w, "slots");
    f.shown = window_number(f.w, "shown");
    const float *shown = weft_window_pointer(f.w, f.shown, r->rank);
    f.x = weft_window_pointer(f.w, f.in, r->rank);
    f.y = weft_window_pointer(f.w, f.out, r->rank);
    for (int q = 0; q < r->size; q++) {
        f.ins[q] = weft_window_pointer(f.w, f.in, q);
        f.outs[q] = weft_window_pointer(f.w, f.out, q);
        f.ins[q] = f.ins[q] ? f.ins[q] : shown + 2 * q * whole;
        f.outs[q] = f.outs[q] ? f.outs[q] : shown + (2 * q + 1) * whole;
    }
    for (f.run = 1; f.run <= runs && !r->failed[0]; f.run++)
        form(&f);
    weft_window_close(f.w);
}

void forms_body(struct ranks_rank *r)
{
    static void (*const all[])(struct forms *) = {forms_allgather, forms_reduce_scatter, forms_broadcast,
                                                  forms_alltoall,  forms_one_phase,      forms_two_phases,
                                                  forms_ring,      forms_ring2};
    for (size_t k = 0; k < sizeof all / sizeof *all && !r->failed[0]; k++)
        forms_run(r, all[k], *(const int *)r->arg);
}
