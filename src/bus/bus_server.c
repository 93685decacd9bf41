#define _GNU_SOURCE
#include "bus/bus_server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "base/wheel.h"
#include "bus/book.h"
#include "bus/bus_message.h"
#include "bus/journal.h"
#include "rendezvous/deadline.h"
#include "rendezvous/server.h"
#include "rendezvous/server_state.h"

#define AGAIN_NS                                                                                        \
    INT64_C(100000000) /* after which a lease that could not be ended for want of memory is tried again \
                        */
#define READERS "readers/"
#define READERS_SHARE 2 /* readers get no more room when the directory is half full */

struct bus_server {
    struct server_service service; /* first */
    struct server *server;
    struct book book;
    struct wheel leases, waits; /* timers of leases, and of watches */
    struct list waiting;        /* clients with a watch that has nothing to tell yet */
    struct list ready;          /* clients whose reply can be made */
    struct journal journal;     /* path NULL: the state is not kept */
    _Atomic bool broken;        /* the journal could not be written; `why` is set before it */
    _Atomic bool stopping;      /* leases do not end with their connections any more */
    char why[256];
    size_t nwaiting;                 /* clients in `waiting` */
    struct bus_server_counts counts; /* of the server's thread */
    pthread_mutex_t lock;            /* of what follows */
    struct bus_server_counts shown;  /* `counts` at the end of the thread's last turn */
};

/* What the service keeps for a client. */
struct part {
    struct server_client *client;
    struct list node; /* in `waiting` or `ready` */
    struct wheel_timer timer;
    struct list leases; /* that end with it */
    bool watches;       /* its reply is that of a watch; otherwise that of a get */
    bool waits;         /* it is in `waiting` */
    int64_t changed_at; /* when the change came that it is told of; 0: it did not wait for it */
    int64_t after;
    char prefix[DIRECTORY_KEY_MAX + 1];
    struct book_record **got; /* what is left of a get: the records from `at` on, as they were at the revision */
    size_t ngot, at;
    int64_t revision;
};

struct lease {
    struct book_lease base; /* first */
    struct wheel_timer timer;
    struct part *owner; /* NULL: it waits for its owner to come back */
    struct list node;   /* in the owner's leases */
};

/* ---- counts ---- */

int64_t bus_server_bucket_ns(int i)
{
    int64_t ns = 100000;
    for (; i > 1; i -= 2)
        ns *= 10;
    return i ? 3 * ns : ns;
}

static void count_time(struct bus_server_times *t, int64_t ns)
{
    for (int i = 0; i < BUS_SERVER_BUCKETS; i++)
        if (ns <= bus_server_bucket_ns(i)) {
            t->buckets[i]++;
            break;
        }
    t->n++;
    t->ns += ns;
}

static bool is_broken(struct bus_server *s);

/* At the end of each turn of the server's thread. */
static void show_counts(struct bus_server *s)
{
    struct bus_server_counts *c = &s->counts;
    c->watches = s->nwaiting;
    c->leases = s->book.leases.used;
    c->keys = s->book.nkeys;
    c->key_bytes = s->book.bytes;
    c->broken = is_broken(s);
    pthread_mutex_lock(&s->lock);
    s->shown = *c;
    pthread_mutex_unlock(&s->lock);
}

void bus_server_counts(struct bus_server *s, struct bus_server_counts *out)
{
    struct server_counts n = {0};
    if (s->server)
        server_counts(s->server, &n); /* after it, `shown` is not older than this call */
    pthread_mutex_lock(&s->lock);
    *out = s->shown;
    pthread_mutex_unlock(&s->lock);
    out->connections = n.connections;
    out->requests = n.requests;
    out->sent = n.sent;
    out->received = n.received;
    out->cpu_ns = n.cpu_ns;
}

/* ---- replies ---- */

static void answer(struct bus_server *s, struct part *p, int code, int64_t number, const void *value, size_t bytes)
{
    p->client->waits = false;
    s->service.state->answer(s->service.state, p->client,
                             &(struct frame_reply){.code = code, .number = number, .value = value, .bytes = bytes});
}

static void refuse(struct bus_server *s, struct part *p, int code, const char *text)
{
    s->counts.refusals++;
    answer(s, p, code, 0, text, strlen(text));
}

/* The client waits no more for a change. */
static void end_wait(struct bus_server *s, struct part *p)
{
    list_remove(&p->node);
    wheel_remove(&s->waits, &p->timer);
    s->nwaiting -= p->waits;
    p->waits = false;
}

