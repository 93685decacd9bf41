#define _GNU_SOURCE
#include "plan_samples.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

void *sample_room(void *v, size_t n, size_t size)
{
    if (n & (n - 1)) /* arrays grow when their length is a power of two */
        return v;
    void *grown = realloc(v, (n ? 2 * n : 1) * size);
    if (!grown)
        abort();
    memset((char *)grown + n * size, 0, (n ? n : 1) * size);
    return grown;
}

weft_plan *sample_plan(int rank, int world, const char *kind, const char *algorithm)
{
    weft_plan *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->rank = rank;
    p->world = world;
    p->digest = UINT64_C(0xfeedface00c0ffee);
    p->kind = kind;
    p->algorithm = algorithm;
    p->bucket = 1 << 20;
    p->machine =
        (weft_machine){.size = sizeof(weft_machine), .ranks_per_host = 4, .latency_ns = 2000, .bytes_per_us = 12500};
    return p;
}

weft_layout *sample_layout(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l)) {
        fprintf(stderr, "%s\n", weft_errmsg());
        abort();
    }
    return l;
}

static uint32_t sample_buf(weft_plan *p, int space, int dtype, uint32_t tensor, const int64_t *shape, int64_t offset)
{
    struct plan_buf b = {.space = (uint8_t)space,
                         .dtype = (uint8_t)dtype,
                         .tensor = tensor,
                         .shape = (uint32_t)p->nshapes,
                         .offset = offset};
    for (int d = 0; d < p->tensors[tensor].ndim; d++)
        *sample_push(p, shapes, nshapes) = shape[d];
    *sample_push(p, bufs, nbufs) = b;
    return (uint32_t)p->nbufs - 1;
}

static uint32_t sample_side(weft_plan *p, int space, uint32_t tensor, const weft_layout *l, int dtype)
{
    weft_local local;
    if (weft_layout_local(l, p->rank, &local))
        abort();
    return local.holds ? sample_buf(p, space, dtype, tensor, local.shape, 0) : PLAN_NONE;
}

uint32_t sample_tensor(weft_plan *p, const char *name, const char *src, const char *dst)
{
    uint32_t i = (uint32_t)p->ntensors;
    weft_layout_desc s = WEFT_LAYOUT_DESC_INIT, d = WEFT_LAYOUT_DESC_INIT;
    struct plan_tensor *t = sample_push(p, tensors, ntensors);
    *t = (struct plan_tensor){.src = sample_layout(src), .dst = sample_layout(dst), .name = (uint32_t)p->nnames};
    if (weft_layout_describe(t->src, &s) || weft_layout_describe(t->dst, &d))
        abort();
    t->ndim = (uint8_t)s.ndim;
    for (const char *c = name; c == name || c[-1]; c++)
        *sample_push(p, names, nnames) = *c;
    t->src_buf = sample_side(p, PLAN_SRC, i, t->src, (int)s.dtype);
    t->dst_buf = sample_side(p, PLAN_DST, i, t->dst, (int)d.dtype);
    return i;
}

uint32_t sample_temp(weft_plan *p, int dtype, uint32_t tensor, const int64_t *shape)
{
    int64_t bytes = (int64_t)weft_dtype_size(dtype), offset = (p->scratch + 63) / 64 * 64;
    for (int d = 0; d < p->tensors[tensor].ndim; d++)
        bytes *= shape[d];
    p->scratch = offset + bytes;
    return sample_buf(p, PLAN_TEMP, dtype, tensor, shape, offset);
}

void sample_part(weft_plan *p, uint32_t buf, int wire, int64_t offset, const struct run *r)
{
    struct plan_part part = {.buf = buf,
                             .wire = (uint8_t)wire,
                             .offset = offset,
                             .count = 1,
                             .runs = (uint32_t)p->nruns,
                             .spots = (uint32_t)p->nspots};
    for (int d = 0; d < p->tensors[p->bufs[buf].tensor].ndim; d++) {
        *sample_push(p, runs, nruns) = (struct plan_run){r[d].at, r[d].len, r[d].n, r[d].step};
        *sample_push(p, spots, nspots) = (struct plan_spot){r[d].to, r[d].tostep};
        part.count *= r[d].n * r[d].len;
    }
    *sample_push(p, parts, nparts) = part;
}

