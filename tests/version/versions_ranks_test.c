/* Publishers and subscribers of several ranks: random layouts on both sides, replicas, casts, ranks that have died, and
 * swaps of all ranks or none. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"
#include "support/share.h"
#include "version/random_sides.h"
#include "version/subscribe.h"

static const weft_want latest = {WEFT_WANT_LATEST, 0};

static weft_bus *open_bus(const char *job)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.token = PUBLISH_TOKEN;
    o.job = job;
    fine(weft_bus_open(directories_url(), &o, &b));
    return b;
}

/* Puts and commits on all ranks but one. Arrays have dtypes of their own. */
static int commit_all(struct side *s, int64_t step, int but)
{
    int visible = 0;
    for (int r = 0; r < s->ranks; r++) {
        weft_view views[TENSORS];
        for (int i = 0; i < TENSORS; i++) {
            weft_local local;
            fine(weft_layout_local(s->layouts[i], r, &local));
            int dtype = s->tensors[i].dtype ? s->tensors[i].dtype : 0;
            weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
            fine(weft_layout_describe(s->layouts[i], &d));
            struct filler f = {.dtype = dtype ? dtype : (int)d.dtype, .seed = step + i};
            size_t bytes = (size_t)local.count * weft_dtype_size(f.dtype);
            f.data = malloc(bytes + 1);
            if (local.bytes)
                tensors_visit(s->layouts[i], r, fill, &f);
            views[i] = (weft_view)WEFT_VIEW(f.data, bytes);
        }
        fine(weft_put(s->pub[r], step, views));
        for (int i = 0; i < TENSORS; i++)
            free(views[i].data);
        bool done = false;
        if (r != but)
            fine(weft_commit(s->pub[r], step, NULL, &done));
        visible += done;
    }
    return visible;
}

static void check_live(weft_subscriber *sub, const struct side *s, int rank, int64_t step)
{
    weft_pin *pin;
    fine(weft_use(sub, &pin));
    assert_int_equal(weft_pin_version(pin).step, step);
    for (int i = 0; i < TENSORS; i++) {
        const void *data;
        int64_t bytes;
        weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
        fine(weft_layout_describe(s->layouts[i], &d));
        fine(weft_pin_data(pin, (size_t)i, &data, &bytes));
        struct filler f = {.data = (unsigned char *)(uintptr_t)data, .dtype = (int)d.dtype, .seed = step + i};
        if (bytes)
            tensors_visit(s->layouts[i], rank, check, &f);
        if (f.wrong)
            fail_msg("tensor %d on rank %d: %lld elements are wrong", i, rank, (long long)f.wrong);
    }
    weft_unuse(pin);
}

