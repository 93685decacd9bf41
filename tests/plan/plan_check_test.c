/* plan_check has teeth: what is right passes, every listed breakage is refused with its own words, and whatever else
 * is changed at random never leads it or those who trust it astray. */
#include <stddef.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "support/pairs.h"
#include "support/plan_samples.h"
#include "support/share.h"
#include "support/suite.h"

/* Saved and loaded again: each array has just the size it needs, so that a sanitizer sees a step beyond it. */
static weft_plan *tight(weft_plan *loose)
{
    size_t len;
    assert_int_equal(weft_plan_save(loose, NULL, 0, &len), 0);
    unsigned char *bytes = malloc(len);
    weft_plan *p = NULL;
    assert_int_equal(weft_plan_save(loose, bytes, len, &len), 0);
    if (weft_plan_load(bytes, len, &p))
        fail_msg("%s", weft_errmsg());
    free(bytes);
    weft_plan_free(loose);
    return p;
}

static void samples_pass(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank);
        if (plan_check(p))
            fail_msg("%s: %s", samples[i].name, weft_errmsg());
        weft_plan_free(p);
    }
}

/* ---- breakages, each with the message it must get ---- */

/* Most break allreduce on rank 0. Its steps: 0 send to 1, 1 recv, 2 send to 2, 3 recv, 4 reduce (parts 4 to 7: dst,
 * src, temp, temp), then send and recv twice. Its buffers: src, dst, temp, temp. */
#define LARGE INT64_C(0x7000000000000000)

static void swap_layout(const weft_layout **l, const char *text)
{
    weft_layout_free((weft_layout *)*l);
    *l = sample_layout(text);
}

#define BREAK(name, code)          \
    static void name(weft_plan *p) \
    {                              \
        code;                      \
    }
