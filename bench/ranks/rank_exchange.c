/* A round: a message each way, taken as it comes; see rank_exchange.h. */
#include "bench/ranks/rank_exchange.h"

#include <stdlib.h>

struct rank_exchange {
    weft_exchange *rounds;
    int rank, n, neighbour[2]; /* the neighbours that exist, left before right */
    float *in, *out;
    size_t bytes;
};

/* Left or right. */
static size_t side_of(const struct rank_exchange *e, int rank)
{
    return rank > e->rank;
}

static void *place(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes)
{
    const struct rank_exchange *e = arg;
    (void)meta, (void)meta_bytes, (void)bytes;
    return (char *)e->out + side_of(e, from) * e->bytes;
}

int rank_exchange_open(weft_comm *comm, const struct work_cell *cell, float *in, float *out,
                       struct rank_exchange **result)
{
    struct rank_exchange *e = calloc(1, sizeof *e);
    if (!e)
        return WEFT_ENOMEM;
    *e = (struct rank_exchange){
        .rank = weft_comm_rank(comm), .in = in, .out = out, .bytes = (size_t)work_count(cell) * sizeof *in};
    for (int other = e->rank - 1; other <= e->rank + 1; other += 2)
        if (other >= 0 && other < weft_comm_size(comm))
            e->neighbour[e->n++] = other;
    weft_exchange_opts opts = {.size = sizeof opts, .buffer = place, .arg = e};
    int err = weft_exchange_open(comm, e->neighbour, (size_t)e->n, e->neighbour, (size_t)e->n, &opts, &e->rounds);
    if (err)
        free(e);
    else
        *result = e;
    return err;
}

int rank_exchange_run(struct rank_exchange *e)
{
    int err = 0;
    for (int i = 0; i < e->n && !err; i++) {
        const char *message = (const char *)e->in + side_of(e, e->neighbour[i]) * e->bytes;
        err = weft_exchange_put(e->rounds, e->neighbour[i], NULL, 0, message, e->bytes);
    }
    if (!err)
        err = weft_exchange_finish(e->rounds, false);
    if (!err)
        err = weft_exchange_wait(e->rounds, WEFT_FOREVER);
    for (int i = 0; i < e->n && !err; i++) {
        weft_message *m = NULL;
        err = weft_exchange_take(e->rounds, e->neighbour[i], &m);
        weft_message_free(m);
    }
    return err;
}

void rank_exchange_free(struct rank_exchange *e)
{
    if (!e)
        return;
    weft_exchange_close(e->rounds);
    free(e);
}
