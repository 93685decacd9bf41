/* The client's end of a tcp: store. Rank 0 serves it, unless another process listens there already, as weft run does,
 * or the address is another machine's.
 *
 * The rank that serves may die. So some ranks, at most STORE_TCP_SPARES and spread evenly, keep a spare socket that
 * listens at the address from which they have connected, and all ranks learn these addresses when they open: the lowest
 * rank collects them, and the others get the list. In store_again the lowest survivor that has a spare socket serves
 * there. A rank that connects before that waits in the socket's queue. */
#define _GNU_SOURCE
#include "rendezvous/store_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/ended.h"
#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "rendezvous/deadline.h"
#include "rendezvous/dial.h"
#include "rendezvous/server.h"

#define GRACE_NS INT64_C(10000000000) /* after a request's timeout: a server that has not answered by then is gone */
#define RETRY_NS INT64_C(2000000)
#define RETRY_MOST_NS INT64_C(100000000)
#define VAIN_MS 50           /* how often a rank that joins asks whether it waits in vain */
#define SPARE "weft:spare"   /* of a rank */
#define SPARES "weft:spares" /* of all */

#define AGAIN 1 /* not an error: the connection was lost before the store was open */

struct tcp_store {
    struct store base;
    char *token;
    struct address *at; /* addresses where the server may be */
    int nat;
    int fd;
    struct frame_end end;
    unsigned char *message, *frame;
    struct server *server; /* NULL: another process serves */
    int ended;             /* store_opts.ended, until all ranks have joined; otherwise -1 */
    uint64_t full;  /* not 0: the server has said last that it may have this many files open, and has none left */
    bool may_serve; /* this process serves if no other one does */
    int served_by;  /* the rank that serves; -1: the server is not a rank */
    int spare;      /* the spare socket; -1: none */
    char **spares;  /* the addresses of the spare sockets, as texts; NULL: the server is not a rank */
    char why[256];  /* not empty: the store is gone, for this reason */
};

/* ---- one request, one reply ---- */

static int gone(struct tcp_store *t, const char *how)
{
    char who[64];
    if (t->served_by >= 0)
        snprintf(who, sizeof who, "rank %d, which served it, ", t->served_by);
    else
        snprintf(who, sizeof who, "its server ");
    snprintf(t->why, sizeof t->why, "the store is gone: %s%s", who, how);
    return error_set(WEFT_ETRANSPORT, "%s: %s", t->base.url, t->why);
}

static int lost(struct tcp_store *t, int why)
{
    char text[128];
    if (why == ETIMEDOUT)
        return gone(t, "does not answer");
    if (why == ECONNRESET || why == EPIPE)
        return gone(t, "has ended or closed it");
    snprintf(text, sizeof text, "cannot be reached: %s", strerror(why));
    return gone(t, text);
}

/* Waits until the server answers, the time is over, or a rank is known to have ended. */
static int await_reply(struct tcp_store *t, int64_t until)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    int left, err = 0;
    while (t->ended > 0 && !err && (left = deadline_left_ms(until)) > 0 &&
           poll(&p, 1, left < ENDED_LOOK_MS ? left : ENDED_LOOK_MS) <= 0)
        err = store_look(&t->base, t->ended);
    return err;
}

static int take_reply(struct tcp_store *t, int64_t until, struct frame_reply *r)
{
    unsigned char length[FRAME_LENGTH];
    int err = await_reply(t, until);
    if (err)
        return err;
    int why = dial_receive(t->fd, length, sizeof length, until);
    size_t n = why ? 0 : frame_length(length);
    if (!why && n)
        why = dial_receive(t->fd, t->frame, n, until);
    if (why)
        return lost(t, why);
    if (!n || !frame_open(&t->end, t->frame, n) || !frame_take_reply(t->frame, n - SODIUM_TAG, r))
        return gone(t, "sent bytes that do not fit the protocol");
    return 0;
}

