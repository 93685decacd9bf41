#define _GNU_SOURCE
#include "property_laws.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "cli/check/scalar.h"
#include "property_flow.h"

/* ---- plans ---- */

static bool law_save(const weft_plan *p, struct why *why)
{
    size_t len = 0, again = 0;
    weft_plan *q = NULL;
    if (weft_plan_save(p, NULL, 0, &len))
        return lab_broken(why, "save: %s", weft_errmsg());
    unsigned char *bytes = lab_buffer((int64_t)len);
    bool ok = !weft_plan_save(p, bytes, len, &again) && again == len;
    if (!ok)
        lab_broken(why, "save: the lengths differ");
    if (ok && weft_plan_load(bytes, len, &q))
        ok = lab_broken(why, "load: %s", weft_errmsg());
    if (ok && !weft_plan_equal(p, q))
        ok = lab_broken(why, "load(save(p)) is not p");
    weft_plan_free(q);
    free(bytes);
    return ok;
}

/* Some position of the run is this piece's own. */
static bool owns_some(const struct oracle_side_dim *d, int64_t piece, const struct plan_run *r)
{
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t o = 0; o < r->len; o++)
            if (d->owner_piece[r->at + i * r->step + o] == piece)
                return true;
    return false;
}

/* Without folds, nothing is received of which the rank is an owner in the source. */
static bool law_nothing_twice(const struct lab *l, int rank, struct why *why)
{
    const weft_plan *p = l->plans[rank];
    for (size_t i = 0; i < p->nsteps; i++)
        for (uint32_t k = 0; k < p->steps[i].nparts && p->steps[i].kind == PLAN_RECV; k++) {
            const struct plan_part *part = &p->parts[p->steps[i].part + k];
            uint32_t m = p->bufs[part->buf].tensor;
            const struct oracle_side *s = &l->oracle[m]->src;
            if (l->c->side[m][0].nfolds || rank >= s->world || s->index[rank] < 0)
                continue;
            bool has = true;
            for (int d = 0; d < s->desc.ndim && has; d++)
                has =
                    owns_some(&s->dim[d], oracle_side_piece(s, s->index[rank], d), &p->runs[part->runs + (uint32_t)d]);
            if (has)
                return lab_broken(why, "step %zu on rank %d receives what the rank has", i, rank);
        }
    return true;
}

static bool law_volume(const struct lab *l, struct why *why)
{
    int64_t sent = 0, received = 0, bound = 0, stated = 0, least = 0;
    bool direct = true;
    for (int r = 0; r < l->world; r++) {
        weft_stats st = {.size = sizeof st};
        if (weft_plan_stats(l->plans[r], &st))
            return lab_broken(why, "stats: %s", weft_errmsg());
        sent += st.sent;
        received += st.received;
        bound += st.bound;
        stated += st.stated;
        direct = direct && !strcmp(st.algorithm, "direct");
    }
    for (int m = 0; m < l->c->moves; m++) {
        int64_t b = oracle_bound(l->oracle[m]);
        if (b < 0)
            return lab_broken(why, "the oracle has no memory");
        least += b;
    }
    if (bound != least)
        return lab_broken(why, "volume: the plans give %lld B as the lower bound, the oracle %lld B", (long long)bound,
                          (long long)least);
    if (sent != received || sent != stated || (direct && sent != bound) || sent < bound)
        return lab_broken(why, "volume: %lld B sent, %lld B received, %lld B stated, %lld B are the lower bound",
                          (long long)sent, (long long)received, (long long)stated, (long long)bound);
    for (int r = 0; r < l->world && direct; r++)
        if (!law_nothing_twice(l, r, why))
            return false;
    return true;
}