static void random_pairs(void **state)
{
    (void)state;
    weft_bus *a = open_bus("publisher"), *b = open_bus("subscriber");
    for (int64_t i = 0; suite_seed(&i, 0, test_share(directories_slow() ? 3 : 25, 400)); i++) {
        struct random g = random_of(1907, i);
        struct shape shapes[TENSORS];
        struct side from, to;
        weft_epoch_step v;
        for (int t = 0; t < TENSORS; t++) {
            shapes[t].ndim = (int)random_in(&g, 0, 3);
            for (int d = 0; d < shapes[t].ndim; d++)
                shapes[t].extent[d] = random_in(&g, random_once_in(&g, 20) ? 0 : 1, 24);
        }
        random_side(&g, shapes, &from);
        random_side(&g, shapes, &to);
        from.tensors[0].dtype = WEFT_F64;
        publish_all(a, "pairs", &from, i);
        assert_int_equal(commit_all(&from, 10, from.ranks - 1),
                         0); /* the last rank has not committed: nothing is seen */
        for (int r = 0; r < to.ranks; r++) {
            weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
            o.rank = r;
            fine(weft_subscribe(b, "pairs", to.tensors, TENSORS, &o, &to.sub[r]));
            copies_in_parts(to.sub[r], i + r);
            if (r == 0)
                assert_int_equal(weft_fetch(to.sub[r], &latest, 0, &v), WEFT_ETIMEOUT);
        }
        for (int64_t step = 11; step < 13; step++) {
            assert_int_equal(commit_all(&from, step, -1), 1);
            for (int r = 0; r < to.ranks; r++) {
                fine(weft_fetch(to.sub[r], &latest, LONG, &v));
                assert_int_equal(v.step, step);
                fine(weft_swap(to.sub[r], &v, LONG));
                check_live(to.sub[r], &to, r, step);
            }
        }
        for (int r = 0; r < to.ranks; r++)
            weft_subscriber_close(to.sub[r]);
        for (int r = 0; r < from.ranks; r++)
            weft_publisher_close(from.pub[r]);
        drop_side(&from);
        drop_side(&to);
    }
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- replicas ---- */

static void replicas(void **state)
{
    (void)state;
    weft_bus *a = open_bus("publisher"), *b = open_bus("subscriber");
    struct side s = {.ranks = 4}, whole = {.ranks = 1};
    const char *const texts[TENSORS] = {"f32[600,7/x] @y2.x2", "i32[9] @y2.x2", "f32[33/x,2] @y2.x2"};
    const char *const one[TENSORS] = {"f32[600,7] @x1", "i64[9] @x1", "f32[33,2] @x1"};
    weft_epoch_step v;
    for (int i = 0; i < TENSORS; i++) {
        fine(weft_layout_parse(texts[i], &s.layouts[i]));
        fine(weft_layout_parse(one[i], &whole.layouts[i]));
        s.tensors[i] = (weft_bus_tensor){.name = names[i], .layout = s.layouts[i]};
        whole.tensors[i] = (weft_bus_tensor){.name = names[i], .layout = whole.layouts[i]};
    }
    publish_all(a, "replicas", &s, 1);
    fine(weft_subscribe(b, "replicas", whole.tensors, TENSORS, NULL, &whole.sub[0]));
    assert_int_equal(commit_all(&s, 1, -1), 1);
    fine(weft_fetch(whole.sub[0], &latest, LONG, &v));
    fine(weft_swap(whole.sub[0], &v, LONG));
    check_live(whole.sub[0], &whole, 0, 1);
    /* Rank 2 (y1, x0) has other bits than rank 0. */
    assert_int_equal(commit_all(&s, 2, 2), 0);
    weft_view views[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        weft_local local;
        fine(weft_layout_local(s.layouts[i], 2, &local));
        views[i] = (weft_view)WEFT_VIEW(calloc(1, (size_t)local.bytes), (size_t)local.bytes);
    }
    fine(weft_put(s.pub[2], 2, views));
    assert_int_equal(weft_commit(s.pub[2], 2, NULL, NULL), WEFT_EMISMATCH);
    assert_non_null(strstr(weft_errmsg(), "different bits"));
    for (int i = 0; i < TENSORS; i++)
        free(views[i].data);
    fine(weft_fetch(whole.sub[0], &latest, LONG, &v));
    assert_int_equal(v.step, 1);
    /* Ranks that have gone: their replicas are read. If none is left, readers keep what they have and are told. */
    assert_int_equal(commit_all(&s, 3, -1), 1);
    weft_publisher *left[2] = {s.pub[0], s.pub[3]};
    struct directory *d = directories_open("");
    struct directory_outcome o;
    fine(directory_delete(d, "sets/replicas/slots/0000000001/0001", -1, LONG, &o));
    fine(directory_delete(d, "sets/replicas/slots/0000000001/0002", -1, LONG, &o));
    fine(weft_fetch(whole.sub[0], &(weft_want){WEFT_WANT_STEP, 3}, LONG, &v));
    fine(weft_swap(whole.sub[0], &v, LONG));
    check_live(whole.sub[0], &whole, 0, 3);
    fine(directory_delete(d, "sets/replicas/slots/0000000001/0003", -1, LONG, &o));
    assert_int_equal(weft_fetch(whole.sub[0], &latest, 50 * MS, &v), WEFT_ETIMEOUT);
    assert_non_null(strstr(weft_errmsg(), "no live process has the part of rank"));
    check_live(whole.sub[0], &whole, 0, 3);
    (void)left;
    directory_close(d);
    weft_subscriber_close(whole.sub[0]);
    for (int r = 0; r < s.ranks; r++)
        weft_publisher_close(s.pub[r]);
    drop_side(&s);
    drop_side(&whole);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- comms ---- */

struct job {
    const char *url;
    weft_bus *publisher;
    struct side from;
    int64_t swap_ns;
};

static void fill_views(const struct side *s, int rank, int64_t step, weft_view *views)
{
    for (int i = 0; i < TENSORS; i++) {
        weft_local local;
        weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
        weft_layout_local(s->layouts[i], rank, &local);
        weft_layout_describe(s->layouts[i], &d);
        struct filler f = {.dtype = (int)d.dtype, .seed = step + i, .data = malloc((size_t)local.bytes + 1)};
        if (local.bytes)
            tensors_visit(s->layouts[i], rank, fill, &f);
        views[i] = (weft_view)WEFT_VIEW(f.data, (size_t)local.bytes);
    }
}

/* Each rank is a publisher's and a subscriber's: both have comms. */
static void together(struct ranks_rank *r)
{
    struct job *j = r->arg;
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    weft_publisher *p;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    o.token = PUBLISH_TOKEN;
    RANKS_OK(r, weft_bus_open(j->url, &o, &b));
    weft_publish_opts po = WEFT_PUBLISH_OPTS_INIT;
    weft_subscribe_opts so = WEFT_SUBSCRIBE_OPTS_INIT;
    po.comm = so.comm = r->comm;
    RANKS_OK(r, weft_publish(b, "together", j->from.tensors, TENSORS, &po, &p));
    puts_in_parts(p, r->rank + 2);
    RANKS_OK(r, weft_subscribe(b, "together", j->from.tensors, TENSORS, &so, &s));
    copies_in_parts(s, r->rank);
    RANKS_CHECK(r, weft_fetch(s, &latest, 10 * MS, &v) == WEFT_ETIMEOUT);
    for (int64_t step = 1; step < 6; step++) {
        weft_view views[TENSORS];
        fill_views(&j->from, r->rank, step, views);
        RANKS_OK(r, weft_put(p, step, views));
        for (int i = 0; i < TENSORS; i++)
            free(views[i].data);
        RANKS_OK(r, weft_commit(p, step, NULL, NULL));
        RANKS_OK(r, weft_fetch(s, &(weft_want){WEFT_WANT_AT_LEAST, step}, LONG, &v));
        RANKS_CHECK(r, v.step == step);
        if (step == 3) { /* a rank that asks for another version: all are refused, and the old one stays */
            weft_epoch_step other = {v.epoch, v.step + (r->rank == 1)};
            RANKS_CHECK(r, weft_swap(s, &other, LONG) == WEFT_EINVAL);
            RANKS_OK(r, weft_use(s, &pin));
            RANKS_CHECK(r, weft_pin_version(pin).step == 2);
            weft_unuse(pin);
        }
        RANKS_OK(r, weft_swap(s, &v, LONG));
        RANKS_OK(r, weft_use(s, &pin));
        RANKS_CHECK(r, weft_pin_version(pin).step == step);
        for (int i = 0; i < TENSORS; i++) {
            const void *data;
            int64_t bytes;
            weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
            weft_layout_describe(j->from.layouts[i], &d);
            RANKS_OK(r, weft_pin_data(pin, (size_t)i, &data, &bytes));
            struct filler f = {.data = (unsigned char *)(uintptr_t)data, .dtype = (int)d.dtype, .seed = step + i};
            if (bytes)
                tensors_visit(j->from.layouts[i], r->rank, check, &f);
            RANKS_CHECK(r, f.wrong == 0);
        }
        weft_unuse(pin);
    }
    RANKS_OK(r, weft_comm_barrier(r->comm, LONG));
    weft_subscriber_close(s);
    weft_publisher_close(p);
    RANKS_OK(r, weft_bus_close(b));
}

static void comms(void **state)
{
    (void)state;
    struct job j = {.url = directories_url()};
    struct random g = random_of(5, 1);
    struct shape shapes[TENSORS] = {{2, {30, 17}}, {1, {40}}, {3, {4, 5, 6}}};
    do {
        random_side(&g, shapes, &j.from);
        if (j.from.ranks > 4)
            drop_side(&j.from);
    } while (j.from.ranks > 4);
    ranks_run(4, NULL, together, &j, NULL);
    drop_side(&j.from);
}

/* ---- digests that ranks check together ---- */

#define READERS 4

struct group {
    const char *url;
    struct side from, to;
    weft_bus *bus;
    int64_t seed;
};

/* Arrays of all ranks of the publisher, as a version. */
static void publish_step(struct group *j, int64_t step)
{
    assert_int_equal(commit_all(&j->from, step, -1), 1);
}

/* Flips a bit of one byte in every snapshot that this process has for writing, from a place that depends on `at`. */
static void flip_somewhere(uint64_t at)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strstr(line, "memfd:weft-bus") &&
            rights[1] == 'w' && to - from > 8192)
            ((unsigned char *)from)[4096 + at % 256] ^= 16; /* in the first row of the first tensor */
    }
    fclose(maps);
}