/* An error code in the reply becomes this thread's error. */
static int ask(struct tcp_store *t, const struct frame_request *q, int64_t until, struct frame_reply *r)
{
    if (t->why[0])
        return error_set(WEFT_ETRANSPORT, "%s: %s", t->base.url, t->why);
    int64_t limit = until > INT64_MAX - GRACE_NS ? until : max64(until, deadline_now()) + GRACE_NS;
    size_t n = frame_seal(&t->end, t->message, frame_put_request(t->message, q), t->frame);
    int why = dial_send(t->fd, t->frame, n, limit);
    int err = why ? lost(t, why) : 0;
    while (!err && q->op == FRAME_JOIN && t->base.watch.vain && deadline_now() < limit &&
           !poll(&(struct pollfd){.fd = t->fd, .events = POLLIN}, 1, VAIN_MS))
        err = store_in_vain(&t->base);
    if (!err)
        err = take_reply(t, limit, r);
    if (!err && r->code)
        err = error_set(r->code, "%s: %.*s", t->base.url, (int)min64((int64_t)r->bytes, 500), (const char *)r->value);
    return err;
}

static struct frame_request about(enum frame_op op, const char *key, int64_t number)
{
    return (struct frame_request){.op = op, .key = key, .key_len = strlen(key), .number = number};
}

int store_tcp_set(struct store *s, const char *key, const void *value, size_t bytes, int64_t until)
{
    struct frame_request q = about(FRAME_SET, key, 0);
    struct frame_reply r;
    q.value = value;
    q.bytes = bytes;
    return ask((struct tcp_store *)s, &q, until, &r);
}

/* Asks again while there is time: the server's timeout may end a little before this rank's. */
static int ask_patiently(struct tcp_store *t, struct frame_request *q, int64_t until, struct frame_reply *r)
{
    int err;
    do {
        q->wait_ms = (uint32_t)deadline_left_ms(until);
        err = ask(t, q, deadline_in((int64_t)q->wait_ms * 1000000), r);
    } while (err == WEFT_ETIMEOUT && deadline_left_ms(until));
    return err;
}

int store_tcp_get(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t until)
{
    struct frame_request q = about(FRAME_GET, key, 0);
    struct frame_reply r;
    int err = ask_patiently((struct tcp_store *)s, &q, until, &r);
    if (err)
        return err == WEFT_ETIMEOUT ? store_late(s, key) : err;
    size_t n = r.bytes < cap ? r.bytes : cap;
    if (n)
        memcpy(value, r.value, n);
    *bytes = r.bytes;
    return 0;
}

/* Are these bytes exactly `count` values? */
static bool well_packed(const unsigned char *packed, size_t bytes, int64_t count)
{
    size_t at = 0;
    for (; count > 0 && bytes - at >= 4; count--) {
        uint32_t n;
        memcpy(&n, packed + at, 4);
        if (n > bytes - at - 4)
            return false;
        at += 4 + n;
    }
    return count == 0 && at == bytes;
}

int store_tcp_parts(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until)
{
    struct tcp_store *t = (struct tcp_store *)s;
    struct frame_request q = about(FRAME_GATHER, prefix, first);
    struct frame_reply r;
    int err = ask_patiently(t, &q, until, &r);
    if (err)
        return err;
    if (r.bytes > STORE_PARTS || r.number < 1 || r.number > s->size - first || !well_packed(r.value, r.bytes, r.number))
        return gone(t, "sent bytes that do not fit the protocol");
    memcpy(packed, r.value, r.bytes);
    *count = (int)r.number;
    return 0;
}

/* ---- opening ---- */

