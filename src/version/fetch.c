/* Fetching: which version is read, and copying it.
 *
 * Rank 0 of the comm chooses the version from the catalog. Each rank then takes a lease on it, by a transaction that
 * holds only if the version's record is still there; asks its sources for the digests and the snapshots' descriptors;
 * copies what its plan says; and checks digests and, last of all, the generations. What was torn or has gone is tried
 * again with the newest version, until the time is over. What does not fit is an error at once. Then the ranks tell
 * each other how it went: all have staged the version, all try again, or all fail with the error of one of them. */
#define _GNU_SOURCE
#include "version/fetch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/block_sums.h"
#include "version/bus_relay.h"
#include "version/fetch_device.h"
#include "version/layouts.h"
#include "version/part_client.h"
#include "weft/collective.h"

#define AGAIN 1                     /* instead of an error: the version has gone or was torn */
#define SLICE_NS INT64_C(500000000) /* after which rank 0 tells the others that there is nothing yet */
#define CANCEL_NS INT64_C(50000000) /* the same in the background, where the caller may cancel */
#define PAUSE_NS INT64_C(20000000)
#define ASK_NS \
    INT64_C(1000000000) /* within which the directory answers, in the background; otherwise it is asked again */
#define RUN 512         /* blocks that a relay is asked for at once */
#define TEXT 512        /* bytes of an error that one rank tells the others */

/* What is read from one rank of the publisher. */
struct source {
    const struct catalog_part *part;
    struct part_client_of of;
    struct part_client client;
    struct snapshot snapshot;       /* of this host: the rank's, or the relay's; data NULL: pulled from another host */
    uint64_t generation;            /* of the snapshot */
    const _Atomic uint8_t *present; /* the relay's blocks that are there; NULL: all are */
    struct schema_part places;
    uint64_t *digests;
    size_t pieces;
    int64_t bytes;
    bool opened, used;
};

struct attempt {
    weft_subscriber *s;
    const struct catalog *c;
    const struct catalog_version *v;
    struct part_client relay; /* of this host */
    struct catalog_slot relay_slot;
    bool related, no_relay; /* it is open; there is none that can be used */
    struct source *sources; /* by rank */
    int *rank;              /* for each piece of the plan: who is read; -1: it is not, another one in its stead */
    unsigned char *scratch; /* for pieces of other hosts */
    int64_t room, done;
    int64_t until;
    int64_t checking; /* ns for comparing digests */
    bool wrong;       /* one of them is */
    size_t settled;   /* pieces that are staged and checked, in the order of the plan */
    struct subscribe_buffer *to;
};

static int again(weft_subscriber *s)
{
    snprintf(s->why, sizeof s->why, "%s", weft_errmsg());
    return AGAIN;
}

/* A holder that has gone or says nothing is not an error of this rank. */
static int judge(weft_subscriber *s, int rank, int err)
{
    if (err != WEFT_EPEER)
        return err;
    s->avoid[rank] = true;
    return again(s);
}

/* ---- the publisher's layouts ---- */

static int know_layouts(struct attempt *a)
{
    weft_subscriber *s = a->s;
    struct schema *theirs;
    if (s->theirs && !memcmp(s->theirs->layouts, a->v->layouts, SCHEMA_HASH))
        return 0;
    int err = layouts_read(s->bus, s->set, a->v, s->avoid, a->until, &theirs);
    if (err)
        return err == WEFT_EPEER ? again(s) : err;
    schema_free(s->theirs);
    reader_plan_free(&s->plan);
    fetch_device_forget(s->device);
    s->theirs = NULL;
    if (memcmp(theirs->digest, a->v->digest, SCHEMA_HASH) || theirs->ranks > a->v->ranks)
        err = error_set(WEFT_EMISMATCH, "set '%s': its list of tensors does not fit the schema of the version's record",
                        s->set);
    if (!err)
        err = reader_plan_check(s->set, theirs, s->mine, s->only);
    if (!err)
        err = reader_plan_make(theirs, s->mine, s->rank, s->packed, &s->plan);
    if (err)
        schema_free(theirs);
    else
        s->theirs = theirs;
    return err;
}

/* ---- which rank is read ---- */

/* How good a holder is: 0 if there is none, the highest on this host, the lowest if it did not answer before. */
static int worth(const struct attempt *a, int rank)
{
    const struct catalog_part *x = a->v->parts[rank];
    if (!x)
        return 0;
    return a->s->avoid[rank] ? 1 : strcmp(x->slot->host, a->s->bus->host) ? 2 : 3;
}

