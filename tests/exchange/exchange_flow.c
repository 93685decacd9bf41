#define _GNU_SOURCE
#include "exchange_flow.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "support/random.h"
#include "support/unwatched.h"

uint64_t flow_hash(uint64_t seed, int a, int b, int c, int d)
{
    return hash_u64(hash_u64(seed, (uint64_t)a << 32 | (uint32_t)b), (uint64_t)c << 32 | (uint32_t)d);
}

enum { FLOW_WORDS = 64 };

/* Some words of the sequence, from the one with number `first` on. */
UNWATCHED static void flow_words(uint64_t words[FLOW_WORDS], size_t first, uint64_t key, uint64_t number)
{
    for (size_t i = 0; i < FLOW_WORDS; i++)
        words[i] = first + i ? key + (first + i) * UINT64_C(0x9e3779b97f4a7c15) : number;
}

void flow_fill(unsigned char *to, size_t bytes, uint64_t key, uint64_t number)
{
    uint64_t words[FLOW_WORDS];
    for (size_t i = 0; i < bytes; i += sizeof words) {
        flow_words(words, i / sizeof *words, key, number);
        memcpy(to + i, words, bytes - i < sizeof words ? bytes - i : sizeof words);
    }
}

bool flow_same(const unsigned char *is, size_t bytes, uint64_t key, uint64_t number)
{
    uint64_t words[FLOW_WORDS];
    values_begin();
    for (size_t i = 0; i < bytes; i += sizeof words) {
        size_t n = bytes - i < sizeof words ? bytes - i : sizeof words;
        flow_words(words, i / sizeof *words, key, number);
        if (!memcmp(is + i, words, n))
            continue;
        for (size_t k = 0; k < n; k++)
            VALUES_CHECK(i + k, is[i + k], ((const unsigned char *)words)[k]);
    }
    return !values_wrong();
}

struct flow_rank {
    struct ranks_rank *r;
    const struct flow *f;
    weft_exchange *x;
    int from[RANKS_MAX], to[RANKS_MAX], nfrom, nto;
    int next[RANKS_MAX][8]; /* message that is expected from a rank and one of its threads */
    void **kept;            /* payloads of this round */
    int nkept, cap;
    pthread_mutex_t lock; /* of kept */
    atomic_int hooked;    /* buffers that are out */
};

static uint64_t flow_key(const struct flow *f, int from, int to, int round, int k)
{
    return flow_hash(f->seed, from, to, round, k) * 2;
}

static void *flow_hook(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes)
{
    struct flow_rank *me = arg;
    (void)from, (void)meta, (void)meta_bytes;
    if (atomic_fetch_add(&me->hooked, 1) % 3 == 1) /* now and then there is none */
        return NULL;
    return malloc(bytes);
}

static void *flow_payload(struct flow_rank *me, size_t bytes)
{
    void *p = NULL;
    if (!bytes)
        return NULL;
    if (me->f->window) {
        if (weft_comm_alloc(me->r->comm, bytes, WEFT_MEMORY_HOST, 0, &p))
            return NULL;
    } else {
        p = malloc(bytes);
    }
    return p;
}

static void flow_payload_free(struct flow_rank *me, void *p)
{
    if (me->f->window)
        weft_comm_free(me->r->comm, p);
    else
        free(p);
}

/* A payload that may change at once is changed at once; another is kept until the round is complete. */
static bool flow_keep(struct flow_rank *me, void *p, size_t bytes)
{
    if (bytes <= WEFT_EXCHANGE_SMALL) {
        if (p)
            memset(p, 0xee, bytes);
        flow_payload_free(me, p);
        return true;
    }
    pthread_mutex_lock(&me->lock);
    if (me->nkept == me->cap) {
        me->cap = me->cap ? 2 * me->cap : 16;
        void **more = realloc(me->kept, (size_t)me->cap * sizeof *more);
        if (!more)
            abort();
        me->kept = more;
    }
    me->kept[me->nkept++] = p;
    pthread_mutex_unlock(&me->lock);
    return true;
}