BREAK(rank_negative, p->rank = -1)
BREAK(rank_beyond, p->rank = 3)
BREAK(world_empty, p->world = 0)
BREAK(kind_unknown, p->kind = "allreduction")
BREAK(algorithm_no_name, p->algorithm = "all reduce")
BREAK(in_place_two, p->in_place = 2)
BREAK(scratch_negative, p->scratch = -64)
BREAK(bound_negative, p->bound = -1)
BREAK(machine_negative, p->machine.latency_ns = -1)
BREAK(names_open, p->names[p->nnames - 1] = 'x')
BREAK(name_beyond, p->tensors[0].name = (uint32_t)p->nnames)
BREAK(names_shared, p->tensors[0].name = p->tensors[2].name)
BREAK(ndim_wrong, p->tensors[0].ndim = 2)
BREAK(dims_differ, swap_layout(&p->tensors[0].dst, "f32[4,3] @x3"))
BREAK(extents_differ, swap_layout(&p->tensors[0].dst, "f32[13] @x3"))
BREAK(layout_wider, swap_layout(&p->tensors[0].src, "bf16[12] @x4 +avg(x)"))
BREAK(src_buf_beyond, p->tensors[0].src_buf = 4)
BREAK(src_buf_none, p->tensors[0].src_buf = PLAN_NONE)
BREAK(dst_buf_is_src, p->tensors[0].dst_buf = p->tensors[0].src_buf)
BREAK(buf_not_held, p->tensors[4].src_buf = 0)
BREAK(buf_tensor_beyond, p->bufs[2].tensor = 1)
BREAK(space_zero, p->bufs[2].space = 0)
BREAK(space_beyond, p->bufs[2].space = 4)
BREAK(buf_dtype_none, p->bufs[2].dtype = 0)
BREAK(buf_dtype_beyond, p->bufs[2].dtype = DTYPE_COUNT + 1)
BREAK(shape_beyond, p->bufs[2].shape = (uint32_t)p->nshapes)
BREAK(shape_far_beyond, p->bufs[2].shape = UINT32_MAX)
BREAK(shape_negative, p->shapes[p->bufs[2].shape] = -4)
BREAK(shape_overflows, p->shapes[p->bufs[2].shape] = INT64_MAX)
BREAK(second_source, p->bufs[2].space = PLAN_SRC)
BREAK(side_offset, p->bufs[0].offset = 64)
BREAK(side_dtype, p->bufs[0].dtype = WEFT_F16)
BREAK(side_shape, p->shapes[p->bufs[1].shape] = 13)
BREAK(temp_empty, p->shapes[p->bufs[2].shape] = 0)
BREAK(temp_negative, p->bufs[3].offset = -64)
BREAK(temp_misplaced, p->bufs[3].offset = 32)
BREAK(temp_leaves_scratch, p->bufs[3].offset = 128)
BREAK(temp_overflows, p->bufs[3].offset = INT64_MAX - 63)
BREAK(temp_grows, p->shapes[p->bufs[3].shape] = 5)
BREAK(temps_overlap, p->bufs[3].offset = 0)
BREAK(scratch_too_large, p->scratch += 64)
BREAK(part_buf_beyond, p->parts[0].buf = (uint32_t)p->nbufs)
BREAK(runs_beyond, p->parts[0].runs = (uint32_t)p->nruns)
BREAK(runs_far_beyond, p->parts[0].runs = UINT32_MAX)
BREAK(spots_beyond, p->parts[0].spots = (uint32_t)p->nspots)
BREAK(run_empty, p->runs[0].len = 0)
BREAK(run_never, p->runs[0].n = 0)
BREAK(run_step_alone, p->runs[0].step = 4)
BREAK(run_overlaps, p->runs[1].step = 1)
BREAK(run_negative, p->runs[0].at = -1)
BREAK(run_leaves, p->runs[0].at = 9)
BREAK(run_overflows, (p->runs[0].n = LARGE, p->runs[0].step = LARGE, p->spots[0].tostep = 4))
BREAK(run_ends_beyond, p->runs[0].at = INT64_MAX)
BREAK(spot_step_alone, p->spots[0].tostep = 4)
BREAK(spot_overlaps, p->spots[1].tostep = 1)
BREAK(spot_negative, p->spots[0].to = -1)
BREAK(spot_leaves, p->spots[0].to = 9)
BREAK(spot_overflows, p->spots[1].tostep = LARGE)
BREAK(count_wrong, p->parts[0].count = 3)
BREAK(wire_beyond, p->parts[0].wire = 99)
BREAK(step_kind_zero, p->steps[0].kind = 0)
BREAK(step_kind_beyond, p->steps[0].kind = 5)
BREAK(step_parts_beyond, p->steps[8].nparts = 2)
BREAK(step_part_far, p->steps[8].part = UINT32_MAX)
BREAK(step_deps_beyond, p->steps[7].ndeps = 2)
BREAK(step_dep_far, p->steps[7].dep = UINT32_MAX)
BREAK(parts_shared, (p->steps[4].part = 0, p->steps[4].nparts = 12))
BREAK(parts_left, (p->nparts--, p->steps[8].part--))
BREAK(parts_unused, p->nsteps--)
BREAK(dep_itself, p->deps[0] = 4)
BREAK(dep_later, p->deps[2] = 8)
BREAK(stage_negative, p->steps[0].stage = -1)
BREAK(stage_too_early, p->steps[5].stage = 0)
BREAK(send_op, p->steps[0].op = WEFT_SUM)
BREAK(recv_via, p->steps[1].via = WEFT_F32)
BREAK(send_div, p->steps[0].div = 2)
BREAK(peer_self, p->steps[0].peer = 0)
BREAK(peer_none, p->steps[0].peer = -1)
BREAK(peer_beyond, p->steps[1].peer = 3)
BREAK(message_empty, (p->steps[8].nparts = 0, p->nparts--))
BREAK(wire_none, p->parts[0].wire = 0)
BREAK(recv_into_src, (p->parts[1].buf = 0))
BREAK(offset_odd, p->parts[0].offset = 1)
BREAK(offset_negative, p->parts[0].offset = -2)
BREAK(offset_padded, p->parts[0].offset = 64)
BREAK(offsets_overlap, p->parts[1].offset = 0)
BREAK(offsets_gap, p->parts[1].offset = 72)
BREAK(bytes_short, p->steps[0].bytes = 6)
BREAK(bytes_long, p->steps[0].bytes = 16)
BREAK(bytes_negative, p->steps[0].bytes = -8)
BREAK(reduce_peer, p->steps[4].peer = 1)
BREAK(reduce_bytes, p->steps[4].bytes = 8)
BREAK(reduce_into_src, (p->parts[4].buf = 0))
BREAK(reduce_wire, p->parts[5].wire = WEFT_BF16)
BREAK(reduce_offset, p->parts[6].offset = 8)
BREAK(reduce_boxes, p->runs[6].at = 4)
BREAK(reduce_op_none, p->steps[4].op = 0)
BREAK(reduce_op_beyond, p->steps[4].op = 9)
BREAK(reduce_avg, p->steps[4].op = WEFT_AVG)
BREAK(reduce_bits, p->steps[4].op = WEFT_BAND)
BREAK(reduce_via, p->steps[4].via = DTYPE_COUNT + 1)
BREAK(reduce_via_complex, p->steps[4].via = WEFT_C64)
BREAK(recv_complex, p->parts[1].wire = WEFT_C64)
BREAK(reduce_div, p->steps[4].div = -3)
BREAK(reduce_div_max, p->steps[4].op = WEFT_MAX)
BREAK(reduce_dtype, p->bufs[2].dtype = WEFT_F16)
BREAK(reduce_empty,
      (p->steps[8] = (struct plan_step){.kind = PLAN_REDUCE, .op = WEFT_SUM, .peer = -1, .part = 11, .dep = 4},
       p->nparts--))
