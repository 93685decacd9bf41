/* Layouts of boxes on the bus: random pairs with at least one side of boxes, against what each slot stands for. Arrays
 * are in host memory, or on a device. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/boxes_random.h"
#include "support/share.h"
#include "version/bus.h"
#include "version/device_kit.h"
#include "version/version_kit.h"

static struct boxes_sample sample[2];
static struct boxes_side sides[2]; /* of the publisher, of the subscriber */
#define FROM (&sides[0])
#define TO (&sides[1])
#define UNTOUCHED (-7)
static bool there[2]; /* arrays of the sides are on the device */

static void make_side(struct random *g, int k, bool mesh, enum weft_dtype dtype)
{
    char text[200];
    if (mesh) {
        boxes_mesh(g, &sample[k], text, sizeof text);
        fine(weft_layout_parse(text, &sides[k].layout));
        boxes_mesh_slots(sides[k].layout, &sample[k], &sides[k]);
        return;
    }
    do
        boxes_fill(g, &sample[k], false);
    while (boxes_create(&sample[k], dtype, &sides[k].layout)); /* the only box may have been taken away */
    boxes_slots(&sample[k], &sides[k]);
}

static int64_t value(int64_t element, int64_t step)
{
    return element * 5 + step * 1000;
}

/* Puts and commits on all ranks. The arrays are i64, or i32 as they are published. */
static void commit_all(weft_publisher **p, int ranks, int64_t step, bool wide)
{
    static int64_t big[BOXES_ROOM];
    static int32_t small[BOXES_ROOM];
    for (int r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < BOXES_ROOM; i++)
            small[i] = (int32_t)(big[i] = FROM->slot[r][i] < 0 ? 77777 + r + i : value(FROM->slot[r][i], step));
        size_t bytes = (size_t)FROM->room[r] * (wide ? sizeof *big : sizeof *small);
        weft_view view = WEFT_VIEW(wide ? (void *)big : (void *)small, bytes);
        if (there[0]) {
            view.data = device_kit_new(view.data, bytes);
            view.memory = WEFT_MEMORY_CUDA;
        }
        fine(weft_put(p[r], step, &view));
        if (there[0])
            device_kit_free(view.data);
        fine(weft_commit(p[r], step, NULL, NULL));
    }
}

static bool has(const struct boxes_side *s, int ranks, int64_t element)
{
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < s->room[r]; i++)
            if (s->slot[r][i] == element)
                return true;
    return false;
}

/* Elements that a rank needs and no rank of the publisher has. */
static int64_t missing(int rank, int ranks)
{
    int64_t n = 0;
    for (int64_t i = 0; i < TO->room[rank]; i++)
        n += TO->slot[rank][i] >= 0 && !has(FROM, ranks, TO->slot[rank][i]);
    return n;
}

static void check(const void *data, int dtype, int rank, int64_t step, int64_t untouched, int64_t seed)
{
    for (int64_t i = 0; i < TO->room[rank]; i++) {
        int64_t is = dtype == WEFT_I64 ? ((const int64_t *)data)[i] : ((const int32_t *)data)[i];
        int64_t want = TO->slot[rank][i] < 0 ? untouched : value(TO->slot[rank][i], step);
        if (is != want)
            fail_msg("case %lld, rank %d, slot %lld is %lld, not %lld", (long long)seed, rank, (long long)i,
                     (long long)is, (long long)want);
    }
}

enum mode { PLAIN, INTO, DIRECT };