static int flow_put(struct flow_rank *me, int to, int round, int k)
{
    const struct flow *f = me->f;
    unsigned char meta[1 << 16];
    int from = me->r->rank;
    size_t bytes = f->bytes(f, from, to, round, k), meta_bytes = f->meta(f, from, to, round, k);
    uint64_t key = flow_key(f, from, to, round, k);
    unsigned char *payload = flow_payload(me, bytes);
    if (bytes && !payload)
        return WEFT_ENOMEM;
    flow_fill(payload, bytes, key, (uint64_t)k);
    flow_fill(meta, meta_bytes, key + 1, (uint64_t)k);
    int err = weft_exchange_put(me->x, to, meta_bytes ? meta : NULL, meta_bytes, payload, bytes);
    memset(meta, 0xee, meta_bytes);
    flow_keep(me, payload, bytes);
    return err;
}

struct flow_thread {
    struct flow_rank *me;
    int number, round, err;
    char text[256];
};

static void *flow_thread(void *arg)
{
    struct flow_thread *t = arg;
    const struct flow *f = t->me->f;
    int step = f->threads ? f->threads : 1;
    for (int i = 0; i < t->me->nto && !t->err; i++)
        for (int k = t->number; k < f->count(f, t->me->r->rank, t->me->to[i], t->round) && !t->err; k += step)
            t->err = flow_put(t->me, t->me->to[i], t->round, k);
    if (t->err)
        snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    return NULL;
}

static void flow_send(struct flow_rank *me, int round)
{
    struct flow_thread t[8];
    pthread_t threads[8];
    int n = me->f->threads ? me->f->threads : 1;
    for (int i = 0; i < n; i++) {
        t[i] = (struct flow_thread){.me = me, .number = i, .round = round};
        if (!me->f->threads)
            flow_thread(&t[i]);
        else if (pthread_create(&threads[i], NULL, flow_thread, &t[i]))
            abort();
    }
    for (int i = 0; i < n && me->f->threads; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++)
        RANKS_CHECK(me->r, !t[i].err || (ranks_note(me->r, __FILE__, __LINE__, "put: %s", t[i].text), false));
}

/* A message is the next one of its sender, or of one of its sender's threads, which its metadata or payload name. */
static void flow_check(struct flow_rank *me, const weft_message *m, int round)
{
    const struct flow *f = me->f;
    int step = f->threads ? f->threads : 1, thread = 0, here = me->r->rank;
    RANKS_CHECK(me->r, m->from >= 0 && m->from < me->r->size && m->round == (uint64_t)round);
    RANKS_CHECK(me->r, (m->meta != NULL) == (m->meta_bytes > 0) && (m->payload != NULL) == (m->bytes > 0));
    if (step > 1) {
        uint64_t number;
        RANKS_CHECK(me->r, m->meta_bytes >= 8);
        memcpy(&number, m->meta, 8);
        thread = (int)(number % (uint64_t)step);
    }
    int k = me->next[m->from][thread];
    uint64_t key = flow_key(f, m->from, here, round, k);
    RANKS_CHECK(me->r, k < f->count(f, m->from, here, round));
    RANKS_CHECK(me->r, m->bytes == f->bytes(f, m->from, here, round, k));
    RANKS_CHECK(me->r, m->meta_bytes == f->meta(f, m->from, here, round, k));
    RANKS_CHECK(me->r, flow_same(m->payload, m->bytes, key, (uint64_t)k));
    RANKS_CHECK(me->r, flow_same(m->meta, m->meta_bytes, key + 1, (uint64_t)k));
    me->next[m->from][thread] += step;
}

/* Takes all that there is, from one rank after the other or from anyone. */
static void flow_take(struct flow_rank *me, int round)
{
    for (int i = round % 2 ? 0 : -1; i < (round % 2 ? me->nfrom : 0); i++)
        for (weft_message *m = NULL;;) {
            RANKS_OK(me->r, weft_exchange_take(me->x, i < 0 ? -1 : me->from[i], &m));
            if (!m)
                break;
            flow_check(me, m, round);
            if (me->f->hook)
                free(m->payload);
            weft_message_free(m);
            if (me->r->failed[0])
                return;
        }
}

