/* Every allocation of open, bind, rebind, split and the making of a window fails once, on one rank: all ranks are told,
 * with the same words, nothing is leaked (the sanitizer build looks) and the comm goes on. The linker sends the
 * library's allocations through here. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "support/nomem.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "support/tensors.h"

void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
char *__real_strdup(const char *s);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
char *__wrap_strdup(const char *s);

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return nomem_fails() ? NULL : __real_aligned_alloc(align, n);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return nomem_fails() ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, offset);
}

char *__wrap_strdup(const char *s)
{
    return nomem_fails() ? NULL : __real_strdup(s);
}

static void open_reports_every_failed_allocation(void **state)
{
    (void)state;
    static const char *const urls[] = {"self:", "threads:1/nomem"};
    for (int u = 0; u < 2; u++) {
        weft_comm *c = NULL;
        int err, n = 0;
        do {
            nomem_until = n++;
            err = weft_comm_open(urls[u], NULL, &c);
            assert_true(err == 0 || (err == WEFT_ENOMEM && !c));
        } while (err);
        nomem_until = -1;
        assert_true(n > 3);
        weft_comm_close(c);
    }
}

static int bind_or_rebind(const weft_plan *p, weft_comm *c, weft_view *in, weft_view *out, weft_exec **x)
{
    return *x ? weft_exec_rebind(*x, in, out) : weft_bind(p, c, in, out, NULL, x);
}

/* In place, so that the check of what may share memory allocates too. */
static void run_binds(struct ranks_rank *r)
{
    weft_layout *a, *b;
    weft_plan *p;
    weft_exec *x = NULL;
    float in[300];
    weft_lower_opts o = {.size = sizeof o, .in_place = true};
    weft_view view = WEFT_VIEW(in, sizeof in);
    RANKS_OK(r, weft_layout_parse("f32[300] @x3 +sum(x)", &a));
    RANKS_OK(r, weft_layout_parse("f32[300] @x3", &b));
    RANKS_OK(r, weft_lower(&(weft_move){"w", a, b}, 1, r->rank, &o, &p));
    for (int again = 0; again < 2; again++) {
        int err, n = 0;
        char expected[100];
        snprintf(expected, sizeof expected, "rank %d: ", r->size - 1);
        do {
            if (r->rank == r->size - 1)
                nomem_until = n;
            n++;
            err = bind_or_rebind(p, r->comm, &view, &view, &x);
            nomem_until = -1;
            RANKS_CHECK(r, err == 0 || err == WEFT_ENOMEM);
            RANKS_CHECK(r, !err || !strncmp(weft_errmsg(), expected, strlen(expected)));
            RANKS_CHECK(r, again || !err == !!x);
        } while (err);
        RANKS_CHECK(r, n > 5);
    }
    tensors_fill(a, r->rank, in, 2);
    RANKS_OK(r, weft_exec_run(x));
    RANKS_CHECK(r, !tensors_wrong(a, b, r->rank, in, 2));
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(a);
    weft_layout_free(b);
}

/* All ranks share a block, so that a plan of maxima is bound as well. */
static void run_scaled_binds(struct ranks_rank *r)
{
    weft_layout *a, *b;
    weft_plan *p;
    weft_exec *x = NULL;
    float in[100] = {1}, scale[1] = {0};
    unsigned char out[300];
    weft_view from[] = {WEFT_VIEW(in, sizeof in), WEFT_VIEW_INIT};
    weft_view to[] = {WEFT_VIEW(out, sizeof out), WEFT_VIEW(scale, sizeof scale)};
    RANKS_OK(r, weft_layout_parse("f32[300/x] @x3", &a));
    RANKS_OK(r, weft_layout_parse("f8e4m3[300] @x3 *f32(512)", &b));
    RANKS_OK(r, weft_lower(&(weft_move){"w", a, b}, 1, r->rank, NULL, &p));
    for (int again = 0; again < 2; again++) {
        int err, n = 0;
        do {
            if (r->rank == r->size - 1)
                nomem_until = n;
            n++;
            err = bind_or_rebind(p, r->comm, from, to, &x);
            nomem_until = -1;
            RANKS_CHECK(r, err == 0 || err == WEFT_ENOMEM);
            RANKS_CHECK(r, again || !err == !!x);
        } while (err);
        RANKS_CHECK(r, n > 10);
    }
    RANKS_OK(r, weft_exec_run(x));
    RANKS_CHECK(r, scale[0] == 1.0F / 448.0F && out[100] == 0x7e);
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(a);
    weft_layout_free(b);
}

static void bind_reports_every_failed_allocation_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_scaled_binds, NULL, NULL);
    ranks_run(3, NULL, run_binds, NULL, NULL);
    ranks_run(3, &(weft_comm_opts){.staged = true}, run_binds, NULL, NULL);
}

static void run_windows(struct ranks_rank *r)
{
    const weft_buffer b[] = {WEFT_BUFFER("a", WEFT_F32, 100), WEFT_BUFFER("large", WEFT_F32, 1 << 20)};
    int err, n = 0;
    do {
        weft_window *w = NULL;
        if (r->rank == r->size - 1)
            nomem_until = n;
        n++;
        err = weft_window_open(r->comm, b, 2, 4, &w);
        nomem_until = -1;
        RANKS_CHECK(r, err == 0 || (err == WEFT_ENOMEM && !w));
        RANKS_CHECK(r, !err || !strncmp(weft_errmsg(), "rank 2: ", 8));
        if (!err)
            RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE));
        weft_window_close(w);
    } while (err);
    RANKS_CHECK(r, n > 3);
}

static void window_open_reports_every_failed_allocation_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_windows, NULL, NULL);
}

/* The rank whose memory runs out is the first of its group, which makes what they share, or the last. */
static void run_splits(struct ranks_rank *r)
{
    static const int lists[2][3] = {{2, 0, 1}, {0, 1, 2}};
    for (int i = 0; i < 2; i++) {
        weft_comm *c = NULL;
        int err, n = 0;
        do {
            if (r->rank == r->size - 1)
                nomem_until = n;
            n++;
            err = weft_comm_split(r->comm, lists[i], 3, &c);
            nomem_until = -1;
            RANKS_CHECK(r, err == 0 || (err == WEFT_ENOMEM && !c));
            RANKS_CHECK(r, !err || !strncmp(weft_errmsg(), "rank 2: ", 8));
        } while (err);
        RANKS_CHECK(r, n > 4);
        RANKS_OK(r, weft_comm_barrier(c, WEFT_DEADLINE));
        weft_comm_close(c);
    }
}

static void split_reports_every_failed_allocation_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_splits, NULL, NULL);
#if !defined(__SANITIZE_THREAD__) /* which tells the words of two mappings apart */
    ranks_on = "shm";
    ranks_run(3, NULL, run_splits, NULL, NULL);
    ranks_on = "threads";
#endif
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_reports_every_failed_allocation),
        cmocka_unit_test(bind_reports_every_failed_allocation_on_all_ranks),
        cmocka_unit_test(window_open_reports_every_failed_allocation_on_all_ranks),
        cmocka_unit_test(split_reports_every_failed_allocation_on_all_ranks),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