/* Of several holders that are equally good, pieces and ranks take different ones. number: that of the piece among those
 * that are read. *read: the piece that is read. */
static int choose_rank(const struct attempt *a, size_t piece, int64_t number, size_t *read)
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

static int assign(struct attempt *a)
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
            return AGAIN;
        }
        a->rank[read] = r;
        a->sources[r].part = a->v->parts[r];
        a->sources[r].used = true;
        a->sources[r].pieces++;
        a->sources[r].bytes += p->bytes;
    }
    return 0;
}

/* For explain. */
static int remember(const struct attempt *a)
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
        const struct source *o = &a->sources[r];
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

/* The same, when the sources are open. */
static void remember_ways(const struct attempt *a)
{
    struct subscribe_source *list = a->s->sources;
    for (int r = 0; r < a->v->ranks; r++) {
        const struct source *o = &a->sources[r];
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

/* ---- copying ---- */

/* Connects to the relay of this host, which may be this process. */
static void open_relay(struct attempt *a)
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
static unsigned char *list_blocks(const struct attempt *a, const struct source *o)
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

/* Has the relay of this host pull a source's blocks, and maps its memory. AGAIN: there is no relay that does. */
static int relay_source(struct attempt *a, struct source *o)
{
    weft_subscriber *s = a->s;
    int file;
    open_relay(a);
    if (a->no_relay)
        return AGAIN;
    int err = part_client_part(&a->relay, &o->of, (unsigned char *)o->digests, o->places.blocks * sizeof *o->digests,
                               a->until, &file, &o->generation);
    if (!err) /* for this attempt only: a map would keep the memory of a relay that has gone */
        err = subscribe_map(s, a->relay.name, 0, file, o->places.bytes + (int64_t)o->places.blocks, &o->snapshot);
    unsigned char *bits = err ? NULL : list_blocks(a, o);
    if (!err && !bits)
        err = error_nomem();
    for (int64_t at = 0; at < (int64_t)o->places.blocks && !err; at += PART_LINK_BLOCKS) {
        int64_t missing;
        err = part_client_await(&a->relay, &o->of, at, min64(PART_LINK_BLOCKS, (int64_t)o->places.blocks - at),
                                bits + at / 8, false, a->until, &missing);
    }
    free(bits);
    if (!err) {
        o->present = (const _Atomic uint8_t *)(o->snapshot.data + o->places.bytes);
        return 0;
    }
    o->snapshot = (struct snapshot){.fd = -1};
    if (err == WEFT_ENOMEM)
        return err;
    part_client_close(&a->relay);
    a->related = false;
    a->no_relay = true;
    return AGAIN;
}

/* From the publisher's rank itself. */
static int ask_source(struct attempt *a, struct source *o)
{
    weft_subscriber *s = a->s;
    o->present = NULL;
    o->snapshot = (struct snapshot){.fd = -1};
    int err = part_client_open(s->bus->host, s->set, o->part->slot, s->bus->keeper.lease_ns, a->until, &o->client);
    if (err)
        return judge(s, o->part->rank, err);
    o->opened = true;
    int file;
    err = part_client_part(&o->client, &o->of, (unsigned char *)o->digests, o->places.blocks * sizeof *o->digests,
                           a->until, &file, &o->generation);
    if (!err && file >= 0)
        err = subscribe_map(s, o->client.name, o->part->version.epoch, file, o->places.bytes, &o->snapshot);
    if (!err && o->snapshot.data && !snapshot_is(&o->snapshot, o->part->generation)) {
        snprintf(s->why, sizeof s->why, "%s has reused its memory", o->client.name);
        return AGAIN;
    }
    return judge(s, o->part->rank, err);
}

static int open_source(struct attempt *a, struct source *o)
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
        if (err != AGAIN)
            return err;
        err = 0;
        for (struct source *k = a->sources; k < o && !err; k++) /* the relay, which is given up, would have had these */
            err = k->present ? ask_source(a, k) : 0;
    }
    return err ? err : ask_source(a, o);
}

static const char *name_of(const struct attempt *a, const struct source *o)
{
    return o->present ? a->relay.name : o->client.name;
}

static int stopped(const weft_subscriber *s)
{
    return error_set(WEFT_EINVAL, "set '%s': the fetch was stopped by the caller", s->set);
}