BREAK(copy_peer, p->steps[0].peer = 1)
BREAK(copy_op, p->steps[0].op = WEFT_SUM)
BREAK(copy_complex,
      (swap_layout(&p->tensors[0].src, "c128[5,16/x:2] @x2"), p->bufs[p->tensors[0].src_buf].dtype = WEFT_C128))
BREAK(copy_three, (p->steps[0].nparts = 3, p->steps[1].part = 3, p->steps[1].nparts = 0))
BREAK(copy_into_src, p->parts[1] = p->parts[0])
BREAK(copy_boxes, (p->runs[3].len = 1))
BREAK(copy_tensors, (p->parts[4].buf = p->tensors[0].src_buf, p->runs[4].len = 3, p->parts[4].count = 3))
BREAK(identity_op, p->steps[1].op = WEFT_AVG)

static const struct {
    const char *name;
    weft_plan *(*make)(int rank);
    int rank;
    void (*harm)(weft_plan *p);
    const char *message;
} breakages[] = {
#define ON(sample, rank, harm, message)    \
    {                                      \
#harm, sample, rank, harm, message \
    }
#define A(harm, message) ON(sample_allreduce, 0, harm, message)
    A(rank_negative, "plan: rank -1 in a world of 3"),
    A(rank_beyond, "plan: rank 3 in a world of 3"),
    A(world_empty, "plan: rank 0 in a world of 0"),
    A(kind_unknown, "plan: kind \"allreduction\" is unknown"),
    A(algorithm_no_name, "plan: \"all reduce\" cannot be the name of an algorithm"),
    A(in_place_two, "plan: in_place is 2, not 0 or 1"),
    A(scratch_negative, "plan: a size is negative: scratch -64, bound 32, stated 32, bucket 1048576"),
    A(bound_negative, "plan: a size is negative: scratch 72, bound -1, stated 32, bucket 1048576"),
    A(machine_negative, "plan: the machine has a negative number"),
    A(names_open, "plan: the names do not end with a zero"),
    A(name_beyond, "plan: tensor 0: name at 11 of 11 bytes of names"),
    ON(sample_bucket, 0, names_shared, "overlaps another tensor's"),
    A(ndim_wrong, "plan: tensor 0: 2 dims, its source has 1 and its destination 1"),
    A(dims_differ, "plan: tensor 0: 1 dims, its source has 1 and its destination 2"),
    A(extents_differ, "plan: tensor 0: dim 0 is 12 long in the source, 13 in the destination"),
    A(layout_wider, "plan: tensor 0: its source uses 4 ranks, the world has 3"),
    A(src_buf_beyond, "plan: tensor 0: source buffer 4, there are 4"),
    A(src_buf_none, "plan: tensor 0: rank 0 holds its source and has no buffer for it"),
    A(dst_buf_is_src, "plan: tensor 0: buffer 0 is not its destination"),
    ON(sample_bucket, 0, buf_not_held, "plan: tensor 4: a buffer for its source, which rank 0 does not hold"),
    A(buf_tensor_beyond, "plan: buffer 2: tensor 1, there are 1"),
    A(space_zero, "plan: buffer 2: space 0 is unknown"),
    A(space_beyond, "plan: buffer 2: space 4 is unknown"),
    A(buf_dtype_none, "plan: buffer 2: dtype 0 is unknown"),
    A(buf_dtype_beyond, "plan: buffer 2: dtype 21 is unknown"),
    A(shape_beyond, "plan: buffer 2: shape at 4 of 4"),
    A(shape_far_beyond, "plan: buffer 2: shape at 4294967295 of 4"),
    A(shape_negative, "plan: buffer 2: its shape is negative or too large"),
    A(shape_overflows, "plan: buffer 2: its shape is negative or too large"),
    A(second_source, "plan: buffer 2: tensor 0 has another buffer on that side"),
    A(side_offset, "plan: buffer 0: offset 64 outside the scratch"),
    A(side_dtype, "plan: buffer 0: dtype f16, its layout has bf16"),
    A(side_shape, "plan: buffer 1: dim 0 is 13 long, its layout gives rank 0 12"),
    A(temp_empty, "plan: buffer 2: scratch without elements"),
    A(temp_negative, "plan: buffer 3: offset -64 is not a multiple of 64"),
    A(temp_misplaced, "plan: buffer 3: offset 32 is not a multiple of 64"),
    A(temp_leaves_scratch, "plan: buffer 3: 8 bytes at 128 of a scratch of 72"),
    A(temp_overflows, "bytes at 9223372036854775744 of a scratch of 72"),
    A(temp_grows, "plan: buffer 3: 10 bytes at 64 of a scratch of 72"),
    A(temps_overlap, "overlap in the scratch"),
    A(scratch_too_large, "plan: a scratch of 136 bytes, its buffers end at 72"),
    A(part_buf_beyond, "plan: part 0: buffer 4, there are 4"),
    A(runs_beyond, "plan: part 0: runs at 12 of 12"),
    A(runs_far_beyond, "plan: part 0: runs at 4294967295 of 12"),
    A(spots_beyond, "plan: part 0: spots at 12 of 12"),
    A(run_empty, "plan: part 0, dim 0: an empty run, 1 times 0"),
    A(run_never, "plan: part 0, dim 0: an empty run, 0 times 4"),
    A(run_step_alone, "plan: part 0, dim 0: step 4 with 1 runs of 4"),
    ON(sample_cyclic, 0, run_overlaps, "plan: part 0, dim 1: step 1 with 4 runs of 2"),
    A(run_negative, "plan: part 0, dim 0: its box leaves the tensor, which is 12 long"),
    A(run_leaves, "plan: part 0, dim 0: its box leaves the tensor, which is 12 long"),
    A(run_overflows, "plan: part 0, dim 0: its box leaves the tensor, which is 12 long"),
    A(run_ends_beyond, "plan: part 0, dim 0: its box leaves the tensor, which is 12 long"),
    A(spot_step_alone, "plan: part 0, dim 0: step 4 in its buffer with 1 runs of 4"),
    ON(sample_cyclic, 0, spot_overlaps, "plan: part 0, dim 1: step 1 in its buffer with 4 runs of 2"),
    A(spot_negative, "plan: part 0, dim 0: its place leaves the buffer, which is 12 long"),
    A(spot_leaves, "plan: part 0, dim 0: its place leaves the buffer, which is 12 long"),
    ON(sample_cyclic, 0, spot_overflows, "plan: part 0, dim 1: its place leaves the buffer, which is 8 long"),
    A(count_wrong, "plan: part 0: count 3, its box has 4 elements"),
    A(wire_beyond, "plan: part 0: wire dtype 99 is unknown"),
    A(step_kind_zero, "plan: step 0: kind 0 is unknown"),
    A(step_kind_beyond, "plan: step 0: kind 5 is unknown"),
    A(step_parts_beyond, "plan: step 8: 2 parts at 11 of 12"),
    A(step_part_far, "plan: step 8: 1 parts at 4294967295 of 12"),
    A(step_deps_beyond, "plan: step 7: 2 deps at 3 of 4"),
    A(step_dep_far, "plan: step 7: 1 deps at 4294967295 of 4"),
    A(parts_shared, "plan: step 4: its parts or deps are shared with another step"),
    A(parts_left, "plan: step 8: its parts or deps are shared with another step"),
    A(parts_unused, "plan: 12 parts and 4 deps, the steps have 11 and 4"),
    A(dep_itself, "plan: step 4: waits for step 4, which is not before it"),
    A(dep_later, "plan: step 5: waits for step 8, which is not before it"),
    A(stage_negative, "plan: step 0: stage -1"),
    A(stage_too_early, "plan: step 5: a send at stage 0 waits for step 4 at stage 0"),
    A(send_op, "plan: step 0: a message with an op, a via or a divisor"),
    A(recv_via, "plan: step 1: a message with an op, a via or a divisor"),
    A(send_div, "plan: step 0: a message with an op, a via or a divisor"),
    A(peer_self, "plan: step 0: peer 0 of rank 0 in a world of 3"),
    A(peer_none, "plan: step 0: peer -1 of rank 0 in a world of 3"),
    A(peer_beyond, "plan: step 1: peer 3 of rank 0 in a world of 3"),
    A(message_empty, "plan: step 8: a message without parts"),
    A(wire_none, "plan: step 0, part 0: no wire dtype"),
    A(recv_into_src, "plan: step 1, part 0: receives into a source"),
    A(offset_odd, "plan: step 0, part 0: offset 1 is not aligned for bf16"),
    A(offset_negative, "plan: step 0, part 0: offset -2, the part before ends at 0"),
    A(offset_padded, "plan: step 0, part 0: offset 64, the part before ends at 0"),
    ON(sample_bucket, 0, offsets_overlap, "plan: step 0, part 1: offset 0, the part before ends at 3"),
    ON(sample_bucket, 0, offsets_gap, "plan: step 0, part 1: offset 72, the part before ends at 3"),
    A(bytes_short, "plan: step 0: 6 bytes, its parts end at 8"),
    A(bytes_long, "plan: step 0: 16 bytes, its parts end at 8"),
    A(bytes_negative, "plan: step 0: -8 bytes, its parts end at 8"),
    A(reduce_peer, "plan: step 4: a local step with a peer or a message size"),
    A(reduce_bytes, "plan: step 4: a local step with a peer or a message size"),
    A(reduce_into_src, "plan: step 4: writes to a source"),
    A(reduce_wire, "plan: step 4, part 1: a local part with a wire dtype or an offset"),
    A(reduce_offset, "plan: step 4, part 2: a local part with a wire dtype or an offset"),
    A(reduce_boxes, "plan: step 4, part 2: its box is not the one that is written"),
    A(reduce_op_none, "plan: step 4: op ? (0) cannot fold bf16"),
    A(reduce_op_beyond, "plan: step 4: op ? (9) cannot fold bf16"),
    A(reduce_avg, "plan: step 4: op avg (5) cannot fold bf16"),
    A(reduce_bits, "plan: step 4: op band (6) cannot fold bf16"),
    A(reduce_via, "plan: step 4: via dtype 21 is unknown"),
    A(reduce_via_complex, "plan: step 4, part 0: there is no cast from c64 to f32"),
    A(recv_complex, "plan: step 1, part 0: there is no cast from c64 to bf16"),
    ON(sample_cyclic, 0, copy_complex, "plan: step 0, part 1: there is no cast from c128 to i16"),
    A(reduce_div, "plan: step 4: divisor -3 with op sum"),
    A(reduce_div_max, "plan: step 4: divisor 3 with op max"),
    A(reduce_dtype, "plan: step 4, part 2: folds f16, the source is bf16"),
    A(reduce_empty, "plan: step 8: a reduction without parts"),
    ON(sample_cyclic, 0, copy_peer, "plan: step 0: a local step with a peer or a message size"),
    ON(sample_cyclic, 0, copy_op, "plan: step 0: a copy with an op, a via or a divisor"),
    ON(sample_cyclic, 0, copy_three, "plan: step 0: a copy of 3 parts"),
    ON(sample_cyclic, 0, copy_into_src, "plan: step 0: writes to a source"),
    ON(sample_cyclic, 0, copy_boxes, "plan: part 1: count 40, its box has 20 elements"),
    ON(sample_bucket, 0, copy_tensors, "plan: step 1, part 0: its box is not the one that is written"),
    ON(sample_bucket, 1, identity_op, "plan: step 1: op avg (5) cannot fold i32"),
};

