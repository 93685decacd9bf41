/* Halos as layouts: exchanges of any shape against the definitions, their adjoint,
 * several fields in one plan, and computing while an exchange is in flight; on all transports. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "support/conformance.h"
#include "support/halo_grid.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/values.h"

static int64_t value(int64_t global, int64_t salt)
{
    return (int64_t)(hash_mix((uint64_t)global * 31 + (uint64_t)salt) % 1000) + 1;
}

/* A buffer of `bytes` bytes, in window memory or private. */
static void *take(struct ranks_rank *r, bool window, size_t bytes)
{
    void *p = NULL;
    if (!window)
        return calloc(1, bytes + 1);
    return weft_comm_alloc(r->comm, bytes + 1, WEFT_MEMORY_HOST, 0, &p) ? NULL : p;
}

static void give(struct ranks_rank *r, bool window, void *p)
{
    if (window)
        weft_comm_free(r->comm, p);
    else
        free(p);
}

/* One exchange and its adjoint, of i64, on this rank's part of a grid. */
struct halo {
    struct grid grid;
    struct grid_rank mine;
    bool window, in_place;
    weft_layout *own, *all, *terms; /* terms: all, with ghosts as summands */
    weft_plan *plan, *back;
    weft_exec *exec, *reverse;
    int64_t *buffer, *dense; /* with ghosts; own elements alone, where not in place */
    struct grid_view view;
};

static int halo_make(struct halo *h, struct ranks_rank *r)
{
    size_t bytes = (size_t)h->mine.slots * sizeof *h->buffer;
    weft_lower_opts opts = {.size = sizeof opts, .world = r->size, .in_place = h->in_place};
    h->buffer = take(r, h->window, bytes);
    h->dense = take(r, h->window, bytes);
    if (!h->buffer || !h->dense)
        return WEFT_ENOMEM;
    grid_view(&h->grid, &h->mine, h->buffer, sizeof *h->buffer, &h->view);
    int err = grid_layouts(&h->grid, "i64", &h->own, &h->all);
    if (!err)
        err = weft_layout_dual(h->all, &h->terms);
    if (!err)
        err = weft_lower(&(weft_move){"h", h->own, h->all}, 1, r->rank, &opts, &h->plan);
    if (!err)
        err = weft_lower(&(weft_move){"h", h->terms, h->own}, 1, r->rank, &opts, &h->back);
    weft_view apart = WEFT_VIEW(h->dense, bytes), *own = h->in_place ? &h->view.own : &apart;
    if (!err)
        err = weft_bind(h->plan, r->comm, own, &h->view.all, NULL, &h->exec);
    return err ? err : weft_bind(h->back, r->comm, &h->view.all, own, NULL, &h->reverse);
}

static void halo_free(struct halo *h, struct ranks_rank *r)
{
    weft_exec_close(h->exec);
    weft_exec_close(h->reverse);
    weft_plan_free(h->plan);
    weft_plan_free(h->back);
    weft_layout_free(h->own);
    weft_layout_free(h->all);
    weft_layout_free(h->terms);
    give(r, h->window, h->buffer);
    give(r, h->window, h->dense);
}

static int64_t *own_at(struct halo *h, int64_t slot, int64_t dense)
{
    return h->in_place ? &h->buffer[slot] : &h->dense[dense];
}

/* Own elements get their values, all other slots spoil. */
static void halo_fill(struct halo *h, int64_t salt, int64_t spoil)
{
    bool own;
    for (int64_t i = 0, k = 0; i < h->mine.slots; i++) {
        int64_t global = grid_slot(&h->grid, &h->mine, i, &own);
        h->buffer[i] = spoil;
        if (own)
            *own_at(h, i, k++) = value(global, salt);
    }
}

/* Slots that are not as the definitions say after an exchange. */
static int64_t halo_wrong(const struct halo *h, int64_t salt, int64_t spoil)
{
    bool own;
    values_begin();
    for (int64_t i = 0; i < h->mine.slots; i++) {
        int64_t global = grid_slot(&h->grid, &h->mine, i, &own);
        grid_check(&h->grid, i, global, global == EDGE ? spoil : value(global, salt), h->buffer[i]);
    }
    return values_wrong();
}

/* What all ranks' numbers come to; everyone has its own line in `sums`. */
static int64_t sum_over(struct ranks_rank *r, int64_t *sums, int64_t mine)
{
    int64_t sum = 0;
    sums[r->rank] = mine;
    ranks_meet(r);
    for (int i = 0; i < r->size; i++)
        sum += sums[i];
    ranks_meet(r);
    return sum;
}