static void be_ready(struct bus_server *s, struct part *p)
{
    end_wait(s, p);
    p->client->waits = true;
    list_append(&s->ready, &p->node);
}

static void forget_got(struct part *p)
{
    for (size_t i = p->at; i < p->ngot; i++)
        book_drop(p->got[i]);
    free(p->got);
    p->got = NULL;
    p->ngot = p->at = 0;
}

/* Packs records behind the state and answers with them. */
static void answer_items(struct bus_server *s, struct part *p, enum bus_message_state state, int64_t number,
                         struct book_record *const *records, size_t n, size_t bytes)
{
    unsigned char *value = malloc(1 + bytes);
    if (!value) {
        refuse(s, p, WEFT_ENOMEM, "the directory is out of memory");
        return;
    }
    size_t at = 0;
    value[at++] = (unsigned char)state;
    for (size_t i = 0; i < n; i++) {
        struct directory_item item = book_item(records[i]);
        at += bus_message_put_item(value + at, &item);
    }
    answer(s, p, 0, number, value, at);
    free(value);
}

static size_t packed_size(const struct book_record *r)
{
    struct directory_item item = book_item(r);
    return bus_message_item_size(&item);
}

/* The next part of a get: as many keys as fit into a message. */
static void give_got(struct bus_server *s, struct part *p)
{
    size_t n = 0, bytes = 0, size;
    while (p->at + n < p->ngot && 1 + bytes + (size = packed_size(p->got[p->at + n])) <= FRAME_REPLY_MAX) {
        bytes += size;
        n++;
    }
    bool more = p->at + n < p->ngot;
    answer_items(s, p, more ? BUS_MESSAGE_MORE : BUS_MESSAGE_END, p->revision, n ? p->got + p->at : NULL, n, bytes);
    for (size_t i = 0; i < n; i++)
        book_drop(p->got[p->at + i]);
    p->at += n;
    if (!more)
        forget_got(p);
}

static bool concerns(const struct part *p, const struct book_record *r)
{
    return !strncmp(book_key(r), p->prefix, strlen(p->prefix));
}

/* All changes after p->after that concern the watch, or those of the first revisions if all do not fit. */
static void give_changes(struct bus_server *s, struct part *p)
{
    const struct book *b = &s->book;
    struct book_record **records = NULL;
    size_t first = book_log_after(b, p->after), n = 0, bytes = 0, whole = 0, whole_bytes = 0;
    int64_t told = b->revision;
    if (!book_remembers(b, p->after)) {
        answer_items(s, p, BUS_MESSAGE_LOST, b->revision, NULL, 0, 0);
        return;
    }
    if (first < b->log_n && !(records = malloc((b->log_n - first) * sizeof *records))) {
        refuse(s, p, WEFT_ENOMEM, "the directory is out of memory");
        return;
    }
    for (size_t i = first; i < b->log_n; i++) {
        struct book_record *r = book_logged(b, i);
        if (i > first && r->revision != book_logged(b, i - 1)->revision) {
            whole = n;
            whole_bytes = bytes;
        }
        if (!concerns(p, r))
            continue;
        if (1 + bytes + packed_size(r) > FRAME_REPLY_MAX) {
            told = records[whole - 1]->revision; /* one revision always fits: there is one before this one */
            n = whole;
            bytes = whole_bytes;
            break;
        }
        bytes += packed_size(r);
        records[n++] = r;
    }
    answer_items(s, p, BUS_MESSAGE_END, told, records, n, bytes);
    free(records);
}

static bool next(struct server_service *service)
{
    struct bus_server *s = (struct bus_server *)service;
    struct list *n = list_first(&s->ready);
    if (!n)
        return false;
    struct part *p = LIST_OF(n, struct part, node);
    list_remove(&p->node);
    if (p->watches)
        give_changes(s, p);
    else
        give_got(s, p);
    if (p->changed_at)
        count_time(&s->counts.deliveries, deadline_now() - p->changed_at);
    p->changed_at = 0;
    return true;
}

/* The directory has changed since that revision: the watches that it concerns are answered. */
static void tell(struct bus_server *s, int64_t since)
{
    const struct book *b = &s->book;
    size_t first = book_log_after(b, since);
    int64_t now = deadline_now();
    for (struct list *n = list_first(&s->waiting), *after; n && first < b->log_n; n = after) {
        struct part *p = LIST_OF(n, struct part, node);
        after = list_after(&s->waiting, n);
        for (size_t i = first; i < b->log_n; i++) {
            s->service.state->steps++;
            if (concerns(p, book_logged(b, i))) {
                p->changed_at = now;
                be_ready(s, p);
                break;
            }
        }
    }
}

