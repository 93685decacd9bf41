/* Verify on plans made by hand, right ones and ones with one thing wrong, each with the words it
 * gets; and on lowered plans, which must pass whatever their size. What it stands on is
 * verify_laws_test's, that it misses nothing mutant_test's. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/pairs.h"
#include "support/plan_samples.h"
#include "support/suite.h"

/* ---- plans by hand ---- */

enum { MOST = 8 };
struct set {
    weft_plan *p[MOST];
    size_t n;
};

static struct set make_set(weft_plan *(*make)(int), size_t n)
{
    struct set s = {.n = n};
    for (size_t r = 0; r < n; r++)
        s.p[r] = make((int)r);
    return s;
}

static int verify_set(const struct set *s)
{
    return weft_plan_verify((const weft_plan *const *)s->p, s->n);
}

static void free_set(struct set *s)
{
    for (size_t r = 0; r < s->n; r++)
        weft_plan_free(s->p[r]);
}

static void samples_pass(void **state)
{
    (void)state;
    static const struct {
        weft_plan *(*make)(int);
        size_t n;
    } sets[] = {{sample_permute, 2}, {sample_allreduce, 3}, {sample_scalar, 2}, {sample_cyclic, 2}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct set s = make_set(sets[i].make, sets[i].n);
        if (verify_set(&s))
            fail_msg("sample %zu: %s", i, weft_errmsg());
        free_set(&s);
    }
}

/* Rank r's allreduce of two ranks in one phase, both at once. The order of the fold is its own if `own`. */
static weft_plan *exchange(int rank, const char *src, const char *dst, int dtype, bool own, bool wait)
{
    weft_plan *p = sample_plan(rank, 2, "allreduce", "one_phase");
    uint32_t w = sample_tensor(p, "w", src, dst), temp = sample_temp(p, dtype, w, (int64_t[]){4});
    uint32_t in = p->tensors[w].src_buf;
    PART(p, in, dtype, 0, SPAN(0, 4, 0));
    STEP(p, .kind = PLAN_SEND, .peer = 1 - rank);
    PART(p, temp, dtype, 0, SPAN(0, 4, 0));
    STEP(p, .kind = PLAN_RECV, .peer = 1 - rank);
    PART(p, p->tensors[w].dst_buf, 0, 0, SPAN(0, 4, 0));
    PART(p, own || rank == 0 ? in : temp, 0, 0, SPAN(0, 4, 0));
    PART(p, own || rank == 0 ? temp : in, 0, 0, SPAN(0, 4, 0));
    STEP_AFTER(p, wait ? DEPS(0, 1) : DEPS(1), .kind = PLAN_REDUCE, .op = WEFT_SUM);
    p->bound = p->stated = 4 * (int64_t)weft_dtype_size(dtype);
    return p;
}

static struct set exchange_set(const char *src, const char *dst, int dtype, bool own, bool wait)
{
    return (struct set){.p = {exchange(0, src, dst, dtype, own, wait), exchange(1, src, dst, dtype, own, wait)},
                        .n = 2};
}

static void expect(struct set *s, const char *text)
{
    int rc = verify_set(s);
    if (!text && rc)
        fail_msg("refused: %s", weft_errmsg());
    if (text && !rc)
        fail_msg("not refused: %s", text);
    if (text && !strstr(weft_errmsg(), text))
        fail_msg("\"%s\" does not say \"%s\"", weft_errmsg(), text);
    free_set(s);
}

static void floats_folded_in_different_orders_are_refused(void **state)
{
    (void)state;
    struct set s = exchange_set("f32[4] @x2 +sum(x)", "f32[4] @x2", WEFT_F32, false, false);
    expect(&s, NULL);
    s = exchange_set("f32[4] @x2 +sum(x)", "f32[4] @x2", WEFT_F32, true, false);
    expect(&s, "deliver 'w'[0:4] folded in different orders");
    s = exchange_set("i32[4] @x2 +sum(x)", "i32[4] @x2", WEFT_I32, true, false);
    expect(&s, NULL); /* integers wrap: any order gives the same bits */
}