static bool law_plans(const struct lab *l, struct why *why)
{
    for (int r = 0; r < l->world; r++) {
        if (weft_plan_digest(l->plans[r]) != weft_plan_digest(l->plans[0]))
            return lab_broken(why, "ranks 0 and %d have different digests", r);
        if (!law_save(l->plans[r], why))
            return false;
    }
    if (weft_plan_verify((const weft_plan *const *)l->plans, (size_t)l->world))
        return lab_broken(why, "%s", weft_errmsg());
    return law_volume(l, why);
}

bool laws_of_size(const struct property_case *c, struct why *why)
{
    struct lab l;
    int64_t sent = 0, received = 0, bound = 0;
    bool ok = lab_layouts(&l, c, case_world(c), why), fits = ok;
    for (int r = 0; r < l.world && ok && fits; r++) {
        int rc = weft_lower(l.moves, (size_t)c->moves, r, &l.opts, &l.plans[r]);
        weft_stats st = {.size = sizeof st};
        fits = rc != WEFT_EUNSUPPORTED;
        if (rc && fits)
            ok = lab_broken(why, "lowering on rank %d: %s", r, weft_errmsg());
        else if (fits && weft_plan_stats(l.plans[r], &st))
            ok = lab_broken(why, "stats: %s", weft_errmsg());
        ok = ok && (!fits || law_save(l.plans[r], why));
        sent += st.sent;
        received += st.received;
        bound += st.bound;
    }
    if (ok && fits && weft_plan_verify((const weft_plan *const *)l.plans, (size_t)l.world))
        ok = lab_broken(why, "%s", weft_errmsg());
    if (ok && fits && (sent != received || sent != bound))
        ok = lab_broken(why, "volume: %lld B sent, %lld B received, %lld B are the lower bound", (long long)sent,
                        (long long)received, (long long)bound);
    lab_close(&l);
    return ok;
}

/* ---- value ---- */

bool law_same_bits(const struct lab *l, int m, struct why *why)
{
    const struct oracle_side *s = &l->oracle[m]->dst;
    size_t width = s->width;
    if (!l->c->side[m][0].nfolds || (!dtype_is_float(s->dtype) && !dtype_is_complex(s->dtype)))
        return true;
    unsigned char *bits = lab_buffer(oracle_elements(l->oracle[m]) * (int64_t)(width + 1)), *seen = bits;
    bits += oracle_elements(l->oracle[m]);
    memset(seen, 0, (size_t)oracle_elements(l->oracle[m]));
    bool ok = true;
    for (int r = 0; r < s->world && ok; r++) {
        int64_t n, *slot = lab_slots(s, r, &n);
        bool value = n && !oracle_side_combo(s, s->index[r]);
        for (int64_t i = 0; i < n && ok && value; i++) {
            if (slot[i] < 0 || (slot[i] & 1 && s->ghost_terms))
                continue;
            size_t e = (size_t)slot[i] / 2;
            const unsigned char *got = (const unsigned char *)l->dst[m * l->world + r] + (size_t)i * width;
            if (seen[e] && memcmp(bits + e * width, got, width))
                ok = lab_broken(why, "tensor %d: element %zu has other bits on rank %d", m, e, r);
            seen[e] = 1;
            memcpy(bits + e * width, got, width);
        }
        free(slot);
    }
    free(seen);
    return ok;
}

static bool lab_flow(struct lab *l, void *const *src, void *const *dst, struct why *why)
{
    int rc = flow_run(l->plans, l->world, src, dst);
    return !rc || lab_broken(why, "the plans do not run: %s",
                             rc == WEFT_ETIMEOUT ? "a message is waited for that nobody sends, or sent and not taken"
                             : rc == WEFT_EINVAL ? "the parts of a step differ"
                                                 : "no memory");
}

bool laws_of_lowering(const struct property_case *c, struct why *why)
{
    struct lab l;
    bool ok = lab_layouts(&l, c, case_world(c), why), fits = ok && lab_fits(&l, why);
    ok = ok && !why->text[0];
    if (fits && ok)
        ok = lab_lower(&l, why) && lab_data(&l, c->wild, why) && law_plans(&l, why) &&
             lab_flow(&l, l.src, l.dst, why) && lab_compare(&l, why);
    for (int m = 0; m < c->moves && ok && fits; m++)
        ok = law_same_bits(&l, m, why);
    lab_close(&l);
    return ok;
}