/* ---- keeping ---- */

/* What came of a write to the journal. If it has failed, the book has what the journal has not: nobody is told of it,
 * and the server does nothing more. */
static bool kept(struct bus_server *s, int err)
{
    if (!err)
        (void)journal_tidy(&s->journal, &s->book); /* it can wait */
    if (!err)
        return true;
    snprintf(s->why, sizeof s->why, "%s", weft_errmsg());
    atomic_store_explicit(&s->broken, true, memory_order_release); /* pairs with bus_server_broken */
    return false;
}

static bool is_broken(struct bus_server *s) /* for the server's own thread */
{
    return atomic_load_explicit(&s->broken, memory_order_relaxed);
}

bool bus_server_broken(struct bus_server *s, char *text, size_t cap)
{
    bool broken = atomic_load_explicit(&s->broken, memory_order_acquire);
    if (broken)
        snprintf(text, cap, "%s", s->why);
    return broken;
}

/* ---- leases ---- */

static void own(struct lease *l, struct part *p)
{
    list_remove(&l->node);
    l->owner = p;
    if (p)
        list_append(&p->leases, &l->node);
}

static void set_timer(struct bus_server *s, struct lease *l, int64_t ns)
{
    wheel_remove(&s->leases, &l->timer);
    wheel_add(&s->leases, &l->timer, ns);
}

static void end_lease(struct bus_server *s, struct lease *l, int64_t now)
{
    int64_t before = s->book.revision, id = l->base.id;
    wheel_remove(&s->leases, &l->timer);
    own(l, NULL);
    if (!book_revoke(&s->book, &l->base))
        set_timer(s, l, now + AGAIN_NS);
    else if (!s->journal.path || kept(s, journal_revoke(&s->journal, id)))
        tell(s, before);
}

/* A reader may do something with leases of its own connection, and with those that wait for their owner. */
static bool may_have(const struct part *p, const struct lease *l)
{
    return (p->client->rights & BUS_MESSAGE_PUBLISHES) || !l->owner || l->owner == p;
}

static void grant(struct bus_server *s, struct part *p, int64_t ttl_ms, int64_t now)
{
    if (ttl_ms < DIRECTORY_TTL_MIN_NS / 1000000 || ttl_ms > DIRECTORY_TTL_MAX_NS / 1000000) {
        refuse(s, p, WEFT_EINVAL, "a lease lasts from 100 ms to a day");
        return;
    }
    struct lease *l = (struct lease *)book_grant(&s->book, 0, ttl_ms * 1000000);
    if (!l) {
        refuse(s, p, WEFT_ENOMEM, "the directory has no room for another lease");
        return;
    }
    own(l, p);
    s->counts.granted++;
    set_timer(s, l, now + l->base.ttl_ns);
    if (!s->journal.path || kept(s, journal_grant(&s->journal, l->base.id, l->base.ttl_ns)))
        answer(s, p, 0, l->base.id, NULL, 0);
    else
        refuse(s, p, WEFT_EIO, s->why);
}

static void renew_or_revoke(struct bus_server *s, struct part *p, bool renew, int64_t id, int64_t now)
{
    struct lease *l = (struct lease *)book_lease(&s->book, id);
    if (!l) {
        refuse(s, p, WEFT_EPEER, "");
    } else if (!may_have(p, l)) {
        refuse(s, p, WEFT_ETRANSPORT, "the lease belongs to another client, and the token here is one for reading");
    } else if (renew) {
        own(l, p);
        set_timer(s, l, now + l->base.ttl_ns);
        answer(s, p, 0, id, NULL, 0);
    } else {
        end_lease(s, l, now);
        answer(s, p, 0, id, NULL, 0);
    }
}

/* ---- transactions ---- */

/* May a reader make this change? NULL: yes, as far as the lease is still there. */
static const char *reader_may(struct bus_server *s, const struct part *p, const struct directory_change *c)
{
    const char *under = strstr(c->key, READERS);
    const struct book_record *old = book_find(&s->book, c->key);
    if (!under || (under != c->key && under[-1] != '/'))
        return "the token here is one for reading: it allows to change keys in a folder 'readers' only";
    if (c->erase && !old)
        return NULL;
    int64_t id = c->erase ? old->lease : c->lease;
    const struct lease *l = id ? (const struct lease *)book_lease(&s->book, id) : NULL;
    if (!id || (l && l->owner != p) || (old && old->lease != id))
        return "the token here is one for reading: it allows to change keys with a lease of this connection only";
    if (!c->erase &&
        (s->book.nkeys >= BOOK_KEYS_MAX / READERS_SHARE || s->book.bytes >= BOOK_BYTES_MAX / READERS_SHARE))
        return "the directory has no more room for readers";
    return NULL;
}

