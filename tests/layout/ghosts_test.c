/* The parts of a rank's buffer (weft_layout_halo): against the oracle of layouts, slot by slot, and by hand. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "support/layout_oracle.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

static struct sample sample;
#define LAW(holds) SAMPLE_LAW(sample, holds)

enum { BOXES = 20000 };

/* What slot k of a dim is, and the position it stands for, or would stand for. */
static enum weft_halo_part slot_part(const weft_dim *d, const struct oracle *o, int64_t k, int64_t *at)
{
    int64_t x = k - o->first;
    *at = o->slot[k];
    if (x < 0 || x >= o->n) {
        if (o->slot[k] < 0)
            *at = o->at[0] + (x < 0 ? x : x - o->n + (o->at[o->n - 1] - o->at[0] + 1));
        return o->slot[k] < 0 ? WEFT_HALO_EDGES : WEFT_HALO_GHOSTS;
    }
    for (int64_t i = k - d->lo; i <= k + d->hi && (d->lo || d->hi); i++)
        if (o->slot[i] >= 0 && (i < o->first || i >= o->first + o->n))
            return WEFT_HALO_RIM;
    return WEFT_HALO_INNER;
}

/* Every slot of the box is of the part, stands where the box says, and was in no box before. */
static void check_box(const struct oracle *o, const weft_box *b, enum weft_halo_part part, unsigned char *seen)
{
    int ndim = sample.desc.ndim;
    int64_t count = 1;
    for (int d = 0; d < ndim; d++) {
        LAW(b->len[d] > 0 && b->local[d] >= 0 && b->local[d] + b->len[d] <= o[d].room);
        count *= b->len[d];
    }
    for (int64_t i = 0; i < count; i++) {
        enum weft_halo_part most = WEFT_HALO_INNER;
        int64_t rest = i, slot = 0, scale = 1;
        int ghosts = 0; /* dims in which the slot is a ghost */
        for (int d = ndim - 1; d >= 0; d--) {
            int64_t k = b->local[d] + rest % b->len[d], at;
            enum weft_halo_part is = slot_part(&sample.dims[d], &o[d], k, &at);
            LAW(at == b->at[d] + rest % b->len[d]);
            most = is > most ? is : most;
            ghosts += is == WEFT_HALO_GHOSTS;
            rest /= b->len[d];
            slot += k * scale;
            scale *= o[d].room;
        }
        if (ghosts > 1 && sample.desc.flags)
            most = WEFT_HALO_EDGES;
        LAW(most == part && !seen[slot]);
        seen[slot] = 1;
    }
}

static void check_parts(const weft_layout *l, int rank)
{
    static struct oracle o[WEFT_MAX_DIMS];
    static weft_box boxes[BOXES + 1];
    static unsigned char seen[1 << 20];
    int64_t index = oracle_index(&sample, rank), slots = index >= 0, covered = 0;
    for (int d = 0; d < sample.desc.ndim && index >= 0; d++) {
        oracle_dim(&sample, d, index, &o[d]);
        slots = slots > (1 << 20) ? slots : slots * o[d].room;
    }
    if (slots > (1 << 20))
        return;
    memset(seen, 0, (size_t)slots);
    for (enum weft_halo_part part = WEFT_HALO_INNER; part <= WEFT_HALO_EDGES; part++) {
        size_t n = 77, again = 77;
        LAW(!weft_layout_halo(l, rank, part, NULL, 0, &n));
        size_t cap = n < BOXES ? n : BOXES, half = cap / 2;
        memset(boxes, 0x55, (cap + 1) * sizeof *boxes);
        LAW(!weft_layout_halo(l, rank, part, boxes, half, &again));
        LAW(again == n && boxes[half].local[0] == 0x5555555555555555);
        LAW(!weft_layout_halo(l, rank, part, boxes, cap, &again));
        LAW(again == n && n <= BOXES);
        for (size_t i = 0; i < n; i++)
            check_box(o, &boxes[i], part, seen);
    }
    for (int64_t i = 0; i < slots; i++)
        covered += seen[i];
    LAW(covered == slots);
}