/* The pairs of two labs, where a law has made them of the case. */
static void law_again(const struct lab *a, const struct lab *b, struct why *why)
{
    struct text t = text_start(why->again, sizeof why->again);
    lab_again(a->c, a->layout[0][0], a->layout[0][1], &t);
    text_put(&t, "\n         ");
    lab_again(b->c, b->layout[0][0], b->layout[0][1], &t);
}

/* ---- return ---- */

/* Does every value of `from` come back from `to`? */
static bool lossless(int from, int to)
{
    static const struct {
        int digits, range; /* bits of a whole number that it holds exactly; its largest power of two */
    } of[DTYPE_COUNT + 1] = {
        [WEFT_F16] = {11, 15},  [WEFT_BF16] = {8, 127},  [WEFT_F32] = {24, 127},    [WEFT_F64] = {53, 1023},
        [WEFT_F8E4M3] = {4, 8}, [WEFT_F8E5M2] = {3, 15}, [WEFT_F8E4M3SAT] = {4, 8}, [WEFT_F8E5M2SAT] = {3, 15}};
    if (from == to)
        return true;
    if (from == WEFT_F8E5M2 && to == WEFT_F8E5M2SAT) /* which has no infinity */
        return false;
    if (to == WEFT_BOOL || to == WEFT_F8E8M0 || dtype_is_complex(from) != dtype_is_complex(to))
        return false;
    if (dtype_is_complex(from))
        return from == WEFT_C64;
    if (from == WEFT_F8E8M0)
        return to == WEFT_BF16 || to == WEFT_F32 || to == WEFT_F64;
    int bits = (int)weft_dtype_size(from) * 8 - (dtype_is_signed(from) ? 1 : 0);
    bits = from == WEFT_BOOL ? 1 : bits;
    if (!dtype_is_float(from))
        return dtype_is_float(to) ? bits <= of[to].digits && bits <= of[to].range
                                  : bits <= (int)weft_dtype_size(to) * 8 - (dtype_is_signed(to) ? 1 : 0) &&
                                        (!dtype_is_signed(from) || weft_dtype_size(from) <= weft_dtype_size(to));
    /* The smallest subnormal is about 2 to the -(range + digits): it must be there too. */
    return dtype_is_float(to) && of[from].digits <= of[to].digits && of[from].range <= of[to].range &&
           of[from].range + of[from].digits <= of[to].range + of[to].digits;
}

static bool same_owned(const struct lab *l, void *const *came, struct why *why)
{
    const struct oracle_side *s = &l->oracle[0]->src;
    bool cast = l->c->side[0][0].dtype != l->c->side[0][1].dtype, ok = true;
    for (int r = 0; r < s->world && ok; r++) {
        int64_t n, *slot = lab_slots(s, r, &n);
        for (int64_t i = 0; i < n && ok; i++) {
            if (slot[i] < 0 || slot[i] & 1)
                continue;
            const unsigned char *a = (const unsigned char *)l->src[r] + (size_t)i * s->width;
            const unsigned char *b = (const unsigned char *)came[r] + (size_t)i * s->width;
            if (cast ? !scalar_same(s->dtype, a, b) : memcmp(a, b, s->width) != 0)
                ok = lab_broken(why, "return: rank %d, slot %lld of A is not what it was", r, (long long)i);
        }
        free(slot);
    }
    return ok;
}