static const char *may_change(struct bus_server *s, const struct part *p, const struct directory_transaction *t)
{
    const char *why = NULL;
    for (size_t i = 0; i < t->nchanges && !why && !(p->client->rights & BUS_MESSAGE_PUBLISHES); i++)
        why = reader_may(s, p, &t->changes[i]);
    return why;
}

static bool transact(struct bus_server *s, struct part *p, const struct frame_request *r)
{
    struct bus_message_transaction m;
    if (!bus_message_take_transaction(r->value, r->bytes, &m))
        return false;
    int64_t before = s->book.revision, begun = deadline_now();
    const char *why = may_change(s, p, &m.t);
    if (why) {
        refuse(s, p, WEFT_ETRANSPORT, why);
        return true;
    }
    enum book_result result = book_transact(&s->book, &m.t, &why);
    if (s->book.revision > before && s->journal.path && !kept(s, journal_change(&s->journal, &m.t))) {
        refuse(s, p, WEFT_EIO, s->why);
        return true;
    }
    unsigned char done = result == BOOK_DONE;
    s->counts.changes += s->book.revision > before;
    s->counts.conflicts += result == BOOK_DIFFERS;
    if (s->book.revision > before)
        count_time(&s->counts.commits, deadline_now() - begun);
    switch (result) {
    case BOOK_DONE:
    case BOOK_DIFFERS: answer(s, p, 0, s->book.revision, &done, 1); break;
    case BOOK_NO_LEASE: refuse(s, p, WEFT_EPEER, ""); break;
    case BOOK_FULL: refuse(s, p, WEFT_ENOMEM, why); break;
    case BOOK_NOMEM: refuse(s, p, WEFT_ENOMEM, "the directory is out of memory"); break;
    }
    tell(s, before);
    return true;
}

/* ---- reading ---- */

static void get(struct bus_server *s, struct part *p)
{
    const struct book *b = &s->book;
    size_t first, end;
    forget_got(p);
    book_range(b, p->prefix, &first, &end);
    p->revision = b->revision;
    if (end > first && !(p->got = malloc((end - first) * sizeof *p->got))) {
        refuse(s, p, WEFT_ENOMEM, "the directory is out of memory");
        return;
    }
    for (size_t i = first; i < end; i++)
        p->got[p->ngot++] = book_hold(b->keys[i]);
    p->watches = false;
    be_ready(s, p);
}

static void watch(struct bus_server *s, struct part *p, uint32_t wait_ms, int64_t now)
{
    const struct book *b = &s->book;
    p->watches = true;
    bool some = !book_remembers(b, p->after);
    for (size_t i = book_log_after(b, p->after); i < b->log_n && !some; i++)
        some = concerns(p, book_logged(b, i));
    if (some) {
        be_ready(s, p);
        return;
    }
    p->client->waits = p->waits = true;
    s->nwaiting++;
    list_append(&s->waiting, &p->node);
    wheel_add(&s->waits, &p->timer,
              now + (int64_t)(wait_ms < BUS_SERVER_WATCH_MS ? wait_ms : BUS_SERVER_WATCH_MS) * 1000000);
}

/* ---- the service ---- */

static struct part *part_of(struct server_client *c)
{
    struct part *p = c->part;
    if (p || !(p = calloc(1, sizeof *p)))
        return p;
    p->client = c;
    list_begin(&p->leases);
    c->part = p;
    return p;
}

static bool ask(struct server_service *service, struct server_client *c, const struct frame_request *r, int64_t now)
{
    struct bus_server *s = (struct bus_server *)service;
    struct part *p = part_of(c);
    if (!p)
        return false;
    if (is_broken(s)) {
        refuse(s, p, WEFT_EIO, s->why);
        return true;
    }
    bool goes_on = r->op == FRAME_DIRECTORY_GET && r->number == 1;
    if (!goes_on)
        forget_got(p);
    if ((r->op == FRAME_DIRECTORY_GET && !goes_on) || r->op == FRAME_DIRECTORY_WATCH) {
        memcpy(p->prefix, r->key, r->key_len);
        p->prefix[r->key_len] = 0;
    }
    switch (r->op) {
    case FRAME_DIRECTORY_GET:
        if (goes_on && !p->got)
            return false;
        if (goes_on)
            be_ready(s, p);
        else
            get(s, p);
        return true;
    case FRAME_DIRECTORY_WATCH:
        p->after = r->number;
        watch(s, p, r->wait_ms, now);
        return true;
    case FRAME_DIRECTORY_GRANT: grant(s, p, r->number, now); return true;
    case FRAME_DIRECTORY_RENEW: renew_or_revoke(s, p, true, r->number, now); return true;
    case FRAME_DIRECTORY_REVOKE: renew_or_revoke(s, p, false, r->number, now); return true;
    case FRAME_DIRECTORY_TRANSACT: return transact(s, p, r);
    default: return false;
    }
}

