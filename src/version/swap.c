/* Swapping: all ranks of a subscriber's comm change to the staged version, or none does.
 *
 * A rank that has staged version V in fetch number N has the key readers/GROUP/RANK = "staged V, fetch N". In swap each
 * rank tells the others the revision of its key, or that it has not staged V. If all have, rank 0 decides: one
 * transaction puts readers/GROUP/decided if the keys of all ranks still have these revisions. Then it tells the others.
 *
 * A rank that does not hear from rank 0, because a rank died or the comm failed, asks the directory:
 *   - If `decided` names V and N, it swaps.
 *   - Otherwise it changes its own key, by a transaction that compares its own key, rank 0's key and `decided`. After
 *     that rank 0's transaction can no longer succeed: the old version stays, for certain.
 *     The same is true if its own key has changed already, or is gone.
 *   - If rank 0's key is gone, rank 0's lease has ended and `decided` may have gone with it: the rank does not know. It
 *     serves nothing until it learns more, or subscribes anew.
 * Rank 0's key and `decided` have the same lease, and are not put again if it ends. So a rank that sees rank 0's key
 * with "staged V, fetch N" and no decision knows that there is none. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "rendezvous/deadline.h"
#include "version/fetch_device.h"
#include "version/packed.h"
#include "weft/collective.h"

#define PAUSE_NS INT64_C(20000000)

enum outcome { NO, YES, UNKNOWN };

static void write_record(const weft_subscriber *s, const char *what, const weft_epoch_step *v, char *out, size_t cap)
{
    char text[RECORD_VERSION];
    record_version(v, text);
    snprintf(out, cap, "%s %s\nfetch %lld\n", what, text, (long long)s->count);
}

/* ---- the decision of rank 0 ---- */

static enum outcome look(weft_subscriber *s, const weft_epoch_step *v, int64_t until);

static enum outcome decide(weft_subscriber *s, const weft_epoch_step *v, const int64_t *revisions, int64_t until)
{
    char keys[WEFT_BUS_SWAP_RANKS][RECORD_KEY], key[RECORD_KEY], record[128];
    struct directory_compare c[WEFT_BUS_SWAP_RANKS];
    struct directory_outcome o;
    for (int r = 0; r < s->ranks; r++) {
        subscribe_key(s, r, keys[r]);
        c[r] = (struct directory_compare){keys[r], revisions[r]};
    }
    subscribe_key(s, -1, key);
    write_record(s, "decided", v, record, sizeof record);
    struct directory_change x = {.key = key, .value = record, .bytes = strlen(record), .lease = KEEPER_LEASE};
    int err = keeper_transact(&s->bus->keeper, c, (size_t)s->ranks, &x, 1, until, &o);
    if (err)
        return look(s, v, until); /* it may have been done */
    return o.done ? YES : NO;
}

/* ---- without the comm ---- */

/* Reads the keys of this group: is the decision there, and does rank 0's key say that it may still come? */
static int read_group(weft_subscriber *s, const weft_epoch_step *v, int64_t until, bool *decided, int64_t revisions[3],
                      bool *waits)
{
    char prefix[RECORD_KEY], keys[3][RECORD_KEY], want[2][128];
    struct directory_items items;
    record_key(prefix, s->set, "readers/%s/", s->group);
    subscribe_key(s, 0, keys[0]);
    subscribe_key(s, s->rank, keys[1]);
    subscribe_key(s, -1, keys[2]);
    write_record(s, "staged", v, want[0], sizeof want[0]);
    write_record(s, "decided", v, want[1], sizeof want[1]);
    int err = keeper_get(&s->bus->keeper, prefix, until, &items);
    if (err)
        return err;
    *decided = *waits = false;
    memset(revisions, 0, 3 * sizeof *revisions);
    for (size_t i = 0; i < items.n; i++) {
        const char *value = (const char *)items.items[i].value;
        for (int k = 0; k < 3; k++)
            if (!strcmp(items.items[i].key, keys[k]))
                revisions[k] = items.items[i].revision;
        *waits = *waits || (!strcmp(items.items[i].key, keys[0]) && !strcmp(value, want[0]));
        *decided = *decided || (!strcmp(items.items[i].key, keys[2]) && !strcmp(value, want[1]));
    }
    directory_items_free(&items);
    return 0;
}