static void every_slot_is_in_one_part(void **state)
{
    (void)state;
    static const struct sample_options shapes[] = {
        {.dims = 2, .axes = 3, .mesh = 12, .extent = 20, .ghosts = 6},
        {.dims = 4, .axes = 4, .mesh = 24, .extent = 7, .ghosts = 3},
        {.dims = 1, .axes = 2, .mesh = 5, .extent = 9, .ghosts = 40},
        {.dims = WEFT_MAX_DIMS, .axes = WEFT_MAX_AXES, .mesh = 16, .extent = 3, .ghosts = 1},
    };
    struct random g = {41};
    for (int64_t cases = test_share(1500, 60000); cases > 0; cases--) {
        weft_layout *l = NULL;
        sample_desc(&g, &sample, &shapes[cases % 4]);
        sample_text(&g, &sample, false);
        LAW(!weft_layout_create(&sample.desc, &l));
        int64_t mesh = sample_mesh_size(&sample);
        for (int64_t i = 0; i < mesh; i += random_in(&g, 1, 4))
            check_parts(l, sample.desc.ranks ? sample.ranks[i] : (int)i);
        check_parts(l, INT32_MAX); /* not in the mesh */
        weft_layout_free(l);
    }
}

/* By hand: rows wrap round, columns do not; two ghosts above, one below, one at either side. */
static void parts_of_a_plane_match_results_by_hand(void **state)
{
    (void)state;
    static const struct {
        int rank;
        enum weft_halo_part part;
        size_t n;
        weft_box box[8];
    } want[] = {
        {0, WEFT_HALO_INNER, 1, {{{2, 0}, {1, 4}, {4, 1}}}},
        {0, WEFT_HALO_RIM, 3, {{{0, 0}, {2, 5}, {2, 1}}, {{3, 0}, {1, 5}, {5, 1}}, {{2, 4}, {1, 1}, {4, 5}}}},
        {0,
         WEFT_HALO_GHOSTS,
         5,
         {{{6, 0}, {2, 5}, {0, 1}},
          {{6, 5}, {2, 1}, {0, 6}},
          {{4, 0}, {1, 5}, {6, 1}},
          {{4, 5}, {1, 1}, {6, 6}},
          {{0, 5}, {4, 1}, {2, 6}}}},
        {0, WEFT_HALO_EDGES, 3, {{{0, -1}, {4, 1}, {2, 0}}, {{6, -1}, {2, 1}, {0, 0}}, {{4, -1}, {1, 1}, {6, 0}}}},
        {3, WEFT_HALO_INNER, 1, {{{6, 6}, {1, 4}, {4, 2}}}},
        {3, WEFT_HALO_EDGES, 3, {{{4, 10}, {4, 1}, {2, 6}}, {{2, 10}, {2, 1}, {0, 6}}, {{0, 10}, {1, 1}, {6, 6}}}},
        {4, WEFT_HALO_GHOSTS, 0, {{{0}, {0}, {0}}}},
    };
    weft_layout *l;
    assert_int_equal(weft_layout_parse("f32[8/y~2:1o,10/x~1] @y2.x2", &l), 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        weft_box got[16];
        size_t n;
        assert_int_equal(weft_layout_halo(l, want[i].rank, want[i].part, got, 16, &n), 0);
        assert_int_equal(n, want[i].n);
        for (size_t k = 0; k < n; k++)
            assert_memory_equal(&got[k], &want[i].box[k], sizeof *got);
    }
    weft_layout_free(l);
}

static void bad_part_calls_are_refused(void **state)
{
    (void)state;
    weft_layout *l;
    weft_box box;
    size_t n = 5;
    assert_int_equal(weft_layout_parse("f32[8/x~1] @x2", &l), 0);
    assert_int_equal(weft_layout_halo(NULL, 0, WEFT_HALO_RIM, &box, 1, &n), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "layout: layout is NULL");
    assert_int_equal(weft_layout_halo(l, 0, WEFT_HALO_RIM, NULL, 1, &n), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "layout: out is NULL");
    assert_int_equal(weft_layout_halo(l, 0, WEFT_HALO_RIM, &box, 1, NULL), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "layout: n is NULL");
    assert_int_equal(weft_layout_halo(l, -1, WEFT_HALO_RIM, &box, 1, &n), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "layout: rank -1 is negative");
    for (int part = 0; part <= 5; part += 5) {
        assert_int_equal(weft_layout_halo(l, 0, (enum weft_halo_part)part, &box, 1, &n), WEFT_EINVAL);
        assert_non_null(strstr(weft_errmsg(), "inner, rim, ghosts, edges are 1 to 4"));
    }
    assert_int_equal(n, 5);
    weft_layout_free(l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slot_is_in_one_part),
        cmocka_unit_test(parts_of_a_plane_match_results_by_hand),
        cmocka_unit_test(bad_part_calls_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
