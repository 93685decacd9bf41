/* Which rank of the publisher is read for which piece, and the ways to them. Of several holders that are equally good,
 * pieces and ranks take different ones. A snapshot of this host is mapped. One of another host is pulled by the relay
 * of this host, whose memory is mapped; without a relay this rank asks for itself. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "version/bus_relay.h"
#include "version/fetch_version.h"

int fetch_sources_again(weft_subscriber *s)
{
    snprintf(s->why, sizeof s->why, "%s", weft_errmsg());
    return FETCH_AGAIN;
}

int fetch_sources_judge(weft_subscriber *s, int rank, int err)
{
    if (err != WEFT_EPEER)
        return err;
    s->avoid[rank] = true;
    return fetch_sources_again(s);
}

/* ---- which rank is read ---- */

/* How good a holder is: 0 if there is none, the highest on this host, the lowest if it did not answer before. */
static int worth(const struct fetch_attempt *a, int rank)
{
    const struct catalog_part *x = a->v->parts[rank];
    if (!x)
        return 0;
    return a->s->avoid[rank] ? 1 : strcmp(x->slot->host, a->s->bus->host) ? 2 : 3;
}

/* Of several holders that are equally good, pieces and ranks take different ones. number: that of the piece among those
 * that are read. *read: the piece that is read. */
static int choose_rank(const struct fetch_attempt *a, size_t piece, int64_t number, size_t *read)
{
    const weft_subscriber *s = a->s;
    int64_t n = reader_plan_holders(&s->plan, s->theirs, piece), as_good = 0;
    int best = 0;
    for (int64_t k = 0; k < n; k++) {
        int w = worth(a, reader_plan_holder(&s->plan, s->theirs, piece, k, read));
        as_good = w > best ? 1 : as_good + (w == best);
        best = w > best ? w : best;
    }
    int64_t pick = best ? (number + s->rank) % as_good : 0;
    for (int64_t k = 0; k < n && best; k++) {
        int rank = reader_plan_holder(&s->plan, s->theirs, piece, k, read);
        if (worth(a, rank) == best && !pick--)
            return rank;
    }
    return -1;
}

/* For explain. */
static int remember(const struct fetch_attempt *a)
{
    weft_subscriber *s = a->s;
    size_t n = 0;
    for (int r = 0; r < a->v->ranks; r++)
        n += a->sources[r].used;
    struct subscribe_source *list = calloc(n + 1, sizeof *list);
    if (!list)
        return error_nomem();
    free(s->sources);
    s->sources = list;
    s->nsources = n;
    s->found = a->v->version;
    for (int r = 0; r < a->v->ranks; r++) {
        const struct fetch_source *o = &a->sources[r];
        if (!o->used)
            continue;
        *list = (struct subscribe_source){
            .rank = r, .local = !strcmp(o->part->slot->host, s->bus->host), .pieces = o->pieces, .bytes = o->bytes};
        list->way = list->local ? "mapped" : s->alone ? "tcp" : "relay"; /* as is expected; remember_ways knows */
        snprintf(list->job, sizeof list->job, "%s", o->part->slot->job);
        list++;
    }
    return 0;
}

int fetch_sources_assign(struct fetch_attempt *a)
{
    weft_subscriber *s = a->s;
    int64_t number = 0;
    size_t read;
    a->sources = calloc((size_t)a->v->ranks, sizeof *a->sources);
    a->rank = calloc(s->plan.n + 1, sizeof *a->rank);
    if (!a->sources || !a->rank)
        return error_nomem();
    for (size_t i = 0; i < s->plan.n; i++)
        a->rank[i] = -1;
    for (size_t i = 0; i < s->plan.n; i++) {
        const struct reader_piece *p = &s->plan.pieces[i];
        if (!p->ways)
            continue;
        int r = choose_rank(a, i, number++, &read);
        if (r < 0) {
            snprintf(s->why, sizeof s->why, "no live process has the part of rank %d, which holds a piece of '%s'",
                     reader_plan_holder(&s->plan, s->theirs, i, 0, &read), s->theirs->v[p->theirs].name);
            return FETCH_AGAIN;
        }
        a->rank[read] = r;
        a->sources[r].part = a->v->parts[r];
        a->sources[r].used = true;
        a->sources[r].pieces++;
        a->sources[r].bytes += p->bytes;
    }
    return remember(a);
}

/* The same, when the sources are open. */
static void remember_ways(const struct fetch_attempt *a)
{
    struct subscribe_source *list = a->s->sources;
    for (int r = 0; r < a->v->ranks; r++) {
        const struct fetch_source *o = &a->sources[r];
        if (!o->used)
            continue;
        list->way = o->present                             ? "relay"
                    : subscribe_pinned(a->s, &o->snapshot) ? "pinned"
                    : o->snapshot.data                     ? "mapped"
                    : list->local                          ? "socket"
                                                           : "tcp";
        list++;
    }
}

/* ---- opening them ---- */

/* Connects to the relay of this host, which may be this process. */
static void open_relay(struct fetch_attempt *a)
{
    weft_subscriber *s = a->s;
    if (a->related || a->no_relay)
        return;
    int err = bus_relay_find(s->bus, s->set, a->c, !s->no_delta, a->until, &s->relay, &a->relay_slot);
    if (!err)
        err = part_client_open(s->bus->host, s->set, &a->relay_slot, s->bus->keeper.lease_ns, a->until, &a->relay);
    a->related = !err;
    a->no_relay = err != 0;
}

