/* Committing: this rank's part of a version, and the version's record if it is the last one. */
#include <stdlib.h>
#include <string.h>

#include "base/blake2s.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/publish.h"

#define COMPARED (DIRECTORY_CHANGES_MAX - 2) /* parts: beside the fence and the version */

/* Numbers by which the ranks that hold replicas of a piece weigh their digests: they add up to 0. So the sketches of
 * all ranks add up to 0 if all replicas are equal. If some differ, they do so with a probability of about 2^-64 for
 * each of the two words, since the digests are mixed before. */
static uint64_t weight(uint64_t seed, int64_t replica, int64_t replicas)
{
    uint64_t w = 0;
    if (replica)
        return hash_u64(seed, (uint64_t)replica);
    for (int64_t i = 1; i < replicas; i++)
        w -= hash_u64(seed, (uint64_t)i);
    return w;
}

/* The replicas of what a mesh position has: how many, which one this is, and the position of the first. */
struct replicas {
    int64_t n, number, first;
};

static struct replicas replicas_of_mesh(const weft_layout *l, int64_t index)
{
    struct replicas r = {1, 0, index};
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role == LAYOUT_FREE) {
            int64_t c = layout_coord(l, index, a);
            r.number = r.number * l->axis[a].size + c;
            r.n *= l->axis[a].size;
            r.first -= c * l->axis[a].stride;
        }
    return r;
}

/* Of boxes: the ranks that have the same boxes in the same order. Packed, these have the same bytes. */
static struct replicas replicas_of_boxes(const struct box_list *b, int64_t index)
{
    struct replicas r = {b->shared ? 0 : 1, 0, index};
    size_t n = b->first[index + 1] - b->first[index], dims = (size_t)b->ndim;
    for (size_t h = 0; h < b->holders && b->shared; h++) {
        if (b->first[h + 1] - b->first[h] != n ||
            memcmp(b->at + b->first[h] * dims, b->at + b->first[index] * dims, n * dims * sizeof *b->at) ||
            memcmp(b->len + b->first[h] * dims, b->len + b->first[index] * dims, n * dims * sizeof *b->len))
            continue;
        r.first = r.n ? r.first : (int64_t)h;
        r.number += (int64_t)h < index;
        r.n++;
    }
    return r;
}

static void sketch(const weft_publisher *p, const struct publish_ring *r, uint64_t out[2])
{
    out[0] = out[1] = 0;
    for (size_t i = 0; i < p->schema->n && p->digests; i++) {
        const weft_layout *l = p->schema->v[i].layout;
        int64_t index = mesh_index(l, p->rank);
        if (index < 0 || !p->part.v[i].bytes)
            continue;
        struct replicas x = l->boxes ? replicas_of_boxes(l->boxes, index) : replicas_of_mesh(l, index);
        size_t blocks = (size_t)ceil_div(p->part.v[i].bytes, SCHEMA_BLOCK);
        for (size_t b = 0; b < blocks && x.n > 1; b++)
            for (uint64_t k = 0; k < 2; k++) {
                uint64_t seed = hash_u64(hash_u64(hash_u64(k + 1, i), (uint64_t)x.first), b);
                out[k] += weight(seed, x.number, x.n) * hash_u64(k, r->sums[p->part.v[i].block + b]);
            }
    }
}

static int show_part(weft_publisher *p, struct publish_ring *r, const char *meta, int64_t until)
{
    char key[RECORD_KEY], *record = malloc(WEFT_BUS_META + 512);
    unsigned char hash[CATALOG_PART], words[16];
    uint64_t sums[2];
    struct blake2s b;
    bool done;
    if (!record)
        return error_nomem();
    blake2s_begin(&b, CATALOG_PART, NULL, 0);
    blake2s_add(&b, r->sums, p->digests ? p->part.blocks * sizeof *r->sums : 0);
    blake2s_end(&b, hash);
    sketch(p, r, sums);
    memcpy(words, sums, sizeof words);
    struct text t = text_start(record, WEFT_BUS_META + 512);
    text_printf(&t, "generation %llu\ndigests %d\n", (unsigned long long)r->generation, p->digests);
    record_hex(&t, "hash", hash, sizeof hash);
    record_hex(&t, "sketch", words, sizeof words);
    text_printf(&t, "meta %s", p->rank == 0 && meta ? meta : "");
    publish_part_key(p, r->step, key);
    /* Readers may ask for it as soon as the version is there, so it is shown first. */
    pthread_mutex_lock(&p->lock);
    r->state = PUBLISH_SHOWN;
    pthread_mutex_unlock(&p->lock);
    struct directory_change x = {.key = key, .value = record, .bytes = t.len, .lease = KEEPER_LEASE};
    int err = publish_change(p, NULL, 0, &x, 1, until, &done);
    if (!err)
        err = keeper_keep(&p->bus->keeper, key, record, t.len, true, &p->fence);
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
    if (!err && visible)
        *visible = done;
    return err;
}