/* Waits until the relay has the blocks of a piece. */
static int await_piece(struct attempt *a, struct source *o, const struct reader_piece *p)
{
    size_t first = o->places.v[p->theirs].block;
    for (size_t i = 0; i < p->nruns; i++)
        for (int64_t b = p->runs[i].first, end; b < p->runs[i].end; b = end) {
            int64_t missing = 0;
            unsigned char all[RUN / 8];
            memset(all, 0xff, sizeof all);
            end = min64(b + RUN, p->runs[i].end);
            for (int64_t k = b; k < end; k++) /* pairs with bus_relay_store */
                missing += !atomic_load_explicit(&o->present[first + (size_t)k], memory_order_acquire);
            while (missing) {
                int err =
                    part_client_await(&a->relay, &o->of, (int64_t)first + b, end - b, all, true, a->until, &missing);
                if (err)
                    return judge(a->s, o->part->rank, err);
                if (missing && a->s->cancelled)
                    return stopped(a->s);
                if (missing && deadline_now() >= a->until)
                    return error_set(WEFT_ETIMEOUT, "set '%s': %lld of %lld bytes were read in time", a->s->set,
                                     (long long)a->done, (long long)a->s->plan.bytes);
            }
        }
    return 0;
}

/* The end of a run of blocks in an array of `bytes` bytes. */
static int64_t end_of(const struct reader_run *r, int64_t bytes)
{
    return min64(r->end * SCHEMA_BLOCK, bytes);
}

/* The blocks of a piece from another host. *array is where the array would begin. */
static int pull(struct attempt *a, struct source *o, const struct reader_piece *p, const unsigned char **array)
{
    const struct schema_place *place = &o->places.v[p->theirs];
    int64_t lo = p->runs[0].first * SCHEMA_BLOCK, hi = end_of(&p->runs[p->nruns - 1], place->bytes);
    bool torn = false;
    int err = 0;
    if (a->room < hi - lo) {
        free(a->scratch);
        a->room = 0;
        a->scratch = malloc((size_t)(hi - lo));
        if (!a->scratch)
            return error_nomem();
        a->room = hi - lo;
    }
    for (size_t i = 0; i < p->nruns && !err && !torn; i++) {
        int64_t from = p->runs[i].first * SCHEMA_BLOCK;
        err = part_client_read(&o->client, &o->of, place->at + from, end_of(&p->runs[i], place->bytes) - from,
                               a->scratch + from - lo, a->until, &torn);
    }
    if (!err && torn) {
        snprintf(a->s->why, sizeof a->s->why, "%s has reused its memory", o->client.name);
        return AGAIN;
    }
    *array = a->scratch - lo;
    return judge(a->s, o->part->rank, err);
}

/* Adds the bytes of a piece's blocks to their sums, except those in [lo, hi). */
static void add_blocks(const struct reader_piece *p, int64_t bytes, const unsigned char *array, int64_t lo, int64_t hi,
                       uint64_t *sums)
{
    for (size_t i = 0; i < p->nruns; i++) {
        int64_t from = p->runs[i].first * SCHEMA_BLOCK, end = end_of(&p->runs[i], bytes);
        int64_t before = min64(end, max64(lo, from)), after = max64(from, min64(hi, end));
        block_sums_add(array + from, from, before - from, sums);
        block_sums_add(array + max64(before, after), max64(before, after), end - max64(before, after), sums);
    }
}

/* Copies the steps of a piece. With sums: also adds all bytes of its blocks to them. */
static void copy_steps(const struct attempt *a, const struct reader_piece *p, int64_t bytes, const unsigned char *array,
                       uint64_t *sums)
{
    const weft_subscriber *s = a->s;
    int from = s->theirs->v[p->theirs].layout->dtype, to = s->mine->v[p->mine].layout->dtype;
    int64_t in = (int64_t)weft_dtype_size(from), out = (int64_t)weft_dtype_size(to);
    unsigned char *dst = subscribe_place(s, a->to, p->mine);
    const struct reader_step *one = p->steps;
    if (p->nsteps == 1 && (!one->loops || (one->loops == 1 && one->v[1] == out && one->v[2] == in)) &&
        from != WEFT_BOOL) {
        block_sums_load(dst + one->to, to, array + one->from, one->from, from, p->bytes / in, sums);
        if (sums)
            add_blocks(p, bytes, array, p->lo, p->hi, sums);
        return;
    }
    /* If all blocks on the way are needed, they are summed as they are copied. */
    bool apart = p->nruns > 1;
    struct block_sums_walk w = {array, p->runs[0].first * SCHEMA_BLOCK, end_of(&p->runs[p->nruns - 1], bytes),
                                apart ? NULL : sums};
    if (sums && apart)
        add_blocks(p, bytes, array, 0, 0, sums);
    for (size_t i = 0; i < p->nsteps; i++) {
        struct memory_tile t;
        reader_plan_tile(&p->steps[i], &t);
        block_sums_copy(&w, &t, dst + p->steps[i].to, to, p->steps[i].from, from);
    }
    block_sums_upto(&w, w.end);
}

