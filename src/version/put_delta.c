#include "version/put_delta.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "bus/delta.h"
#include "layout/layout.h"
#include "version/publish.h"

#define SHARE 16 /* of the part: what is kept at most */

/* With the lock: the version before one that is not there yet, or before `step`. */
static const struct publish_ring *find_before(const weft_publisher *p, const struct publish_ring *but, int64_t step)
{
    const struct publish_ring *best = NULL;
    for (int i = 0; i < p->keep; i++) {
        const struct publish_ring *r = &p->ring[i];
        if (r != but && r->state == PUBLISH_SHOWN && r->step < step && (!best || r->step > best->step))
            best = r;
    }
    return best;
}

static bool take_room(weft_publisher *p)
{
    struct put_delta *d = &p->delta;
    if (d->v)
        return true;
    d->size = (size_t)(p->part.bytes / SHARE + 2 * SCHEMA_BLOCK); /* also a small part has room for a block */
    d->room = malloc(d->size);
    d->v = calloc(p->part.blocks + 1, sizeof *d->v);
    if (d->room && d->v)
        return true;
    put_delta_free(d);
    return false;
}

void put_delta_begin(weft_publisher *p, const struct publish_ring *into)
{
    struct put_delta *d = &p->delta;
    pthread_mutex_lock(&p->lock);
    const struct publish_ring *base = find_before(p, into, INT64_MAX);
    bool find = base && base->step == d->asked && !d->users;
    if (!d->users)
        d->step = -1;
    d->from = find && take_room(p) ? base->snapshot.data : NULL;
    if (d->from) {
        d->base = base->step;
        d->used = 0;
        memset(d->v, 0, p->part.blocks * sizeof *d->v);
    }
    pthread_mutex_unlock(&p->lock);
}

void put_delta_find(weft_publisher *p, const struct publish_ring *into, size_t tensor, int64_t at, int64_t n)
{
    struct put_delta *d = &p->delta;
    const struct schema_place *place = &p->part.v[tensor];
    size_t size = weft_dtype_size(p->schema->v[tensor].layout->dtype);
    if (!d->from || !delta_takes(size))
        return;
    unsigned char delta[SCHEMA_BLOCK + SCHEMA_BLOCK / DELTA_BLOCK];
    for (int64_t end = at + n; at < end; at += SCHEMA_BLOCK) {
        size_t bytes = (size_t)min64(SCHEMA_BLOCK, end - at), count = bytes / size;
        size_t found = delta_find(into->snapshot.data + place->at + at, d->from + place->at + at, count, size, delta);
        pthread_mutex_lock(&p->lock);
        unsigned char *room = found < bytes && found <= d->size - d->used ? d->room + d->used : NULL;
        d->used += room ? found : 0;
        pthread_mutex_unlock(&p->lock);
        if (!room)
            continue;
        memcpy(room, delta, found);
        d->v[place->block + (size_t)(at / SCHEMA_BLOCK)] = (struct part_blocks_delta){room, (uint32_t)found};
    }
}

void put_delta_end(weft_publisher *p, const struct publish_ring *into)
{
    struct put_delta *d = &p->delta;
    if (!d->from)
        return;
    d->from = NULL;
    d->step = into->step;
    d->generation = into->generation;
}

const struct part_blocks_delta *put_delta_use(weft_publisher *p, const struct part_link_message *m)
{
    struct put_delta *d = &p->delta;
    const struct publish_ring *before = find_before(p, NULL, m->step);
    if (before && before->step == m->base)
        d->asked = m->step;
    if (!d->v || d->step != m->step || d->base != m->base || d->generation != m->generation)
        return NULL;
    d->users++;
    return d->v;
}

void put_delta_free(struct put_delta *d)
{
    free(d->v);
    free(d->room);
    d->v = NULL;
    d->room = NULL;
}