/* <halo x, y> = <x, reverse y>: x by element, y by slot of each rank; edges count nowhere. */
static bool adjoint_holds(struct halo *h, struct ranks_rank *r, int64_t *sums, int64_t salt, int *err)
{
    int64_t forth = 0, back = 0;
    bool own;
    for (int64_t i = 0; i < h->mine.slots; i++) { /* the exchange has been run with this salt */
        bool edge = grid_slot(&h->grid, &h->mine, i, &own) == EDGE;
        int64_t y = value(i * 64 + r->rank, salt + 1);
        forth += edge ? 0 : h->buffer[i] * y;
        h->buffer[i] = y;
    }
    *err = weft_exec_run(h->reverse);
    if (!*err)
        *err = conformance_settle(r);
    for (int64_t i = 0, k = 0; i < h->mine.slots; i++) {
        int64_t global = grid_slot(&h->grid, &h->mine, i, &own);
        if (own)
            back += *own_at(h, i, k++) * value(global, salt);
    }
    return sum_over(r, sums, forth) == sum_over(r, sums, back);
}

static void run_exchanges(struct ranks_rank *r)
{
    struct random g = {(uint64_t)r->size * 1000};
    for (int64_t cases = conformance_on_hosts() ? test_share(5, 100) : test_share(30, 1000); cases > 0; cases--) {
        struct halo h = {.window = random_once_in(&g, 2), .in_place = random_once_in(&g, 2)};
        char text[200];
        int err;
        grid_random(&g, r->size, &h.grid);
        grid_text(&h.grid, "i64", true, text, sizeof text);
        h.mine = grid_rank(&h.grid, r->rank);
        RANKS_CHECK(r, h.mine.slots <= GRID_SLOTS);
        RANKS_OK(r, halo_make(&h, r));
        for (int64_t run = 0; run < 2; run++) {
            halo_fill(&h, run, -7);
            RANKS_OK(r, weft_exec_run(h.exec));
            if (halo_wrong(&h, run, -7))
                ranks_note(r, __FILE__, __LINE__, "%s, window %d, in place %d", text, h.window, h.in_place);
            bool holds = adjoint_holds(&h, r, r->arg, run, &err);
            RANKS_CHECK(r, !err);
            if (!holds)
                ranks_note(r, __FILE__, __LINE__, "%s, window %d, in place %d: the reverse is not the adjoint", text,
                           h.window, h.in_place);
        }
        halo_free(&h, r);
    }
}

static void random_halos_and_their_adjoints_are_right(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 6, 8};
    int64_t *sums = ranks_shared(RANKS_MAX * sizeof *sums);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!conformance_takes((int)i))
            continue;
        ranks_run(sizes[i], NULL, run_exchanges, sums, NULL);
        ranks_run(sizes[i], &(weft_comm_opts){.staged = true}, run_exchanges, sums, NULL);
    }
    munmap(sums, RANKS_MAX * sizeof *sums);
}

/* ---- several fields at once ---- */

enum { FIELDS = 3, PEERS = 16 };

/* Fields of one domain, with elements and ghosts of their own. */
struct fields {
    const char *dtype[FIELDS];
    size_t size[FIELDS];
    struct grid grid[FIELDS];
};

static struct fields make_fields(int rows, int columns, bool wrap)
{
    struct fields f = {{"i64", "u8", "i32"}, {8, 1, 4}, {{0}, {0}, {0}}};
    for (int i = 0; i < FIELDS; i++)
        f.grid[i] = (struct grid){2, rows * columns, {{11, rows, 1, i, wrap}, {17, columns, 1 + i, 1, false}}};
    return f;
}