static void flow_expect_all(struct flow_rank *me, int round)
{
    const struct flow *f = me->f;
    int step = f->threads ? f->threads : 1;
    for (int i = 0; i < me->nfrom; i++) {
        int count = f->count(f, me->from[i], me->r->rank, round);
        for (int t = 0; t < step; t++) {
            int k = me->next[me->from[i]][t];
            RANKS_CHECK(me->r, k >= count && k - step < count);
        }
    }
}

static void flow_round(struct flow_rank *me, int round)
{
    const struct flow *f = me->f;
    bool complete = false, last = round == f->rounds - 1;
    for (int p = 0; p < RANKS_MAX; p++)
        for (int t = 0; t < 8; t++)
            me->next[p][t] = t;
    flow_send(me, round);
    if (me->r->failed[0])
        return;
    RANKS_OK(me->r, weft_exchange_finish(me->x, last));
    while (f->early && !complete && !me->r->failed[0]) {
        RANKS_OK(me->r, weft_exchange_test(me->x, &complete));
        flow_take(me, round);
    }
    RANKS_OK(me->r, weft_exchange_wait(me->x, WEFT_FOREVER));
    RANKS_CHECK(me->r, weft_exchange_over(me->x) == (f->vote && last));
    flow_take(me, round);
    if (!me->r->failed[0])
        flow_expect_all(me, round);
    while (me->nkept)
        flow_payload_free(me, me->kept[--me->nkept]);
}

static void flow_lists(struct flow_rank *me)
{
    const struct flow *f = me->f;
    int n = me->r->size, here = me->r->rank;
    for (int p = 0; p < n; p++) {
        if (p != here && f->edge(f, n, p, here))
            me->from[me->nfrom++] = p;
        if (p != here && f->edge(f, n, here, p))
            me->to[me->nto++] = p;
    }
}

void flow_body(struct ranks_rank *r)
{
    const struct flow *f = r->arg;
    struct flow_rank *me = calloc(1, sizeof *me);
    weft_exchange_info info = {.size = sizeof info};
    if (!me)
        abort();
    me->r = r;
    me->f = f;
    pthread_mutex_init(&me->lock, NULL);
    flow_lists(me);
    weft_exchange_opts o = {
        .size = sizeof o, .budget = f->budget, .vote = f->vote, .buffer = f->hook ? flow_hook : NULL, .arg = me};
    if (weft_exchange_open(r->comm, me->from, (size_t)me->nfrom, me->to, (size_t)me->nto, &o, &me->x))
        ranks_note(r, __FILE__, __LINE__, "open: %s", weft_errmsg());
    for (int round = 0; round < f->rounds && !r->failed[0]; round++)
        flow_round(me, round);
    if (!r->failed[0] && weft_exchange_stats(me->x, &info))
        ranks_note(r, __FILE__, __LINE__, "%s", weft_errmsg());
    if (!r->failed[0] && (info.rounds != (uint64_t)f->rounds || info.inflight_peak > info.budget || info.untaken))
        ranks_note(r, __FILE__, __LINE__, "%lld rounds, %lld bytes in flight, %lld not taken", (long long)info.rounds,
                   (long long)info.inflight_peak, (long long)info.untaken);
    weft_exchange_close(me->x);
    pthread_mutex_destroy(&me->lock);
    while (me->nkept)
        flow_payload_free(me, me->kept[--me->nkept]);
    free(me->kept);
    free(me);
}

/* ---- parts of flows ---- */

bool flow_ring(const struct flow *f, int n, int from, int to)
{
    (void)f;
    return to == (from + 1) % n;
}

bool flow_line(const struct flow *f, int n, int from, int to)
{
    (void)f, (void)n;
    return to == from + 1 || to == from - 1;
}

bool flow_all(const struct flow *f, int n, int from, int to)
{
    (void)f, (void)n;
    return from != to;
}

size_t flow_small(const struct flow *f, int from, int to, int round, int k)
{
    return flow_hash(f->seed + 7, from, to, round, k) % 100;
}

size_t flow_none(const struct flow *f, int from, int to, int round, int k)
{
    (void)f, (void)from, (void)to, (void)round, (void)k;
    return 0;
}

size_t flow_word(const struct flow *f, int from, int to, int round, int k)
{
    (void)f, (void)from, (void)to, (void)round, (void)k;
    return 8;
}
