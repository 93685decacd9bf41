/* The staging pool: slots in order of their offsets, found by first fit. Their number is bounded by the limit in
 * buckets, so walking them costs little compared to the copies that fill them. At first the pool is only address space;
 * bind adds memory as execs need it. */
#include "comm/staging.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static int64_t round_up(int64_t bytes)
{
    return (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

void staging_init(struct staging *s, int64_t limit, int buckets)
{
    *s = (struct staging){.limit = limit, .buckets = buckets};
}

static int pool_open(struct staging *s, struct transport_link *l)
{
    if (s->limit > INT64_MAX - (int64_t)s->buckets * STAGING_ALIGN)
        return error_set(WEFT_ENOMEM, "a staging limit of %lld bytes is too large", (long long)s->limit);
    s->room = s->limit + (int64_t)s->buckets * STAGING_ALIGN;
    s->slots = calloc((size_t)s->buckets, sizeof *s->slots);
    if (!s->slots)
        return error_nomem();
    s->base = l->transport->room(l, (size_t)s->room, &s->place);
    if (!s->base) {
        free(s->slots);
        s->slots = NULL;
        return error_set(WEFT_ENOMEM, "no address space for %lld bytes of staging memory", (long long)s->room);
    }
    return 0;
}

void staging_close(struct staging *s)
{
    free(s->slots);
    s->slots = NULL;
    s->base = NULL;
}

static void insert(struct staging *s, int i, int64_t offset, int64_t bytes)
{
    memmove(s->slots + i + 1, s->slots + i, (size_t)(s->nslots - i) * sizeof *s->slots);
    s->slots[i] = (struct staging_slot){offset, bytes};
    s->nslots++;
    s->taken += bytes;
}

static void erase(struct staging *s, int64_t offset)
{
    int i = 0;
    while (s->slots[i].offset != offset)
        i++;
    s->taken -= s->slots[i].bytes;
    s->nslots--;
    memmove(s->slots + i, s->slots + i + 1, (size_t)(s->nslots - i) * sizeof *s->slots);
}

static bool fits(const struct staging *s, int64_t bytes)
{
    return s->nslots < s->buckets && bytes <= s->limit - s->taken;
}

/* The lowest gap. Temporary slots are placed low and reserved ones high, so that they do not fragment each other's
 * room. */
static bool take_low(struct staging *s, int64_t bytes, int64_t *offset)
{
    int64_t at = 0;
    int i = 0;
    while (i < s->nslots && s->slots[i].offset - at < bytes) {
        at = s->slots[i].offset + round_up(s->slots[i].bytes);
        i++;
    }
    if (s->backed - at < bytes)
        return false;
    insert(s, i, at, bytes);
    *offset = at;
    return true;
}

static bool take_high(struct staging *s, int64_t bytes, int64_t *offset)
{
    int64_t end = s->room / STAGING_ALIGN * STAGING_ALIGN;
    for (int i = s->nslots;; i--) {
        int64_t below = i ? s->slots[i - 1].offset + round_up(s->slots[i - 1].bytes) : 0;
        if (end - below >= round_up(bytes)) {
            *offset = end - round_up(bytes);
            insert(s, i, *offset, bytes);
            return true;
        }
        if (i == 0)
            return false;
        end = s->slots[i - 1].offset;
    }
}

static int out_of_memory(int64_t bytes)
{
    return error_set(WEFT_ENOMEM, "no memory for %lld bytes of staging memory", (long long)bytes);
}

/* Adds memory for what the execs can have in flight, at most the size of the pool. */
static int back(struct staging *s, struct transport_link *l, int64_t wanted)
{
    int64_t all = s->wanted > s->room - wanted ? s->room : s->wanted + wanted;
    if (all > s->backed && !l->transport->back(l, s->base + s->backed, (size_t)(all - s->backed)))
        return out_of_memory(all);
    s->backed = all > s->backed ? all : s->backed;
    s->wanted += wanted;
    return 0;
}

int staging_reserve(struct staging *s, struct transport_link *l, int64_t bytes, int64_t wanted,
                    struct staging_reserve *out)
{
    if (bytes > s->limit)
        return error_set(WEFT_ENOMEM,
                         "the largest message needs %lld bytes of staging memory, but the comm's limit is %lld: raise "
                         "inflight_bytes, or lower with a smaller bucket",
                         (long long)bytes, (long long)s->limit);
    if (!s->base) {
        int err = pool_open(s, l);
        if (err)
            return err;
    }
    if (s->nslots >= s->buckets)
        return error_set(WEFT_ENOMEM,
                         "one more staging slot is needed, but all %d of the comm are in use: raise inflight_buckets",
                         s->buckets);
    if (!fits(s, bytes) || !take_high(s, bytes, &out->offset))
        return error_set(WEFT_ENOMEM,
                         "the largest message needs %lld bytes of staging memory, but of the comm's limit of %lld "
                         "other execs have %lld: raise inflight_bytes",
                         (long long)bytes, (long long)s->limit, (long long)s->taken);
    wanted = wanted < s->room ? wanted : s->room;
    int err = l->transport->back(l, s->base + out->offset, (size_t)bytes) ? back(s, l, wanted) : out_of_memory(bytes);
    if (err) {
        erase(s, out->offset);
        out->offset = -1;
        return err;
    }
    out->bytes = bytes;
    out->wanted = wanted;
    out->busy = false;
    return 0;
}

void staging_unreserve(struct staging *s, struct staging_reserve *r)
{
    if (r->offset >= 0) {
        erase(s, r->offset);
        s->wanted -= r->wanted;
    }
    r->offset = -1;
}

bool staging_take(struct staging *s, struct staging_reserve *r, int64_t bytes, int64_t *offset)
{
    if (!r->busy && bytes <= r->bytes) {
        r->busy = true;
        *offset = r->offset;
    } else if (!fits(s, bytes) || !take_low(s, bytes, offset)) {
        return false;
    }
    s->used += bytes;
    if (s->peak < s->used)
        s->peak = s->used;
    return true;
}

void staging_give(struct staging *s, struct staging_reserve *r, int64_t bytes, int64_t offset)
{
    s->used -= bytes;
    if (offset == r->offset)
        r->busy = false;
    else
        erase(s, offset);
}

bool staging_charge(struct staging *s, int64_t bytes)
{
    if (bytes > s->limit - s->taken)
        return false;
    s->taken += bytes;
    s->used += bytes;
    s->peak = s->used > s->peak ? s->used : s->peak;
    return true;
}

void staging_uncharge(struct staging *s, int64_t bytes)
{
    s->taken -= bytes;
    s->used -= bytes;
}