/* The blocks that this rank needs of a source. */
static unsigned char *list_blocks(const struct fetch_attempt *a, const struct fetch_source *o)
{
    const weft_subscriber *s = a->s;
    unsigned char *bits = calloc(o->places.blocks / 8 + 1, 1);
    for (size_t i = 0; i < s->plan.n && bits; i++) {
        const struct reader_piece *p = &s->plan.pieces[i];
        if (a->rank[i] != o->part->rank)
            continue;
        for (size_t k = 0; k < p->nruns; k++)
            for (int64_t b = p->runs[k].first; b < p->runs[k].end; b++)
                part_blocks_set(bits, o->places.v[p->theirs].block + (size_t)b);
    }
    return bits;
}

/* The source has no memory of the relay any more. */
static void return_memory(const struct fetch_attempt *a, struct fetch_source *o)
{
    if (o->borrowed)
        bus_relay_return(a->s->relay);
    o->borrowed = false;
    o->snapshot = (struct snapshot){.fd = -1};
}

/* Has the relay of this host pull a source's blocks, and maps its memory. FETCH_AGAIN: there is no relay that does. */
static int relay_source(struct fetch_attempt *a, struct fetch_source *o)
{
    weft_subscriber *s = a->s;
    int file;
    open_relay(a);
    if (a->no_relay)
        return FETCH_AGAIN;
    int err = part_client_part(&a->relay, &o->of, (unsigned char *)o->digests, o->places.blocks * sizeof *o->digests,
                               a->until, &file, &o->generation);
    bool here = s->relay && !strcmp(a->relay_slot.socket, part_server_socket(s->bus->server));
    if (!err && here) {
        close(file);
        err = bus_relay_borrow(s->relay, &o->of, o->generation, &o->snapshot);
        o->borrowed = !err;
    } else if (!err) /* for this attempt only: a map would keep the memory of a relay that has gone */
        err = subscribe_map(s, a->relay.name, 0, file, o->places.bytes + (int64_t)o->places.blocks, &o->snapshot);
    unsigned char *bits = err ? NULL : list_blocks(a, o);
    if (!err && !bits)
        err = error_nomem();
    for (int64_t at = 0; at < (int64_t)o->places.blocks && !err; at += PART_LINK_BLOCKS) {
        int64_t missing;
        err = part_client_await(&a->relay, &o->of, at, min64(PART_LINK_BLOCKS, (int64_t)o->places.blocks - at),
                                bits + at / 8, 0, a->until, &missing);
    }
    free(bits);
    if (!err) {
        o->present = (const _Atomic uint8_t *)(o->snapshot.data + o->places.bytes);
        return 0;
    }
    if (err == WEFT_ENOMEM)
        return err;
    part_client_close(&a->relay);
    a->related = false;
    a->no_relay = true;
    return FETCH_AGAIN;
}

/* From the publisher's rank itself. */
static int ask_source(struct fetch_attempt *a, struct fetch_source *o)
{
    weft_subscriber *s = a->s;
    o->present = NULL;
    return_memory(a, o);
    int err = part_client_open(s->bus->host, s->set, o->part->slot, s->bus->keeper.lease_ns, a->until, &o->client);
    if (err)
        return fetch_sources_judge(s, o->part->rank, err);
    o->opened = true;
    int file;
    err = part_client_part(&o->client, &o->of, (unsigned char *)o->digests, o->places.blocks * sizeof *o->digests,
                           a->until, &file, &o->generation);
    if (!err && file >= 0)
        err = subscribe_map(s, o->client.name, o->part->version.epoch, file, o->places.bytes, &o->snapshot);
    if (!err && o->snapshot.data && !snapshot_is(&o->snapshot, o->part->generation)) {
        snprintf(s->why, sizeof s->why, "%s has reused its memory", o->client.name);
        return FETCH_AGAIN;
    }
    return fetch_sources_judge(s, o->part->rank, err);
}

static int open_source(struct fetch_attempt *a, struct fetch_source *o)
{
    weft_subscriber *s = a->s;
    int err = schema_part(s->theirs, o->part->rank, false, &o->places);
    if (err)
        return err;
    o->of = part_client_of(o->part);
    o->digests = calloc(o->places.blocks + 1, sizeof *o->digests);
    if (!o->digests)
        return error_nomem();
    if (strcmp(o->part->slot->host, s->bus->host) && !s->alone) {
        err = relay_source(a, o);
        if (err != FETCH_AGAIN)
            return err;
        err = 0;
        for (struct fetch_source *k = a->sources; k < o && !err;
             k++) /* the relay, which is given up, would have had these */
            err = k->present ? ask_source(a, k) : 0;
    }
    return err ? err : ask_source(a, o);
}

const char *fetch_sources_name(const struct fetch_attempt *a, const struct fetch_source *o)
{
    return o->present ? a->relay.name : o->client.name;
}

bool fetch_sources_torn(const struct fetch_attempt *a, const struct fetch_source *o)
{
    if (!o->used || !o->snapshot.data || snapshot_still(&o->snapshot, o->generation))
        return false;
    snprintf(a->s->why, sizeof a->s->why, "%s has reused its memory", fetch_sources_name(a, o));
    return true;
}

int fetch_sources_open(struct fetch_attempt *a)
{
    int err = 0;
    for (int r = 0; r < a->v->ranks && !err; r++)
        if (a->sources[r].used)
            err = open_source(a, &a->sources[r]);
    if (!err)
        remember_ways(a);
    return err;
}

void fetch_sources_close(struct fetch_attempt *a)
{
    for (int r = 0; a->sources && r < a->v->ranks; r++) {
        struct fetch_source *o = &a->sources[r];
        if (o->opened)
            part_client_close(&o->client);
        return_memory(a, o);
        schema_part_free(&o->places);
        free(o->digests);
    }
    if (a->related)
        part_client_close(&a->relay);
    free(a->sources);
}