bool law_return(const struct property_case *c, struct why *why)
{
    struct property_case there = *c, back;
    there.moves = 1;
    there.in_place = false;
    struct side_spec *a = &there.side[0][0], *b = &there.side[0][1];
    a->nfolds = 0;
    if (b->nfolds && (dtype_is_float(a->dtype) || dtype_is_complex(a->dtype)))
        a->dtype = b->dtype = WEFT_I32;
    if (!lossless(a->dtype, b->dtype) || (b->nfolds && dtype_is_float(b->dtype)))
        b->dtype = a->dtype;
    spec_mend(b, true);
    back = there;
    back.side[0][0] = *b;
    back.side[0][1] = *a;
    struct lab l, m;
    void *came[CASE_RANKS] = {0};
    int world = case_world(&there);
    bool ok = lab_layouts(&l, &there, world, why) && lab_lower(&l, why) && lab_data(&l, true, why) &&
              lab_flow(&l, l.src, l.dst, why);
    for (int r = 0; r < world && ok; r++)
        came[r] = lab_buffer(oracle_src_bytes(l.oracle[0], r));
    bool open = ok;
    ok = ok && lab_layouts(&m, &back, world, why) && lab_lower(&m, why) && lab_flow(&m, l.dst, came, why) &&
         same_owned(&l, came, why);
    if (open) {
        if (!ok)
            law_again(&l, &m, why);
        lab_close(&m);
    }
    lab_close(&l);
    for (int r = 0; r < world; r++)
        free(came[r]);
    return ok;
}

/* ---- adjoint ---- */

/* The inner product of two buffers of one layout, over all slots of all ranks, in the ring of 64-bit integers. */
static uint64_t inner(const struct lab *l, int side, void *const *x, void *const *y)
{
    uint64_t sum = 0;
    for (int r = 0; r < l->world; r++) {
        int64_t n = side ? oracle_dst_bytes(l->oracle[0], r) : oracle_src_bytes(l->oracle[0], r);
        for (size_t i = 0; i < (size_t)n; i += sizeof(uint64_t)) {
            uint64_t a, b;
            memcpy(&a, (const char *)x[r] + i, sizeof a);
            memcpy(&b, (const char *)y[r] + i, sizeof b);
            sum += a * b;
        }
    }
    return sum;
}

bool law_adjoint(const struct property_case *c, struct why *why)
{
    struct property_case there = *c;
    there.moves = 1;
    there.in_place = false;
    for (int k = 0; k < 2; k++) {
        there.side[0][k].dtype = WEFT_I64;
        for (int f = 0; f < there.side[0][k].nfolds; f++)
            there.side[0][k].fold[f].op = WEFT_SUM;
    }
    struct property_case back = there;
    back.seed++;
    struct lab l, m = {.c = &back};
    bool ok = lab_layouts(&l, &there, case_world(&there), why) && lab_lower(&l, why) && lab_data(&l, true, why);
    m.world = l.world;
    m.opts = l.opts;
    if (ok && (weft_layout_dual(l.layout[0][1], &m.layout[0][0]) || weft_layout_dual(l.layout[0][0], &m.layout[0][1])))
        ok = lab_broken(why, "dual: %s", weft_errmsg());
    m.moves[0] = (weft_move){NULL, m.layout[0][0], m.layout[0][1]};
    ok = ok && lab_lower(&m, why) && lab_data(&m, true, why);
    for (int r = 0; r < l.world && ok; r++) {
        memset(l.dst[r], 0, (size_t)oracle_dst_bytes(l.oracle[0], r));
        memset(m.dst[r], 0, (size_t)oracle_dst_bytes(m.oracle[0], r));
    }
    ok = ok && lab_flow(&l, l.src, l.dst, why) && lab_flow(&m, m.src, m.dst, why);
    if (ok) {
        uint64_t a = inner(&l, 1, l.dst, m.src), b = inner(&l, 0, l.src, m.dst);
        if (a != b)
            ok = lab_broken(why, "adjoint: <lower(A, B) x, y> is %llu, <x, lower(dual B, dual A) y> is %llu",
                            (unsigned long long)a, (unsigned long long)b);
    }
    if (!ok)
        law_again(&l, &m, why);
    lab_close(&m);
    lab_close(&l);
    return ok;
}