/* sums: of the array's blocks. */
static int check_sums(struct attempt *a, struct source *o, const struct reader_piece *p, const uint64_t *sums)
{
    const uint64_t *digests = o->digests + o->places.v[p->theirs].block;
    for (size_t i = 0; i < p->nruns; i++)
        for (int64_t b = p->runs[i].first; b < p->runs[i].end; b++) {
            if (sums[b] == digests[b])
                continue;
            if (o->snapshot.data && !snapshot_still(&o->snapshot, o->generation)) {
                snprintf(a->s->why, sizeof a->s->why, "%s has reused its memory", name_of(a, o));
                return AGAIN;
            }
            return error_set(WEFT_EMISMATCH,
                             "set '%s', version %lld.%lld: tensor '%s', block %lld of %s: the digest is wrong",
                             a->s->set, (long long)a->v->version.epoch, (long long)a->v->version.step,
                             a->s->theirs->v[p->theirs].name, (long long)b, name_of(a, o));
        }
    return 0;
}

/* The last piece of a tensor is staged. */
static int arrive(const struct attempt *a, size_t tensor)
{
    const weft_subscriber *s = a->s;
    for (int r = 0; r < a->v->ranks; r++) { /* without digests only the generation tells what was torn */
        const struct source *o = &a->sources[r];
        if (o->used && o->snapshot.data && !snapshot_still(&o->snapshot, o->generation)) {
            snprintf(a->s->why, sizeof a->s->why, "%s has reused its memory", name_of(a, o));
            return AGAIN;
        }
    }
    return s->arrived(s->arg, &a->v->version, tensor, subscribe_place(s, a->to, tensor), s->part.v[tensor].bytes)
               ? stopped(s)
               : 0;
}

/* A piece is staged and checked: how far the fetch is. */
static int tell_caller(struct attempt *a, size_t i)
{
    weft_subscriber *s = a->s;
    const struct reader_piece *p = &s->plan.pieces[i];
    a->done += p->bytes;
    s->total = s->plan.bytes; /* first: others never see bytes of a total of 0 */
    s->done = a->done;
    if ((s->progress && s->progress(s->arg, a->done, s->plan.bytes)) || s->cancelled)
        return stopped(s);
    if (deadline_now() >= a->until)
        return error_set(WEFT_ETIMEOUT, "set '%s': %lld of %lld bytes were read in time", s->set, (long long)a->done,
                         (long long)s->plan.bytes);
    return 0;
}

static bool on_device(const struct attempt *a, size_t piece)
{
    return a->rank[piece] >= 0 && a->s->there && a->s->there[a->s->plan.pieces[piece].mine];
}

/* Compares the sums of a piece's blocks. */
static int check_piece(struct attempt *a, size_t i, const uint64_t *sums)
{
    int64_t begun = deadline_now();
    int err = check_sums(a, &a->sources[a->rank[i]], &a->s->plan.pieces[i], sums);
    a->checking += deadline_now() - begun;
    a->wrong = err == WEFT_EMISMATCH;
    return err;
}

/* The same for a piece that the device has summed, in the order of its runs. */
static int check_loaded(struct attempt *a, size_t i)
{
    const struct reader_piece *p = &a->s->plan.pieces[i];
    const uint64_t *sum = fetch_device_sums(a->s->device, i);
    if (!a->s->check || !a->sources[a->rank[i]].part->digests)
        return 0;
    uint64_t *sums = calloc((size_t)p->runs[p->nruns - 1].end, sizeof *sums);
    if (!sums)
        return error_nomem();
    for (size_t k = 0; k < p->nruns; k++)
        for (int64_t b = p->runs[k].first; b < p->runs[k].end; b++)
            sums[b] = *sum++;
    int err = check_piece(a, i, sums);
    free(sums);
    return err;
}

