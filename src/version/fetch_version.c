/* One version on this rank. The rank takes a lease on it, by a transaction that holds only if the version's record is
 * still there; asks its sources for the digests and the snapshots' descriptors; copies what its plan says; and checks
 * digests and, last of all, the generations. Digests that the ranks check together are compared after that, in fetch.c.
 */
#define _GNU_SOURCE
#include "version/fetch_version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/deadline.h"
#include "version/fetch_device.h"
#include "version/layouts.h"

/* ---- the publisher's layouts ---- */

int fetch_version_layouts(weft_subscriber *s, const struct catalog_version *v, int64_t until)
{
    struct schema *theirs;
    if (s->theirs && !memcmp(s->theirs->layouts, v->layouts, SCHEMA_HASH))
        return 0;
    int err = layouts_read(s->bus, s->set, v, s->avoid, until, &theirs);
    if (err)
        return err == WEFT_EPEER ? fetch_sources_again(s) : err;
    schema_free(s->theirs);
    reader_plan_free(&s->plan);
    fetch_device_forget(s->device);
    s->theirs = NULL;
    if (memcmp(theirs->digest, v->digest, SCHEMA_HASH) || theirs->ranks > v->ranks)
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

/* ---- copying ---- */

static int copy_all(struct fetch_attempt *a)
{
    weft_subscriber *s = a->s;
    int err = fetch_sources_open(a);
    if (!err)
        err = fetch_pieces_copy(a);
    if (err)
        fetch_device_stop(s->device);
    for (int r = 0; r < a->v->ranks && !err; r++)
        err = fetch_sources_torn(a, &a->sources[r]) ? FETCH_AGAIN : 0;
    return err;
}

static void end_attempt(struct fetch_attempt *a)
{
    fetch_sources_close(a);
    free(a->rank);
    free(a->scratch);
    if (a->v)
        subscribe_unmap(a->s, a->v->version.epoch);
}

/* ---- leases ---- */

/* This rank's key: what it does with the version. With `compare` only if that holds; FETCH_AGAIN otherwise. */
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
        return FETCH_AGAIN;
    }
    s->revision = o.revision;
    return 0;
}

static int take_lease(struct fetch_attempt *a)
{
    char key[RECORD_KEY], text[RECORD_VERSION];
    record_version(&a->v->version, text);
    record_key(key, a->s->set, "versions/%s", text);
    return tell(a->s, "reads", &a->v->version, &(struct directory_compare){key, a->v->revision}, a->until);
}

/* ---- one version on this rank ---- */

int fetch_version_try(weft_subscriber *s, const struct catalog *c, const weft_epoch_step *v, bool dry, int64_t until)
{
    struct fetch_attempt a = {.s = s, .c = c, .v = catalog_find(c, v), .until = until};
    if (!a.v) {
        snprintf(s->why, sizeof s->why, "it has gone");
        return FETCH_AGAIN;
    }
    s->begun = deadline_now();
    int err = dry ? 0 : subscribe_room(s, until, &a.to);
    if (!err && !dry)
        err = take_lease(&a);
    if (!err)
        err = fetch_version_layouts(s, a.v, until);
    if (!err)
        err = fetch_sources_assign(&a);
    if (!err && !dry) {
        err = copy_all(&a);
        s->checking = a.checking;
        if (s->check && ((!err && !s->sharing) || a.wrong)) /* together: counted when all ranks have compared */
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
