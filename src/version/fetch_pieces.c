/* Copying the pieces of a version: each is cast, summed before the cast, and compared with the publisher's digests, by
 * this rank or by all ranks of the job together (fetch_share.h). */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/fetch_device.h"
#include "version/fetch_share.h"
#include "version/fetch_version.h"

#define RUN 512 /* blocks that a relay is asked for at once */

/* The relay's blocks of a piece: waits until it has those that are missing. wrong: instead tells it that a digest does
 * not fit. */
static int ask_relay(struct fetch_attempt *a, struct fetch_source *o, const struct reader_piece *p, bool wrong)
{
    size_t first = o->places.v[p->theirs].block;
    for (size_t i = 0; i < p->nruns; i++)
        for (int64_t b = p->runs[i].first, end; b < p->runs[i].end; b = end) {
            int64_t missing = wrong;
            unsigned char all[RUN / 8];
            memset(all, 0xff, sizeof all);
            end = min64(b + RUN, p->runs[i].end);
            for (int64_t k = b; k < end && !wrong; k++) /* pairs with bus_relay_store */
                missing += !atomic_load_explicit(&o->present[first + (size_t)k], memory_order_acquire);
            while (missing) {
                int err = part_client_await(&a->relay, &o->of, (int64_t)first + b, end - b, all,
                                            wrong ? PART_LINK_WRONG : PART_LINK_WAIT, a->until, &missing);
                if (err)
                    return fetch_sources_judge(a->s, o->part->rank, err);
                if (wrong)
                    break;
                if (missing && a->s->cancelled)
                    return subscribe_stopped(a->s);
                if (missing && deadline_now() >= a->until)
                    return error_set(WEFT_ETIMEOUT, "set '%s': %lld of %lld bytes were read in time", a->s->set,
                                     (long long)a->done, (long long)a->s->plan.bytes);
            }
        }
    return 0;
}

/* The blocks of a piece from another host. *array is where the array would begin. */
static int pull(struct fetch_attempt *a, struct fetch_source *o, const struct reader_piece *p,
                const unsigned char **array)
{
    const struct schema_place *place = &o->places.v[p->theirs];
    int64_t lo = p->runs[0].first * SCHEMA_BLOCK, hi = reader_run_end(&p->runs[p->nruns - 1], place->bytes);
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
        err = part_client_read(&o->client, &o->of, place->at + from, reader_run_end(&p->runs[i], place->bytes) - from,
                               a->scratch + from - lo, a->until, &torn);
    }
    if (!err && torn) {
        snprintf(a->s->why, sizeof a->s->why, "%s has reused its memory", o->client.name);
        return FETCH_AGAIN;
    }
    *array = a->scratch - lo;
    return fetch_sources_judge(a->s, o->part->rank, err);
}

/* sums: of the array's blocks. */
static int check_sums(struct fetch_attempt *a, struct fetch_source *o, const struct reader_piece *p,
                      const uint64_t *sums)
{
    const uint64_t *digests = o->digests + o->places.v[p->theirs].block;
    for (size_t i = 0; i < p->nruns; i++)
        for (int64_t b = p->runs[i].first; b < p->runs[i].end; b++) {
            if (sums[b] == digests[b])
                continue;
            if (fetch_sources_torn(a, o))
                return FETCH_AGAIN;
            return error_set(WEFT_EMISMATCH,
                             "set '%s', version %lld.%lld: tensor '%s', block %lld of %s: the digest is wrong",
                             a->s->set, (long long)a->v->version.epoch, (long long)a->v->version.step,
                             a->s->theirs->v[p->theirs].name, (long long)b, fetch_sources_name(a, o));
        }
    return 0;
}

/* The last piece of a tensor is staged. */
static int arrive(const struct fetch_attempt *a, size_t tensor)
{
    const weft_subscriber *s = a->s;
    for (int r = 0; r < a->v->ranks; r++) /* without digests only the generation tells what was torn */
        if (fetch_sources_torn(a, &a->sources[r]))
            return FETCH_AGAIN;
    return s->arrived(s->arg, &a->v->version, tensor, subscribe_place(s, a->to, tensor), s->part.v[tensor].bytes)
               ? subscribe_stopped(s)
               : 0;
}

