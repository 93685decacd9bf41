/* Partial sums on the bus: put folds them over the publisher's comm. What a reader gets is what a fold of all ranks'
 * parts by hand gives, element by element. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bus/directories.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "weft/bus.h"

#define MOST 2000 /* elements */
static const weft_want latest = {WEFT_WANT_LATEST, 0};

struct job {
    char set[16], folded[128], plain[128], whole[128], other[64];
    int dtype; /* of the arrays */
    int x, y;  /* the mesh */
    int both;  /* folded over both axes, otherwise over x */
    int op;    /* sum, max, min */
    int64_t rows, columns;
    int padded; /* elements behind each row of an array */
    _Atomic int wrong;
};

/* What a rank adds to element g: the same on ranks that are replicas of each other. */
static int64_t term(const struct job *j, int rank, int64_t g, int64_t step)
{
    int64_t c = j->both ? rank : rank / j->y;
    return (c * 31 + g * 7 + step * 13) % 23 - 9;
}

static int64_t by_hand(const struct job *j, int64_t g, int64_t step)
{
    int64_t all = 0;
    for (int c = 0; c < (j->both ? j->x * j->y : j->x); c++) {
        int64_t t = term(j, j->both ? c : c * j->y, g, step);
        all = !c ? t : j->op == 0 ? all + t : j->op == 1 ? (t > all ? t : all) : (t < all ? t : all);
    }
    return all;
}

static void store(void *array, int dtype, int64_t i, int64_t value)
{
    switch (dtype) {
    case WEFT_F32: ((float *)array)[i] = (float)value; break;
    case WEFT_F64: ((double *)array)[i] = (double)value; break;
    case WEFT_I32: ((int32_t *)array)[i] = (int32_t)value; break;
    default: ((int64_t *)array)[i] = value;
    }
}

/* This rank's array, by the boxes of its layout. */
static int fill(const struct job *j, const weft_layout *l, int rank, int64_t step, void *array, weft_view *view,
                int64_t *strides)
{
    weft_local local;
    weft_box box[64];
    size_t n, size = weft_dtype_size(j->dtype);
    int err = weft_layout_local(l, rank, &local);
    if (!err)
        err = weft_layout_boxes(l, rank, box, 64, &n);
    if (err || !local.bytes)
        return err;
    int64_t pitch = local.shape[1] + j->padded;
    for (size_t b = 0; b < n; b++)
        for (int64_t r = 0; r < box[b].len[0]; r++)
            for (int64_t c = 0; c < box[b].len[1]; c++)
                store(array, j->dtype, (box[b].local[0] + r) * pitch + box[b].local[1] + c,
                      term(j, rank, (box[b].at[0] + r) * j->columns + box[b].at[1] + c, step));
    strides[0] = pitch * (int64_t)size;
    strides[1] = (int64_t)size;
    *view = (weft_view)WEFT_VIEW(array, (size_t)(pitch * local.shape[0]) * size);
    view->strides = strides;
    return 0;
}

static void read_it(struct ranks_rank *r, struct job *j, weft_bus *b, int64_t step)
{
    weft_subscriber *s;
    weft_layout *l[2];
    weft_epoch_step v;
    weft_pin *pin;
    const void *data, *other;
    RANKS_OK(r, weft_layout_parse(j->whole, &l[0]));
    RANKS_OK(r, weft_layout_parse("i32[4] @x1", &l[1]));
    const weft_bus_tensor mine[2] = {{.name = "w", .layout = l[0]}, {.name = "plain", .layout = l[1]}};
    RANKS_OK(r, weft_subscribe(b, j->set, mine, 2, NULL, &s));
    RANKS_OK(r, weft_fetch(s, &latest, LONG, &v));
    RANKS_CHECK(r, v.step == step);
    RANKS_OK(r, weft_swap(s, &v, LONG));
    RANKS_OK(r, weft_use(s, &pin));
    RANKS_OK(r, weft_pin_data(pin, 0, &data, NULL));
    RANKS_OK(r, weft_pin_data(pin, 1, &other, NULL));
    for (int64_t g = 0; g < j->rows * j->columns; g++)
        if (((const double *)data)[g] != (double)by_hand(j, g, step)) {
            ranks_note(r, __FILE__, __LINE__, "%s: element %d is %g, not %d", j->folded, (int)g,
                       ((const double *)data)[g], (int)by_hand(j, g, step));
            break;
        }
    RANKS_CHECK(r, ((const int32_t *)other)[3] == (int32_t)step + 3);
    weft_unuse(pin);
    weft_subscriber_close(s);
    weft_layout_free(l[0]);
    weft_layout_free(l[1]);
}

static weft_bus *open_bus(void)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b = NULL;
    o.token = PUBLISH_TOKEN;
    return weft_bus_open(directories_url(), &o, &b) ? NULL : b;
}