/* AGAIN: try again, *why says why. */
static int shake_hands(struct tcp_store *t, const struct sodium *na, int64_t until, int *why)
{
    uint64_t full = 0;
    enum dial_result result = dial_prove(t->fd, na, t->token, FRAME_CHACHA, until, &t->end, why, &full);
    if (result != DIAL_AGAIN)
        t->full = full;
    switch (result) {
    case DIAL_PROVED: return 0;
    case DIAL_AGAIN: return AGAIN;
    case DIAL_FULL: *why = EMFILE; return AGAIN;
    case DIAL_STRANGE:
        return error_set(WEFT_ETRANSPORT, "%s: the server there is not a store of weft, or has another version of weft",
                         t->base.url);
    case DIAL_REFUSED:
        return error_set(
            WEFT_ETRANSPORT,
            "%s: the store there has another token than rank %d: is it another job's, or does WEFT_TOKEN or "
            "WEFT_TOKEN_FILE differ?",
            t->base.url, t->base.rank);
    case DIAL_FALSE: break;
    }
    return error_set(WEFT_ETRANSPORT, "%s: the server there cannot prove that it has the token", t->base.url);
}

static int join(struct tcp_store *t, int64_t until)
{
    uint64_t number = (uint64_t)(uint32_t)t->base.rank | (uint64_t)(uint32_t)t->base.size << 32;
    struct frame_request q = about(FRAME_JOIN, t->base.name, (int64_t)number);
    struct frame_reply r;
    q.wait_ms = (uint32_t)deadline_left_ms(until);
    int err = ask(t, &q, until, &r);
    if (err && t->why[0]) {
        t->why[0] = 0;
        return AGAIN;
    }
    t->served_by = err ? -1 : (int)r.number;
    if (!err && r.bytes == sizeof t->base.id)
        memcpy(t->base.id, r.value, sizeof t->base.id);
    if (!err)
        t->ended = -1;
    return err;
}

static void hang_up(struct tcp_store *t)
{
    if (t->fd >= 0) {
        shutdown(t->fd, SHUT_RDWR); /* a forked child may have the socket, too */
        forks_close(t->fd);
    }
    t->fd = -1;
    frame_forget(&t->end);
}

/* *proved: the server there has proved that it has the token. */
static int try_open(struct tcp_store *t, const struct sodium *na, const struct address *at, int64_t until, int *why,
                    bool *proved)
{
    int64_t turn = t->nat > 1 ? address_turn(until) : until;
    int err = address_connect(at, turn, &t->fd);
    if (err) {
        *why = err > 0 ? err : 0;
        return err > 0 ? AGAIN : err;
    }
    forks_own(t->fd);
    err = shake_hands(t, na, turn, why);
    *proved = !err;
    if (!err) {
        *why = ECONNRESET;
        err = join(t, until);
    }
    if (err)
        hang_up(t);
    return err;
}

/* Begins to serve if this process may and no process listens there. The caller tries it again and again, since the
 * process that listens may belong to another job and end before all ranks of this job have come. */
static int serve_if_free(struct tcp_store *t)
{
    int listener, err = t->may_serve && !t->server ? address_listen(&t->at[0], &listener) : EADDRINUSE;
    if (err)
        return err < 0 ? err : 0;
    return server_start(forks_own(listener), t->token, t->base.rank, &t->server);
}

static int keep_trying(struct tcp_store *t, int64_t until)
{
    const struct sodium *na = sodium_find();
    int why = 0, err = na ? 0 : WEFT_EUNSUPPORTED;
    if (err)
        return err;
    for (int64_t pause = RETRY_NS;; deadline_pause(&pause, RETRY_MOST_NS, until)) {
        bool last = deadline_now() >= until;
        err = store_look(&t->base, t->ended);
        if (!err)
            err = serve_if_free(t);
        if (err)
            return err;
        for (int i = 0; i < t->nat; i++) {
            bool proved = false;
            err = try_open(t, na, &t->at[i], until, &why, &proved);
            /* Seen from this machine, the address may be another server's. */
            bool other = t->nat > 1 && err == WEFT_ETRANSPORT && !proved;
            if (err != AGAIN && !other)
                return err;
        }
        if (last && err == AGAIN && t->full)
            return error_set(WEFT_ETRANSPORT,
                             "%s: the process that serves the store may have %llu files open, and has none left for "
                             "rank %d: raise its limit (ulimit -n)",
                             t->base.url, (unsigned long long)t->full, t->base.rank);
        if (last && err == AGAIN)
            return error_set(WEFT_ETIMEOUT, "%s: no store there in time (rank 0 or weft run should serve it): %s",
                             t->base.url, why == ECONNRESET ? "it closes connections" : strerror(why));
        if (last)
            return err;
    }
}