/* Learns the decision, or makes sure that there will be none. */
static enum outcome look(weft_subscriber *s, const weft_epoch_step *v, int64_t until)
{
    for (int64_t pause = PAUSE_NS;; deadline_pause(&pause, PAUSE_NS, until)) {
        int64_t revisions[3];
        bool decided, waits;
        char keys[3][RECORD_KEY], record[128];
        struct directory_outcome o;
        int err = read_group(s, v, until, &decided, revisions, &waits);
        if (!err && decided)
            return YES;
        if (!err && !waits)
            return UNKNOWN;
        if (!err && revisions[1] != s->revision)
            return NO; /* refused earlier, or this rank's lease has ended: rank 0's transaction cannot succeed */
        if (!err) {
            subscribe_key(s, 0, keys[0]);
            subscribe_key(s, s->rank, keys[1]);
            subscribe_key(s, -1, keys[2]);
            struct directory_compare c[3] = {{keys[1], revisions[1]}, {keys[2], revisions[2]}, {keys[0], revisions[0]}};
            write_record(s, "refused", v, record, sizeof record);
            struct directory_change x = {
                .key = keys[1], .value = record, .bytes = strlen(record), .lease = KEEPER_LEASE};
            err = keeper_transact(&s->bus->keeper, c, s->rank ? 3 : 2, &x, 1, until, &o);
            if (!err && o.done)
                return NO;
        }
        if (deadline_now() >= until)
            return UNKNOWN;
    }
}

/* ---- the call ---- */

/* What is in no box stays as it is: there may be another tensor. */
static void write_boxes(const weft_layout *l, int rank, unsigned char *to, const unsigned char *from)
{
    int64_t size = (int64_t)weft_dtype_size(l->dtype);
    for (struct packed_walk w = packed_begin(l, rank); packed_next(&w);) {
        struct memory_tile t = packed_tile(&w, 1, size, size);
        memory_copy(&t, to + w.loose * size, l->dtype, from + w.packed * size, l->dtype);
    }
}

/* Into the caller's arrays, while there are no pins. */
static int write_arrays(weft_subscriber *s, const struct subscribe_buffer *b)
{
    for (size_t i = 0; i < s->mine->n; i++) {
        if (!s->part.v[i].bytes || (s->there && s->there[i]))
            continue;
        const unsigned char *from = subscribe_place(s, b, i);
        if (s->mine->v[i].layout->boxes)
            write_boxes(s->mine->v[i].layout, s->rank, s->into[i], from);
        else
            memcpy(s->into[i], from, (size_t)s->part.v[i].bytes);
    }
    return s->device ? fetch_device_write(s) : 0;
}

