#define _POSIX_C_SOURCE 200809L
#include "rendezvous/server_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/math.h"

#define SMALL 1024                  /* bytes of a value that is given at once */
#define LATE_NS INT64_C(1000000000) /* for which a text about missing ranks is given to other clients, too */

/* One store: the clients that opened the same name, one for each rank. A second open of a rank belongs to the next
 * session of that name. */
struct server_session {
    struct server_name *name; /* NULL: all ranks have joined */
    struct list node;         /* in the name */
    int size, joined;
    int64_t began;
    bool *here;
    struct list clients;
    uint64_t id[2]; /* random, when all ranks have joined */
    struct server_keys keys;
    char *late; /* which ranks are missing, and until when this text will do */
    int64_t late_until;
};

/* A name, as long as sessions of it form; the oldest one first. */
struct server_name {
    struct table_node node;
    struct list sessions;
    char text[STORE_NAME_MAX + 1];
};

/* ---- replies ---- */

/* The client does not wait any more. */
static void stop_waiting(struct server_state *d, struct server_client *c)
{
    struct server_entry *e = c->entry;
    struct server_prefix *p = c->prefix;
    list_remove(&c->waiting);
    wheel_remove(&d->wheel, &c->timer);
    c->waits = false;
    c->entry = NULL;
    c->prefix = NULL;
    if (e)
        server_keys_spare_entry(&c->session->keys, e);
    if (p)
        server_keys_spare_prefix(&c->session->keys, p);
}

static void wait_at(struct server_state *d, struct server_client *c, struct list *where, int64_t until)
{
    c->waits = true;
    list_append(where, &c->waiting);
    wheel_add(&d->wheel, &c->timer, until);
}

/* The client's reply can be made, and it is large: the caller of the state says when. */
static void be_ready(struct server_state *d, struct server_client *c)
{
    d->steps++;
    list_remove(&c->waiting);
    wheel_remove(&d->wheel, &c->timer);
    c->waits = true;
    list_append(&d->ready, &c->waiting);
}

static void give(struct server_state *d, struct server_client *c, int code, int64_t number, const void *value,
                 size_t bytes)
{
    d->steps++;
    d->answer(d, c, &(struct frame_reply){.code = code, .number = number, .value = value, .bytes = bytes});
    stop_waiting(d, c); /* after the answer: it may free what the client has waited for, and the text with it */
}

static void refuse(struct server_state *d, struct server_client *c, int code, const char *text)
{
    give(d, c, code, 0, text, strlen(text));
}

/* ---- sessions ---- */

static struct server_name *name_get(struct server_state *d, const char *text, size_t len)
{
    struct table_node *n = table_find(&d->forming, text, len);
    if (n)
        return LIST_OF(n, struct server_name, node);
    struct server_name *name = calloc(1, sizeof *name);
    if (!name)
        return NULL;
    memcpy(name->text, text, len);
    list_begin(&name->sessions);
    if (!table_put(&d->forming, &name->node, name->text, len)) {
        free(name);
        return NULL;
    }
    return name;
}

static void name_drop_unused(struct server_state *d, struct server_name *name)
{
    if (!list_empty(&name->sessions))
        return;
    table_remove(&d->forming, &name->node);
    free(name);
}

/* The session forms no more: all ranks have joined, or none is left. */
static void leave_name(struct server_state *d, struct server_session *s)
{
    struct server_name *name = s->name;
    if (!name)
        return;
    s->name = NULL;
    list_remove(&s->node);
    name_drop_unused(d, name);
}

static struct server_session *session_new(struct server_state *d, struct server_name *name, int size, int64_t now)
{
    struct server_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->here = calloc((size_t)size, sizeof *s->here);
    if (!s->here) {
        free(s);
        return NULL;
    }
    s->size = size;
    s->began = now;
    s->name = name;
    server_keys_begin(&s->keys, size, d->forming.seed, &d->bytes, &d->steps);
    list_begin(&s->clients);
    list_append(&name->sessions, &s->node);
    d->sessions++;
    return s;
}

static void session_free(struct server_state *d, struct server_session *s)
{
    leave_name(d, s);
    server_keys_end(&s->keys);
    d->steps += s->keys.entries.steps + s->keys.prefixes.steps;
    d->sessions--;
    free(s->late);
    free(s->here);
    free(s);
}

static bool is_here(void *arg, int rank)
{
    return ((struct server_session *)arg)->here[rank];
}

/* The oldest session of the name that the rank has not joined yet. There is more than one only if ranks open a store of
 * a name again before all have opened the one before. */
static struct server_session *session_for(struct server_state *d, const struct server_name *name, int rank)
{
    for (struct list *n = list_first(&name->sessions); n; n = list_after(&name->sessions, n)) {
        struct server_session *s = LIST_OF(n, struct server_session, node);
        d->steps++;
        if (rank >= s->size || !s->here[rank])
            return s;
    }
    return NULL;
}