static void read_together(struct ranks_rank *r)
{
    struct group *j = r->arg;
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    weft_subscriber *s;
    weft_epoch_step v;
    o.token = PUBLISH_TOKEN;
    RANKS_OK(r, weft_bus_open(j->url, &o, &b));
    weft_subscribe_opts so = WEFT_SUBSCRIBE_OPTS_INIT;
    so.comm = r->comm;
    RANKS_OK(r, weft_subscribe(b, "group", j->to.tensors, TENSORS, &so, &s));
    copies_in_parts(s, r->rank + 1);
    RANKS_CHECK(r, s->together);
    RANKS_OK(r, weft_fetch(s, &latest, LONG, &v));
    RANKS_CHECK(r, v.step == 1);
    RANKS_CHECK(r, s->sharing); /* the sums of all ranks have fit */
    RANKS_OK(r, weft_swap(s, &v, LONG));
    check_live(s, &j->to, r->rank, 1);
    ranks_meet(r);
    if (r->rank == 0) { /* what the publisher has changes under its digests */
        publish_step(j, 2);
        flip_somewhere((uint64_t)j->seed * 7);
    }
    ranks_meet(r);
    RANKS_CHECK(r, weft_fetch(s, &latest, LONG, &v) == WEFT_EMISMATCH);
    RANKS_CHECK(r, strstr(weft_errmsg(), ".2: tensor 'a', block 0 of rank ") != NULL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "the digest is wrong") != NULL);
    RANKS_CHECK(r, s->staged < 0);
    check_live(s, &j->to, r->rank, 1);
    ranks_meet(r);
    if (r->rank == 0)
        publish_step(j, 3);
    ranks_meet(r);
    RANKS_OK(r, weft_fetch(s, &latest, LONG, &v));
    RANKS_CHECK(r, v.step == 3 && s->sharing);
    RANKS_OK(r, weft_swap(s, &v, LONG));
    check_live(s, &j->to, r->rank, 3);
    RANKS_OK(r, weft_comm_barrier(r->comm, LONG));
    weft_subscriber_close(s);
    RANKS_OK(r, weft_bus_close(b));
}