/* ---- spare sockets ---- */

static int spare_count(int size)
{
    return size < STORE_TCP_SPARES ? size : STORE_TCP_SPARES;
}

static int spare_rank(int size, int i) /* the rank that has the i-th of them */
{
    return (int)((int64_t)i * size / spare_count(size));
}

/* Which of the spare sockets is the rank's; -1: it has none. */
static int spare_of(int size, int rank)
{
    int n = spare_count(size), i = (int)(((int64_t)rank * n + size - 1) / size);
    return i < n && spare_rank(size, i) == rank ? i : -1;
}

/* Makes the spare socket, at the address from which this rank has reached the server, and tells its address. */
static int make_spare(struct tcp_store *t, int64_t left_ns)
{
    struct address mine;
    char text[ADDRESS_TEXT];
    int err = address_here(t->fd, &mine);
    mine.port = 0;
    if (!err)
        err = address_listen(&mine, &t->spare);
    forks_own(t->spare);
    if (err > 0)
        err = error_set(WEFT_ETRANSPORT, "%s: cannot listen at %s: %s", t->base.url, mine.host, strerror(err));
    if (err)
        return err;
    address_format(&mine, text);
    return store_offer(&t->base, SPARE, text, strlen(text), left_ns);
}

/* The lowest rank collects the addresses into one text, each with a zero behind it. */
static int collect_spares(struct tcp_store *t, char *list, int64_t until)
{
    size_t at = 0, n = 0;
    int err = 0;
    for (int i = 0; i < spare_count(t->base.size) && !err; i++, at += n + 1) {
        err = store_part(&t->base, SPARE, spare_rank(t->base.size, i), list + at, ADDRESS_TEXT - 1, &n,
                         max64(until - deadline_now(), 0));
        list[at + (err ? 0 : n)] = 0;
    }
    return err ? err : store_set(&t->base, SPARES, list, at, max64(until - deadline_now(), 0));
}

/* All ranks know the addresses afterwards. */
static int share_spares(struct tcp_store *t, int64_t until)
{
    int count = spare_count(t->base.size), err = 0;
    if (t->served_by < 0 || t->base.size == 1)
        return 0;
    if (spare_of(t->base.size, t->base.rank) >= 0)
        err = make_spare(t, max64(until - deadline_now(), 0));
    /* One piece of memory: the pointers, and the text behind them. */
    size_t room = (size_t)count * ADDRESS_TEXT, n = 0;
    char **spares = calloc(1, (size_t)count * sizeof *spares + room), *list = (char *)(spares + count);
    if (!err && !spares)
        err = error_nomem();
    if (!err && t->base.rank == 0)
        err = collect_spares(t, list, until);
    else if (!err)
        err = store_get(&t->base, SPARES, list, room - 1, &n, max64(until - deadline_now(), 0));
    if (err) {
        free(spares);
        return err;
    }
    for (int i = 0; i < count; i++, list += strlen(list) + 1)
        spares[i] = list;
    t->spares = spares;
    return 0;
}

/* ---- opening, again and the end ---- */

int store_tcp_open_at(const struct store_kind *kind, const char *place, const struct address *at, int n, int listener,
                      const struct store_opts *o, int64_t until, struct store **out)
{
    struct tcp_store *t = calloc(1, sizeof *t);
    if (!t) {
        forks_close(listener);
        return error_nomem();
    }
    t->fd = t->spare = t->served_by = -1;
    t->ended = o->ended;
    t->may_serve = listener == STORE_TCP_IF_FREE;
    int err = store_init(&t->base, kind, place, o);
    if (listener >= 0 && err)
        forks_close(listener);
    else if (listener >= 0)
        err = server_start(listener, o->token, o->rank, &t->server);
    t->token = strdup(o->token);
    t->at = calloc((size_t)n, sizeof *t->at);
    t->nat = n;
    t->message = malloc(FRAME_MESSAGE_MAX);
    t->frame = malloc(FRAME_LENGTH + FRAME_FRAME_MAX);
    if (!err && (!t->token || !t->at || !t->message || !t->frame))
        err = error_nomem();
    if (!err) {
        memcpy(t->at, at, (size_t)n * sizeof *at);
        err = keep_trying(t, until);
    }
    if (!err)
        err = share_spares(t, until);
    if (err)
        store_tcp_close(&t->base, 0);
    else
        *out = &t->base;
    return err;
}