/* All fields in one plan: values are right, and each peer gets one message. */
static void run_fields(struct ranks_rank *r)
{
    const struct fields *f = r->arg;
    struct grid_view view[FIELDS];
    weft_view src[FIELDS], dst[FIELDS];
    weft_layout *own[FIELDS], *all[FIELDS];
    weft_move moves[FIELDS];
    weft_plan *plan;
    weft_exec *x;
    weft_peer peers[PEERS];
    size_t npeers;
    for (int i = 0; i < FIELDS; i++) {
        struct grid_rank mine = grid_rank(&f->grid[i], r->rank);
        RANKS_OK(r, grid_layouts(&f->grid[i], f->dtype[i], &own[i], &all[i]));
        moves[i] = (weft_move){f->dtype[i], own[i], all[i]};
        grid_view(&f->grid[i], &mine, take(r, true, (size_t)mine.slots * 8), f->size[i], &view[i]);
        src[i] = view[i].own;
        dst[i] = view[i].all;
    }
    RANKS_OK(r, weft_lower(moves, FIELDS, r->rank, NULL, &plan));
    RANKS_OK(r, weft_plan_peers(plan, peers, PEERS, &npeers));
    RANKS_CHECK(r, npeers >= 1 && npeers <= PEERS);
    for (size_t p = 0; p < npeers; p++)
        RANKS_CHECK(r, peers[p].sends == 1 && peers[p].recvs == 1);
    RANKS_OK(r, weft_bind(plan, r->comm, src, dst, NULL, &x));
    for (int run = 0; run < 3; run++) {
        for (int pass = 0; pass < 2; pass++) { /* fill, then compare */
            values_begin();
            for (int i = 0; i < FIELDS; i++) {
                values_tensor(i);
                struct grid_rank mine = grid_rank(&f->grid[i], r->rank);
                for (int64_t k = 0; k < mine.slots; k++) {
                    bool is_own;
                    int64_t global = grid_slot(&f->grid[i], &mine, k, &is_own);
                    bool given = pass ? global != EDGE : is_own;
                    int64_t v = given ? value(global, run + i) : 99;
                    char *slot = (char *)dst[i].data + (size_t)k * f->size[i];
                    if (!pass)
                        memcpy(slot, &v, f->size[i]); /* the low bytes: both machines are little endian */
                    else if (memcmp(slot, &v, f->size[i])) {
                        int64_t found = 0;
                        memcpy(&found, slot, f->size[i]);
                        grid_check(&f->grid[i], k, global, v, found);
                    }
                }
            }
            RANKS_VALUES(r);
            if (!pass)
                RANKS_OK(r, weft_exec_run(x));
        }
    }
    weft_exec_close(x);
    weft_plan_free(plan);
    for (int i = 0; i < FIELDS; i++) {
        weft_layout_free(own[i]);
        weft_layout_free(all[i]);
        weft_comm_free(r->comm, dst[i].data);
    }
}

static void fields_of_one_plan_share_messages(void **state)
{
    (void)state;
    static const struct {
        int rows, columns;
        bool wrap;
    } shapes[] = {{2, 1, true}, {1, 2, false}, {2, 2, false}, {2, 2, true}, {3, 2, true}, {2, 4, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!conformance_takes((int)i))
            continue;
        struct fields f = make_fields(shapes[i].rows, shapes[i].columns, shapes[i].wrap);
        ranks_run(f.grid[0].ranks, NULL, run_fields, &f, NULL);
        ranks_run(f.grid[0].ranks, &(weft_comm_opts){.staged = true}, run_fields, &f, NULL);
    }
}

/* ---- computing meanwhile ---- */

/* Sum of all slots that a stencil as wide as the ghosts reads around one; edges have the value of `edge`. */
static int64_t stencil(const struct halo *h, int64_t slot, bool brute, int64_t salt, int64_t edge)
{
    int64_t reads = 1, sum = 0;
    bool own;
    for (int d = 0; d < h->grid.ndim; d++)
        reads *= h->grid.dim[d].lo + 1 + h->grid.dim[d].hi;
    for (int64_t i = 0; i < reads; i++) {
        int64_t rest = i, at = slot, scale = 1;
        for (int d = h->grid.ndim - 1; d >= 0; d--) {
            int64_t width = h->grid.dim[d].lo + 1 + h->grid.dim[d].hi;
            at += (rest % width - h->grid.dim[d].lo) * scale;
            rest /= width;
            scale *= h->mine.shape[d];
        }
        int64_t global = brute ? grid_slot(&h->grid, &h->mine, at, &own) : 0;
        sum += !brute ? h->buffer[at] : global == EDGE ? edge : value(global, salt);
    }
    return sum;
}

/* Computes all elements of a part into out. */
static int compute(const struct halo *h, int rank, enum weft_halo_part part, int64_t *out)
{
    weft_box boxes[2 * GRID_DIMS];
    size_t n;
    int err = weft_layout_halo(h->all, rank, part, boxes, 2 * GRID_DIMS, &n);
    if (err || n > 2 * GRID_DIMS)
        return err ? err : WEFT_EINVAL;
    for (size_t b = 0; b < n; b++) {
        int64_t count = 1;
        for (int d = 0; d < h->grid.ndim; d++)
            count *= boxes[b].len[d];
        for (int64_t i = 0; i < count; i++) {
            int64_t rest = i, slot = 0, scale = 1;
            for (int d = h->grid.ndim - 1; d >= 0; d--) {
                slot += (boxes[b].local[d] + rest % boxes[b].len[d]) * scale;
                rest /= boxes[b].len[d];
                scale *= h->mine.shape[d];
            }
            out[slot] = stencil(h, slot, false, 0, 0);
        }
    }
    return 0;
}

static bool own_untouched(const struct halo *h, int64_t salt)
{
    bool own;
    values_begin();
    for (int64_t i = 0; i < h->mine.slots; i++) {
        int64_t global = grid_slot(&h->grid, &h->mine, i, &own);
        if (own)
            grid_check(&h->grid, i, global, value(global, salt), h->buffer[i]);
    }
    return !values_wrong();
}