void sample_step(weft_plan *p, struct plan_step s, const int *deps)
{
    const struct plan_step *last = p->nsteps ? &p->steps[p->nsteps - 1] : NULL;
    s.part = last ? last->part + last->nparts : 0;
    s.nparts = (uint32_t)p->nparts - s.part;
    s.dep = (uint32_t)p->ndeps;
    for (; deps && *deps >= 0; deps++, s.ndeps++)
        *sample_push(p, deps, ndeps) = (uint32_t)*deps;
    if (s.kind == PLAN_SEND || s.kind == PLAN_RECV) {
        const struct plan_part *end = &p->parts[p->nparts - 1];
        s.bytes = end->offset + end->count * (int64_t)weft_dtype_size(end->wire);
    } else {
        s.peer = -1;
    }
    *sample_push(p, steps, nsteps) = s;
}

weft_plan *sample_permute(int rank)
{
    weft_plan *p = sample_plan(rank, 2, "permute", "direct");
    uint32_t w = sample_tensor(p, "w", "f32[8/x,3] @x2", "f32[8/x,3] @x2=1,0");
    int peer = 1 - rank;
    PART(p, p->tensors[w].src_buf, WEFT_F32, 0, SPAN(4 * rank, 4, 0), SPAN(0, 3, 0));
    STEP(p, .kind = PLAN_SEND, .peer = peer);
    PART(p, p->tensors[w].dst_buf, WEFT_F32, 0, SPAN(4 * peer, 4, 0), SPAN(0, 3, 0));
    STEP(p, .kind = PLAN_RECV, .peer = peer);
    p->bound = p->stated = 48;
    return p;
}

weft_plan *sample_allreduce(int rank)
{
    weft_plan *p = sample_plan(rank, 3, "allreduce", "direct");
    uint32_t w = sample_tensor(p, "gradient/0", "bf16[12] @x3 +avg(x)", "f32[12] @x3");
    uint32_t src = p->tensors[w].src_buf, dst = p->tensors[w].dst_buf, temps[3] = {src, src, src};
    int deps[4], n = 0, folded;
    for (int peer = 0; peer < 3; peer++) {
        if (peer == rank)
            continue;
        temps[peer] = sample_temp(p, WEFT_BF16, w, (int64_t[]){4});
        PART(p, src, WEFT_BF16, 0, SPAN(4 * peer, 4, 4 * peer));
        STEP(p, .kind = PLAN_SEND, .peer = peer);
        PART(p, temps[peer], WEFT_BF16, 0, SPAN(4 * rank, 4, 0));
        deps[n++] = (int)p->nsteps;
        STEP(p, .kind = PLAN_RECV, .peer = peer);
    }
    deps[n] = -1;
    PART(p, dst, 0, 0, SPAN(4 * rank, 4, 4 * rank));
    for (int peer = 0; peer < 3; peer++)
        PART(p, temps[peer], 0, 0, SPAN(4 * rank, 4, peer == rank ? 4 * rank : 0));
    folded = (int)p->nsteps;
    STEP_AFTER(p, deps, .kind = PLAN_REDUCE, .op = WEFT_SUM, .div = 3, .via = WEFT_BF16);
    for (int peer = 0; peer < 3; peer++) {
        if (peer == rank)
            continue;
        PART(p, dst, WEFT_BF16, 0, SPAN(4 * rank, 4, 4 * rank));
        STEP_AFTER(p, DEPS(folded), .kind = PLAN_SEND, .peer = peer, .stage = 1);
        PART(p, dst, WEFT_BF16, 0, SPAN(4 * peer, 4, 4 * peer));
        STEP(p, .kind = PLAN_RECV, .peer = peer, .stage = 1);
    }
    p->bound = p->stated = 32;
    return p;
}

weft_plan *sample_scalar(int rank)
{
    weft_plan *p = sample_plan(rank, 2, "broadcast", "direct");
    uint32_t w = sample_tensor(p, "", "i64[] @x1", "f64[] @x2");
    uint32_t src = p->tensors[w].src_buf, dst = p->tensors[w].dst_buf;
    if (rank == 0) {
        sample_part(p, src, 0, 0, NULL);
        sample_part(p, dst, 0, 0, NULL);
        STEP(p, .kind = PLAN_COPY);
        sample_part(p, src, WEFT_I64, 0, NULL);
        STEP(p, .kind = PLAN_SEND, .peer = 1);
        p->bound = p->stated = 8;
    } else {
        sample_part(p, dst, WEFT_I64, 0, NULL);
        STEP(p, .kind = PLAN_RECV, .peer = 0);
    }
    return p;
}