static void in_place_without_waits_is_refused(void **state)
{
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        struct set s = exchange_set("i32[4] @x2 +sum(x)", "i32[4] @x2", WEFT_I32, false, wait);
        s.p[0]->in_place = s.p[1]->in_place = 1;
        expect(&s, wait ? NULL
                        : "in place, rank 0 step 2 (reduce 'w'[0:4]) may overwrite what rank 0 step 0 (send to "
                          "rank 1) reads of the source");
    }
}

/* A tensor that is averaged by another op, divisor or path than its layout says. */
static void folds_unlike_the_layout_are_refused(void **state)
{
    (void)state;
    struct set s = exchange_set("f32[4] @x2 +avg(x)", "f32[4] @x2", WEFT_F32, false, false);
    expect(&s, "step 2 (reduce 'w'[0:4]): its terms are folded in another way than the layout says");
    s = exchange_set("f32[4] @x2 +avg(x)", "f32[4] @x2", WEFT_F32, false, false);
    s.p[0]->steps[2].div = s.p[1]->steps[2].div = 2;
    expect(&s, NULL);
    s = exchange_set("f32[4] @x2 +max(x)", "f32[4] @x2", WEFT_F32, false, false);
    expect(&s, "folded in another way");
    s = exchange_set("f32[4] @x2", "f32[4] @x2", WEFT_F32, false, false); /* replicas: one term, twice */
    expect(&s, "is in it several times");
}

static void reads_of_ghosts_are_refused(void **state)
{
    (void)state;
    for (int ghost = 0; ghost < 2; ghost++) { /* rank 0 holds 0..3 and a ghost of 4, rank 1 holds 4..7 */
        weft_plan *p = sample_plan(0, 1, "reshard", "direct");
        uint32_t w = sample_tensor(p, "w", ghost ? "i32[4~0:2o] @x1" : "i32[4~0:2o] @x1 +sum(~)", "i32[4] @x1");
        PART(p, p->tensors[w].src_buf, 0, 0, SPAN(2, 2, 2));
        PART(p, p->tensors[w].dst_buf, 0, 0, SPAN(2, 2, 2));
        STEP(p, .kind = PLAN_COPY);
        if (ghost) {
            PART(p, p->tensors[w].src_buf, 0, 0, SPAN(0, 2, 4)); /* the ghosts stand for 0 and 1 */
            PART(p, p->tensors[w].dst_buf, 0, 0, SPAN(0, 2, 0));
            STEP(p, .kind = PLAN_COPY);
        } else {
            PART(p, p->tensors[w].dst_buf, 0, 0, SPAN(0, 2, 0));
            PART(p, p->tensors[w].src_buf, 0, 0, SPAN(0, 2, 0));
            PART(p, p->tensors[w].src_buf, 0, 0, SPAN(0, 2, 4));
            STEP(p, .kind = PLAN_REDUCE, .op = WEFT_SUM);
        }
        struct set s = {.p = {p}, .n = 1};
        expect(&s, ghost ? "'w'[0:2] is not at 4 of dim 0 of rank 0's source" : NULL);
    }
}

/* A grid of one element whose ghosts stand for it again: its slots are the element, two faces and a corner. */
static void corners_are_refused_where_there_are_none(void **state)
{
    (void)state;
    enum { RIGHT, NO_FACE, CORNER, CORNER_AS_TERM, FACE_NO_TERM };
    static const char *const words[] = {NULL, "element [0,0] of 'w' on rank 0 is never written",
                                        "'w'[0:1,0:1] is at a corner of rank 0's destination, which has none",
                                        "'w'[0:1,0:1] is at a corner of rank 0's source, which has none",
                                        "the term of piece 0 of dim 0,piece 0 of dim 1 is missing"};
    for (int wrong = RIGHT; wrong <= FACE_NO_TERM; wrong++) {
        bool terms = wrong >= CORNER_AS_TERM;
        weft_plan *p = sample_plan(0, 1, "reshard", "direct");
        uint32_t w = sample_tensor(p, "w", terms ? "i32[1~0:1o,1~0:1o]+ @x1 +sum(~)" : "i32[1,1] @x1",
                                   terms ? "i32[1,1] @x1" : "i32[1~0:1o,1~0:1o]+ @x1");
        uint32_t src = p->tensors[w].src_buf, dst = p->tensors[w].dst_buf;
        if (terms) {
            PART(p, dst, 0, 0, SPAN(0, 1, 0), SPAN(0, 1, 0));
            PART(p, src, 0, 0, SPAN(0, 1, 0), SPAN(0, 1, 0));
            PART(p, src, 0, 0, SPAN(0, 1, 0), SPAN(0, 1, 1));
            if (wrong == CORNER_AS_TERM)
                PART(p, src, 0, 0, SPAN(0, 1, 1), SPAN(0, 1, 0));
            if (wrong == CORNER_AS_TERM)
                PART(p, src, 0, 0, SPAN(0, 1, 1), SPAN(0, 1, 1));
            STEP(p, .kind = PLAN_REDUCE, .op = WEFT_SUM);
        }
        for (int slot = 0; slot < 4 && !terms; slot++) {
            if ((slot == 3 && wrong != CORNER) || (slot == 2 && wrong == NO_FACE))
                continue;
            PART(p, src, 0, 0, SPAN(0, 1, 0), SPAN(0, 1, 0));
            PART(p, dst, 0, 0, SPAN(0, 1, slot / 2), SPAN(0, 1, slot % 2));
            STEP(p, .kind = PLAN_COPY);
        }
        struct set s = {.p = {p}, .n = 1};
        expect(&s, words[wrong]);
    }
}