/* A piece is staged, and checked unless all ranks check it together at the end: how far the fetch is. */
static int tell_caller(struct fetch_attempt *a, size_t i)
{
    weft_subscriber *s = a->s;
    const struct reader_piece *p = &s->plan.pieces[i];
    a->done += p->bytes;
    s->total = s->plan.bytes; /* first: others never see bytes of a total of 0 */
    s->done = a->done;
    if ((s->progress && s->progress(s->arg, a->done, s->plan.bytes)) || s->cancelled)
        return subscribe_stopped(s);
    if (deadline_now() >= a->until)
        return error_set(WEFT_ETIMEOUT, "set '%s': %lld of %lld bytes were read in time", s->set, (long long)a->done,
                         (long long)s->plan.bytes);
    return 0;
}

static bool on_device(const struct fetch_attempt *a, size_t piece)
{
    return a->rank[piece] >= 0 && a->s->there && a->s->there[a->s->plan.pieces[piece].mine];
}

/* Compares the sums of a piece's blocks. A relay that has wrong ones is told. */
static int check_piece(struct fetch_attempt *a, size_t i, const uint64_t *sums)
{
    struct fetch_source *o = &a->sources[a->rank[i]];
    int64_t begun = deadline_now();
    int err = check_sums(a, o, &a->s->plan.pieces[i], sums);
    a->checking += deadline_now() - begun;
    a->wrong = err == WEFT_EMISMATCH;
    if (a->wrong && o->present) {
        struct error_text kept;
        error_keep(&kept);
        ask_relay(a, o, &a->s->plan.pieces[i], true);
        error_restore(&kept);
    }
    return err;
}

/* The same for a piece that the device has summed, in the order of its runs. */
static int check_loaded(struct fetch_attempt *a, size_t i)
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

/* The pieces before `end` are staged. Those in host memory are checked already, or are checked by all ranks together at
 * the end. */
static int settle(struct fetch_attempt *a, size_t end)
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
static int copy_piece(struct fetch_attempt *a, size_t i, size_t *done)
{
    weft_subscriber *s = a->s;
    const struct reader_piece *p = &s->plan.pieces[i];
    struct fetch_source *o = &a->sources[a->rank[i]];
    const struct schema_place *place = &o->places.v[p->theirs];
    const unsigned char *array = o->snapshot.data ? o->snapshot.data + place->at : NULL;
    uint64_t *sums = NULL;
    int err = !array ? pull(a, o, p, &array) : o->present ? ask_relay(a, o, p, false) : 0;
    if (!err && on_device(a, i))
        return fetch_device_piece(s, i, array - place->at, o->snapshot.data, done);
    if (!err && s->check && o->part->digests) {
        sums = calloc((size_t)p->runs[p->nruns - 1].end, sizeof *sums);
        err = sums ? 0 : error_nomem();
    }
    if (!err && sums && fetch_share_takes(s, p)) {
        fetch_copy(a, p, place->bytes, array, sums);
        fetch_share_add(s, p, o->digests + place->block, sums);
        free(sums);
        return 0;
    }
    for (bool again = false, wrong = !err; wrong && !err;) {
        fetch_copy(a, p, place->bytes, array, sums);
        err = sums ? check_piece(a, i, sums) : 0;
        wrong = err == WEFT_EMISMATCH && o->present && !again; /* the relay pulls wrong blocks again, once */
        if (wrong) {
            err = ask_relay(a, o, p, false);
            memset(sums, 0, (size_t)p->runs[p->nruns - 1].end * sizeof *sums);
        }
        again = true;
    }
    free(sums);
    return err;
}

/* What the device has to do for the pieces that are read. */
static int begin_device(struct fetch_attempt *a)
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

int fetch_pieces_copy(struct fetch_attempt *a)
{
    weft_subscriber *s = a->s;
    size_t done = s->device ? 0 : s->plan.n; /* the device is behind */
    int err = s->device ? begin_device(a) : 0;
    copy_threads_begin(&a->threads, s->threads, s->least);
    for (size_t i = 0; i < s->plan.n && !err; i++) {
        if (a->rank[i] >= 0)
            err = copy_piece(a, i, &done);
        if (!err)
            err = settle(a, done < i + 1 ? done : i + 1);
        if (!err && s->cancelled) /* settle hears of it when a piece is staged, and the device may be behind */
            err = subscribe_stopped(s);
    }
    copy_threads_end(&a->threads);
    if (!err && s->device)
        err = fetch_device_end(s);
    return err ? err : settle(a, s->plan.n);
}
