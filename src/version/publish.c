#define _GNU_SOURCE
#include "version/publish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/forks.h"
#include "base/sized.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/put_device.h"
#include "weft/collective.h"

#define KEEP 2
#define POLL_NS INT64_C(50000000)
#define CLOSE_NS INT64_C(2000000000) /* for the directory, when a publisher is closed */

/* ---- keys ---- */

static void version_text(const weft_publisher *p, int64_t step, char text[RECORD_VERSION])
{
    record_version(&(weft_epoch_step){p->epoch, step}, text);
}

void publish_part_key(const weft_publisher *p, int64_t step, char key[RECORD_KEY])
{
    char v[RECORD_VERSION];
    version_text(p, step, v);
    record_key(key, p->source.set, "parts/%s/%04d", v, p->rank);
}

void publish_version_key(const weft_publisher *p, int64_t step, char key[RECORD_KEY])
{
    char v[RECORD_VERSION];
    version_text(p, step, v);
    record_key(key, p->source.set, "versions/%s", v);
}

void publish_slot_key(const weft_publisher *p, char key[RECORD_KEY])
{
    record_key(key, p->source.set, "slots/%010lld/%04d", (long long)p->epoch, p->rank);
}

static int over(const weft_publisher *p)
{
    return error_set(WEFT_EPEER,
                     "set '%s': a newer publisher has taken it: epoch %lld, which this one (job %s) has, is over",
                     p->source.set, (long long)p->epoch, p->bus->job);
}

int publish_change(weft_publisher *p, const struct directory_compare *more, size_t nmore,
                   struct directory_change *changes, size_t n, int64_t until, bool *done)
{
    struct directory_compare c[DIRECTORY_CHANGES_MAX];
    struct directory_outcome o;
    for (size_t i = 0; i < nmore; i++)
        c[i + 1] = more[i];
    for (;;) {
        c[0] = (struct directory_compare){p->fence.key, p->fence.revision};
        if (p->fence.over)
            return over(p);
        int err = keeper_transact(&p->bus->keeper, c, nmore + 1, changes, n, until, &o);
        if (err)
            return err;
        *done = o.done;
        if (o.done)
            return 0;
        /* Is it the fence that did not hold? */
        struct directory_items items;
        err = keeper_get(&p->bus->keeper, p->fence.key, until, &items);
        if (err)
            return err;
        bool mine = items.n && !strcmp((const char *)items.items[0].value, p->fence.value), gone = !items.n;
        int64_t revision = items.n ? items.items[0].revision : 0;
        directory_items_free(&items);
        if (mine && revision == c[0].revision && nmore)
            return 0; /* another compare, or the fence: the caller looks at both again */
        if (!mine && !gone)
            return over(p);
        /* The directory has forgotten everything, and the keeper is putting it back, or has done so, perhaps with the
         * revision that it had: they begin anew then. */
        if (deadline_now() >= until)
            return error_set(WEFT_ETIMEOUT, "set '%s': the directory has lost this publisher's records", p->source.set);
        int64_t pause = POLL_NS;
        deadline_pause(&pause, POLL_NS, until);
    }
}

/* ---- the epoch ---- */

static int read_epoch(weft_publisher *p, int64_t until, struct directory_items *items, int64_t *epoch,
                      int64_t *revision)
{
    int err = keeper_get(&p->bus->keeper, p->fence.key, until, items);
    *epoch = *revision = 0;
    if (err || !items->n)
        return err;
    *revision = items->items[0].revision;
    if (!record_int((const char *)items->items[0].value, "epoch", epoch) || *epoch < 1) {
        directory_items_free(items);
        return error_set(WEFT_EMISMATCH, "set '%s': the record of its epoch is damaged", p->source.set);
    }
    return 0;
}

void publish_sweep(weft_publisher *p, int64_t until)
{
    struct catalog c;
    p->swept = true;
    if (catalog_get(&p->bus->keeper, p->source.set, until, &c))
        return;
    for (size_t i = 0; i < c.nversions; i++) {
        char key[RECORD_KEY], text[RECORD_VERSION];
        bool done;
        if (c.versions[i].holders || c.versions[i].version.epoch >= p->epoch)
            continue;
        record_version(&c.versions[i].version, text);
        record_key(key, p->source.set, "versions/%s", text);
        struct directory_change x = {.key = key, .erase = true};
        publish_change(p, &(struct directory_compare){key, c.versions[i].revision}, 1, &x, 1, until, &done);
    }
    catalog_free(&c);
}