/* ---- one thing wrong ---- */

static struct plan_part *part(struct set *s, size_t r, size_t step, uint32_t k)
{
    return &s->p[r]->parts[s->p[r]->steps[step].part + k];
}

static void edit_digest(struct set *s)
{
    s->p[1]->digest ^= 1;
}
static void edit_place(struct set *s)
{
    weft_plan *p = s->p[0];
    s->p[0] = s->p[1];
    s->p[1] = p;
}
static void edit_name(struct set *s)
{
    s->p[2]->names[0] = 'G';
}
static void edit_in_place(struct set *s)
{
    s->p[1]->in_place = 1;
}
static void edit_stated(struct set *s)
{
    s->p[1]->stated += 2;
}
static void edit_dep(struct set *s)
{
    s->p[0]->deps[s->p[0]->steps[4].dep + 1] = 0;
}
static void edit_input(struct set *s)
{
    struct plan_part *a = part(s, 0, 4, 2), *b = part(s, 0, 4, 3);
    *a = *b;
}
static void edit_input_twice(struct set *s)
{
    struct plan_part *a = part(s, 0, 4, 1), *b = part(s, 0, 4, 3);
    *b = *a;
}
static void edit_div(struct set *s)
{
    s->p[0]->steps[4].div = 2;
}
static void edit_via(struct set *s)
{
    s->p[0]->steps[4].via = 0;
}
static void edit_wire(struct set *s) /* terms in f16 from rank 1 to rank 0 */
{
    part(s, 1, 0, 0)->wire = part(s, 0, 1, 0)->wire = WEFT_F16;
}
static void edit_wire_of_one(struct set *s)
{
    part(s, 1, 0, 0)->wire = WEFT_F16;
}
static void edit_peers(struct set *s)
{
    s->p[0]->steps[0].peer = 2;
    s->p[0]->steps[2].peer = 1;
}
static void edit_length(struct set *s)
{
    struct plan_part *x = part(s, 0, 0, 0);
    s->p[0]->runs[x->runs].len = x->count = 3;
    s->p[0]->steps[0].bytes = 6;
}
static void edit_spot(struct set *s)
{
    s->p[0]->spots[part(s, 0, 6, 0)->spots].to = 3;
}
static void edit_read_spot(struct set *s) /* what rank 0 hands on stands elsewhere */
{
    s->p[0]->spots[part(s, 0, 5, 0)->spots].to = 1;
}
static void edit_kind(struct set *s) /* nobody takes it */
{
    s->p[1]->steps[6].peer = 2;
}