/* Each rank sums what it reads, and the sums of all ranks are the digests. A wrong byte is found, and named. */
static void checked_together(void **state)
{
    (void)state;
    static const char *const from[][TENSORS] = {
        {"f32[96,1024] @x1", "bf16[70000] @x1", "f32[33,64] @x1"},
        {"bf16[200/x,800] @x2", "f32[513/x,256] @x2", "i64[9000] @x2"},
        {"f32[64,1000/x] @y2.x2", "f64[40,10,128/y] @y2.x2", "bf16[20000/x] @y2.x2"},
        {"f64[96,512] @x1", "bool[96,512] @x1", "bool[64,1024] @x1"},
    };
    static const char *const to[][TENSORS] = {
        {"bf16[96,1024/x] @x4", "bf16[70000/x] @x4", "f32[33,64] @x4"},
        {"f32[200,800/x] @y2.x2", "f32[513,256/x] @y2.x2", "i64[9000/y] @y2.x2"},
        {"f32[64/x,1000/y:100] @y2.x2", "f32[40/x,10/y,128] @y2.x2", "f32[20000/y/x] @y2.x2"},
        {"f32[96,512/x] @y2.x2", "bool[96,512/x] @y2.x2", "bool[64,1024/x] @y2.x2"},
    };
    for (int64_t i = 0; suite_seed(&i, 0, 4); i++) {
        struct group j = {.url = directories_url(), .seed = i, .from = {.ranks = 1}, .to = {.ranks = READERS}};
        for (int t = 0; t < TENSORS; t++) {
            fine(weft_layout_parse(from[i][t], &j.from.layouts[t]));
            fine(weft_layout_parse(to[i][t], &j.to.layouts[t]));
            j.from.tensors[t] = (weft_bus_tensor){.name = names[t], .layout = j.from.layouts[t]};
            j.to.tensors[t] = (weft_bus_tensor){.name = names[t], .layout = j.to.layouts[t]};
            int n = weft_layout_ranks(j.from.layouts[t]);
            j.from.ranks = n > j.from.ranks ? n : j.from.ranks;
        }
        j.bus = open_bus("group");
        publish_all(j.bus, "group", &j.from, i);
        publish_step(&j, 1);
        ranks_run(READERS, NULL, read_together, &j, NULL);
        for (int r = 0; r < j.from.ranks; r++)
            weft_publisher_close(j.from.pub[r]);
        fine(weft_bus_close(j.bus));
        drop_side(&j.from);
        drop_side(&j.to);
    }
}