static void all_joined(struct server_state *d, struct server_session *s)
{
    leave_name(d, s);
    if (getrandom(s->id, sizeof s->id, 0) != (ssize_t)sizeof s->id)
        memset(s->id, 0, sizeof s->id);
    for (struct list *n = list_first(&s->clients); n; n = list_after(&s->clients, n))
        give(d, LIST_OF(n, struct server_client, node), 0, d->served_by, s->id, sizeof s->id);
}

static void disagree(struct server_state *d, struct server_session *s, struct server_client *c, const char *text)
{
    refuse(d, c, WEFT_EMISMATCH, text);
    for (struct list *n = list_first(&s->clients); n; n = list_after(&s->clients, n)) {
        struct server_client *w = LIST_OF(n, struct server_client, node);
        if (w->waits)
            refuse(d, w, WEFT_EMISMATCH, text);
    }
}

static bool join(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    uint64_t number = (uint64_t)r->number;
    uint32_t rank = (uint32_t)number, size = (uint32_t)(number >> 32);
    char text[256];
    if (size < 1 || size > STORE_RANKS_MAX || rank >= size)
        return false;
    struct server_name *name = name_get(d, r->key, r->key_len);
    struct server_session *s = name ? session_for(d, name, (int)rank) : NULL;
    if (s && s->size != (int)size) {
        snprintf(text, sizeof text, "rank %u says that there are %u ranks, others say %d", rank, size, s->size);
        disagree(d, s, c, text);
        return true;
    }
    if (name && !s && d->room && !d->room(d, (int)size, text, sizeof text)) {
        name_drop_unused(d, name);
        refuse(d, c, WEFT_ETRANSPORT, text);
        return true;
    }
    if (name && !s)
        s = session_new(d, name, (int)size, now);
    if (!s) {
        if (name)
            name_drop_unused(d, name);
        refuse(d, c, WEFT_ENOMEM, "the store is out of memory");
        return true;
    }
    s->here[rank] = true;
    s->joined++;
    c->session = s;
    c->rank = (int)rank;
    list_append(&s->clients, &c->node);
    d->clients++;
    c->waits = true;
    wheel_add(&d->wheel, &c->timer, now + (int64_t)r->wait_ms * 1000000);
    if (s->joined == s->size)
        all_joined(d, s);
    return true;
}

void server_state_leave(struct server_state *d, struct server_client *c)
{
    struct server_session *s = c->session;
    if (d->service)
        d->service->leave(d->service, c);
    if (!s)
        return;
    stop_waiting(d, c);
    list_remove(&c->node);
    d->clients--;
    if (s->joined < s->size) {
        s->here[c->rank] = false;
        s->joined--;
    }
    *c = (struct server_client){.session = NULL};
    if (list_empty(&s->clients))
        session_free(d, s);
}

bool server_state_joining(const struct server_client *c)
{
    return c->session && c->waits && !c->entry && !c->prefix;
}

/* ---- requests ---- */

static void give_value(struct server_state *d, struct server_client *c, struct server_entry *e)
{
    c->entry = e;
    if (e->bytes > SMALL)
        be_ready(d, c);
    else
        give(d, c, 0, 0, e->value, e->bytes);
}

static void set(struct server_state *d, struct server_client *c, const struct frame_request *r)
{
    struct server_prefix *whole;
    const char *why;
    struct server_entry *e = server_keys_set(&c->session->keys, r, &whole, &why);
    if (!e) {
        refuse(d, c, WEFT_ENOMEM, why);
        return;
    }
    give(d, c, 0, 0, NULL, 0);
    for (struct list *n; (n = list_first(&e->waiting));)
        give_value(d, LIST_OF(n, struct server_client, waiting), e);
    for (struct list *n; whole && (n = list_first(&whole->waiting));)
        be_ready(d, LIST_OF(n, struct server_client, waiting));
}

static void get(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    struct server_keys *k = &c->session->keys;
    struct server_entry *e = server_keys_entry(k, r->key, r->key_len, false);
    if (e && e->value) {
        give_value(d, c, e);
    } else if (!r->wait_ms) {
        refuse(d, c, WEFT_ETIMEOUT, "");
    } else if (!e && !(e = server_keys_entry(k, r->key, r->key_len, true))) {
        refuse(d, c, WEFT_ENOMEM, "the store is out of memory");
    } else {
        c->entry = e;
        wait_at(d, c, &e->waiting, now + (int64_t)r->wait_ms * 1000000);
    }
}