/* sample_allreduce, on rank r: 0 send, 1 receive, 2 send, 3 receive, 4 fold, 5 send, 6 receive, 7 send, 8 receive. */
static void wrong_plans_are_explained(void **state)
{
    (void)state;
    static const struct {
        void (*edit)(struct set *s);
        const char *text;
    } edits[] = {
        {edit_digest, "verify: rank 1's plan was made for another problem than rank 0's"},
        {edit_place, "verify: plans[0] is the plan of rank 1"},
        {edit_name, "verify: tensor 0 is 'Gradient/0' on rank 2, 'gradient/0' on rank 0"},
        {edit_in_place, "verify: rank 1's plan is for use in place, rank 0's is not"},
        {edit_stated, "verify: 96 B are sent in all, the plans state 98 B"},
        {edit_dep,
         "verify: rank 0 step 4 (reduce 'gradient/0'[0:4]) reads 'gradient/0'[0:4] without waiting for rank 0 "
         "step 3 (receive from rank 2), which writes it"},
        {edit_input, "verify: rank 0 step 4 (reduce 'gradient/0'[0:4]): the term of x=1 is missing"},
        {edit_input_twice, "verify: rank 0 step 4 (reduce 'gradient/0'[0:4]): the term of x=0 is in it several times"},
        {edit_div, "verify: rank 0 step 4 (reduce 'gradient/0'[0:4]): its terms are folded in another way than the "
                   "layout says"},
        {edit_via, "verify: rank 0 step 4 (reduce 'gradient/0'[0:4]) rounds 'gradient/0'[0:4] to f32: terms stay bf16, "
                   "folds f32, results become bf16 and then f32"},
        {edit_wire, "verify: rank 1 step 0 (send to rank 0) rounds 'gradient/0'[0:4] to f16"},
        {edit_wire_of_one, "verify: rank 1 step 0 (send to rank 0) packs 'gradient/0'[0:4] as f16, rank 0 step 1 "
                           "(receive from rank 1) takes it as bf16"},
        {edit_peers,
         "verify: rank 0 step 2 (send to rank 1) packs 'gradient/0'[8:12] where rank 1 step 1 (receive from "
         "rank 0) takes 'gradient/0'[4:8]"},
        {edit_length, "verify: rank 0 step 0 (send to rank 1) sends 6 B to rank 1, which receives 8 B in step 1"},
        {edit_spot,
         "verify: rank 0 step 6 (receive from rank 1): 'gradient/0'[4:8] is not at 3 of dim 0 of rank 0's destination"},
        {edit_read_spot, "verify: rank 0 step 5 (send to rank 1) reads 'gradient/0'[0:4], not all of which has been "
                         "written, at this place, before it"},
        {edit_kind, "verify: rank 0 step 5 (send to rank 1) has no receive: rank 0 sends 2 messages to rank 1, which "
                    "receives 1"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct set s = make_set(sample_allreduce, 3);
        edits[i].edit(&s);
        expect(&s, edits[i].text);
    }
    struct set s = make_set(sample_allreduce, 3);
    assert_int_equal(weft_plan_verify((const weft_plan *const *)s.p, 2), WEFT_EMISMATCH);
    assert_non_null(strstr(weft_errmsg(), "2 plans for a world of 3 ranks"));
    assert_int_equal(weft_plan_verify((const weft_plan *const *)s.p, 0), WEFT_EMISMATCH);
    weft_plan *none[3] = {s.p[0], NULL, s.p[2]};
    assert_int_equal(weft_plan_verify((const weft_plan *const *)none, 3), WEFT_EMISMATCH);
    free_set(&s);
}

/* By doubling, rank r of 4: 0 send, 1 receive, 2 fold, 3 send, 4 receive, 5 fold, 6 send, 7 receive, 8 send, 9 receive.
 * Step 8 sends what steps 5 and 7 have written. */
static struct set doubling_set(const char *src, const char *dst)
{
    struct set s = {.n = 4};
    weft_layout *a = sample_layout(src), *b = sample_layout(dst);
    weft_lower_opts o = {.size = sizeof o, .algorithm = "doubling"};
    for (int r = 0; r < 4; r++)
        assert_int_equal(weft_lower(&(weft_move){"w", a, b}, 1, r, &o, &s.p[r]), 0);
    weft_layout_free(a);
    weft_layout_free(b);
    return s;
}

static void reads_of_what_several_steps_write_are_checked(void **state)
{
    (void)state;
    const char *src = "f32[16] @x4 +sum(x)", *dst = "f32[16] @x4";
    struct set s = doubling_set(src, dst);
    struct plan_step *send = &s.p[0]->steps[8];
    assert_int_equal(send->ndeps, 2);
    s.p[0]->deps[send->dep + 1] = s.p[0]->deps[send->dep];
    expect(&s, "verify: rank 0 step 8 (send to rank 2) reads 'w'[0:8] without waiting for rank 0 step 7 (receive from "
               "rank 1), which writes it");
    s = doubling_set(src, dst);
    struct plan_part *one = part(&s, 0, 5, 1), *two = part(&s, 0, 5, 2), was = *one;
    *one = *two;
    *two = was;
    expect(&s, "verify: rank 0 reads 'w'[0:8], in which not all elements have the same terms in the same order");
    s = doubling_set(src, dst);
    for (int r = 0; r < 4; r += 2) /* the first two elements stand elsewhere in what rank 0 sends */
        part(&s, (size_t)r, r ? 9 : 8, 0)->count = s.p[r]->runs[part(&s, (size_t)r, r ? 9 : 8, 0)->runs].len = 6;
    s.p[0]->spots[part(&s, 0, 8, 0)->spots].to = 2;
    s.p[0]->steps[8].bytes = s.p[2]->steps[9].bytes = 24;
    s.p[0]->stated -= 8;
    expect(&s,
           "verify: rank 0 step 8 (send to rank 2) reads 'w'[0:6], not all of which has been written, at this place, "
           "before it");
}

static void slots_written_never_or_twice_are_refused(void **state)
{
    (void)state;
    struct set s = make_set(sample_permute, 2);
    for (int r = 0; r < 2; r++) { /* three rows of rank 0's four */
        struct plan_part *x = part(&s, (size_t)r, (size_t)r, 0);
        s.p[r]->runs[x->runs].len = 3;
        x->count = 9;
        s.p[r]->steps[r].bytes = s.p[r]->stated = 36;
    }
    s.p[0]->stated = 48;
    expect(&s, "verify: element [3,0] of 'w' on rank 1 is never written");

    struct run rows = {.at = 1, .len = 2, .n = 1, .to = 1}, cols = {.at = 4, .len = 2, .n = 1};
    for (int whole = 0; whole < 2; whole++) {
        s = make_set(sample_cyclic, 2);
        weft_plan *p = s.p[0];
        if (whole) { /* the copy again */
            struct plan_part again[2] = {*part(&s, 0, 0, 0), *part(&s, 0, 0, 1)};
            *sample_push(p, parts, nparts) = again[0];
            *sample_push(p, parts, nparts) = again[1];
        } else {
            struct run from = cols, to = cols;
            from.to = 2;
            to.to = 4;
            PART(p, p->tensors[0].src_buf, 0, 0, rows, from);
            PART(p, p->tensors[0].dst_buf, 0, 0, rows, to);
        }
        STEP(p, .kind = PLAN_COPY);
        expect(&s, whole ? "in the destination is written twice, by rank 0 step 0 (copy"
                         : "on rank 0 is written twice, by rank 0 step 0 (copy");
    }
}

static void circular_waits_are_refused(void **state)
{
    (void)state;
    struct set s = {.n = 2};
    for (int r = 0; r < 2; r++) { /* each sends once it has received */
        weft_plan *p = s.p[r] = sample_plan(r, 2, "permute", "direct");
        sample_tensor(p, "w", "f32[8/x] @x2", "f32[8/x] @x2=1,0");
        PART(p, p->tensors[0].dst_buf, WEFT_F32, 0, SPAN(4 * (1 - r), 4, 0));
        STEP(p, .kind = PLAN_RECV, .peer = 1 - r);
        PART(p, p->tensors[0].src_buf, WEFT_F32, 0, SPAN(4 * r, 4, 0));
        STEP_AFTER(p, DEPS(0), .kind = PLAN_SEND, .peer = 1 - r, .stage = 1);
        p->stated = 16;
    }
    expect(&s, "verify: a cycle of waits: rank");
    s = make_set(sample_permute, 2);
    s.p[0]->steps[1].ndeps = 1;
    s.p[0]->steps[1].dep = 0;
    *sample_push(s.p[0], deps, ndeps) = 0;
    expect(&s, "a receive may wait for its message only");
}

/* Rank 0's value to a destination that is left as terms of band: rank 1 gets ones. */
static struct set left_as_terms(int op0, int op1)
{
    struct set s = {.n = 2};
    for (int r = 0; r < 2; r++) {
        weft_plan *p = s.p[r] = sample_plan(r, 2, "copy", "direct");
        uint32_t z = sample_tensor(p, "z", "i32[6] @x1", "i32[6] @x2 +band(x)");
        int op = r ? op1 : op0;
        if (!op)
            PART(p, p->tensors[z].src_buf, 0, 0, SPAN(0, 6, 0));
        PART(p, p->tensors[z].dst_buf, 0, 0, SPAN(0, 6, 0));
        STEP(p, .kind = op ? PLAN_REDUCE : PLAN_COPY, .op = (uint8_t)op);
    }
    return s;
}

static void wrong_identities_are_refused(void **state)
{
    (void)state;
    struct set s = left_as_terms(0, WEFT_BAND);
    expect(&s, NULL);
    s = left_as_terms(0, WEFT_BOR);
    expect(&s,
           "verify: rank 1 step 0 (reduce 'z'[0:6]): the destination's 'z'[0:6] must hold the identity of band here");
    s = left_as_terms(WEFT_BAND, WEFT_BAND);
    expect(&s, "verify: rank 0 step 0 (reduce 'z'[0:6]): it holds the identity of band in place of the value");
}

/* ---- lowered plans ---- */

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC; /* of this process alone */
}