static void read_rank(weft_bus *b, weft_publisher **p, int ranks, int rank, int dtype, enum mode mode, int64_t *step,
                      bool wide, int64_t seed)
{
    static int64_t memory[BOXES_ROOM];
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    int64_t bytes;
    weft_view view = WEFT_VIEW(memory, (size_t)TO->room[rank] * weft_dtype_size(dtype));
    o.rank = rank;
    o.into = mode == PLAIN ? NULL : &view;
    o.direct = mode == DIRECT;
    for (int64_t i = 0; i < BOXES_ROOM; i++)
        if (dtype == WEFT_I64)
            memory[i] = UNTOUCHED;
        else
            ((int32_t *)memory)[i] = UNTOUCHED;
    if (there[1]) {
        view.data = device_kit_new(memory, sizeof memory);
        view.memory = WEFT_MEMORY_CUDA;
        o.memory = mode == PLAIN ? WEFT_MEMORY_CUDA : WEFT_MEMORY_HOST;
    }
    fine(weft_subscribe(b, "boxes", &(weft_bus_tensor){.name = "w", .layout = TO->layout}, 1, &o, &s));
    copies_in_parts(s, seed + rank);
    int64_t lacks = missing(rank, ranks);
    if (lacks) {
        char text[64];
        assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
        snprintf(text, sizeof text, "that no rank of the publisher holds: %lld of 'w'", (long long)lacks);
        says(text);
        weft_subscriber_close(s);
        if (there[1])
            device_kit_free(view.data);
        return;
    }
    for (int k = 0; k < 2; k++) { /* the second one may come as a delta */
        fine(weft_fetch(s, &latest, LONG, &v));
        assert_int_equal(v.step, *step);
        fine(weft_swap(s, &v, LONG));
        fine(weft_use(s, &pin));
        fine(weft_pin_data(pin, 0, &data, &bytes));
        assert_int_equal(bytes, TO->room[rank] * (int64_t)weft_dtype_size(dtype));
        if (bytes && there[1])
            device_kit_copy(memory, data, (size_t)bytes);
        if (bytes)
            check(there[1] ? memory : data, dtype, rank, *step, mode == PLAIN ? 0 : UNTOUCHED, seed);
        weft_unuse(pin);
        if (!k)
            commit_all(p, ranks, ++*step, wide);
    }
    weft_subscriber_close(s);
    if (there[1])
        device_kit_free(view.data);
}

static void random_pairs(void **state)
{
    (void)state;
    int boxes = 0, refused = 0;
    const int64_t cases = test_share(30, 1000);
    for (int64_t i = 0; suite_seed(&i, 0, cases); i++) {
        struct random g = random_of(1920, i);
        bool apart = random_once_in(&g, 3), wide = random_once_in(&g, 2), mesh = random_once_in(&g, 3);
        weft_bus *a, *b;
        weft_publisher *p[BOXES_RANKS];
        int64_t step = 1;
        open_two(apart, &a, &b);
        there[0] = random_once_in(&g, 3);
        there[1] = random_once_in(&g, 3);
        boxes_shape(&g, &sample[0]);
        sample[1].ndim = sample[0].ndim;
        memcpy(sample[1].extents, sample[0].extents, sizeof sample[0].extents);
        make_side(&g, 0, mesh, WEFT_I32);
        bool target_mesh = !mesh && random_once_in(&g, 3);
        int dtype = !target_mesh && random_once_in(&g, 2) ? WEFT_I64 : WEFT_I32;
        make_side(&g, 1, target_mesh, dtype);
        int ranks = weft_layout_ranks(FROM->layout);
        boxes += !mesh && !target_mesh;
        for (int r = 0; r < ranks; r++) {
            weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
            o.rank = r;
            o.ranks = ranks;
            o.run = "one";
            fine(weft_publish(a, "boxes",
                              &(weft_bus_tensor){.name = "w", .layout = FROM->layout, .dtype = wide ? WEFT_I64 : 0}, 1,
                              &o, &p[r]));
        }
        commit_all(p, ranks, step, wide);
        for (int r = 0; r < weft_layout_ranks(TO->layout); r++) {
            refused += missing(r, ranks) > 0;
            read_rank(b, p, ranks, r, dtype, (enum mode)random_in(&g, PLAIN, DIRECT), &step, wide, i);
        }
        for (int r = 0; r < ranks; r++)
            weft_publisher_close(p[r]);
        weft_layout_free(FROM->layout);
        weft_layout_free(TO->layout);
        fine(weft_bus_close(a));
        fine(weft_bus_close(b));
    }
    assert_true(getenv("WEFT_TEST_SEED") || cases < 20 || (boxes && refused));
    there[0] = there[1] = false;
}