/* The pieces before `end` are staged. Those in host memory are checked already. */
static int settle(struct attempt *a, size_t end)
{
    const weft_subscriber *s = a->s;
    int err = 0;
    for (; a->settled < end && !err; a->settled++) {
        size_t i = a->settled;
        const struct reader_piece *p = &s->plan.pieces[i];
        if (on_device(a, i))
            err = check_loaded(a, i);
        if (!err && a->rank[i] >= 0)
            err = tell_caller(a, i);
        if (!err && s->arrived && (i + 1 == s->plan.n || p[1].mine != p->mine))
            err = arrive(a, p->mine);
    }
    return err;
}

/* *done: the pieces before this one are staged. */
static int copy_piece(struct attempt *a, size_t i, size_t *done)
{
    weft_subscriber *s = a->s;
    const struct reader_piece *p = &s->plan.pieces[i];
    struct source *o = &a->sources[a->rank[i]];
    const struct schema_place *place = &o->places.v[p->theirs];
    const unsigned char *array = o->snapshot.data ? o->snapshot.data + place->at : NULL;
    uint64_t *sums = NULL;
    int err = !array ? pull(a, o, p, &array) : o->present ? await_piece(a, o, p) : 0;
    if (!err && on_device(a, i))
        return fetch_device_piece(s, i, array - place->at, o->snapshot.data, done);
    if (!err && s->check && o->part->digests) {
        sums = calloc((size_t)p->runs[p->nruns - 1].end, sizeof *sums);
        err = sums ? 0 : error_nomem();
    }
    if (!err)
        copy_steps(a, p, place->bytes, array, sums);
    if (!err && sums)
        err = check_piece(a, i, sums);
    free(sums);
    return err;
}

/* What the device has to do for the pieces that are read. */
static int begin_device(struct attempt *a)
{
    const struct schema_part **places = calloc((size_t)a->v->ranks, sizeof *places);
    bool sums = false;
    if (!places)
        return error_nomem();
    for (int r = 0; r < a->v->ranks; r++) {
        places[r] = &a->sources[r].places;
        sums = sums || (a->s->check && a->sources[r].used && a->sources[r].part->digests);
    }
    int err = fetch_device_begin(a->s, a->to, a->rank, places, sums);
    free(places);
    return err;
}

static int copy_pieces(struct attempt *a)
{
    weft_subscriber *s = a->s;
    size_t done = s->device ? 0 : s->plan.n; /* the device is behind */
    int err = s->device ? begin_device(a) : 0;
    for (size_t i = 0; i < s->plan.n && !err; i++) {
        if (a->rank[i] >= 0)
            err = copy_piece(a, i, &done);
        if (!err)
            err = settle(a, done < i + 1 ? done : i + 1);
        if (!err && s->cancelled) /* settle hears of it when a piece is staged, and the device may be behind */
            err = stopped(s);
    }
    if (!err && s->device)
        err = fetch_device_end(s);
    return err ? err : settle(a, s->plan.n);
}

static int copy_all(struct attempt *a)
{
    weft_subscriber *s = a->s;
    int err = 0;
    for (int r = 0; r < a->v->ranks && !err; r++)
        if (a->sources[r].used)
            err = open_source(a, &a->sources[r]);
    if (!err)
        remember_ways(a);
    if (!err)
        err = copy_pieces(a);
    if (err)
        fetch_device_stop(s->device);
    for (int r = 0; r < a->v->ranks && !err; r++) {
        struct source *o = &a->sources[r];
        if (o->used && o->snapshot.data && !snapshot_still(&o->snapshot, o->generation)) {
            snprintf(s->why, sizeof s->why, "%s has reused its memory", name_of(a, o));
            err = AGAIN;
        }
    }
    return err;
}

static void end_attempt(struct attempt *a)
{
    for (int r = 0; a->sources && r < a->v->ranks; r++) {
        struct source *o = &a->sources[r];
        if (o->opened)
            part_client_close(&o->client);
        schema_part_free(&o->places);
        free(o->digests);
    }
    if (a->related)
        part_client_close(&a->relay);
    free(a->sources);
    free(a->rank);
    free(a->scratch);
    if (a->v)
        subscribe_unmap(a->s, a->v->version.epoch);
}