/* Lowers on all ranks and verifies; how long the latter took. */
static double verify_pair(const char *src, const char *dst, const weft_lower_opts *o)
{
    weft_layout *a = sample_layout(src), *b = sample_layout(dst);
    int world = weft_layout_ranks(a) > weft_layout_ranks(b) ? weft_layout_ranks(a) : weft_layout_ranks(b);
    weft_plan **p = calloc((size_t)world, sizeof *p);
    bool fits = true;
    for (int r = 0; r < world && fits; r++)
        fits = weft_lower(&(weft_move){"w", a, b}, 1, r, o, &p[r]) == 0;
    double start = seconds();
    if (fits && weft_plan_verify((const weft_plan *const *)p, (size_t)world))
        fail_msg("%s -> %s: %s", src, dst, weft_errmsg());
    double end = seconds();
    for (int r = 0; r < world; r++)
        weft_plan_free(p[r]);
    free(p);
    weft_layout_free(a);
    weft_layout_free(b);
    return fits ? end - start : -1;
}

static void lowered_pairs_pass(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++)
        for (size_t a = 0; weft_algorithm_name(a); a++)
            for (int64_t bucket = 1; bucket <= 1 << 20; bucket <<= 10) {
                double t = verify_pair(pairs[i].src, pairs[i].dst,
                                       &(weft_lower_opts){.size = sizeof(weft_lower_opts),
                                                          .bucket = bucket,
                                                          .algorithm = weft_algorithm_name(a)});
                assert_true(t >= 0 || a > 0);
            }
}