/* q, k and v of a trainer by rows, in one array of an engine that has more in it. */
static void fused(void **state)
{
    (void)state;
    static const char *const from[3] = {"f32[8/x,6] @x2", "f32[4/x,6] @x2", "f32[4/x,6] @x2"};
    static const char *const to[3] = {"bf16[8,6] @{0: [:,:]=6}", "bf16[4,6] @{0: [:,:]=54}",
                                      "bf16[4,6] @{0: [:,:]=78(1,4)}"};
    static const char *const names3[3] = {"q", "k", "v"};
    weft_bus *a, *b;
    weft_layout *l[2][3];
    weft_bus_tensor t[2][3];
    weft_publisher *p[2];
    weft_subscriber *s;
    weft_epoch_step v;
    float rows[48];
    uint16_t all[120], want[120];
    weft_view into[3];
    open_two(false, &a, &b);
    for (int i = 0; i < 3; i++) {
        fine(weft_layout_parse(from[i], &l[0][i]));
        fine(weft_layout_parse(to[i], &l[1][i]));
        for (int k = 0; k < 2; k++)
            t[k][i] = (weft_bus_tensor){.name = names3[i], .layout = l[k][i]};
        into[i] = (weft_view)WEFT_VIEW(all, sizeof all);
    }
    for (int r = 0; r < 2; r++) {
        weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
        o.rank = r;
        o.ranks = 2;
        o.run = "one";
        fine(weft_publish(a, "fused", t[0], 3, &o, &p[r]));
    }
    for (int i = 0; i < 120; i++)
        all[i] = want[i] = 9;
    for (int r = 0; r < 2; r++) {
        weft_view views[3];
        for (int i = 0; i < 48; i++)
            rows[i] = (float)i;
        for (int i = 0; i < 3; i++) /* the ranks put the same numbers: rank r has them in its rows */
            views[i] = (weft_view)WEFT_VIEW(rows, sizeof rows);
        fine(weft_put(p[r], 1, views));
        fine(weft_commit(p[r], 1, NULL, NULL));
    }
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    o.into = into;
    fine(weft_subscribe(b, "fused", t[1], 3, &o, &s));
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_memory_equal(all, want, sizeof all);
    fine(weft_swap(s, &v, LONG));
    for (int i = 0; i < 48; i++)
        memory_cast_one(&want[6 + i], WEFT_BF16, &rows[i % 24], WEFT_F32);
    for (int i = 0; i < 24; i++) {
        memory_cast_one(&want[54 + i], WEFT_BF16, &rows[i % 12], WEFT_F32);
        memory_cast_one(&want[78 + i / 6 + i % 6 * 4], WEFT_BF16, &rows[i % 12], WEFT_F32);
    }
    assert_memory_equal(all, want, sizeof all);
    weft_subscriber_close(s);
    for (int r = 0; r < 2; r++)
        weft_publisher_close(p[r]);
    for (int i = 0; i < 3; i++) {
        weft_layout_free(l[0][i]);
        weft_layout_free(l[1][i]);
    }
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* Ranks that hold the same boxes have put other bits; ranks that have gone while others have their boxes. */
static void replicas(void **state)
{
    (void)state;
    weft_bus *a, *b;
    weft_layout *from, *to;
    weft_publisher *p[3];
    weft_subscriber *s;
    weft_epoch_step v;
    int32_t rows[12];
    open_two(false, &a, &b);
    fine(weft_layout_parse("i32[6,4] @{0: [0:3,:]; 1: [0:3,:]=0(1,3); 2: [2:6,:]} +overlaps", &from));
    fine(weft_layout_parse("i32[6,4] @{0: [3:6,:] [0:3,:]}", &to));
    for (int r = 0; r < 3; r++) {
        weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
        o.rank = r;
        o.ranks = 3;
        o.run = "one";
        fine(weft_publish(a, "copies", &(weft_bus_tensor){.name = "w", .layout = from}, 1, &o, &p[r]));
    }
    fine(weft_subscribe(b, "copies", &(weft_bus_tensor){.name = "w", .layout = to}, 1, NULL, &s));
    for (int64_t step = 1; step < 4; step++)
        for (int r = 0; r < 3; r++) {
            for (int i = 0; i < 12; i++) { /* rank 1 has its columns one behind the other */
                int element = r == 1 ? i % 3 * 4 + i / 3 : r == 2 ? 8 + i : i;
                rows[i] = element + (step == 2 && r == 1 && i == 5);
            }
            int32_t more[16];
            memcpy(more, rows, sizeof rows);
            for (int i = 12; i < 16; i++)
                more[i] = 8 + i;
            fine(weft_put(p[r], step, &(weft_view)WEFT_VIEW(more, sizeof more)));
            int err = weft_commit(p[r], step, NULL, NULL);
            assert_int_equal(err, step == 2 && r == 2 ? WEFT_EMISMATCH : 0);
            if (err)
                says("different bits");
        }
    struct directory *d = directories_open("");
    struct directory_outcome o;
    for (int gone = 0; gone < 3; gone++) {
        weft_pin *pin;
        const void *data;
        int err = weft_fetch(s, &(weft_want){WEFT_WANT_STEP, 3}, gone == 2 ? 50 * MS : LONG, &v);
        assert_int_equal(err, gone == 2 ? WEFT_ETIMEOUT : 0);
        if (!err)
            fine(weft_swap(s, &v, LONG));
        fine(weft_use(s, &pin));
        fine(weft_pin_data(pin, 0, &data, NULL));
        for (int i = 0; i < 24; i++)
            assert_int_equal(((const int32_t *)data)[i], (i + 12) % 24);
        weft_unuse(pin);
        char key[64];
        snprintf(key, sizeof key, "sets/copies/slots/0000000001/%04d", gone);
        fine(directory_delete(d, key, -1, LONG, &o));
    }
    says("no live process has the part of rank");
    directory_close(d);
    weft_subscriber_close(s);
    for (int r = 0; r < 3; r++)
        weft_publisher_close(p[r]);
    weft_layout_free(from);
    weft_layout_free(to);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* Tensors that two ranks hold come from both of them. */
static void holders_take_turns(void **state)
{
    (void)state;
    static const char *const names4[4] = {"a", "b", "c", "d"};
    weft_bus *a, *b;
    weft_layout *from, *to;
    weft_bus_tensor t[2][4];
    weft_view views[4];
    weft_publisher *p[2];
    weft_subscriber *s;
    weft_epoch_step v;
    int32_t row[8] = {0};
    char text[1024];
    size_t n;
    open_two(false, &a, &b);
    fine(weft_layout_parse("i32[8] @{0: [:]; 1: [:]} +overlaps", &from));
    fine(weft_layout_parse("i32[8] @{0: [:]}", &to));
    for (int i = 0; i < 4; i++) {
        t[0][i] = (weft_bus_tensor){.name = names4[i], .layout = from};
        t[1][i] = (weft_bus_tensor){.name = names4[i], .layout = to};
        views[i] = (weft_view)WEFT_VIEW(row, sizeof row);
    }
    for (int r = 0; r < 2; r++) {
        weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
        o.rank = r;
        o.ranks = 2;
        o.run = "one";
        fine(weft_publish(a, "turns", t[0], 4, &o, &p[r]));
    }
    for (int r = 0; r < 2; r++) {
        fine(weft_put(p[r], 1, views));
        fine(weft_commit(p[r], 1, NULL, NULL));
    }
    fine(weft_subscribe(b, "turns", t[1], 4, NULL, &s));
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_subscriber_explain(s, false, text, sizeof text, &n));
    for (int r = 0; r < 2; r++) {
        char line[64];
        snprintf(line, sizeof line, "rank %d of publisher here (mapped): 64 bytes in 2 pieces", r);
        if (!strstr(text, line))
            fail_msg("not '%s': %s", line, text);
        weft_publisher_close(p[r]);
    }
    weft_subscriber_close(s);
    weft_layout_free(from);
    weft_layout_free(to);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* A long list of boxes on both sides: the directory has a hash of it, and a plan is made in time. */
static void many_boxes(void **state)
{
    (void)state;
    enum { ROWS = 20000 };
    weft_bus *a, *b;
    weft_layout *from, *to;
    weft_publisher *p;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    char *text = malloc(ROWS * 24);
    int n = sprintf(text, "i32[%d,3] @{0:", ROWS);
    for (int i = ROWS; i-- > 0;)
        n += sprintf(text + n, " [%d:%d,:]", i, i + 1);
    sprintf(text + n, "}");
    open_two(true, &a, &b);
    fine(weft_layout_parse(text, &from));
    fine(weft_layout_parse("i32[20000/x:7,3] @x2", &to));
    free(text);
    int32_t *rows = malloc(ROWS * 3 * sizeof *rows);
    for (int i = 0; i < ROWS * 3; i++)
        rows[i] = i;
    fine(weft_publish(a, "long", &(weft_bus_tensor){.name = "w", .layout = from}, 1, NULL, &p));
    fine(weft_put(p, 1, &(weft_view)WEFT_VIEW(rows, ROWS * 3 * sizeof *rows)));
    fine(weft_commit(p, 1, NULL, NULL));
    for (int r = 0; r < 2; r++) {
        weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
        int64_t at = 0;
        o.rank = r;
        fine(weft_subscribe(b, "long", &(weft_bus_tensor){.name = "w", .layout = to}, 1, &o, &s));
        copies_in_parts(s, r + 1);
        fine(weft_fetch(s, &latest, LONG, &v));
        fine(weft_swap(s, &v, LONG));
        fine(weft_use(s, &pin));
        fine(weft_pin_data(pin, 0, &data, NULL));
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < 3 && i / 7 % 2 == r; k++)
                assert_int_equal(((const int32_t *)data)[at++], (ROWS - 1 - i) * 3 + k);
        weft_unuse(pin);
        weft_subscriber_close(s);
    }
    free(rows);
    weft_publisher_close(p);
    weft_layout_free(from);
    weft_layout_free(to);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(random_pairs, device_kit_open, device_kit_close),
                                       cmocka_unit_test(fused), cmocka_unit_test(replicas),
                                       cmocka_unit_test(holders_take_turns), cmocka_unit_test(many_boxes)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