static int count_calls(void *arg, int64_t done, int64_t total)
{
    *(int *)arg += done <= total;
    return 0;
}

static bool tells(weft_bus *b, const char *line)
{
    char text[8192];
    size_t len;
    return !weft_bus_metrics(b, text, sizeof text, &len) && strstr(text, line);
}

/* The ranks give their tensor different names in the set, so that their sums are of different arrays. */
static void read_apart(struct ranks_rank *r)
{
    struct group *j = r->arg;
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    int64_t bytes;
    int reads = 0;
    o.token = PUBLISH_TOKEN;
    RANKS_OK(r, weft_bus_open(j->url, &o, &b));
    weft_subscribe_opts so = WEFT_SUBSCRIBE_OPTS_INIT;
    so.comm = r->comm;
    so.only = true;
    so.progress = count_calls; /* once in each read: there is one piece */
    so.arg = &reads;
    weft_bus_tensor t = {.name = "w", .layout = j->to.layouts[0], .from = names[r->rank]};
    RANKS_OK(r, weft_subscribe(b, "apart", &t, 1, &so, &s));
    copies_in_parts(s, r->rank + 1);
    RANKS_CHECK(r, s->together);
    for (int64_t step = 1; step < 4; step++) {
        if (r->rank == 0)
            publish_step(j, step);
        ranks_meet(r);
        RANKS_OK(r, weft_fetch(s, &latest, LONG, &v));
        RANKS_CHECK(r, v.step == step && !s->sharing && !s->together);
        RANKS_CHECK(r, reads == step + 1); /* the first version was read twice */
        RANKS_CHECK(r, tells(b, "weft_bus_failed_total{call=\"check\"} 1\n"));
        RANKS_OK(r, weft_swap(s, &v, LONG));
        RANKS_OK(r, weft_use(s, &pin));
        RANKS_OK(r, weft_pin_data(pin, 0, &data, &bytes));
        struct filler f = {.data = (unsigned char *)(uintptr_t)data, .dtype = WEFT_F32, .seed = step + r->rank};
        tensors_visit(t.layout, r->rank, check, &f);
        RANKS_CHECK(r, bytes == 200 * 256 * 4 && !f.wrong);
        weft_unuse(pin);
        ranks_meet(r);
    }
    RANKS_CHECK(r, tells(b, "weft_bus_check_seconds_count 3\n"));
    RANKS_OK(r, weft_comm_barrier(r->comm, LONG));
    weft_subscriber_close(s);
    RANKS_OK(r, weft_bus_close(b));
}

/* Digests that are right and do not add up: the version is read again, once, and the metrics tell of it. */
static void checked_apart(void **state)
{
    (void)state;
    struct group j = {.url = directories_url(), .from = {.ranks = 1}, .to = {.ranks = 2}};
    for (int t = 0; t < TENSORS; t++) {
        fine(weft_layout_parse("f32[200,512] @x1", &j.from.layouts[t]));
        fine(weft_layout_parse("f32[200,512/x] @x2", &j.to.layouts[t]));
        j.from.tensors[t] = (weft_bus_tensor){.name = names[t], .layout = j.from.layouts[t]};
    }
    j.bus = open_bus("apart");
    publish_all(j.bus, "apart", &j.from, 1);
    ranks_run(2, NULL, read_apart, &j, NULL);
    weft_publisher_close(j.from.pub[0]);
    fine(weft_bus_close(j.bus));
    drop_side(&j.from);
    drop_side(&j.to);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs), cmocka_unit_test(replicas),
                                       cmocka_unit_test(comms), cmocka_unit_test(checked_together),
                                       cmocka_unit_test(checked_apart)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, tests));
}
