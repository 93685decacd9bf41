/* Plans made by hand, for tests that must not depend on lowering: a small builder, and samples
 * that together have every kind of step, buffer and part. */
#ifndef WEFT_TESTS_PLAN_SAMPLES_H
#define WEFT_TESTS_PLAN_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout/runs.h"
#include "plan/plan.h"

void *sample_room(void *v, size_t n, size_t size);
#define sample_push(p, array, n) \
    ((p)->array = sample_room((p)->array, (p)->n, sizeof *(p)->array), &(p)->array[(p)->n++])
weft_plan *sample_plan(int rank, int world, const char *kind, const char *algorithm);
weft_layout *sample_layout(const char *text);

/* A tensor and the buffers of its sides; its number. */
uint32_t sample_tensor(weft_plan *p, const char *name, const char *src, const char *dst);
uint32_t sample_temp(weft_plan *p, int dtype, uint32_t tensor, const int64_t *shape);

/* A part of the step that comes next, one run a dim of its tensor. */
void sample_part(weft_plan *p, uint32_t buf, int wire, int64_t offset, const struct run *r);

/* Along one dim len positions from at on, standing at to. */
#define SPAN(at_, len_, to_)                            \
    {                                                   \
        .at = (at_), .len = (len_), .n = 1, .to = (to_) \
    }
#define PART(p, buf, wire, offset, ...) sample_part((p), (buf), (wire), (offset), (const struct run[]){__VA_ARGS__})

/* A step of all parts since the last one. deps: numbers of steps, closed by -1. */
void sample_step(weft_plan *p, struct plan_step s, const int *deps);
#define STEP(p, ...) sample_step((p), (struct plan_step){__VA_ARGS__}, NULL)
#define STEP_AFTER(p, deps, ...) sample_step((p), (struct plan_step){__VA_ARGS__}, (deps))
#define DEPS(...) ((const int[]){__VA_ARGS__, -1})

/* Two ranks change places. */
weft_plan *sample_permute(int rank);

/* Three ranks: each averages a third, through scratch, and hands it round. */
weft_plan *sample_allreduce(int rank);

/* One number to two ranks. */
weft_plan *sample_scalar(int rank);

/* Blocks dealt round-robin, gathered by both ranks: strided runs. */
weft_plan *sample_cyclic(int rank);
#define SAMPLE_ODD_NAME "quote \" back \\ line\n bell\a \xc3\xa9 \xff"

/* Tensors of several dtypes in one message, with padding; odd and long names; a layout that is shared; a destination
 * that takes identities; a tensor of which this rank has nothing. Rank 0 sends all to rank 1. */
weft_plan *sample_bucket(int rank);

/* A rank that has no part in it, and a plan of nothing. */
weft_plan *sample_idle(int rank);

extern const struct plan_sample {
    const char *name;
    weft_plan *(*make)(int rank);
    int rank;
} samples[];

enum { SAMPLES = 13 };
char *sample_explain(const weft_plan *p, bool json);
#endif