static void body(struct ranks_rank *r)
{
    struct job *j = r->arg;
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_layout *l[3];
    weft_publisher *p;
    double array[2 * MOST] = {0};
    int64_t strides[2] = {0};
    weft_bus *b = open_bus();
    RANKS_CHECK(r, b);
    RANKS_OK(r, weft_layout_parse(j->folded, &l[0]));
    RANKS_OK(r, weft_layout_parse(j->plain, &l[1]));
    RANKS_OK(r, weft_layout_parse(j->other, &l[2]));
    o.comm = r->comm;
    const weft_bus_tensor tensors[2] = {{.name = "w", .layout = l[0], .dtype = j->dtype},
                                        {.name = "plain", .layout = l[2]}};
    RANKS_OK(r, weft_publish(b, j->set, tensors, 2, &o, &p));
    for (int64_t step = 1; step < 4; step++) {
        weft_view views[2] = {WEFT_VIEW_INIT, WEFT_VIEW_INIT};
        int32_t plain[4];
        for (int i = 0; i < 4; i++)
            plain[i] = (int32_t)step + i;
        views[1] = (weft_view)WEFT_VIEW(plain, sizeof plain);
        RANKS_OK(r, fill(j, l[1], r->rank, step, array, &views[0], strides));
        if (step == 2) { /* a rank whose array is too short, and one that puts another step: nobody puts */
            weft_view wrong[2] = {views[0], views[1]};
            wrong[1].bytes = r->rank ? sizeof plain : 3;
            RANKS_CHECK(r, weft_put(p, step, wrong) == WEFT_EINVAL);
            RANKS_CHECK(r, weft_put(p, step, r->rank ? views : NULL) == WEFT_EINVAL);
            RANKS_CHECK(r, weft_put(p, r->rank ? step : INT64_MIN, views) == WEFT_EINVAL);
            RANKS_CHECK(r, weft_put(p, r->rank ? step : step + 5, views) == (r->size > 1 ? WEFT_EINVAL : 0));
            if (r->size == 1)
                break;
        }
        RANKS_OK(r, weft_put(p, step, views));
        memset(array, 0x55, sizeof array); /* it is free on return */
        RANKS_OK(r, weft_commit(p, step, NULL, NULL));
        RANKS_OK(r, weft_comm_barrier(r->comm, LONG)); /* the last one has made it visible */
        if (r->rank == 0)
            read_it(r, j, b, step);
        RANKS_OK(r, weft_comm_barrier(r->comm, LONG));
    }
    const weft_view views[2] = {WEFT_VIEW(array, sizeof array), WEFT_VIEW(array, sizeof array)};
    weft_local local;
    RANKS_OK(r, weft_layout_local(l[1], r->rank, &local));
    if (local.bytes)
        RANKS_CHECK(r, weft_lend(p, 9, views) == WEFT_EUNSUPPORTED);
    weft_publisher_close(p);
    RANKS_OK(r, weft_bus_close(b));
    for (int i = 0; i < 3; i++)
        weft_layout_free(l[i]);
}

static void random_folds(void **state)
{
    (void)state;
    static const char *const names[] = {"f32", "f64", "i32", "i64"}, *const published[] = {"f32", "bf16", "f64", "i32"};
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_I32, WEFT_I64};
    static const char *const ops[] = {"sum", "max", "min"};
    for (int64_t i = 0; suite_seed(&i, 0, test_share(14, 300)); i++) {
        struct random g = random_of(23, i);
        struct job j = {
            .x = (int)random_in(&g, 1, 4), .both = random_in(&g, 0, 3) == 0, .op = (int)random_in(&g, 0, 2)};
        j.y = (int)random_in(&g, 1, j.x > 2 ? 2 : 4);
        j.rows = random_in(&g, 1, 30);
        j.columns = random_in(&g, 1, 40);
        j.padded = (int)random_in(&g, 0, 1) * 3;
        int kind = (int)random_in(&g, 0, 3), to = kind < 2 ? (int)random_in(&g, 0, 2) : 3;
        j.dtype = dtypes[kind];
        snprintf(j.set, sizeof j.set, "fold%d", (int)i);
        int split = j.both ? 2 : (int)random_in(&g, 0, 2); /* which dim y splits; 2: none */
        char shape[64], fold[32];
        snprintf(shape, sizeof shape, "[%d%s,%d%s] @x%d.y%d", (int)j.rows, split == 0 ? "/y" : "", (int)j.columns,
                 split == 1 ? "/y" : "", j.x, j.y);
        snprintf(fold, sizeof fold, " +%s(x%s)", ops[j.op], j.both ? ",y" : "");
        snprintf(j.folded, sizeof j.folded, "%s%s%s", published[to], shape, fold);
        snprintf(j.plain, sizeof j.plain, "%s%s", names[kind], shape);
        snprintf(j.whole, sizeof j.whole, "f64[%d,%d] @x1", (int)j.rows, (int)j.columns);
        snprintf(j.other, sizeof j.other, "i32[4] @x%d", j.x * j.y);
        ranks_run(j.x * j.y, NULL, body, &j, NULL);
    }
}

/* What is only lent cannot be folded. */
static void lender(struct ranks_rank *r)
{
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_layout *l;
    weft_publisher *p = NULL;
    weft_bus *b = open_bus();
    RANKS_CHECK(r, b);
    RANKS_OK(r, weft_layout_parse("f32[8] @x2 +sum(x)", &l));
    o.comm = r->comm;
    o.lend = true;
    RANKS_CHECK(r, weft_publish(b, "lender", &(weft_bus_tensor){.name = "w", .layout = l}, 1, &o, &p) ==
                       WEFT_EUNSUPPORTED);
    weft_publisher_close(p);
    weft_layout_free(l);
    RANKS_OK(r, weft_bus_close(b));
}

static void lent(void **state)
{
    (void)state;
    ranks_run(2, NULL, lender, NULL, NULL);
}

static void alone(void **state)
{
    (void)state;
    weft_bus *b = open_bus();
    weft_publisher *p;
    weft_layout *l;
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    fine(weft_layout_parse("f32[8] @x2 +sum(x)", &l));
    o.ranks = 2;
    o.run = "r";
    assert_int_equal(weft_publish(b, "alone", &(weft_bus_tensor){.name = "w", .layout = l}, 1, &o, &p),
                     WEFT_EUNSUPPORTED);
    if (!strstr(weft_errmsg(), "comm"))
        fail_msg("%s", weft_errmsg());
    weft_layout_free(l);
    fine(weft_bus_close(b));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_folds), cmocka_unit_test(lent), cmocka_unit_test(alone)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