static int take_epoch(weft_publisher *p, const char *run, int64_t until)
{
    char record[1024];
    for (;;) {
        struct directory_items items;
        struct directory_outcome o;
        int64_t revision, epoch;
        int err = read_epoch(p, until, &items, &epoch, &revision);
        if (err)
            return err;
        directory_items_free(&items);
        p->epoch = epoch + 1;
        struct text t = text_start(record, sizeof record);
        text_printf(&t, "epoch %lld\nranks %d\nrun %s\njob %s\nhost %s\nsocket %s\n", (long long)p->epoch, p->ranks,
                    run, p->bus->job, p->bus->host, part_server_socket(p->bus->server));
        record_hex(&t, "layouts", p->schema->layouts, SCHEMA_HASH);
        record_hex(&t, "schema", p->schema->digest, SCHEMA_HASH);
        struct directory_change x = {.key = p->fence.key, .value = record, .bytes = t.len};
        err =
            keeper_transact(&p->bus->keeper, &(struct directory_compare){p->fence.key, revision}, 1, &x, 1, until, &o);
        if (err)
            return err;
        if (!o.done)
            continue;
        p->fence.revision = o.revision;
        p->fence.value = strdup(record);
        if (!p->fence.value)
            return error_nomem();
        return 0;
    }
}

/* Waits for rank 0 of this start. wanted: its epoch, if a comm has told it; otherwise 0. */
static int join_epoch(weft_publisher *p, const char *run, int64_t wanted, int64_t until)
{
    for (int64_t pause = POLL_NS / 10;; deadline_pause(&pause, POLL_NS, until)) {
        struct directory_items items;
        int64_t epoch, revision, ranks = 0;
        char by[WEFT_BUS_NAME + 1] = "";
        unsigned char layouts[SCHEMA_HASH];
        int err = read_epoch(p, until, &items, &epoch, &revision);
        if (err)
            return err;
        const char *value = revision ? (const char *)items.items[0].value : "";
        bool mine = revision && record_text(value, "run", by, sizeof by) && !strcmp(by, run) &&
                    (!wanted || epoch == wanted) && record_int(value, "ranks", &ranks);
        if (mine) {
            bool same = record_bytes(value, "layouts", layouts, SCHEMA_HASH) &&
                        !memcmp(layouts, p->schema->layouts, SCHEMA_HASH);
            p->epoch = epoch;
            p->fence.revision = revision;
            p->fence.value = strdup(value);
            if (!p->fence.value)
                err = error_nomem();
            else if (ranks != p->ranks || !same)
                err = error_set(WEFT_EMISMATCH, "set '%s': rank %d publishes %s than rank 0", p->source.set, p->rank,
                                same ? "with another number of ranks" : "other names or layouts");
        }
        directory_items_free(&items);
        if (mine || err)
            return err;
        if (wanted && epoch > wanted)
            return over(p);
        if (deadline_now() >= until)
            return error_set(WEFT_ETIMEOUT, "set '%s': rank 0 of run '%s' has not published in time", p->source.set,
                             run);
    }
}

/* Rank 0 tells the others its epoch, or that it has failed. */
static int agree(weft_publisher *p, const weft_publish_opts *o, const char *run, int64_t until)
{
    int64_t told = 0;
    int err = p->rank == 0 ? take_epoch(p, run, until) : 0;
    if (o->comm && p->ranks > 1) {
        struct error_text kept;
        error_keep(&kept);
        told = err ? err : p->epoch;
        int failed = weft_broadcast(o->comm, &told, 1, WEFT_I64, 0);
        if (err)
            error_restore(&kept);
        else if (failed)
            err = failed;
        else if (told < 0)
            err = error_set((int)told, "set '%s': rank 0 could not take the next epoch", p->source.set);
    }
    if (!err && p->rank)
        err = join_epoch(p, run, told, until);
    return err;
}