static int open_store(const char *place, const struct store_opts *o, int64_t until, struct store **out)
{
    char url[ADDRESS_TEXT + 8];
    struct address at;
    snprintf(url, sizeof url, "tcp:%s", place);
    int err = address_parse(place, &at);
    if (!err)
        err = server_check_token(o->token, url);
    if (!err && !sodium_find())
        err = WEFT_EUNSUPPORTED;
    if (!err && !at.port)
        err = error_set(WEFT_EINVAL, "%s: ranks need the port; only weft run can let the system choose one", url);
    return err ? err
               : store_tcp_open_at(&store_tcp, place, &at, 1, o->rank ? STORE_TCP_CONNECT : STORE_TCP_IF_FREE, o, until,
                                   out);
}

static bool among(int rank, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == rank)
            return true;
    return false;
}

int store_tcp_again(struct store *s, const int *survivors, const struct store_opts *o, int64_t until,
                    struct store **out)
{
    struct tcp_store *t = (struct tcp_store *)s;
    struct store_opts opts = *o;
    struct address at;
    char place[ADDRESS_TEXT];
    opts.token = t->token;
    if (t->served_by < 0 || among(t->served_by, survivors, o->size)) {
        address_format(&t->at[0], place);
        return store_tcp_open_at(&store_tcp, place, t->at, t->nat, STORE_TCP_CONNECT, &opts, until, out);
    }
    int next = 0; /* the survivor that serves */
    while (next < o->size && spare_of(s->size, survivors[next]) < 0)
        next++;
    if (next == o->size || !t->spares)
        return error_set(
            WEFT_ETRANSPORT,
            "%s: rank %d, which served the store, is gone, and so are the %d ranks that could serve it next", s->url,
            t->served_by, spare_count(s->size) - 1);
    int err = address_parse(t->spares[spare_of(s->size, survivors[next])], &at);
    if (err)
        return err;
    address_format(&at, place);
    int listener = o->rank != next ? STORE_TCP_CONNECT : t->spare >= 0 ? t->spare : STORE_TCP_IF_FREE;
    if (o->rank == next)
        t->spare =
            -1; /* used up: if this fails and is tried again, the address is free or the server there still runs */
    return store_tcp_open_at(&store_tcp, place, &at, 1, listener, &opts, until, out);
}

void store_tcp_close(struct store *s, int64_t until)
{
    struct tcp_store *t = (struct tcp_store *)s;
    if (t->fd >= 0 && !t->why[0]) {
        struct frame_request q = about(FRAME_LEAVE, "", 0);
        size_t n = frame_seal(&t->end, t->message, frame_put_request(t->message, &q), t->frame);
        dial_send(t->fd, t->frame, n, deadline_now());
    }
    hang_up(t);
    forks_close(t->spare);
    if (t->server)
        server_stop(t->server, until);
    free(t->spares);
    if (t->token)
        explicit_bzero(t->token, strlen(t->token));
    free(t->token);
    free(t->at);
    free(t->message);
    free(t->frame);
    store_free(s);
}

const struct store_kind store_tcp = {
    .scheme = "tcp",
    .form = "tcp:HOST:PORT",
    .open = open_store,
    .set = store_tcp_set,
    .get = store_tcp_get,
    .parts = store_tcp_parts,
    .again = store_tcp_again,
    .close = store_tcp_close,
};