/* Boxes, never elements: what counts is the number of parts. The limits are ten times what it takes and more. */
static void time_does_not_depend_on_size(void **state)
{
    (void)state;
    double t = verify_pair("f32[100000/a,100000/b] @a4.b2", "bf16[100000,100000/x] @x8=8..15", NULL);
    assert_true(t < 1);
    t = verify_pair("f32[5000000000] @x8 +sum(x)", "f32[5000000000] @x8", NULL);
    assert_true(t < 1);
    t = verify_pair("f32[4096/x,4096] @x1024", "f32[4096/a,4096/b] @a16.b64", NULL);
    assert_true(t < 20);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_pass),
        cmocka_unit_test(floats_folded_in_different_orders_are_refused),
        cmocka_unit_test(in_place_without_waits_is_refused),
        cmocka_unit_test(folds_unlike_the_layout_are_refused),
        cmocka_unit_test(reads_of_ghosts_are_refused),
        cmocka_unit_test(corners_are_refused_where_there_are_none),
        cmocka_unit_test(wrong_plans_are_explained),
        cmocka_unit_test(reads_of_what_several_steps_write_are_checked),
        cmocka_unit_test(slots_written_never_or_twice_are_refused),
        cmocka_unit_test(circular_waits_are_refused),
        cmocka_unit_test(wrong_identities_are_refused),
        cmocka_unit_test(lowered_pairs_pass),
        cmocka_unit_test(time_does_not_depend_on_size),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
