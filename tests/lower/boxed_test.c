/* Layouts of boxes, on either side of a move, against what each slot stands for, element by element. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "plan/plan.h"
#include "support/boxes_random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"

static struct boxes_sample sample, other;
static struct boxes_side from, to;

#define OK(call)                                \
    do {                                        \
        if ((call)) {                           \
            print_error("%s\n", weft_errmsg()); \
            assert_false(#call);                \
        }                                       \
    } while (0)

static char *print(const weft_layout *l)
{
    size_t len = 0;
    OK(weft_layout_format(l, NULL, 0, &len));
    char *text = malloc(len + 1);
    assert_non_null(text);
    OK(weft_layout_format(l, text, len + 1, &len));
    return text;
}

/* Text and struct give the same layout again. */
static void assert_forms(const weft_layout *l)
{
    weft_layout *again = NULL;
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    char *text = print(l);
    OK(weft_layout_parse(text, &again));
    assert_true(weft_layout_equal(l, again));
    assert_true(l->hash == again->hash);
    char *second = print(again);
    assert_string_equal(text, second);
    weft_layout_free(again);
    OK(weft_layout_describe(l, &desc));
    OK(weft_layout_create(&desc, &again));
    assert_true(weft_layout_equal(l, again));
    weft_layout_free(again);
    size_t len = 0;
    OK(weft_layout_json(l, NULL, 0, &len));
    char *json = malloc(len + 1);
    assert_non_null(json);
    OK(weft_layout_json(l, json, len + 1, &len));
    OK(weft_layout_parse(json, &again));
    assert_true(weft_layout_equal(l, again));
    weft_layout_free(again);
    for (size_t i = 0; i < len; i += 1 + len / 40) { /* what is cut off is refused, and says why */
        char kept = json[i];
        json[i] = 0;
        assert_int_not_equal(weft_layout_parse(json, &again), 0);
        json[i] = kept;
    }
    free(json);
    free(text);
    free(second);
}

static void forms_are_the_same(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(300, 30000)); i++) {
        struct random g = random_of(1, i);
        boxes_shape(&g, &sample);
        boxes_fill(&g, &sample, false);
        weft_layout *l;
        OK(boxes_create(&sample, WEFT_F32, &l));
        assert_forms(l);
        weft_layout_free(l);
    }
}

static void json_that_is_wrong(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"{\"dtype\": \"f32\", \"shape\": [4]}", "no list 'boxes'"},
        {"{\"dtype\": \"f33\", \"shape\": [4], \"boxes\": []}", "'dtype' is not the name"},
        {"{\"shape\": [4], \"boxes\": []}", "'dtype' is not the name"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"shape\": [5], \"boxes\": []}", "the layout has 'shape' twice"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"rank\": 1, \"at\": [0], \"len\": [4]}]}",
         "a box has 'rank' twice"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"gaps\": true, \"boxes\": []}", "no box has an element"},
        {"{\"dtype\": \"f32\", \"shape\": [9223372036854775808], \"boxes\": []}", "no whole number"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 2147483647, \"at\": [0], \"len\": [4]}]}",
         "box 0: 'rank' is not"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0], \"len\": [4], "
         "\"offset\": 9223372036854775807}]}",
         "beyond 2^62 bytes"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0], \"len\": [4], "
         "\"stride\": [9223372036854775807]}]}",
         "beyond 2^62 bytes"},
        {"{\"dtype\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
         "JSON"},
        {"{\"dtype\": \"f32\", \"shape\": [4.5], \"boxes\": []}", "no whole number"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [], \"gap\": true}", "'gap', which is not known"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"gaps\": 1, \"boxes\": []}", "neither true nor false"},
        {"{\"dtype\": \"f32\", \"shape\": [1,1,1,1,1,1,1,1,1], \"boxes\": []}", "more than 8 dims"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": -1, \"at\": [0], \"len\": [4]}]}",
         "box 0: 'rank' is not"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0, 0], \"len\": [4]}]}",
         "'at' is not a list of 1"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0]}]}", "'len' is not a list"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0], \"len\": [2]}, "
         "{\"rank\": 0, \"at\": [2], \"len\": [2], \"offset\": 2}]}",
         "in all boxes or in none"},
        {"{\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0], \"len\": [3]}]}", "+gaps"},
        {"{\"dtype\": \"f32\",}", "JSON"}};
    weft_layout *l;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(weft_layout_parse(texts[i][0], &l), WEFT_EINVAL);
        if (!strstr(weft_errmsg(), texts[i][1]))
            fail_msg("not '%s': %s", texts[i][1], weft_errmsg());
    }
    OK(weft_layout_parse(" {\"dtype\": \"f32\", \"shape\": [4], \"boxes\": [{\"rank\": 2, \"at\": [0], \"len\": [4]}]}",
                         &l));
    char *text = print(l);
    assert_string_equal(text, "f32[4] @{2: [:]}");
    free(text);
    weft_layout_free(l);
    OK(weft_layout_parse("f32[4] @x1", &l));
    assert_int_equal(weft_layout_json(l, NULL, 0, NULL), WEFT_EUNSUPPORTED);
    weft_layout_free(l);
}

