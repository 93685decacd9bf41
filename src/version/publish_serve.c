/* What readers ask a publisher for, or the agent that holds its snapshots. Threads of the server call it. */
#include <stdlib.h>
#include <string.h>

#include "version/publish.h"

/* With the lock. NULL: there is none. Without a generation it is one with a snapshot. */
static struct publish_ring *find_ring(weft_publisher *p, int64_t step, const uint64_t *generation)
{
    for (int i = 0; i < p->keep; i++) {
        struct publish_ring *r = &p->ring[i];
        if (r->state == PUBLISH_SHOWN && r->step == step && (!generation || r->generation == *generation))
            return r;
    }
    return generation && lend_is(p, step, *generation) ? &p->lent : NULL;
}

static int find_part(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    weft_publisher *p = owner;
    pthread_mutex_lock(&p->lock);
    const struct publish_ring *r = find_ring(p, m->step, &m->generation);
    out->size = p->digests ? p->part.blocks * sizeof *r->sums : 0;
    out->digests = r ? malloc(out->size + 1) : NULL;
    if (out->digests) {
        memcpy(out->digests, r->sums, out->size);
        out->snapshot = r->snapshot;
        out->generation = r->generation;
        out->bytes = p->part.bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return out->digests ? 0 : WEFT_EPEER;
}

/* Blocks for another host. Deltas that put has not found (put_delta.h) are found here, between two snapshots of the
 * ring. */
static int take_blocks(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                       struct part_server_blocks *out)
{
    weft_publisher *p = owner;
    uint32_t *list = malloc(PART_BLOCKS_LIST * sizeof *list);
    struct snapshot now, base = {.fd = -1};
    uint64_t generation = 0;
    size_t n = 0;
    if (!list || (uint64_t)m->at + (uint64_t)m->count > p->part.blocks) {
        free(list);
        return list ? WEFT_EINVAL : WEFT_ENOMEM;
    }
    pthread_mutex_lock(&p->lock);
    struct publish_ring *r = find_ring(p, m->step, &m->generation);
    const struct publish_ring *old = m->flags & PART_LINK_BASE ? find_ring(p, m->base, NULL) : NULL;
    if (r) {
        now = r->snapshot;
        n = part_blocks_choose(&r->given, &p->part, NULL, m, wanted, true, list);
    }
    if (r == &p->lent) { /* its arrays are read with the lock held only */
        struct part_blocks_from from = {p->schema, &p->part, .arrays = p->arrays};
        size_t given = n;
        out->payload = n ? part_blocks_pack(&from, m, list, &n, &out->size, &out->runs) : NULL;
        out->n = out->payload ? n : 0;
        part_blocks_return(&r->given, list + out->n, given - out->n); /* it has no deltas, for which room was counted */
        pthread_mutex_unlock(&p->lock);
        free(list);
        return n && !out->payload ? WEFT_ENOMEM : 0;
    }
    const struct part_blocks_delta *deltas = NULL;
    if (old) {
        base = old->snapshot;
        generation = old->generation;
        deltas = put_delta_use(p, m);
    }
    pthread_mutex_unlock(&p->lock);
    int code = r ? 0 : WEFT_EPEER;
    size_t chosen = n;
    if (r && n) {
        struct part_blocks_from from = {p->schema, &p->part, .data = now.data, .base = base.data, .deltas = deltas};
        out->payload = part_blocks_pack(&from, m, list, &n, &out->size, &out->runs);
        if (out->payload && base.data && !snapshot_still(&base, generation)) {
            free(out->payload); /* the base was reused meanwhile */
            from.base = NULL;
            from.deltas = NULL;
            n = chosen;
            out->payload = part_blocks_pack(&from, m, list, &n, &out->size, &out->runs);
        }
        out->n = n;
        out->snapshot = now;
        out->generation = m->generation;
        code = !out->payload ? WEFT_ENOMEM : snapshot_still(&now, m->generation) ? 0 : WEFT_EPEER;
    }
    pthread_mutex_lock(&p->lock);
    if (n < chosen && r->generation == m->generation)
        part_blocks_return(&r->given, list + n, chosen - n);
    p->delta.users -= deltas != NULL;
    pthread_mutex_unlock(&p->lock);
    if (code) {
        free(out->payload);
        out->payload = NULL;
    }
    free(list);
    return code;
}

void publish_serve(weft_publisher *p)
{
    p->source.rank = p->rank;
    p->source.epoch = p->epoch;
    p->source.layouts = p->schema->bytes;
    p->source.layouts_size = p->schema->size;
    p->source.owner = p;
    p->source.part = find_part;
    p->source.take = take_blocks;
    p->source.copy = lend_copy;
    p->source.leaves = false;
    part_server_add(p->bus->server, &p->source);
    p->served = true;
}
