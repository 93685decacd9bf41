/* Committing: this rank's part of a version, and the version's record if it is the last one. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rendezvous/deadline.h"
#include "version/part_record.h"
#include "version/publish.h"

#define COMPARED (DIRECTORY_CHANGES_MAX - 2) /* parts: beside the fence and the version */

static int show_part(weft_publisher *p, struct publish_ring *r, const char *meta, int64_t until)
{
    char key[RECORD_KEY], *record = malloc(PART_RECORD_MAX);
    bool done;
    if (!record)
        return error_nomem();
    publish_part_key(p, r->step, key);
    /* Readers may ask for it as soon as the version is there, so it is shown first. So is the agent, which outlives
     * this process if that is killed now. */
    pthread_mutex_lock(&p->lock);
    r->state = PUBLISH_SHOWN;
    pthread_mutex_unlock(&p->lock);
    hand_over(p, false, until);
    size_t n = part_record_write(p, r, meta, record);
    struct directory_change x = {.key = key, .value = record, .bytes = n, .lease = KEEPER_LEASE};
    int err = publish_change(p, NULL, 0, &x, 1, until, &done);
    if (!err)
        err = keeper_keep(&p->bus->keeper, key, record, n, true, &p->fence);
    free(record);
    return err;
}

/* The version's record, if the parts of all ranks are there. *whole: they are. */
static int write_version(weft_publisher *p, const struct catalog *c, int64_t step, char *record, size_t cap,
                         size_t *len, bool *whole)
{
    weft_epoch_step v = {p->epoch, step};
    unsigned char *hashes = calloc((size_t)p->ranks, CATALOG_PART);
    uint64_t sums[2] = {0, 0};
    const char *meta = "";
    size_t meta_len = 0;
    char key[RECORD_KEY];
    int have = 0;
    if (!hashes)
        return error_nomem();
    for (size_t i = 0; i < c->nparts; i++) {
        const struct catalog_part *x = &c->parts[i];
        if (record_version_compare(&x->version, &v) || x->rank >= p->ranks)
            continue;
        memcpy(hashes + (size_t)x->rank * CATALOG_PART, x->hash, CATALOG_PART);
        sums[0] += x->sketch[0];
        sums[1] += x->sketch[1];
        have++;
    }
    char text[RECORD_VERSION];
    record_version(&v, text);
    record_key(key, p->source.set, "parts/%s/%04d", text, 0);
    for (size_t i = 0; i < c->items.n; i++)
        if (!strcmp(c->items.items[i].key, key))
            record_find((const char *)c->items.items[i].value, "meta", &meta, &meta_len);
    *whole = have == p->ranks;
    struct text t = text_start(record, cap);
    text_printf(&t, "ranks %d\nbytes %lld\njob %s\n", p->ranks, (long long)p->schema->total, p->bus->job);
    record_hex(&t, "layouts", p->schema->layouts, SCHEMA_HASH);
    record_hex(&t, "schema", p->schema->digest, SCHEMA_HASH);
    record_hex(&t, "parts", hashes, (size_t)p->ranks * CATALOG_PART);
    text_put(&t, "meta ");
    text_bytes(&t, meta, meta_len);
    *len = t.len;
    free(hashes);
    if (*whole && (sums[0] || sums[1]))
        return error_set(WEFT_EMISMATCH,
                         "set '%s', step %lld: ranks that hold the same part of a tensor have put different "
                         "bits: the version is not committed",
                         p->source.set, (long long)step);
    return 0;
}

/* The parts of the version, for the transaction: a part that goes before the version is there keeps it from being
 * there. A publisher with more than COMPARED ranks compares that many. Of the other parts one may go between the look
 * and the transaction; the version then counts as one whose holder has gone, and readers pass it over. */
static size_t list_parts(const struct catalog *c, const weft_epoch_step *v, struct directory_compare *out)
{
    size_t n = 0;
    for (size_t i = 0; i < c->nparts && n < COMPARED; i++)
        if (!record_version_compare(&c->parts[i].version, v))
            out[n++] = (struct directory_compare){c->parts[i].key, c->parts[i].revision};
    return n;
}

/* Makes the version visible if all parts are there. *again: a part has changed meanwhile. */
static int try_version(weft_publisher *p, const weft_epoch_step *v, char *record, int64_t until, bool *visible,
                       bool *again)
{
    struct directory_compare compares[COMPARED + 1];
    char key[RECORD_KEY];
    struct catalog c;
    size_t len = 0;
    bool whole = false, done = false;
    int err = catalog_get(&p->bus->keeper, p->source.set, until, &c);
    if (err)
        return err;
    err = write_version(p, &c, v->step, record, DIRECTORY_VALUE_MAX, &len, &whole);
    *again = !err && whole && !catalog_find(&c, v);
    if (*again) {
        size_t n = list_parts(&c, v, compares);
        publish_version_key(p, v->step, key);
        compares[n] = (struct directory_compare){key, 0};
        struct directory_change x = {.key = key, .value = record, .bytes = len};
        err = publish_change(p, compares, n + 1, &x, 1, until, &done);
        *again = !err && !done;
        if (done)
            err = keeper_keep(&p->bus->keeper, key, record, len, false, &p->fence);
    }
    catalog_free(&c);
    *visible = done;
    return err;
}

static int show_version(weft_publisher *p, int64_t step, int64_t until, bool *visible)
{
    char *record = malloc(DIRECTORY_VALUE_MAX);
    bool again = true;
    int err = record ? 0 : error_nomem();
    while (!err && again) {
        err = try_version(p, &(weft_epoch_step){p->epoch, step}, record, until, visible, &again);
        if (!err && again && deadline_now() >= until)
            err = error_set(WEFT_ETIMEOUT, "set '%s', step %lld: the parts of the version change all the time",
                            p->source.set, (long long)step);
    }
    free(record);
    return err;
}

int weft_commit(weft_publisher *p, int64_t step, const char *meta, bool *visible)
{
    bool done = false;
    if (!p)
        return error_set(WEFT_EINVAL, "weft_commit: the publisher is NULL");
    if (meta && strlen(meta) > WEFT_BUS_META)
        return error_set(WEFT_EINVAL, "weft_commit: meta has %zu bytes: %d is the most", strlen(meta), WEFT_BUS_META);
    struct publish_ring *r = NULL;
    for (int i = 0; i < p->keep; i++)
        if ((p->ring[i].state == PUBLISH_FILLED || p->ring[i].state == PUBLISH_SHOWN) && p->ring[i].step == step)
            r = &p->ring[i];
    if (p->lent.state != PUBLISH_FREE && p->lent.step == step)
        r = &p->lent;
    if (!r)
        return error_set(WEFT_EINVAL, "weft_commit: step %lld has not been put, or has gone", (long long)step);
    int64_t until = deadline_in(p->bus->deadline_ns);
    int err = show_part(p, r, meta, until);
    if (!err)
        err = show_version(p, step, until, &done);
    if (!err)
        job_metrics_commit(&p->bus->metrics, step);
    if (done && !p->swept)
        publish_sweep(p, until);
    if (!err && visible)
        *visible = done;
    return err;
}
