#include "version/fetch_share.h"

#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "layout/layout.h"
#include "weft/collective.h"

_Static_assert(SUBSCRIBE_SHARE_WORDS >= WEFT_BUS_SWAP_RANKS,
               "ranks that hold the same elements add to different words");

bool fetch_share_possible(const weft_subscriber *s)
{
    /* A tensor that has arrived must have been checked, and a device sums whole blocks. */
    return s->check && !s->arrived && !s->device;
}

bool fetch_share_fits(const weft_subscriber *s, const struct catalog_version *v)
{
    bool fits = s->together;
    for (int r = 0; r < v->ranks && fits; r++)
        fits = !v->parts[r] || v->parts[r]->digests;
    return fits;
}

void fetch_share_begin(weft_subscriber *s, bool together)
{
    s->sharing = together;
    memset(s->share, 0, sizeof s->share);
}

bool fetch_share_takes(const weft_subscriber *s, const struct reader_piece *p)
{
    return s->sharing && p->together >= 0;
}

/* Does a step read the byte at `at` of the publisher's array? Its loops go from the outermost to the innermost. */
static bool reads(const struct reader_step *s, int64_t size, int64_t at)
{
    const int64_t *n = s->v, *stride = s->v + 2 * s->loops;
    at -= s->from;
    for (int i = 0; i < s->loops && at >= 0; i++)
        at -= stride[i] ? min64(at / stride[i], n[i] - 1) * stride[i] : 0;
    return at >= 0 && at < size;
}

/* The byte behind the last one that a step reads. */
static int64_t end_of(const struct reader_step *s, int64_t size)
{
    int64_t end = s->from + size;
    for (int i = 0; i < s->loops; i++)
        end += (s->v[i] - 1) * s->v[2 * s->loops + i];
    return end;
}

static void add_part(weft_subscriber *s, const struct reader_piece *p, int64_t block, uint64_t part)
{
    uint64_t key = hash_u64(hash_u64(p->mine, (uint64_t)p->index), (uint64_t)block);
    s->share[((key >> 48) + (uint64_t)p->together) % SUBSCRIBE_SHARE_WORDS] += (key | 1) * part;
}

void fetch_share_add(weft_subscriber *s, const struct reader_piece *p, const uint64_t *digests, const uint64_t *sums)
{
    int64_t size = (int64_t)weft_dtype_size(s->theirs->v[p->theirs].layout->dtype);
    for (size_t i = 0; i < p->nruns; i++)
        for (int64_t b = p->runs[i].first; b < p->runs[i].end; b++)
            add_part(s, p, b, sums[b]);
    for (size_t k = 0; k < p->nsteps; k++) { /* at most one of them reads the first byte of a block */
        const struct reader_step *step = &p->steps[k];
        int64_t end = end_of(step, size);
        for (int64_t b = ceil_div(step->from, SCHEMA_BLOCK); b * SCHEMA_BLOCK < end; b++)
            if (reads(step, size, b * SCHEMA_BLOCK))
                add_part(s, p, b, 0 - digests[b]);
    }
}

int fetch_share_join(weft_subscriber *s, bool *fit)
{
    uint64_t all[SUBSCRIBE_SHARE_WORDS];
    int err = weft_allreduce(s->comm, s->share, all, SUBSCRIBE_SHARE_WORDS, WEFT_U64, WEFT_SUM);
    *fit = !err;
    for (int i = 0; i < SUBSCRIBE_SHARE_WORDS && !err; i++)
        *fit = *fit && !all[i];
    if (!*fit) { /* what is staged is nothing that can be swapped */
        pthread_mutex_lock(&s->lock);
        s->staged = -1;
        pthread_mutex_unlock(&s->lock);
    }
    return err;
}