/* ---- leases ---- */

/* This rank's key: what it does with the version. With `compare` only if that holds; AGAIN otherwise. */
static int tell(weft_subscriber *s, const char *what, const weft_epoch_step *v, const struct directory_compare *compare,
                int64_t until)
{
    char key[RECORD_KEY], record[128], text[RECORD_VERSION];
    struct directory_outcome o;
    record_version(v, text);
    subscribe_key(s, s->rank, key);
    int n = snprintf(record, sizeof record, "%s %s\nfetch %lld\n", what, text, (long long)s->count);
    struct directory_change x = {.key = key, .value = record, .bytes = (size_t)n, .lease = KEEPER_LEASE};
    int err = keeper_transact(&s->bus->keeper, compare, compare != NULL, &x, 1, until, &o);
    if (err)
        return err;
    if (!o.done) {
        snprintf(s->why, sizeof s->why, "it has gone");
        return AGAIN;
    }
    s->revision = o.revision;
    return 0;
}

static int take_lease(struct attempt *a)
{
    char key[RECORD_KEY], text[RECORD_VERSION];
    record_version(&a->v->version, text);
    record_key(key, a->s->set, "versions/%s", text);
    return tell(a->s, "reads", &a->v->version, &(struct directory_compare){key, a->v->revision}, a->until);
}

/* ---- one version on this rank ---- */

/* dry: only proves that all is there. */
static int try_version(weft_subscriber *s, const struct catalog *c, const weft_epoch_step *v, bool dry, int64_t until)
{
    struct attempt a = {.s = s, .c = c, .v = catalog_find(c, v), .until = until};
    if (!a.v) {
        snprintf(s->why, sizeof s->why, "it has gone");
        return AGAIN;
    }
    s->begun = deadline_now();
    int err = dry ? 0 : subscribe_room(s, until, &a.to);
    if (!err && !dry)
        err = take_lease(&a);
    if (!err)
        err = know_layouts(&a);
    if (!err)
        err = assign(&a);
    if (!err)
        err = remember(&a);
    if (!err && !dry) {
        err = copy_all(&a);
        if (s->check && (!err || a.wrong))
            job_metrics_call(&s->bus->metrics, JOB_METRICS_CHECK, err, a.checking);
    }
    char *meta = err || dry ? NULL : strdup(a.v->meta);
    if (!err && !dry && !meta)
        err = error_nomem();
    if (!dry && a.to) {
        struct error_text kept;
        error_keep(&kept);
        int told = tell(s, err ? "failed" : "staged", v, NULL, until);
        if (err)
            error_restore(&kept);
        else
            err = told;
    }
    if (!err && !dry) {
        free(a.to->meta);
        a.to->meta = meta;
        a.to->version = *v;
        pthread_mutex_lock(&s->lock);
        s->staged = a.to == &s->buffers[1];
        pthread_mutex_unlock(&s->lock);
    } else
        free(meta);
    end_attempt(&a);
    return err;
}

/* ---- choosing ---- */

static bool fits(const weft_subscriber *s, const weft_want *w, const weft_epoch_step *v)
{
    switch (w->kind) {
    case WEFT_WANT_STEP: return v->step == w->step;
    case WEFT_WANT_AT_LEAST: return v->step >= w->step;
    case WEFT_WANT_NEWER: return s->live < 0 || record_version_compare(v, &s->buffers[s->live].version) > 0;
    default: return true;
    }
}

/* Can every rank of this job read it? */
static int readable(weft_subscriber *s, const struct catalog_version *v, int64_t until)
{
    if (v->holders == v->ranks)
        return 0;
    int missing = 0, err;
    struct attempt a = {.s = s, .v = v, .until = until};
    bool *live = calloc((size_t)v->ranks, sizeof *live);
    if (!live)
        return error_nomem();
    for (int r = 0; r < v->ranks; r++)
        live[r] = v->parts[r] != NULL;
    err = know_layouts(&a);
    if (!err && !reader_plan_covered(s->theirs, s->mine, live, &missing)) {
        snprintf(s->why, sizeof s->why, "no live process has the part of rank %d", missing);
        err = AGAIN;
    }
    free(live);
    return err;
}