/* A list is taken exactly if it fulfils what it promises. */
static void wrong_lists_are_refused(void **state)
{
    (void)state;
    const int64_t cases = test_share(2000, 200000);
    int taken = 0, overlap = 0, gap = 0, clash = 0;
    for (int64_t i = 0; suite_seed(&i, 0, cases); i++) {
        struct random g = random_of(2, i);
        boxes_shape(&g, &sample);
        boxes_fill(&g, &sample, true);
        bool some = false;
        for (size_t k = 0; k < sample.boxes.n; k++) {
            bool empty = false;
            for (int d = 0; d < sample.ndim; d++)
                empty = empty || !sample.len[k * (size_t)sample.ndim + (size_t)d];
            some = some || !empty;
        }
        weft_layout *l = NULL;
        int rc = boxes_create(&sample, WEFT_F32, &l);
        bool overlaps = sample.overlaps && !(sample.flags & WEFT_LAYOUT_OVERLAPS);
        bool gaps = sample.gaps && !(sample.flags & WEFT_LAYOUT_GAPS);
        assert_true(rc == 0 || rc == WEFT_EINVAL);
        if (!rc)
            assert_true(some && !overlaps && !gaps && !sample.clash);
        else if (!some)
            assert_non_null(strstr(weft_errmsg(), "no box has an element"));
        else if (overlaps)
            assert_non_null(strstr(weft_errmsg(), "overlap: +overlaps"));
        else if (gaps)
            assert_non_null(strstr(weft_errmsg(), "+gaps would allow"));
        else
            assert_true(sample.clash && strstr(weft_errmsg(), "at the same places"));
        taken += !rc;
        overlap += overlaps;
        gap += gaps;
        clash += rc && some && !overlaps && !gaps;
        if (!rc)
            weft_layout_free(l);
    }
    const int64_t few = cases / 40; /* each happens at least so often */
    assert_true(getenv("WEFT_TEST_SEED") || (taken > few && overlap > few && gap > few && clash > few));
}

/* ---- moves ---- */

/* A side of a move on a shape: boxes or a mesh. */
static void make_side(struct random *g, const struct boxes_sample *shape, struct boxes_sample *s, bool mesh,
                      struct boxes_side *out)
{
    char text[200];
    memcpy(s->extents, shape->extents, sizeof s->extents);
    s->ndim = shape->ndim;
    if (mesh) {
        boxes_mesh(g, s, text, sizeof text);
        OK(weft_layout_parse(text, &out->layout));
        boxes_mesh_slots(out->layout, s, out);
        return;
    }
    do
        boxes_fill(g, s, false);
    while (boxes_create(s, WEFT_I32, &out->layout)); /* a box that was taken away may have been the only one */
    boxes_slots(s, out);
}

/* The place in flat memory of element i of a part. */
static int64_t slot_of(const weft_plan *p, const struct plan_part *part, int64_t i)
{
    const struct plan_buf *b = &p->bufs[part->buf];
    int n = plan_ndim(p, part);
    bool src = b->space == PLAN_SRC;
    int64_t stride[WEFT_MAX_DIMS], at = 0, step = 1;
    for (int d = n - 1; d >= 0; d--) {
        stride[d] = step;
        step *= p->shapes[b->shape + (uint32_t)d];
    }
    if (plan_side_is_boxes(p, b->tensor, src)) {
        struct plan_side_place w = plan_side_place(p, part->buf);
        at = w.offset;
        memcpy(stride, w.stride, (size_t)n * sizeof *stride);
    }
    for (int d = n - 1; d >= 0; d--) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        const struct plan_spot *s = &p->spots[part->spots + (uint32_t)d];
        int64_t k = i % (r->n * r->len);
        i /= r->n * r->len;
        at += (s->to + k / r->len * s->tostep + k % r->len) * stride[d];
    }
    return at;
}