static void breakages_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof breakages / sizeof *breakages; i++) {
        weft_plan *p = tight(breakages[i].make(breakages[i].rank)), whole = *p;
        breakages[i].harm(p);
        if (plan_check(p) != WEFT_EINVAL)
            fail_msg("%s is not refused", breakages[i].name);
        if (!strstr(weft_errmsg(), breakages[i].message))
            fail_msg("%s: expected \"%s\", got \"%s\"", breakages[i].name, breakages[i].message, weft_errmsg());
        *p = whole;
        weft_plan_free(p);
    }
}

/* ---- random changes ---- */

static uint64_t next(uint64_t *rng)
{
    *rng += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(*rng);
}

static const struct {
    size_t array, n, element;
} arrays[] = {
#define ARRAY(a, count)                                                                 \
    {                                                                                   \
        offsetof(weft_plan, a), offsetof(weft_plan, count), sizeof *((weft_plan *)0)->a \
    }
    ARRAY(bufs, nbufs),   ARRAY(parts, nparts),   ARRAY(steps, nsteps), ARRAY(runs, nruns),
    ARRAY(spots, nspots), ARRAY(shapes, nshapes), ARRAY(deps, ndeps),   ARRAY(names, nnames),
};

/* Changes one place: a bit, or a byte or a word of it to a value from the edges. */
static void mutate(weft_plan *p, uint64_t *rng)
{
    static const int64_t edges[] = {0,   1,   -1,        2,         3,          4,         63,        64,
                                    127, 255, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, INT64_C(1) << 62};
    size_t a = next(rng) % (sizeof arrays / sizeof *arrays), n;
    unsigned char *base;
    memcpy(&base, (char *)p + arrays[a].array, sizeof base);
    memcpy(&n, (char *)p + arrays[a].n, sizeof n);
    if (n == 0)
        return;
    size_t width = (size_t)1 << next(rng) % 4, bytes = n * arrays[a].element;
    if (width > bytes)
        width = 1;
    unsigned char *at = base + next(rng) % (bytes / width) * width;
    if (next(rng) % 2)
        *at = (unsigned char)(*at ^ 1u << next(rng) % 8);
    else
        memcpy(at, &edges[next(rng) % (sizeof edges / sizeof *edges)], width);
}