static int put_slot(weft_publisher *p, int64_t until)
{
    char key[RECORD_KEY], record[1024];
    bool done;
    struct text t = text_start(record, sizeof record);
    publish_slot_key(p, key);
    bus_way(p->bus, &t);
    struct directory_change x = {.key = key, .value = record, .bytes = t.len, .lease = KEEPER_LEASE};
    int err = publish_change(p, NULL, 0, &x, 1, until, &done);
    return err ? err : keeper_keep(&p->bus->keeper, key, record, t.len, true, &p->fence);
}

/* ---- publishing ---- */

static void free_publisher(weft_publisher *p)
{
    struct error_text kept;
    error_keep(&kept);
    if (p->served)
        part_server_remove(p->bus->server, &p->source);
    put_device_close(p);
    for (int i = 0; i < p->keep && p->ring; i++) {
        snapshot_close(&p->ring[i].snapshot);
        free(p->ring[i].sums);
        free(p->ring[i].given.who);
    }
    free(p->ring);
    put_delta_free(&p->delta);
    free(p->lent.sums);
    free(p->lent.given.who);
    free(p->arrays);
    partial_close(p->fold);
    keeper_forget_all(&p->bus->keeper, &p->fence);
    schema_part_free(&p->part);
    schema_free(p->schema);
    free(p->fence.value);
    pthread_mutex_destroy(&p->lock);
    bus_leave(p->bus);
    free(p);
    error_restore(&kept);
}

static int check_opts(weft_publish_opts *o)
{
    if (o->comm) {
        if (o->ranks && (o->ranks != weft_comm_size(o->comm) || o->rank != weft_comm_rank(o->comm)))
            return error_set(WEFT_EINVAL, "weft_publish: rank and ranks are not those of the comm: leave them 0");
        o->rank = weft_comm_rank(o->comm);
        o->ranks = weft_comm_size(o->comm);
    }
    o->ranks = o->ranks ? o->ranks : 1;
    if (o->lend && o->keep)
        return error_set(WEFT_EINVAL, "weft_publish: keep is %d, and with lend there is no memory for versions",
                         o->keep);
    o->keep = o->keep ? o->keep : KEEP;
    if (o->ranks < 1 || o->ranks > WEFT_BUS_RANKS || o->rank < 0 || o->rank >= o->ranks)
        return error_set(WEFT_EINVAL, "weft_publish: rank %d of %d ranks: there may be 1 to %d", o->rank, o->ranks,
                         WEFT_BUS_RANKS);
    if (o->keep < 1 || o->keep > WEFT_BUS_KEEP)
        return error_set(WEFT_EINVAL, "weft_publish: keep is %d: it must be 1 to %d", o->keep, WEFT_BUS_KEEP);
    if (o->ranks > 1 && !o->comm && !o->run)
        return error_set(WEFT_EINVAL,
                         "weft_publish: %d ranks need a comm, or a run: a name that they have in common and "
                         "no other start has",
                         o->ranks);
    return o->run ? record_name("weft_publish", "run", o->run) : 0;
}

static int check_casts(const struct schema *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!dtype_castable(s->v[i].from_dtype, s->v[i].layout->dtype))
            return error_set(WEFT_EINVAL, "weft_publish: tensor '%s': there is no cast from %s to %s", s->v[i].name,
                             weft_dtype_name(s->v[i].from_dtype), weft_dtype_name(s->v[i].layout->dtype));
    return 0;
}

static int make_ring(weft_publisher *p)
{
    int err = schema_part(p->schema, p->rank, false, &p->part);
    if (err)
        return err;
    p->ring = calloc((size_t)p->keep + 1, sizeof *p->ring);
    if (!p->ring)
        return error_nomem();
    for (int i = 0; i < p->keep; i++)
        p->ring[i].snapshot.fd = -1;
    for (int i = 0; i < p->keep && !err; i++) {
        p->ring[i].sums = calloc(p->part.blocks + 1, sizeof *p->ring[i].sums);
        p->ring[i].given.who = calloc(p->part.blocks + 1, sizeof *p->ring[i].given.who);
        err = p->ring[i].sums && p->ring[i].given.who ? snapshot_create(p->part.bytes, &p->ring[i].snapshot)
                                                      : error_nomem();
    }
    return err;
}

