/* Fetching: which version is read, on all ranks of the job.
 *
 * Rank 0 of the comm chooses the version from the catalog. Each rank then reads it (fetch_version.h). What was torn or
 * has gone is tried again with the newest version, until the time is over. What does not fit is an error at once. Then
 * the ranks tell each other how it went: all have staged the version, all try again, or all fail with the error of one
 * of them. Digests that they check together (fetch_share.h) are compared last. */
#define _GNU_SOURCE
#include "version/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "rendezvous/deadline.h"
#include "version/fetch_share.h"
#include "version/fetch_version.h"
#include "weft/collective.h"

#define SLICE_NS INT64_C(500000000) /* after which rank 0 tells the others that there is nothing yet */
#define CANCEL_NS INT64_C(50000000) /* the same in the background, where the caller may cancel */
#define LOOK_NS INT64_C(1000000000) /* after which a reader looks itself, since its watch may hear nothing */
#define PAUSE_NS INT64_C(20000000)
#define ASK_NS \
    INT64_C(1000000000) /* within which the directory answers, in the background; otherwise it is asked again */
#define TEXT 512        /* bytes of an error that one rank tells the others */

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
    bool *live = calloc((size_t)v->ranks, sizeof *live);
    if (!live)
        return error_nomem();
    for (int r = 0; r < v->ranks; r++)
        live[r] = v->parts[r] != NULL;
    err = fetch_version_layouts(s, v, until);
    if (!err && !reader_plan_covered(s->theirs, s->mine, live, &missing)) {
        snprintf(s->why, sizeof s->why, "no live process has the part of rank %d", missing);
        err = FETCH_AGAIN;
    }
    free(live);
    return err;
}

/* The newest version that is wanted and can be read: 0, FETCH_AGAIN, or an error. */
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
        if (err != FETCH_AGAIN)
            return err;
    }
    if (c->nversions && !any) {
        const weft_epoch_step *v = &c->versions[c->nversions - 1].version;
        snprintf(s->why, sizeof s->why, "the newest one is %lld.%lld (epoch and step)", (long long)v->epoch,
                 (long long)v->step);
    }
    return FETCH_AGAIN;
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

/* What rank 0 has chosen. code 0: a version; FETCH_AGAIN: none yet; otherwise its error. together: whether the ranks
 * check it together. */
struct choice {
    int64_t code, together;
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

/* From each rank's result that of all: the first error, or FETCH_AGAIN, or 0. */
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
            worst = FETCH_AGAIN;
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
            return subscribe_stopped(s);
    }
}

/* All ranks have staged the version. *apart: what they have read together does not fit. */
static int check_together(weft_subscriber *s, bool *apart)
{
    int64_t begun = deadline_now();
    bool fit;
    int err = fetch_share_join(s, &fit);
    *apart = !err && !fit;
    if (!err)
        job_metrics_call(&s->bus->metrics, JOB_METRICS_CHECK, fit ? 0 : WEFT_EMISMATCH,
                         s->checking + deadline_now() - begun);
    return err;
}

static int find_version(weft_subscriber *s, const weft_want *w, bool dry, int64_t until, weft_epoch_step *out)
{
    s->why[0] = 0;
    memset(s->avoid, 0, sizeof s->avoid);
    s->count += !dry;
    bool apart = dry; /* each rank checks for itself: what it has checked together did not fit */
    for (;;) {
        struct catalog c = {0};
        struct choice choice = {.code = FETCH_AGAIN};
        int64_t revision = 0;
        int err = look_up(s, until, &c);
        bool have = !err;
        revision = have ? c.items.revision : 0;
        for (size_t i = 0; have && i < c.nversions; i++)
            job_metrics_saw(&s->bus->metrics, &s->lag, &c.versions[i].version);
        if (s->rank == 0 || s->ranks == 1) {
            if (!err)
                err = choose(s, &c, w, until, &choice.version);
            if (err == FETCH_AGAIN && deadline_now() >= until)
                err = late(s);
            choice.code = err;
            choice.together = !err && !apart && fetch_share_fits(s, catalog_find(&c, &choice.version));
            if (err < 0)
                snprintf(choice.text, sizeof choice.text, "%.500s", weft_errmsg());
        }
        int failed = share_choice(s, &choice);
        if (failed || choice.code < 0) {
            if (have)
                catalog_free(&c);
            return failed ? failed : (int)choice.code;
        }
        if (choice.code == FETCH_AGAIN) {
            if (have)
                catalog_free(&c);
            err = share_result(s, s->cancelled ? subscribe_stopped(s) : FETCH_AGAIN); /* any rank may have cancelled */
            if (err < 0)
                return err;
            if (s->rank == 0 || s->ranks == 1)
                wait_change(s, revision,
                            min64(until, deadline_in(s->fetching    ? CANCEL_NS
                                                     : s->ranks > 1 ? SLICE_NS
                                                                    : LOOK_NS)));
            continue;
        }
        if (!err && s->rank && s->ranks > 1 && !catalog_find(&c, &choice.version)) {
            catalog_free(&c); /* it is older than what rank 0 has seen */
            have = false;
            err = look_up(s, until, &c);
            have = !err;
        }
        fetch_share_begin(s, choice.together);
        if (!err)
            err = fetch_version_try(s, &c, &choice.version, dry, until);
        if (have)
            catalog_free(&c);
        if (err == FETCH_AGAIN && (s->cancelled || deadline_now() >= until))
            err = s->cancelled ? subscribe_stopped(s) : late(s);
        err = share_result(s, err);
        if (!err && choice.together) {
            err = check_together(s, &apart);
            if (!err && apart)
                continue;
        }
        if (!err) {
            if (apart && !dry) /* each rank has found its blocks right: why they do not fit together may stay */
                s->together = false;
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