static void mutate_own(weft_plan *p, uint64_t *rng)
{
    struct plan_tensor *t = p->ntensors ? &p->tensors[next(rng) % p->ntensors] : NULL;
    uint32_t some = (uint32_t)(next(rng) % 8);
    switch (next(rng) % 8) {
    case 0: p->rank = (int32_t)some - 1; break;
    case 1: p->world = (int32_t)some; break;
    case 2: p->scratch ^= (int64_t)(UINT64_C(1) << next(rng) % 64); break;
    case 3: p->in_place = (uint8_t)some; break;
    case 4:
        if (t)
            t->src_buf = some ? some : PLAN_NONE;
        break;
    case 5:
        if (t)
            t->dst_buf = some ? some : PLAN_NONE;
        break;
    case 6:
        if (t)
            t->name = some * 3;
        break;
    default:
        if (t)
            t->ndim = (uint8_t)some;
    }
}

/* What passed the check must be safe for all who trust it. */
static void use(const weft_plan *p)
{
    size_t len, text;
    weft_stats st = {.size = sizeof st};
    assert_int_equal(weft_plan_stats(p, &st), 0);
    assert_int_equal(weft_plan_explain(p, false, NULL, 0, &text), 0);
    assert_int_equal(weft_plan_explain(p, true, NULL, 0, &text), 0);
    assert_int_equal(weft_plan_save(p, NULL, 0, &len), 0);
    unsigned char *bytes = malloc(len);
    weft_plan *q = NULL;
    assert_int_equal(weft_plan_save(p, bytes, len, &len), 0);
    if (weft_plan_load(bytes, len, &q))
        fail_msg("a plan that passed its check does not load: %s", weft_errmsg());
    assert_true(weft_plan_equal(p, q));
    weft_plan_free(q);
    free(bytes);
}

