/* What a plan costs this rank, counted from its steps. plan_check has made sure that no sum here
 * overflows. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "plan/plan.h"

static int64_t part_bytes(const struct plan_part *part, int dtype)
{
    return part->count * (int64_t)weft_dtype_size(dtype);
}

static void count_message(const weft_plan *p, const struct plan_step *s, int64_t *bytes, int64_t *messages,
                          int64_t *largest)
{
    for (uint32_t k = 0; k < s->nparts; k++)
        *bytes += part_bytes(&p->parts[s->part + k], p->parts[s->part + k].wire);
    *messages += 1;
    if (s->bytes > *largest)
        *largest = s->bytes;
}

static void count_step(const weft_plan *p, const struct plan_step *s, weft_stats *st)
{
    const struct plan_part *parts = &p->parts[s->part];
    switch (s->kind) {
    case PLAN_COPY: st->copied += part_bytes(&parts[1], p->bufs[parts[1].buf].dtype); break;
    case PLAN_REDUCE:
        for (uint32_t k = 1; k < s->nparts; k++)
            st->folded += part_bytes(&parts[k], p->bufs[parts[k].buf].dtype);
        break;
    case PLAN_SEND:
        count_message(p, s, &st->sent, &st->sends, &st->largest_send);
        st->chunks += s->nparts;
        break;
    default: count_message(p, s, &st->received, &st->recvs, &st->largest_recv); st->chunks += s->nparts;
    }
}

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* How many different ranks the steps of one kind name, in the plan and in the one that folds its maxima. */
static int count_peers(const weft_plan *p, int kind, int32_t *room)
{
    size_t n = 0;
    int peers = 0;
    for (const weft_plan *q = p; q; q = q == p ? plan_fold(p) : NULL)
        for (size_t i = 0; i < q->nsteps; i++)
            if (q->steps[i].kind == kind)
                room[n++] = q->steps[i].peer;
    qsort(room, n, sizeof *room, by_rank);
    for (size_t i = 0; i < n; i++)
        peers += i == 0 || room[i] != room[i - 1];
    return peers;
}

static int64_t plan_memory(const weft_plan *p)
{
    return (int64_t)(sizeof *p + p->ntensors * sizeof *p->tensors + p->nbufs * sizeof *p->bufs +
                     p->nruns * sizeof *p->runs + p->nspots * sizeof *p->spots + p->nshapes * sizeof *p->shapes +
                     p->nparts * sizeof *p->parts + p->nsteps * sizeof *p->steps + p->ndeps * sizeof *p->deps +
                     p->nnames);
}

/* What the maxima of blocks cost that ranks share, besides the steps. */
static int add_scales(const struct plan_scales *s, weft_stats *st)
{
    st->memory += (int64_t)(s->n * sizeof *s->v + s->bytes);
    weft_stats f = {.size = sizeof f};
    int err = s->fold ? weft_plan_stats(s->fold, &f) : 0;
    if (err || !s->fold)
        return err;
    st->sent += f.sent;
    st->received += f.received;
    st->copied += f.copied;
    st->bound += f.bound;
    st->stated += f.stated;
    st->scratch += f.scratch;
    st->steps += f.steps;
    st->sends += f.sends;
    st->recvs += f.recvs;
    st->chunks += f.chunks;
    st->memory += f.memory;
    st->largest_send = f.largest_send > st->largest_send ? f.largest_send : st->largest_send;
    st->largest_recv = f.largest_recv > st->largest_recv ? f.largest_recv : st->largest_recv;
    return 0;
}

int weft_plan_stats(const weft_plan *p, weft_stats *out)
{
    if (!p || !out)
        return error_set(WEFT_EINVAL, "plan: a NULL argument");
    int err = sized_check("weft_plan_stats", "weft_stats", out);
    if (err)
        return err;
    weft_stats st = {
        .size = sizeof st,
        .rank = p->rank,
        .world = p->world,
        .tensors = p->ntensors,
        .kind = p->kind,
        .algorithm = p->algorithm,
        .bound = p->bound,
        .stated = p->stated,
        .scratch = p->scratch,
        .steps = (int64_t)p->nsteps,
        .memory = plan_memory(p),
    };
    int32_t *room = malloc((p->nsteps + (plan_fold(p) ? plan_fold(p)->nsteps : 0)) * sizeof *room + 1);
    if (!room)
        return error_nomem();
    st.send_peers = count_peers(p, PLAN_SEND, room);
    st.recv_peers = count_peers(p, PLAN_RECV, room);
    free(room);
    for (size_t i = 0; i < p->nsteps; i++)
        count_step(p, &p->steps[i], &st);
    err = p->scales ? add_scales(p->scales, &st) : 0;
    if (err)
        return err;
    sized_write(out, &st, sizeof st);
    return 0;
}