struct world {
    weft_plan *plan[BOXES_RANKS];
    int32_t in[BOXES_RANKS][BOXES_ROOM], out[BOXES_RANKS][BOXES_ROOM];
};
static struct world world;

static void receive(int rank, const struct plan_step *recv, int nth)
{
    const weft_plan *p = world.plan[rank], *q = world.plan[recv->peer];
    for (size_t s = 0; s < q->nsteps; s++) {
        const struct plan_step *send = &q->steps[s];
        if (send->kind != PLAN_SEND || send->peer != rank || nth--)
            continue;
        assert_int_equal(send->nparts, recv->nparts);
        for (uint32_t k = 0; k < recv->nparts; k++) {
            const struct plan_part *a = &q->parts[send->part + k], *b = &p->parts[recv->part + k];
            assert_int_equal(a->count, b->count);
            for (int64_t i = 0; i < a->count; i++)
                world.out[rank][slot_of(p, b, i)] = world.in[recv->peer][slot_of(q, a, i)];
        }
        return;
    }
    assert_false("a message that nobody sends");
}

/* Runs the plans of all ranks: sources do not change, so messages are taken where they are sent from. */
static void run_plans(void)
{
    for (int r = 0; r < BOXES_RANKS; r++) {
        const weft_plan *p = world.plan[r];
        int taken[BOXES_RANKS] = {0};
        for (size_t s = 0; s < p->nsteps; s++) {
            const struct plan_step *st = &p->steps[s];
            if (st->kind == PLAN_RECV)
                receive(r, st, taken[st->peer]++);
            if (st->kind != PLAN_COPY)
                continue;
            const struct plan_part *a = &p->parts[st->part], *b = a + 1;
            bool src = p->bufs[a->buf].space == PLAN_SRC;
            for (int64_t i = 0; i < a->count; i++)
                world.out[r][slot_of(p, b, i)] = (src ? world.in : world.out)[r][slot_of(p, a, i)];
        }
    }
}

static void fill_world(void)
{
    for (int r = 0; r < BOXES_RANKS; r++)
        for (int64_t i = 0; i < BOXES_ROOM; i++) {
            world.in[r][i] = from.slot[r][i] < 0 ? -1000 : (int32_t)from.slot[r][i];
            world.out[r][i] = -7;
        }
}

static bool rank_has(const struct boxes_side *s, int rank, int64_t element)
{
    for (int64_t i = 0; i < s->room[rank]; i++)
        if (s->slot[rank][i] == element)
            return true;
    return false;
}

static bool any_has(const struct boxes_side *s, int64_t element)
{
    for (int r = 0; r < BOXES_RANKS; r++)
        if (rank_has(s, r, element))
            return true;
    return false;
}

static void assert_moved(int32_t (*out)[BOXES_ROOM])
{
    for (int r = 0; r < BOXES_RANKS; r++)
        for (int64_t i = 0; i < BOXES_ROOM; i++) {
            int64_t want = to.slot[r][i] >= 0 && any_has(&from, to.slot[r][i]) ? to.slot[r][i] : -7;
            if (out[r][i] != want) {
                char *a = print(from.layout), *b = print(to.layout);
                print_error("rank %d, slot %lld is %d, not %lld: '%s' '%s'\n", r, (long long)i, out[r][i],
                            (long long)want, a, b);
                free(a);
                free(b);
            }
            assert_int_equal(out[r][i], want);
        }
}

/* For each rank the different elements that it needs, does not have, and another has. */
static int64_t fewest(void)
{
    int64_t n = 0;
    for (int r = 0; r < BOXES_RANKS; r++)
        for (int64_t e = 0; e < BOXES_ELEMENTS; e++)
            n += rank_has(&to, r, e) && !rank_has(&from, r, e) && any_has(&from, e);
    return n * 4;
}