/* Plans to start from, saved: the samples, and what lowering makes of each pair on each rank. */
struct pool {
    struct {
        unsigned char *bytes;
        size_t len;
    } v[SAMPLES + 32 * PAIRS];
    size_t n;
};

static void pool_add(struct pool *pool, weft_plan *p)
{
    size_t len;
    assert_true(pool->n < sizeof pool->v / sizeof *pool->v);
    assert_int_equal(weft_plan_save(p, NULL, 0, &len), 0);
    unsigned char *bytes = malloc(len);
    assert_int_equal(weft_plan_save(p, bytes, len, &len), 0);
    pool->v[pool->n].bytes = bytes;
    pool->v[pool->n++].len = len;
    weft_plan_free(p);
}

static void pool_fill(struct pool *pool)
{
    for (int i = 0; i < SAMPLES; i++)
        pool_add(pool, samples[i].make(samples[i].rank));
    for (int i = 0; i < PAIRS; i++) {
        weft_layout *src = sample_layout(pairs[i].src), *dst = sample_layout(pairs[i].dst);
        for (int rank = 0, world = 1; rank < world; rank++) {
            weft_plan *p = NULL;
            if (weft_lower(&(weft_move){"w", src, dst}, 1, rank, NULL, &p))
                fail_msg("%s", weft_errmsg());
            world = weft_plan_world(p);
            pool_add(pool, p);
        }
        weft_layout_free(src);
        weft_layout_free(dst);
    }
}

static void randomly_changed_plans_are_refused_or_harmless(void **state)
{
    (void)state;
    static struct pool pool;
    int64_t rounds = test_share(60000, 2000000), passed = 0;
    uint64_t rng = 20240607;
    pool_fill(&pool);
    for (int64_t i = 0; i < rounds; i++) {
        size_t k = next(&rng) % pool.n;
        weft_plan *p = NULL;
        assert_int_equal(weft_plan_load(pool.v[k].bytes, pool.v[k].len, &p), 0);
        for (uint64_t changes = 1 + next(&rng) % 3; changes > 0; changes--)
            if (next(&rng) % 8)
                mutate(p, &rng);
            else
                mutate_own(p, &rng);
        int err = plan_check(p);
        assert_true(err == 0 || err == WEFT_EINVAL);
        if (err == 0) {
            passed++;
            use(p);
        }
        weft_plan_free(p);
    }
    assert_in_range(passed, rounds / 100, rounds / 2); /* most changes matter, and not all can be seen here */
    for (size_t k = 0; k < pool.n; k++)
        free(pool.v[k].bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_pass),
        cmocka_unit_test(breakages_are_refused),
        cmocka_unit_test(randomly_changed_plans_are_refused_or_harmless),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