/* The newest version that is wanted and can be read: 0, AGAIN, or an error. */
static int choose(weft_subscriber *s, const struct catalog *c, const weft_want *w, int64_t until, weft_epoch_step *out)
{
    bool any = false;
    if (!c->nversions)
        snprintf(s->why, sizeof s->why,
                 c->epoch ? "epoch %lld has committed none that is kept" : "the set is not published",
                 (long long)c->epoch);
    for (size_t i = c->nversions; i-- > 0;) {
        const struct catalog_version *v = &c->versions[i];
        if (!fits(s, w, &v->version))
            continue;
        any = true;
        int err = readable(s, v, until);
        if (!err)
            *out = v->version;
        if (err != AGAIN)
            return err;
    }
    if (c->nversions && !any) {
        const weft_epoch_step *v = &c->versions[c->nversions - 1].version;
        snprintf(s->why, sizeof s->why, "the newest one is %lld.%lld (epoch and step)", (long long)v->epoch,
                 (long long)v->step);
    }
    return AGAIN;
}

/* Waits until the directory may have changed. */
static void wait_change(weft_subscriber *s, int64_t after, int64_t until)
{
    char prefix[RECORD_KEY];
    struct directory_items items;
    int64_t pause = PAUSE_NS;
    record_key(prefix, s->set, "%s", "");
    if (!s->directory && bus_open_directory(s->bus, until, &s->directory))
        s->directory = NULL;
    if (s->directory && !s->watch && directory_watch(s->directory, prefix, after, &s->watch))
        s->watch = NULL;
    int err = s->watch ? directory_next(s->watch, max64(until - deadline_now(), 0), &items) : WEFT_ETRANSPORT;
    if (!err)
        directory_items_free(&items);
    else if (err != WEFT_ETIMEOUT) {
        directory_unwatch(s->watch);
        s->watch = NULL;
        deadline_pause(&pause, PAUSE_NS, until);
    }
}

static int late(const weft_subscriber *s)
{
    return error_set(WEFT_ETIMEOUT, "set '%s': there was no version in time: %.700s", s->set, s->why);
}

/* ---- all ranks ---- */

/* What rank 0 has chosen. code 0: a version; AGAIN: none yet; otherwise its error. */
struct choice {
    int64_t code;
    weft_epoch_step version;
    char text[TEXT];
};

static int share_choice(weft_subscriber *s, struct choice *c)
{
    if (s->ranks == 1)
        return 0;
    int err = weft_broadcast(s->comm, c, sizeof *c, WEFT_U8, 0);
    if (!err && s->rank && c->code < 0)
        error_set((int)c->code, "rank 0 of this job: %.500s", c->text);
    return err;
}

/* From each rank's result that of all: the first error, or AGAIN, or 0. */
static int share_result(weft_subscriber *s, int mine)
{
    int32_t all[WEFT_BUS_SWAP_RANKS] = {0}, result = mine;
    char text[TEXT];
    if (s->ranks == 1)
        return mine;
    snprintf(text, sizeof text, "%.500s", mine < 0 ? weft_errmsg() : "");
    int err = weft_allgather(s->comm, &result, all, 1, WEFT_I32), worst = 0;
    if (err)
        return err;
    for (int r = 0; r < s->ranks; r++) {
        if (all[r] < 0 && worst >= 0) {
            worst = all[r];
            err = weft_broadcast(s->comm, text, sizeof text, WEFT_U8, r);
            if (err)
                return err;
            if (mine >= 0 || r != s->rank)
                error_set(worst, "rank %d of this job: %.500s", r, text);
        } else if (all[r] > 0 && !worst)
            worst = AGAIN;
    }
    return worst;
}

/* The catalog. In the background a request that is not answered is asked again and again, since the caller may cancel.
 */
static int look_up(weft_subscriber *s, int64_t until, struct catalog *out)
{
    for (int64_t pause = PAUSE_NS;; deadline_pause(&pause, PAUSE_NS, until)) {
        int err = catalog_get(&s->bus->keeper, s->set, s->fetching ? min64(until, deadline_in(ASK_NS)) : until, out);
        if ((err != WEFT_ETIMEOUT && err != WEFT_ETRANSPORT) || !s->fetching || deadline_now() >= until)
            return err;
        if (s->cancelled)
            return stopped(s);
    }
}