/* In place: start, compute what needs no ghosts, wait, compute the rim. */
static void run_overlap(struct ranks_rank *r)
{
    for (int mode = 0; mode < 2; mode++) {
        struct halo h = {.grid = *(const struct grid *)r->arg, .window = mode, .in_place = true};
        bool own, done;
        h.mine = grid_rank(&h.grid, r->rank);
        int64_t *out = calloc((size_t)h.mine.slots + 1, sizeof *out);
        RANKS_CHECK(r, out != NULL);
        RANKS_OK(r, halo_make(&h, r));
        for (int64_t run = 0; run < 3; run++) {
            halo_fill(&h, run, -7);
            RANKS_OK(r, weft_exec_start(h.exec));
            RANKS_OK(r, compute(&h, r->rank, WEFT_HALO_INNER, out));
            RANKS_CHECK(r, own_untouched(&h, run));
            RANKS_OK(r, weft_exec_test(h.exec, &done));
            RANKS_OK(r, compute(&h, r->rank, WEFT_HALO_INNER, out)); /* ghosts may have come meanwhile */
            RANKS_CHECK(r, own_untouched(&h, run));
            RANKS_OK(r, weft_exec_wait(h.exec, WEFT_FOREVER));
            RANKS_OK(r, compute(&h, r->rank, WEFT_HALO_RIM, out));
            RANKS_CHECK(r, !halo_wrong(&h, run, -7));
            for (int64_t i = 0; i < h.mine.slots; i++) {
                int64_t global = grid_slot(&h.grid, &h.mine, i, &own);
                if (own)
                    grid_check(&h.grid, i, global, stencil(&h, i, true, run, -7), out[i]);
            }
            RANKS_VALUES(r);
        }
        halo_free(&h, r);
        free(out);
    }
}

static void interior_is_untouched_while_ghosts_are_in_flight(void **state)
{
    (void)state;
    struct grid grids[] = {
        {1, 2, {{1201, 2, 520, 400, true}}}, /* two faces to one neighbour */
        {1, 3, {{1600, 3, 0, 520, false}}},
        {1, 4, {{10, 4, 4, 5, true}}}, /* ghosts of neighbours' neighbours; the last piece is short */
        {2, 4, {{40, 2, 3, 2, true}, {130, 2, 2, 2, false}}},
        {3, 4, {{12, 1, 1, 1, true}, {18, 2, 1, 1, true}, {20, 2, 1, 0, false}}},
        {2, 6, {{7, 3, 1, 1, false}, {900, 2, 1, 1, true}}},
        {3, 2, {{24, 1, 0, 0, false}, {25, 1, 0, 0, false}, {6, 2, 1, 1, true}}}, /* elements far apart are packed */
    };
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (!conformance_takes((int)i))
            continue;
        ranks_run(grids[i].ranks, NULL, run_overlap, &grids[i], NULL);
        ranks_run(grids[i].ranks, &(weft_comm_opts){.staged = true}, run_overlap, &grids[i], NULL);
    }
}

/* ---- elements far apart ---- */

/* Faces whose elements are far apart go through staging memory, unless that is scarce. */
static void run_scattered(struct ranks_rank *r)
{
    struct halo h = {.grid = {3, 2, {{24, 1, 0, 0, false}, {25, 1, 0, 0, false}, {6, 2, 1, 1, true}}},
                     .window = true,
                     .in_place = true};
    weft_exec_info info = {.size = sizeof info};
    h.mine = grid_rank(&h.grid, r->rank);
    RANKS_OK(r, halo_make(&h, r));
    for (int64_t run = 0; run < 3; run++) {
        halo_fill(&h, run, -7);
        RANKS_OK(r, weft_exec_run(h.exec));
        RANKS_CHECK(r, !halo_wrong(&h, run, -7));
    }
    RANKS_OK(r, weft_exec_stats(h.exec, &info));
    RANKS_CHECK(r, (info.staging_peak > 0) == *(const bool *)r->arg);
    halo_free(&h, r);
}

static void scattered_faces_are_staged_only_where_there_is_room(void **state)
{
    (void)state;
    bool packed = true, not = false;
    if (conformance_on_hosts()) /* there they always are */
        return;
    ranks_run(2, NULL, run_scattered, &packed, NULL);
    ranks_run(2, &(weft_comm_opts){.inflight_buckets = 3}, run_scattered, &not, NULL);
    ranks_run(2, &(weft_comm_opts){.inflight_bytes = 64 * 9000}, run_scattered, &not,
              NULL); /* a 64th is less than both faces */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest runs[] = {
        cmocka_unit_test(random_halos_and_their_adjoints_are_right),
        cmocka_unit_test(fields_of_one_plan_share_messages),
        cmocka_unit_test(interior_is_untouched_while_ghosts_are_in_flight),
        cmocka_unit_test(scattered_faces_are_staged_only_where_there_is_room),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, runs));
}