static int change(weft_subscriber *s, enum outcome o, const char *why)
{
    int err = 0;
    if (o == YES && s->into && !s->direct)
        err = write_arrays(s, &s->buffers[s->staged]);
    pthread_mutex_lock(&s->lock);
    s->undecided = o == UNKNOWN;
    if (o == YES) {
        s->live = s->staged;
        s->staged = -1;
        s->mixed = err != 0; /* a device has failed: the version is live, and this rank does not have it */
    } else if (o == NO) {
        s->staged = -1;
        err = error_set(WEFT_EPEER, "set '%s': no rank has swapped, and %s: %.300s", s->set,
                        s->direct ? "the arrays have a version that is not live" : "the old version stays", why);
    } else
        err = error_set(WEFT_EPEER, "set '%s': rank %d cannot learn whether the others have swapped: %.300s", s->set,
                        s->rank, why);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static int swap_together(weft_subscriber *s, const weft_epoch_step *v, bool staged, int64_t until)
{
    int64_t mine = staged ? s->revision : -1, all[WEFT_BUS_SWAP_RANKS], told = UNKNOWN;
    int err = weft_allgather(s->comm, &mine, all, 1, WEFT_I64);
    if (err) {
        char why[300];
        snprintf(why, sizeof why, "%s", weft_errmsg());
        return staged ? change(s, look(s, v, until), why) : err;
    }
    for (int r = 0; r < s->ranks; r++)
        if (all[r] < 0)
            return error_set(WEFT_EINVAL, "weft_swap: set '%s': rank %d of this job has not staged version %lld.%lld",
                             s->set, r, (long long)v->epoch, (long long)v->step);
    if (s->rank == 0)
        told = decide(s, v, all, until);
    err = weft_broadcast(s->comm, &told, 1, WEFT_I64, 0);
    if (s->rank == 0)
        return change(s, (enum outcome)told, "a rank has refused, or its lease has ended");
    char why[300];
    snprintf(why, sizeof why, "%s", err ? weft_errmsg() : "a rank has refused, or its lease has ended");
    if (err || told == UNKNOWN)
        told = look(s, v, until);
    return change(s, (enum outcome)told, why);
}

/* With arrays of the caller: whether all ranks may write into theirs. */
static int share_ready(weft_subscriber *s, int mine)
{
    struct error_text kept;
    error_keep(&kept);
    int32_t ready = mine, worst = 0;
    int err = weft_allreduce(s->comm, &ready, &worst, 1, WEFT_I32, WEFT_MIN);
    if (!mine && (err || worst))
        subscribe_write_end(s);
    if (mine)
        error_restore(&kept);
    else if (!err && worst)
        error_set(worst, "weft_swap: set '%s': another rank of this job cannot swap: %s", s->set, weft_strerror(worst));
    return mine ? mine : err ? err : worst;
}

static int swap(weft_subscriber *s, const weft_epoch_step *v, int64_t until)
{
    pthread_mutex_lock(&s->lock);
    bool staged = s->staged >= 0 && !record_version_compare(&s->buffers[s->staged].version, v),
         undecided = s->undecided;
    pthread_mutex_unlock(&s->lock);
    if (s->ranks == 1)
        return staged ? change(s, YES, "")
                      : error_set(WEFT_EINVAL, "weft_swap: set '%s': version %lld.%lld is not staged", s->set,
                                  (long long)v->epoch, (long long)v->step);
    if (undecided)
        return staged ? change(s, look(s, v, until), "it was not decided before")
                      : error_set(WEFT_EINVAL, "weft_swap: the swap that is not decided is to another version");
    return swap_together(s, v, staged, until);
}

static int swap_checked(weft_subscriber *s, const weft_epoch_step *v, int64_t timeout_ns)
{
    int64_t until;
    int err = subscribe_idle(s, "weft_swap");
    if (!err)
        err = bus_until(s->bus, "weft_swap", timeout_ns, &until);
    if (err)
        return err;
    if (!s->into || s->direct)
        return swap(s, v, until);
    /* The arrays are free before this rank says that it is ready. */
    err = subscribe_write_begin(s, until);
    int all = s->ranks > 1 ? share_ready(s, err) : err;
    if (all)
        return all;
    err = swap(s, v, until);
    subscribe_write_end(s);
    return err;
}

int weft_swap(weft_subscriber *s, const weft_epoch_step *v, int64_t timeout_ns)
{
    if (!s || !v)
        return error_set(WEFT_EINVAL, "weft_swap: %s is NULL", s ? "the version" : "the subscriber");
    int64_t begun = deadline_now();
    int err = swap_checked(s, v, timeout_ns);
    job_metrics_call(&s->bus->metrics, JOB_METRICS_SWAP, err, deadline_now() - begun);
    if (!err)
        job_metrics_live(&s->bus->metrics, &s->lag, v);
    return err;
}