static void lower_all(struct random *g)
{
    static const int64_t buckets[] = {0, 1, 16, 100};
    weft_machine machine = {.size = sizeof machine, .ranks_per_host = random_once_in(g, 3) ? 2 : 0};
    weft_lower_opts opts = {
        .size = sizeof opts, .world = BOXES_RANKS, .bucket = buckets[random_in(g, 0, 3)], .machine = &machine};
    int64_t received = 0;
    for (int r = 0; r < BOXES_RANKS; r++) {
        weft_stats stats = WEFT_STATS_INIT;
        weft_plan *again = NULL;
        size_t len = 0;
        OK(weft_lower(&(weft_move){"t", from.layout, to.layout}, 1, r, &opts, &world.plan[r]));
        OK(weft_plan_stats(world.plan[r], &stats));
        assert_true(stats.bound == stats.received);
        received += stats.received;
        OK(weft_plan_save(world.plan[r], NULL, 0, &len));
        void *bytes = malloc(len);
        OK(weft_plan_save(world.plan[r], bytes, len, &len));
        OK(weft_plan_load(bytes, len, &again));
        assert_true(weft_plan_equal(world.plan[r], again));
        weft_plan_free(again);
        free(bytes);
        OK(weft_plan_explain(world.plan[r], false, NULL, 0, &len));
        OK(weft_plan_explain(world.plan[r], true, NULL, 0, &len));
    }
    assert_int_equal(received, fewest());
    if (weft_plan_verify((const weft_plan *const *)world.plan, BOXES_RANKS)) {
        char *a = print(from.layout), *b = print(to.layout);
        print_error("'%s' '%s': %s\n", a, b, weft_errmsg());
        free(a);
        free(b);
        assert_false("verify");
    }
}

static void free_all(void)
{
    for (int r = 0; r < BOXES_RANKS; r++)
        weft_plan_free(world.plan[r]);
    weft_layout_free(from.layout);
    weft_layout_free(to.layout);
}

/* Which of the two sides are meshes: both never are. */
static void make_pair(struct random *g)
{
    int meshes = (int)random_in(g, 0, 3);
    boxes_shape(g, &sample);
    make_side(g, &sample, &sample, meshes == 1, &from);
    make_side(g, &sample, &other, meshes == 2, &to);
}

static void moves_are_right(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(600, 60000)); i++) {
        struct random g = random_of(3, i);
        make_pair(&g);
        lower_all(&g);
        fill_world();
        run_plans();
        assert_moved(world.out);
        free_all();
    }
}

/* The arrivals of a plan are what a run writes. */
static void arrivals_name_slots(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(100, 1000)); i++) {
        struct random g = random_of(4, i);
        boxes_shape(&g, &sample);
        make_side(&g, &sample, &sample, false, &from);
        make_side(&g, &sample, &other, false, &to);
        lower_all(&g);
        for (int r = 0; r < BOXES_RANKS; r++) {
            static weft_arrival v[BOXES_ROOM];
            size_t n = 0;
            OK(weft_plan_arrivals(world.plan[r], v, BOXES_ROOM, &n));
            assert_true(n <= BOXES_ROOM);
            for (size_t k = 0; k < n; k++) {
                int64_t element = 0;
                for (int d = 0; d < sample.ndim; d++)
                    element = element * sample.extents[d] + v[k].box.at[d];
                assert_int_equal(to.slot[r][v[k].box.local[0]], element);
            }
        }
        free_all();
    }
}

static void run_rank(struct ranks_rank *r)
{
    struct world *w = r->arg;
    size_t bytes = sizeof w->in[0];
    weft_view src = WEFT_VIEW(w->in[r->rank], bytes), dst = WEFT_VIEW(w->out[r->rank], bytes);
    weft_exec *x;
    RANKS_OK(r, weft_bind(w->plan[r->rank], r->comm, &src, &dst, NULL, &x));
    for (int run = 0; run < 2; run++)
        RANKS_OK(r, weft_exec_run(x));
    weft_exec_close(x);
}

static void engine_moves_boxes(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(30, 1000)); i++) {
        struct random g = random_of(5, i);
        make_pair(&g);
        lower_all(&g);
        fill_world();
        ranks_run(BOXES_RANKS, NULL, run_rank, &world, NULL);
        assert_moved(world.out);
        free_all();
    }
}

/* ---- layouts made of layouts ---- */