int weft_publish(weft_bus *b, const char *set, const weft_bus_tensor *tensors, size_t n, const weft_publish_opts *opts,
                 weft_publisher **out)
{
    weft_publish_opts o;
    int64_t until;
    int err = sized_read("weft_publish", "weft_publish_opts", &o, sizeof o, opts);
    if (!err && !out)
        err = error_set(WEFT_EINVAL, "weft_publish: out is NULL");
    if (!err)
        err = record_name("weft_publish", "set", set);
    if (!err)
        err = check_opts(&o);
    if (!err)
        err = bus_enter(b, "weft_publish");
    if (err)
        return err;
    weft_publisher *p = calloc(1, sizeof *p);
    if (!p) {
        bus_leave(b);
        return error_nomem();
    }
    *p = (weft_publisher){.bus = b,
                          .rank = o.rank,
                          .ranks = o.ranks,
                          .keep = o.lend ? 0 : o.keep,
                          .wait = o.wait,
                          .digests = !o.no_digest,
                          .delta = {.asked = -1, .step = -1},
                          .least = COPY_THREADS_LEAST,
                          .last = -1,
                          .gone = -1};
    pthread_mutex_init(&p->lock, NULL);
    snprintf(p->source.set, sizeof p->source.set, "%s", set);
    record_key(p->fence.key, set, "epoch");
    err = bus_until(b, "weft_publish", o.timeout_ns ? o.timeout_ns : WEFT_DEADLINE, &until);
    weft_bus_tensor *list = NULL; /* without a comm, folds are refused by schema_make */
    if (!err && o.comm)
        err = partial_list(tensors, n, &list);
    bool folds = list;
    if (folds && o.lend)
        err = error_set(WEFT_EUNSUPPORTED, "weft_publish: partial sums are folded by put, and with lend there is none");
    if (!err)
        err = schema_make("weft_publish", folds ? list : tensors, n, &p->schema);
    partial_list_free(list, tensors, n);
    if (!err && p->schema->ranks > p->ranks)
        err = error_set(WEFT_EINVAL, "weft_publish: the layouts need %d ranks, and there are %d", p->schema->ranks,
                        p->ranks);
    if (!err)
        err = check_casts(p->schema);
    if (!err)
        err = copy_threads_choose("weft_publish", o.threads, o.comm, o.ranks, &p->threads);
    if (!err)
        err = make_ring(p);
    if (!err)
        err = bus_serve(b);
    if (!err || (o.comm && p->ranks > 1)) {
        int told = err; /* with a comm all ranks come here, so that none waits in vain */
        if (o.comm && p->ranks > 1) {
            struct error_text kept;
            error_keep(&kept);
            const int32_t mine[3] = {err, folds, -folds};
            int32_t all[3] = {0};
            err = weft_allreduce(o.comm, mine, all, 3, WEFT_I32, WEFT_MIN);
            if (told)
                error_restore(&kept), err = told;
            else if (!err && all[0])
                err = error_set(all[0], "weft_publish: another rank of the publisher has failed: %s",
                                weft_strerror(all[0]));
            else if (!err && all[1] != -all[2])
                err = error_set(WEFT_EMISMATCH, "set '%s': not all ranks publish partial sums", set);
        }
        if (!err && folds)
            err = partial_open(tensors, n, o.comm, &p->fold);
        if (!err)
            err = agree(p, &o, o.run ? o.run : "-", until);
    }
    if (!err)
        err = put_slot(p, until);
    if (err) {
        free_publisher(p);
        return err;
    }
    publish_serve(p);
    *out = p;
    return 0;
}

int publish_check_step(const weft_publisher *p, const char *call, int64_t step)
{
    if (step < 0 || (p->last >= 0 && step < p->last))
        return error_set(WEFT_EINVAL, "%s: step %lld: steps are not negative and do not fall: the last one was %lld",
                         call, (long long)step, (long long)p->last);
    for (int i = 0; i < p->keep; i++)
        if ((p->ring[i].state == PUBLISH_SHOWN || p->ring[i].state == PUBLISH_RETIRED) && p->ring[i].step >= step)
            return error_set(WEFT_EINVAL, "%s: step %lld: step %lld is committed already", call, (long long)step,
                             (long long)p->ring[i].step);
    if (p->lent.state != PUBLISH_FREE && p->lent.step >= step)
        return error_set(WEFT_EINVAL, "%s: step %lld: step %lld is lent", call, (long long)step,
                         (long long)p->lent.step);
    if (p->gone >= step)
        return error_set(WEFT_EINVAL, "%s: step %lld: step %lld was lent and committed already", call, (long long)step,
                         (long long)p->gone);
    return 0;
}