static void leave(struct server_service *service, struct server_client *c)
{
    struct bus_server *s = (struct bus_server *)service;
    struct part *p = c->part;
    if (!p)
        return;
    c->part = NULL;
    end_wait(s, p);
    forget_got(p);
    /* Relaxed: server_stop, which comes after the store, lets the thread see it. */
    bool stay = atomic_load_explicit(&s->stopping, memory_order_relaxed) || is_broken(s);
    for (struct list *n; (n = list_first(&p->leases));) {
        struct lease *l = LIST_OF(n, struct lease, node);
        if (stay) {
            own(l, NULL);
        } else {
            s->counts.lapsed++;
            end_lease(s, l, deadline_now());
        }
    }
    free(p);
}

static int64_t expire(struct server_service *service, int64_t now)
{
    struct bus_server *s = (struct bus_server *)service;
    for (struct wheel_timer *t; (t = wheel_pop(&s->waits, now));) {
        struct part *p = LIST_OF(t, struct part, timer);
        end_wait(s, p);
        answer_items(s, p, BUS_MESSAGE_END, s->book.revision, NULL, 0, 0);
    }
    for (struct wheel_timer *t; !is_broken(s) && (t = wheel_pop(&s->leases, now));) {
        s->counts.lapsed++;
        end_lease(s, LIST_OF(t, struct lease, timer), now);
    }
    show_counts(s);
    return is_broken(s) ? wheel_next(&s->waits) : min64(wheel_next(&s->waits), wheel_next(&s->leases));
}

/* ---- starting and stopping ---- */

/* A directory that begins anew has larger revisions than one that was there before, so that neither a watch nor a
 * compare of a client that has known the old one takes it for the same. */
static int64_t first_revision(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Leases that were kept wait for their owners. */
static void await_owners(struct bus_server *s)
{
    int64_t now = deadline_now();
    for (size_t i = 0; i < s->book.leases.nbuckets; i++)
        for (struct table_node *n = s->book.leases.buckets[i]; n; n = n->next) {
            struct lease *l = (struct lease *)LIST_OF(n, struct book_lease, node);
            set_timer(s, l, now + l->base.ttl_ns);
        }
}

int bus_server_make(const struct bus_server_opts *opts, struct bus_server **out)
{
    struct bus_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_nomem();
    s->service = (struct server_service){.ask = ask, .next = next, .leave = leave, .expire = expire};
    list_begin(&s->waiting);
    list_begin(&s->ready);
    pthread_mutex_init(&s->lock, NULL);
    book_begin(&s->book, first_revision(), sizeof(struct lease));
    int err = opts->keep ? journal_open(&s->journal, opts->keep, &s->book, s->book.revision, true, true) : 0;
    if (err) {
        bus_server_stop(s);
        return err;
    }
    await_owners(s);
    *out = s;
    return 0;
}

struct server_service *bus_server_service(struct bus_server *s)
{
    return &s->service;
}

int bus_server_start(int listener, const struct bus_server_opts *opts, struct bus_server **out)
{
    struct server_token tokens[] = {{opts->publish_token, BUS_MESSAGE_READS | BUS_MESSAGE_PUBLISHES},
                                    {opts->read_token, BUS_MESSAGE_READS}};
    struct bus_server *s;
    int err = bus_server_make(opts, &s);
    if (err) {
        forks_close(listener);
        return err;
    }
    err = server_start_service(listener, tokens, opts->read_token ? 2 : 1, &s->service, &s->server);
    if (err) {
        bus_server_stop(s);
        return err;
    }
    *out = s;
    return 0;
}

void bus_server_stop(struct bus_server *s)
{
    if (!s)
        return;
    struct error_text text;
    error_keep(&text);
    atomic_store_explicit(&s->stopping, true, memory_order_relaxed);
    if (s->server)
        server_stop(s->server, deadline_now());
    book_end(&s->book, NULL, NULL);
    if (s->journal.path)
        journal_close(&s->journal);
    pthread_mutex_destroy(&s->lock);
    error_restore(&text);
    free(s);
}
