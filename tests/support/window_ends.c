#define _GNU_SOURCE
#include "window_ends.h"

#include <stdio.h>
#include <string.h>

void window_lives(struct ranks_rank *r)
{
    const weft_buffer b = WEFT_BUFFER("a", WEFT_I32, 5000);
    weft_window *w[3];
    int32_t x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int turn = 0; turn < 100; turn++) {
        for (int i = 0; i < 3; i++)
            RANKS_OK(r, weft_window_open(r->comm, &b, 1, 1, &w[i]));
        for (int i = 0; i < 3; i++) {
            int k = (i + r->rank) % 3;
            for (int q = 0; q < r->size; q++) {
                RANKS_OK(r, weft_window_put(w[k], 0, q, 8 * r->rank, x, 8));
                RANKS_OK(r, weft_window_notify(w[k], q, 0, WEFT_NOTIFY_ADD, 1));
            }
            weft_window_close(w[k]);
        }
    }
    weft_window *kept; /* its memory goes with the comm */
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 0, &kept));
    RANKS_OK(r, weft_window_barrier(kept, WINDOW_LONG));
    weft_comm_close(r->comm);
    r->keep = true;
    RANKS_OK(r, weft_window_put(kept, 0, (r->rank + 1) % r->size, 0, x, 8));
    weft_window_close(kept);
}

void window_gone(struct ranks_rank *r)
{
    weft_window *w;
    char text[200];
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w));
    if (r->rank == r->size - 1) {
        weft_window_close(w);
        return;
    }
    int err = r->rank == 0 ? weft_window_barrier(w, WINDOW_LONG)
                           : weft_window_wait(w, 0, WEFT_EQ, 1, WINDOW_LONG); /* hears of it from rank 0 */
    snprintf(text, sizeof text,
             "rank %d freed its window or closed its comm, rank 0 was waiting for it in weft_window_barrier",
             r->size - 1);
    RANKS_CHECK(r, err == WEFT_EPEER);
    RANKS_CHECK(r, !strcmp(ranks_said(), text));
    int x = 0;
    RANKS_CHECK(r, weft_window_wait(w, 0, WEFT_EQ, 1, WEFT_FOREVER) == WEFT_EPEER);
    RANKS_CHECK(r, weft_window_wait(w, 0, WEFT_EQ, 1, 0) == WEFT_EPEER);
    RANKS_CHECK(r, weft_window_barrier(w, WEFT_DEADLINE) == WEFT_EPEER);
    RANKS_CHECK(r, weft_window_barrier_with(w, &x, 1, WEFT_DEADLINE) == WEFT_EPEER);
    RANKS_CHECK(r, weft_window_notify(w, 0, 0, WEFT_NOTIFY_SET, 1) == WEFT_EPEER);
    weft_window_close(w);
}

void window_alone(struct ranks_rank *r)
{
    weft_window *w;
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w));
    if (r->rank == 0) {
        RANKS_CHECK(r, weft_window_wait(w, 0, WEFT_EQ, 1, WEFT_FOREVER) == WEFT_EPEER);
        RANKS_CHECK(r, !strcmp(weft_errmsg(), "weft_window_wait: signal 0: no other rank is left that could notify"));
        int err;
        do
            err = weft_window_wait(w, 0, WEFT_EQ, 1, 0);
        while (err == WEFT_ETIMEOUT);
        RANKS_CHECK(r, err == WEFT_EPEER);
    }
    weft_window_close(w);
    RANKS_OK(r, weft_comm_barrier(r->comm, WINDOW_LONG));
}

void window_progress(struct ranks_rank *r)
{
    enum { MOVES = 64, LEN = 64, N = MOVES * LEN };
    static _Thread_local float data[N];
    weft_move moves[MOVES];
    weft_view views[MOVES];
    weft_layout *a, *b;
    weft_plan *p;
    weft_exec *x;
    weft_window *w;
    RANKS_OK(r, weft_layout_parse("f32[64] @x1=1", &a));
    RANKS_OK(r, weft_layout_parse("f32[64] @x1=0", &b));
    for (int i = 0; i < MOVES; i++) {
        moves[i] = (weft_move){"w", a, b};
        views[i] = (weft_view){.data = data + i * LEN, .bytes = LEN * sizeof *data};
    }
    weft_lower_opts o = {.size = sizeof o, .bucket = 1, .world = r->size};
    RANKS_OK(r, weft_lower(moves, MOVES, r->rank, &o, &p));
    RANKS_OK(r, weft_bind(p, r->comm, views, views, NULL, &x));
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w));
    for (int turn = 1; turn <= 3; turn++) {
        for (int i = 0; i < N; i++)
            data[i] = r->rank == 1 ? (float)(i + turn) : 0;
        RANKS_OK(r, weft_exec_start(x));
        if (r->rank == 0) {
            RANKS_OK(r, weft_exec_wait(x, WINDOW_LONG));
            values_begin();
            for (int i = 0; i < N; i++)
                VALUES_CHECK(i, data[i], (float)(i + turn));
            RANKS_VALUES(r);
            for (int q = 1; q < r->size; q++)
                RANKS_OK(r, weft_window_notify(w, q, 0, WEFT_NOTIFY_ADD, 1));
        } else {
            RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, (uint64_t)turn, WINDOW_LONG));
            RANKS_OK(r, weft_exec_wait(x, WINDOW_LONG));
        }
        /* The same in a barrier. */
        RANKS_OK(r, weft_exec_start(x));
        if (r->rank == 0)
            RANKS_OK(r, weft_exec_wait(x, WINDOW_LONG));
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        RANKS_OK(r, weft_exec_wait(x, WINDOW_LONG));
    }
    weft_window_close(w);
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(a);
    weft_layout_free(b);
}