static void assert_same_slots(const weft_layout *l, const struct boxes_side *want)
{
    static struct boxes_side got;
    static int64_t extents[WEFT_MAX_DIMS];
    const struct box_list *b = l->boxes;
    memset(got.slot, 0xff, sizeof got.slot);
    for (int d = 0; d < l->ndim; d++)
        extents[d] = l->dim[d].extent;
    for (size_t k = 0; k < b->n; k++) {
        struct box_region r = box_region_of(b, k);
        for (int64_t i = 0; i < box_region_count(b->ndim, &r); i++) {
            int64_t rest = i, at = b->offset[k], element = 0, step = 1;
            for (int d = b->ndim - 1; d >= 0; d--) {
                at += rest % r.len[d] * b->stride[k * (size_t)b->ndim + (size_t)d];
                element += (r.at[d] + rest % r.len[d]) * step;
                rest /= r.len[d];
                step *= extents[d];
            }
            got.slot[b->rank[k]][at] = element;
        }
    }
    assert_memory_equal(got.slot, want->slot, sizeof got.slot);
}

static void a_mesh_is_boxes(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(300, 10000)); i++) {
        struct random g = random_of(6, i);
        boxes_shape(&g, &sample);
        make_side(&g, &sample, &sample, true, &from);
        weft_layout *l;
        OK(weft_layout_boxed(from.layout, &l));
        assert_same_slots(l, &from);
        assert_forms(l);
        weft_layout_free(l);
        weft_layout_free(from.layout);
    }
}

static void dims_are_permuted(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(300, 10000)); i++) {
        struct random g = random_of(7, i);
        int order[WEFT_MAX_DIMS];
        boxes_shape(&g, &sample);
        make_side(&g, &sample, &sample, random_once_in(&g, 2), &from);
        for (int d = 0; d < sample.ndim; d++)
            order[d] = d;
        for (int d = sample.ndim - 1; d > 0; d--) {
            int k = (int)random_in(&g, 0, d), keep = order[d];
            order[d] = order[k];
            order[k] = keep;
        }
        weft_layout *l;
        OK(weft_layout_permute(from.layout, order, &l));
        for (int r = 0; r < BOXES_RANKS; r++)
            for (int64_t s = 0; s < from.room[r]; s++) {
                int64_t index[WEFT_MAX_DIMS] = {0}, element = from.slot[r][s];
                if (element < 0)
                    continue;
                for (int d = sample.ndim - 1; d >= 0; d--) {
                    index[d] = element % sample.extents[d];
                    element /= sample.extents[d];
                }
                for (int d = 0; d < sample.ndim; d++)
                    element = element * sample.extents[order[d]] + index[order[d]];
                from.slot[r][s] = element;
            }
        assert_same_slots(l, &from);
        weft_layout_free(l);
        weft_layout_free(from.layout);
    }
}

/* Some dims are split into factors, or neighbours are joined; dims of 1 come and go. */
static int new_shape(struct random *g, const struct boxes_sample *s, int64_t *out)
{
    int n = 0;
    for (int d = 0; d < s->ndim; d++) {
        int64_t rest = s->extents[d];
        if (random_once_in(g, 6))
            out[n++] = 1;
        if (d + 1 < s->ndim && random_once_in(g, 3)) {
            out[n++] = rest * s->extents[d + 1];
            d++;
            continue;
        }
        for (int64_t f = 2; f < rest && random_once_in(g, 2); f++)
            if (rest % f == 0) {
                out[n++] = f;
                rest /= f;
            }
        if (rest > 1 || random_once_in(g, 2))
            out[n++] = rest;
    }
    return n;
}

static void dims_are_split_and_joined(void **state)
{
    (void)state;
    int same = 0;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(600, 10000)); i++) {
        struct random g = random_of(8, i);
        int64_t shape[WEFT_MAX_DIMS + 8];
        boxes_shape(&g, &sample);
        make_side(&g, &sample, &sample, random_once_in(&g, 2), &from);
        int n = new_shape(&g, &sample, shape);
        weft_layout *l;
        if (n > WEFT_MAX_DIMS) {
            weft_layout_free(from.layout);
            continue;
        }
        OK(weft_layout_reshape(from.layout, n, shape, &l));
        same += n == sample.ndim;
        assert_same_slots(l, &from);
        assert_forms(l);
        weft_layout_free(l);
        weft_layout_free(from.layout);
    }
    assert_true(getenv("WEFT_TEST_SEED") || same < test_share(600, 10000));
}

/* A stride that no second element needs is not computed: it would not fit. */
static void far_elements_are_split(void **state)
{
    (void)state;
    char text[100];
    weft_layout *l, *split;
    OK(weft_layout_parse("u8[1024] @{0: [0:2]=0(1152921504606846976)} +gaps", &l));
    OK(weft_layout_reshape(l, 2, (const int64_t[]){2, 512}, &split));
    OK(weft_layout_format(split, text, sizeof text, NULL));
    assert_string_equal(text, "u8[2,512] @{0: [0:1,0:2]=0(2,1152921504606846976)} +gaps");
    weft_layout_free(split);
    weft_layout_free(l);
}