int64_t weft_publisher_epoch(const weft_publisher *p)
{
    return p ? p->epoch : 0;
}

/* The changes that erase what this rank has put for a step. They are not put again from now on. */
static void erasures(weft_publisher *p, int64_t step, char part[RECORD_KEY], char version[RECORD_KEY],
                     struct directory_change x[2])
{
    publish_part_key(p, step, part);
    publish_version_key(p, step, version);
    x[0] = (struct directory_change){.key = part, .erase = true};
    x[1] = (struct directory_change){.key = version, .erase = true};
    keeper_forget(&p->bus->keeper, part);
    keeper_forget(&p->bus->keeper, version);
}

int publish_delete(weft_publisher *p, int64_t step, int64_t until)
{
    char part[RECORD_KEY], version[RECORD_KEY];
    struct directory_change x[2];
    bool done;
    erasures(p, step, part, version, x);
    return publish_change(p, NULL, 0, x, 2, until, &done);
}

int publish_retire(weft_publisher *p, struct publish_ring *r, int64_t until)
{
    int err = publish_delete(p, r->step, until);
    if (err)
        return err;
    pthread_mutex_lock(&p->lock);
    r->state = PUBLISH_RETIRED;
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* Erases keys of this publisher's epoch. If the epoch is over, the fence does not hold any more; then a newer one must
 * stand in the directory while they go, so that they are not those of a publisher that has the same number. */
static int erase_own(weft_publisher *p, struct directory_change *x, size_t n, int64_t until)
{
    struct directory_items items;
    struct directory_outcome o;
    int64_t epoch, revision;
    bool done;
    int err = publish_change(p, NULL, 0, x, n, until, &done);
    if (err != WEFT_EPEER)
        return err;
    err = read_epoch(p, until, &items, &epoch, &revision);
    if (err)
        return err;
    directory_items_free(&items);
    if (epoch <= p->epoch)
        return 0;
    return keeper_transact(&p->bus->keeper, &(struct directory_compare){p->fence.key, revision}, 1, x, n, until, &o);
}

/* The version stays, and this rank's part of it goes: the agent has it. */
static int leave_part(weft_publisher *p, int64_t step, int64_t until)
{
    char key[RECORD_KEY];
    publish_version_key(p, step, key);
    keeper_forget(&p->bus->keeper, key);
    publish_part_key(p, step, key);
    keeper_forget(&p->bus->keeper, key);
    struct directory_change x = {.key = key, .erase = true};
    return erase_own(p, &x, 1, until);
}

static int withdraw_step(weft_publisher *p, int64_t step, int64_t until)
{
    char part[RECORD_KEY], version[RECORD_KEY];
    struct directory_change x[2];
    erasures(p, step, part, version, x);
    return erase_own(p, x, 2, until);
}

/* Best effort: what stays goes with the lease, or when the next publisher comes. */
static void withdraw(weft_publisher *p)
{
    char slot[RECORD_KEY];
    int64_t until = deadline_in(CLOSE_NS);
    int err = 0;
    hand_over(p, true, until);
    for (int i = 0; i < p->keep && !err; i++)
        if (p->ring[i].state == PUBLISH_SHOWN)
            err = p->ring[i].held ? leave_part(p, p->ring[i].step, until) : withdraw_step(p, p->ring[i].step, until);
    if (!err && p->lent.state == PUBLISH_SHOWN)
        err = withdraw_step(p, p->lent.step, until);
    publish_slot_key(p, slot);
    keeper_forget(&p->bus->keeper, slot);
    struct directory_change x = {.key = slot, .erase = true};
    if (!err)
        erase_own(p, &x, 1, until);
}

void weft_publisher_close(weft_publisher *p)
{
    if (!p || p->bus->forks != forks_count())
        return;
    struct error_text kept;
    error_keep(&kept);
    withdraw(p);
    error_restore(&kept);
    free_publisher(p);
}
