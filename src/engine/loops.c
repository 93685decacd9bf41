/* Loops over parts: from the plan's runs and spots to strides in bytes. */
#include "base/hash.h"
#include "engine/exec.h"

int tile_loops(const weft_plan *p, const struct plan_part *part, const int64_t *dim_stride, int64_t *n, int64_t *stride,
               int64_t *at)
{
    int ndim = plan_ndim(p, part), loops = 0;
    *at = 0;
    for (int d = 0; d < ndim; d++) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        const struct plan_spot *s = &p->spots[part->spots + (uint32_t)d];
        *at += s->to * dim_stride[d];
        n[loops] = r->n;
        stride[loops++] = s->tostep * dim_stride[d];
        n[loops] = r->len;
        stride[loops++] = dim_stride[d];
    }
    return loops;
}

void tile_dense(int loops, const int64_t *n, int64_t size, int64_t *stride)
{
    for (int i = loops - 1; i >= 0; i--) {
        stride[i] = size;
        size *= n[i];
    }
}

static void swap_loops(int a, int b, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k)
{
    int64_t t = n[a];
    n[a] = n[b];
    n[b] = t;
    for (size_t i = 0; i < k; i++) {
        t = stride[i][a];
        stride[i][a] = stride[i][b];
        stride[i][b] = t;
    }
}

int tile_merge(int loops, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k)
{
    int kept = 0;
    for (int i = 0; i < loops; i++) {
        if (n[i] == 1)
            continue;
        if (kept != i)
            swap_loops(kept, i, n, stride, k);
        for (int j = kept++; j > 0 && stride[0][j - 1] < stride[0][j]; j--)
            swap_loops(j - 1, j, n, stride, k);
    }
    int out = 0;
    for (int i = 1; i < kept; i++) {
        bool joins = true;
        for (size_t j = 0; joins && j < k; j++)
            joins = stride[j][out] == n[i] * stride[j][i];
        if (joins) {
            n[out] *= n[i];
        } else {
            out++;
            n[out] = n[i];
        }
        for (size_t j = 0; j < k; j++)
            stride[j][out] = stride[j][i];
    }
    return kept ? out + 1 : 0;
}

uint64_t tile_hash(const struct memory_tile *t)
{
    size_t bytes = (size_t)t->loops * sizeof *t->n;
    return hash_bytes(hash_bytes(hash_bytes(0, t->n, bytes), t->stride[0], bytes), t->stride[1], bytes);
}

bool tile_same(const struct memory_tile *a, const struct memory_tile *b)
{
    size_t bytes = (size_t)a->loops * sizeof *a->n;
    return a->loops == b->loops && !memcmp(a->n, b->n, bytes) && !memcmp(a->stride[0], b->stride[0], bytes) &&
           !memcmp(a->stride[1], b->stride[1], bytes);
}