static int find_version(weft_subscriber *s, const weft_want *w, bool dry, int64_t until, weft_epoch_step *out)
{
    s->why[0] = 0;
    memset(s->avoid, 0, sizeof s->avoid);
    s->count += !dry;
    for (;;) {
        struct catalog c = {0};
        struct choice choice = {.code = AGAIN};
        int64_t revision = 0;
        int err = look_up(s, until, &c);
        bool have = !err;
        revision = have ? c.items.revision : 0;
        for (size_t i = 0; have && i < c.nversions; i++)
            job_metrics_saw(&s->bus->metrics, &s->lag, &c.versions[i].version);
        if (s->rank == 0 || s->ranks == 1) {
            if (!err)
                err = choose(s, &c, w, until, &choice.version);
            if (err == AGAIN && deadline_now() >= until)
                err = late(s);
            choice.code = err;
            if (err < 0)
                snprintf(choice.text, sizeof choice.text, "%.500s", weft_errmsg());
        }
        int failed = share_choice(s, &choice);
        if (failed || choice.code < 0) {
            if (have)
                catalog_free(&c);
            return failed ? failed : (int)choice.code;
        }
        if (choice.code == AGAIN) {
            if (have)
                catalog_free(&c);
            err = share_result(s, s->cancelled ? stopped(s) : AGAIN); /* any rank may have cancelled */
            if (err < 0)
                return err;
            if (s->rank == 0 || s->ranks == 1)
                wait_change(s, revision,
                            s->ranks > 1 || s->fetching ? min64(until, deadline_in(s->fetching ? CANCEL_NS : SLICE_NS))
                                                        : until);
            continue;
        }
        if (!err && s->rank && s->ranks > 1 && !catalog_find(&c, &choice.version)) {
            catalog_free(&c); /* it is older than what rank 0 has seen */
            have = false;
            err = look_up(s, until, &c);
            have = !err;
        }
        if (!err)
            err = try_version(s, &c, &choice.version, dry, until);
        if (have)
            catalog_free(&c);
        if (err == AGAIN && (s->cancelled || deadline_now() >= until))
            err = s->cancelled ? stopped(s) : late(s);
        err = share_result(s, err);
        if (!err) {
            *out = choice.version;
            return 0;
        }
        if (err < 0)
            return err;
        int64_t pause = PAUSE_NS;
        deadline_pause(&pause, PAUSE_NS, until);
    }
}

int fetch_check(weft_subscriber *s, const char *call, const weft_want *w, int64_t timeout_ns, int64_t *until)
{
    if (!s || !w)
        return error_set(WEFT_EINVAL, "%s: %s is NULL", call, s ? "want" : "the subscriber");
    if (w->kind > WEFT_WANT_NEWER)
        return error_set(WEFT_EINVAL, "%s: there is no want %d", call, (int)w->kind);
    int err = subscribe_idle(s, call);
    if (err)
        return err;
    pthread_mutex_lock(&s->lock);
    bool undecided = s->undecided;
    pthread_mutex_unlock(&s->lock);
    if (undecided)
        return error_set(WEFT_EPEER, "%s: set '%s': a swap is not decided here: swap again, or subscribe anew", call,
                         s->set);
    return bus_until(s->bus, call, timeout_ns, until);
}

int weft_subscriber_verify(weft_subscriber *s, const weft_want *want, int64_t timeout_ns, weft_epoch_step *out)
{
    int64_t until;
    weft_epoch_step v;
    int err = fetch_check(s, "weft_subscriber_verify", want, timeout_ns, &until);
    if (!err)
        err = find_version(s, want, true, until, &v);
    if (!err && out)
        *out = v;
    return err;
}

int fetch_run(weft_subscriber *s, const weft_want *w, int64_t until, weft_epoch_step *out)
{
    int err = find_version(s, w, false, until, out);
    job_metrics_call(&s->bus->metrics, JOB_METRICS_FETCH, err, deadline_now() - s->begun);
    for (size_t i = 0; i < s->nsources && !err; i++)
        job_metrics_bytes(&s->bus->metrics, s->sources[i].local ? JOB_METRICS_MAPPED : JOB_METRICS_TCP,
                          s->sources[i].bytes);
    return err;
}

int weft_fetch(weft_subscriber *s, const weft_want *want, int64_t timeout_ns, weft_epoch_step *out)
{
    int64_t until;
    weft_epoch_step v;
    int err = fetch_check(s, "weft_fetch", want, timeout_ns, &until);
    if (!err)
        err = fetch_run(s, want, until, &v);
    if (!err && out)
        *out = v;
    return err;
}