weft_plan *sample_cyclic(int rank)
{
    weft_plan *p = sample_plan(rank, 2, "allgather", "one_phase");
    uint32_t w = sample_tensor(p, "w", "i16[5,16/x:2] @x2", "i16[5,16] @x2");
    uint32_t src = p->tensors[w].src_buf, dst = p->tensors[w].dst_buf;
    int peer = 1 - rank;
    struct run rows = {.len = 5, .n = 1};
    struct run packed = {.at = 2 * rank, .len = 2, .n = 4, .step = 4, .to = 0, .tostep = 2};
    struct run spread = {.at = 2 * rank, .len = 2, .n = 4, .step = 4, .to = 2 * rank, .tostep = 4};
    struct run other = {.at = 2 * peer, .len = 2, .n = 4, .step = 4, .to = 2 * peer, .tostep = 4};
    PART(p, src, 0, 0, rows, packed);
    PART(p, dst, 0, 0, rows, spread);
    STEP(p, .kind = PLAN_COPY);
    PART(p, src, WEFT_I16, 0, rows, packed);
    STEP(p, .kind = PLAN_SEND, .peer = peer);
    PART(p, dst, WEFT_I16, 0, rows, other);
    STEP(p, .kind = PLAN_RECV, .peer = peer);
    p->bound = p->stated = 80;
    return p;
}

weft_plan *sample_bucket(int rank)
{
    static const struct {
        const char *name, *src, *dst;
        int dtype;
        int64_t len, offset;
    } moves[] = {
        {"a", "u8[3] @x1", "u8[3] @x1=1", WEFT_U8, 3, 0},
        {SAMPLE_ODD_NAME, "f64[2] @x1", "f64[2] @x1=1", WEFT_F64, 2, 8},
        {"a.name.so.long.that.its.lines.would.be.hard.to.read.if.it.stood.in.each", "u8[3] @x1", "u8[3] @x1=1", WEFT_U8,
         3, 24},
        {"", "bf16[1] @x1", "f32[1] @x1=1", WEFT_BF16, 1, 28},
    };
    weft_plan *p = sample_plan(rank, 4, "mixed", "mixed");
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        sample_tensor(p, moves[i].name, moves[i].src, moves[i].dst);
    sample_tensor(p, "elsewhere", "f32[7] @x1=2", "f32[7] @x1=3");
    uint32_t z = sample_tensor(p, "z", "i32[6] @x1", "i32[6] @x2 +band(x)");
    for (uint32_t i = 0; i < sizeof moves / sizeof *moves; i++)
        PART(p, rank ? p->tensors[i].dst_buf : p->tensors[i].src_buf, moves[i].dtype, moves[i].offset,
             SPAN(0, moves[i].len, 0));
    STEP(p, .kind = rank ? PLAN_RECV : PLAN_SEND, .peer = 1 - rank);
    if (rank) {
        PART(p, p->tensors[z].dst_buf, 0, 0, SPAN(0, 6, 0));
        STEP(p, .kind = PLAN_REDUCE, .op = WEFT_BAND);
    } else {
        PART(p, p->tensors[z].src_buf, 0, 0, SPAN(0, 6, 0));
        PART(p, p->tensors[z].dst_buf, 0, 0, SPAN(0, 6, 0));
        STEP(p, .kind = PLAN_COPY);
        p->bound = p->stated = 24;
    }
    p->in_place = 1;
    return p;
}

weft_plan *sample_idle(int rank)
{
    weft_plan *p = sample_plan(rank, 8, "reshard", "direct");
    if (rank)
        sample_tensor(p, "w", "f32[8/x] @x2=0..1", "f32[8/x] @x2=2,0");
    return p;
}

const struct plan_sample samples[] = {
    {"permute0", sample_permute, 0},     {"permute1", sample_permute, 1},     {"allreduce0", sample_allreduce, 0},
    {"allreduce1", sample_allreduce, 1}, {"allreduce2", sample_allreduce, 2}, {"scalar0", sample_scalar, 0},
    {"scalar1", sample_scalar, 1},       {"cyclic0", sample_cyclic, 0},       {"cyclic1", sample_cyclic, 1},
    {"bucket0", sample_bucket, 0},       {"bucket1", sample_bucket, 1},       {"nothing", sample_idle, 0},
    {"idle7", sample_idle, 7},
};
_Static_assert(sizeof samples / sizeof *samples == SAMPLES, "the header says how many there are");

char *sample_explain(const weft_plan *p, bool json)
{
    size_t len, again;
    assert_int_equal(weft_plan_explain(p, json, NULL, 0, &len), 0);
    char *text = malloc(len + 1);
    assert_int_equal(weft_plan_explain(p, json, text, len + 1, &again), 0);
    assert_int_equal(again, len);
    assert_int_equal(strlen(text), len);
    return text;
}