static void give_parts(struct server_state *d, struct server_client *c, struct server_prefix *p)
{
    struct server_keys *k = &c->session->keys;
    const struct server_chunk *chunk = server_keys_chunk(k, p, c->first);
    if (!chunk) {
        refuse(d, c, WEFT_ENOMEM, "the store is out of memory");
        return;
    }
    give(d, c, 0, chunk->count, chunk->packed, chunk->bytes);
    server_keys_given(k, p, chunk);
}

bool server_state_next(struct server_state *d)
{
    struct list *n = list_first(&d->ready);
    if (d->service)
        return d->service->next(d->service);
    if (!n)
        return false;
    struct server_client *c = LIST_OF(n, struct server_client, waiting);
    if (c->entry)
        give(d, c, 0, 0, c->entry->value, c->entry->bytes);
    else
        give_parts(d, c, c->prefix);
    return true;
}

static bool gather(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    struct server_session *s = c->session;
    if (r->number < 0 || r->number >= s->size || r->key_len + sizeof "/65535" > STORE_KEY_MAX + 1)
        return false;
    struct server_prefix *p = server_keys_prefix(&s->keys, r->key, r->key_len, false);
    c->first = (int)r->number;
    if (p && p->here == s->size) {
        c->prefix = p;
        be_ready(d, c);
    } else if (!r->wait_ms) {
        refuse(d, c, WEFT_ETIMEOUT, p ? server_keys_missing(&s->keys, p, now) : "no rank has set its value in time");
    } else if (!p && !(p = server_keys_prefix(&s->keys, r->key, r->key_len, true))) {
        refuse(d, c, WEFT_ENOMEM, "the store is out of memory");
    } else {
        c->prefix = p;
        wait_at(d, c, &p->waiting, now + (int64_t)r->wait_ms * 1000000);
    }
    return true;
}

/* What the tables of a session have cost. */
static void count_steps(struct server_state *d, struct server_session *s)
{
    d->steps += s->keys.entries.steps + s->keys.prefixes.steps;
    s->keys.entries.steps = s->keys.prefixes.steps = 0;
}

bool server_state_ask(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    if (!d->ready.next)
        list_begin(&d->ready);
    bool served = r->op >= FRAME_DIRECTORY_GET; /* by a service */
    if (c->waits || (served ? c->session != NULL : (r->op == FRAME_JOIN) != !c->session))
        return false;
    d->requests++;
    if (served && d->service)
        return d->service->ask(d->service, c, r, now);
    if (served || (r->op == FRAME_JOIN && d->service)) {
        refuse(d, c, WEFT_EINVAL,
               served ? "a store is served here, and no directory" : "a directory is served here, and no store");
        return true;
    }
    switch (r->op) {
    case FRAME_JOIN: return join(d, c, r, now);
    case FRAME_LEAVE: server_state_leave(d, c); return false;
    case FRAME_SET: set(d, c, r); break;
    case FRAME_GET: get(d, c, r, now); break;
    case FRAME_GATHER:
        if (!gather(d, c, r, now))
            return false;
        break;
    default: return false;
    }
    count_steps(d, c->session);
    return true;
}

/* ---- time ---- */

/* Which ranks are missing. All ranks that have waited are told about the same time, and by then those that were told
 * first have left: the text is made once for all. */
static const char *late_text(struct server_state *d, struct server_session *s, int64_t now)
{
    char missing[192], text[400], files[160] = "";
    if (s->late && now < s->late_until)
        return s->late;
    store_missing(missing, sizeof missing, s->size, is_here, s);
    d->steps += (uint64_t)s->size;
    if (d->files_at && d->files_at >= s->began)
        snprintf(files, sizeof files,
                 ": the process that serves the store may have %zu files open, and had none for some of the ranks "
                 "(ulimit -n)",
                 d->files);
    snprintf(text, sizeof text, "%s did not come in time%s", missing, files);
    free(s->late);
    s->late = strdup(text);
    s->late_until = now + LATE_NS;
    return s->late ? s->late : "";
}

int64_t server_state_expire(struct server_state *d, int64_t now)
{
    for (struct wheel_timer *t; (t = wheel_pop(&d->wheel, now));) {
        struct server_client *c = LIST_OF(t, struct server_client, timer);
        refuse(d, c, WEFT_ETIMEOUT,
               c->entry    ? ""
               : c->prefix ? server_keys_missing(&c->session->keys, c->prefix, now)
                           : late_text(d, c->session, now));
    }
    int64_t next = wheel_next(&d->wheel);
    return d->service ? min64(next, d->service->expire(d->service, now)) : next;
}

uint64_t server_state_steps(const struct server_state *d)
{
    return d->steps + d->forming.steps + d->wheel.steps;
}

void server_state_end(struct server_state *d)
{
    table_clear(&d->forming, NULL, NULL);
}