/* ---- examples ---- */

static void errors_show_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
        int caret;
    } cases[] = {
        {"f32[8] @{0: [0:4]; 1: [3:8]}", "box [0:4] of rank 0 and box [3:8] of rank 1 overlap: +overlaps", 22},
        {"f32[8] @{0: [0:4]; 1: [5:8]}", "the elements [4:5] are in no box: +gaps", 12},
        {"f32[8] @{0: [0:4]; 0: [4:8]}", "ascending order of ranks", 19},
        {"f32[8] @{0: [0:9]}", "0:9 is not within the 8 positions of dim 0", 13},
        {"f32[8] @{0: [0:4] [4:8]=2}", "are at the same places of its buffer", 18},
        {"f32[2,4] @{0: [:,:]=0(1,1)}", "has two elements at one place", 14},
        {"f32[8] @{0: [:]} +sum(x)", "'sum' is not what boxes allow: overlaps gaps", 18},
        {"f32[8]+ @{0: [:]}", "']+' is for ghosts", 9},
        {"f32[8/x] @{0: [:]}", "has splits or ghosts", 4},
        {"f32[8] @{0 [:]}", "expected ':' and the boxes of the rank", 11},
        {"f32[8] @{0: 3}", "expected '[' and a box", 12},
        {"f32[8,2] @{0: [:]}", "expected ',' and the next dim of the box", 16},
        {"f32[8] @{0: [:]", "expected '[' and a box, ';' and a rank, or '}'", 15},
        {"f32[8] @{0: [0:0]}", "no box has an element", 8},
        {"u8[4000000000,4000000000,2] @{0: [:,:,:]}", "more than 2^62 bytes", 14},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *l = NULL;
        assert_int_equal(weft_layout_parse(cases[i].text, &l), WEFT_EINVAL);
        const char *said = weft_errmsg(), *caret = strrchr(said, '\n');
        if (!strstr(said, cases[i].words) || !caret || (int)strspn(caret + 1, " ") != cases[i].caret + 2)
            print_error("%s\n", said);
        assert_non_null(strstr(said, cases[i].words));
        assert_int_equal(strspn(caret + 1, " "), cases[i].caret + 2);
    }
}

static void other_sides_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst, *words;
    } cases[] = {
        {"f32[8] @x2 +sum(x)", "f32[8] @{0: [:]}", "the source has folds"},
        {"f32[8] @{0: [:]}", "f32[8/x~1] @x2", "the destination has ghosts"},
        {"f32[8] @{0: [:]}", "f32[4,2] @{0: [:,:]}", "two different shapes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *a, *b;
        weft_plan *p;
        OK(weft_layout_parse(cases[i].src, &a));
        OK(weft_layout_parse(cases[i].dst, &b));
        assert_true(weft_lower(&(weft_move){"t", a, b}, 1, 0, NULL, &p) < 0);
        assert_non_null(strstr(weft_errmsg(), cases[i].words));
        weft_layout_free(a);
        weft_layout_free(b);
    }
    weft_layout *a, *b;
    OK(weft_layout_parse("f32[6,4] @x1", &a));
    assert_int_equal(weft_layout_reshape(a, 2, (const int64_t[]){4, 6}, &b), WEFT_EINVAL);
    assert_int_equal(weft_layout_permute(a, (const int[]){0, 0}, &b), WEFT_EINVAL);
    weft_layout_free(a);
    OK(weft_layout_parse("f32[6,4/x~1] @x2", &a));
    assert_int_equal(weft_layout_boxed(a, &b), WEFT_EUNSUPPORTED);
    weft_layout_free(a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_the_same),        cmocka_unit_test(json_that_is_wrong),
        cmocka_unit_test(wrong_lists_are_refused),   cmocka_unit_test(moves_are_right),
        cmocka_unit_test(arrivals_name_slots),       cmocka_unit_test(engine_moves_boxes),
        cmocka_unit_test(a_mesh_is_boxes),           cmocka_unit_test(dims_are_permuted),
        cmocka_unit_test(dims_are_split_and_joined), cmocka_unit_test(errors_show_the_place),
        cmocka_unit_test(other_sides_are_refused),   cmocka_unit_test(far_elements_are_split),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
