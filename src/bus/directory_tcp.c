/* The client's end of a directory that a server of weft has. A directory has one connection for its requests, and each
 * watch has one of its own, on which a request waits for the next changes. A connection that is lost is made again
 * within the time of the call that needs it. A get, a lease's renewal and a watch are then asked for again. A
 * transaction that was sent is not: the server may have done it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "bus/bus_message.h"
#include "bus/directory_items.h"
#include "rendezvous/address.h"
#include "rendezvous/deadline.h"
#include "rendezvous/dial.h"
#include "rendezvous/server.h"

#define LEAST_NS INT64_C(100000000) /* time that a server gets to answer, whatever the timeout is */
#define RETRY_NS INT64_C(2000000)
#define RETRY_MOST_NS INT64_C(100000000)
#define WAIT_MS 20000                  /* after which the server answers a watch without changes */
#define SILENT_NS INT64_C(30000000000) /* a server that has not answered a watch by then is gone */

struct link {
    int fd; /* -1: there is no connection */
    struct frame_end end;
    unsigned char *message, *out, *in; /* NULL: not needed yet */
    size_t have;                       /* bytes of the next reply that are in `in` */
    int owed; /* replies for which no call waits any more, since their time was over: they are passed over */
};

struct tcp_directory {
    struct directory base; /* first */
    const struct sodium *sodium;
    struct address at;
    char *token;
    struct link link;
};

struct tcp_watch {
    struct directory_watch base; /* first */
    struct link link;
    bool asked;      /* the server has a request of this watch */
    int64_t silence; /* when the server is taken to be gone */
};

/* ---- connections ---- */

static void hang_up(struct link *l)
{
    if (l->fd >= 0) {
        shutdown(l->fd, SHUT_RDWR); /* a forked child may have the socket, too */
        forks_close(l->fd);
    }
    l->fd = -1;
    l->have = 0;
    l->owed = 0;
    frame_forget(&l->end);
}

static void link_end(struct link *l)
{
    hang_up(l);
    free(l->message);
    free(l->out);
    free(l->in);
}

static int unreachable(const struct tcp_directory *t, const char *why)
{
    return error_set(WEFT_ETIMEOUT, "%s: the directory cannot be reached in time: %s", t->base.url, why);
}

/* One try. A positive result is an errno: it may succeed later. */
static int try_connect(struct tcp_directory *t, struct link *l, int64_t until)
{
    int why = 0;
    uint64_t full = 0;
    int err = address_connect(&t->at, until, &l->fd);
    if (err) {
        l->fd = -1;
        return err;
    }
    forks_own(l->fd);
    switch (dial_prove(l->fd, t->sodium, t->token, FRAME_CHACHA, until, &l->end, &why, &full)) {
    case DIAL_PROVED: return 0;
    case DIAL_AGAIN: err = why; break;
    case DIAL_FULL: err = EMFILE; break;
    case DIAL_STRANGE:
        err = error_set(WEFT_ETRANSPORT, "%s: the server there is not one of weft, or has another version of weft",
                        t->base.url);
        break;
    case DIAL_REFUSED:
        err = error_set(WEFT_ETRANSPORT,
                        "%s: the directory there has another token: does WEFT_TOKEN or WEFT_TOKEN_FILE differ?",
                        t->base.url);
        break;
    case DIAL_FALSE:
        err = error_set(WEFT_ETRANSPORT, "%s: the server there cannot prove that it has the token", t->base.url);
        break;
    }
    hang_up(l);
    return err;
}

/* Has the other end closed the connection, while nothing was asked? */
static bool is_stale(const struct link *l)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN | POLLRDHUP};
    return poll(&p, 1, 0) != 0;
}

static int reach(struct tcp_directory *t, struct link *l, int64_t until)
{
    if (!l->message)
        l->message = malloc(FRAME_MESSAGE_MAX);
    if (!l->out)
        l->out = malloc(FRAME_LENGTH + FRAME_FRAME_MAX);
    if (!l->in)
        l->in = malloc(FRAME_LENGTH + FRAME_FRAME_MAX);
    if (!l->message || !l->out || !l->in)
        return error_nomem();
    for (int64_t pause = RETRY_NS; l->fd < 0; deadline_pause(&pause, RETRY_MOST_NS, until)) {
        bool last = deadline_now() >= until;
        int err = try_connect(t, l, until);
        if (err < 0)
            return err;
        if (err && last)
            return unreachable(t, err == EMFILE       ? "its server may have no more files open (ulimit -n)"
                                  : err == ECONNRESET ? "its server closes connections"
                                                      : strerror(err));
        if (!err)
            break;
    }
    return 0;
}

/* ---- requests ---- */

/* A request of which only a part could be sent ends the connection. */
static int send_request(struct link *l, const struct frame_request *q, int64_t until)
{
    size_t n = frame_seal(&l->end, l->message, frame_put_request(l->message, q), l->out);
    int why = dial_send(l->fd, l->out, n, until);
    if (why)
        hang_up(l);
    return why;
}

/* 0, or an errno. After ETIMEDOUT the reply can still be taken; otherwise the connection is over. EPROTO: the bytes do
 * not fit the protocol. */
static int take_reply(struct link *l, struct frame_reply *r, int64_t until)
{
    int why = dial_receive_more(l->fd, l->in, &l->have, l->have < FRAME_LENGTH ? FRAME_LENGTH : l->have, until);
    size_t n = why ? 0 : frame_length(l->in);
    if (!why)
        why = n ? dial_receive_more(l->fd, l->in, &l->have, FRAME_LENGTH + n, until) : EPROTO;
    if (why == ETIMEDOUT)
        return why;
    l->have = 0;
    if (!why &&
        (!frame_open(&l->end, l->in + FRAME_LENGTH, n) || !frame_take_reply(l->in + FRAME_LENGTH, n - SODIUM_TAG, r)))
        why = EPROTO;
    if (why)
        hang_up(l);
    return why;
}

static int wrong_bytes(const struct tcp_directory *t)
{
    return error_set(WEFT_ETRANSPORT, "%s: the server sent bytes that do not fit the protocol", t->base.url);
}

/* The reply's code becomes this thread's error. `lease` is for its text. */
static int judge(const struct tcp_directory *t, const struct frame_reply *r, int64_t lease)
{
    if (r->code == WEFT_EPEER)
        return directory_gone(&t->base, lease);
    if (r->code)
        return error_set(r->code, "%s: %.*s", t->base.url, (int)min64((int64_t)r->bytes, 500), (const char *)r->value);
    return 0;
}

/* Asks once, on a connection that is there. A positive result is an errno: there is no reply. After ETIMEDOUT the
 * connection stays, since leases end with it. */
static int ask_once(struct tcp_directory *t, const struct frame_request *q, int64_t until, struct frame_reply *r)
{
    struct link *l = &t->link;
    int why = l->fd < 0 ? ECONNRESET : send_request(l, q, until);
    for (; !why && l->owed; l->owed -= !why)
        if ((why = take_reply(l, r, until)))
            break;
    if (!why)
        why = take_reply(l, r, until);
    if (why == ETIMEDOUT && l->fd >= 0)
        l->owed++;
    return why == EPROTO ? wrong_bytes(t) : why;
}

static int lost(const struct tcp_directory *t, int why, bool unsure)
{
    return error_set(why == ETIMEDOUT ? WEFT_ETIMEOUT : WEFT_ETRANSPORT, "%s: the server %s%s", t->base.url,
                     why == ETIMEDOUT ? "does not answer in time" : "has ended or has closed the connection",
                     unsure ? "; it is not known whether it has done what it was asked for" : "");
}

/* `again`: the request may be sent twice. */
static int ask(struct tcp_directory *t, const struct frame_request *q, bool again, int64_t until, struct frame_reply *r)
{
    until = max64(until, deadline_in(LEAST_NS));
    for (;;) {
        if (t->link.fd >= 0 && !t->link.owed && is_stale(&t->link))
            hang_up(&t->link);
        int err = reach(t, &t->link, until);
        if (!err)
            err = ask_once(t, q, until, r);
        if (err <= 0)
            return err;
        if (!again || deadline_now() >= until)
            return lost(t, err, !again);
    }
}

/* ---- reading ---- */

/* Takes the items of a reply; *state is what its first byte says. */
static int take_items(const struct tcp_directory *t, const struct frame_reply *r, const char *prefix,
                      struct directory_items_draft *draft, enum bus_message_state *state)
{
    if (r->bytes < 1 || r->value[0] > BUS_MESSAGE_LOST)
        return wrong_bytes(t);
    *state = (enum bus_message_state)r->value[0];
    for (size_t at = 1; at < r->bytes;) {
        struct directory_item item;
        if (!bus_message_take_item(r->value, r->bytes, &at, &item) || strncmp(item.key, prefix, strlen(prefix)))
            return wrong_bytes(t);
        if (!directory_items_add(draft, &item))
            return error_nomem();
    }
    return 0;
}

/* The rest of a get must come from the connection on which it has begun: if that is lost it begins anew. */
static int get(struct directory *d, const char *prefix, int64_t until, struct directory_items *out)
{
    struct tcp_directory *t = (struct tcp_directory *)d;
    struct frame_request q = {.op = FRAME_DIRECTORY_GET, .key = prefix, .key_len = strlen(prefix)};
    struct directory_items_draft draft = {0};
    enum bus_message_state state = BUS_MESSAGE_MORE;
    struct frame_reply r;
    int err = 0;
    while (!err && state == BUS_MESSAGE_MORE) {
        err = q.number ? ask_once(t, &q, until, &r) : ask(t, &q, true, until, &r);
        if (err > 0) {
            directory_items_discard(&draft);
            q.number = 0;
            err = deadline_now() < until ? 0 : lost(t, err, false);
            continue;
        }
        if (!err)
            err = judge(t, &r, 0);
        if (!err)
            err = take_items(t, &r, prefix, &draft, &state);
        q.number = 1;
    }
    if (err)
        directory_items_discard(&draft);
    else
        directory_items_finish(&draft, r.number, out);
    return err;
}

static int watch(struct directory_watch *w)
{
    ((struct tcp_watch *)w)->link.fd = -1;
    return 0;
}

static int ask_for_changes(struct tcp_directory *t, struct tcp_watch *w, int64_t until)
{
    struct frame_request q = {.op = FRAME_DIRECTORY_WATCH,
                              .key = w->base.prefix,
                              .key_len = strlen(w->base.prefix),
                              .number = w->base.after,
                              .wait_ms = WAIT_MS};
    until = max64(until, deadline_in(LEAST_NS));
    int err = reach(t, &w->link, until);
    if (err)
        return err;
    w->silence = deadline_in(SILENT_NS);
    w->asked = !send_request(&w->link, &q, until);
    return 0;
}

/* Waits for the reply to the request that the server has. WEFT_ETIMEOUT: it has not come. A positive result is an
 * errno: the connection is lost. */
static int await_changes(const struct tcp_directory *t, struct tcp_watch *w, int64_t until, struct frame_reply *r)
{
    int why = take_reply(&w->link, r, min64(until, w->silence));
    if (why == ETIMEDOUT && deadline_now() < w->silence)
        return directory_late(&t->base, "there was no change in time");
    if (why == ETIMEDOUT)
        hang_up(&w->link);
    w->asked = false;
    return why == EPROTO ? wrong_bytes(t) : why;
}

static int next(struct directory_watch *base, int64_t until, struct directory_items *out)
{
    struct tcp_watch *w = (struct tcp_watch *)base;
    struct tcp_directory *t = (struct tcp_directory *)base->directory;
    struct directory_items_draft draft = {0};
    for (;;) {
        enum bus_message_state state = BUS_MESSAGE_END;
        struct frame_reply r;
        int err = w->asked ? 0 : ask_for_changes(t, w, until);
        if (err)
            return err;
        err = w->asked ? await_changes(t, w, until, &r) : ECONNRESET;
        if (err > 0 && deadline_now() < until)
            continue;
        if (err > 0)
            return lost(t, err, false);
        if (!err)
            err = judge(t, &r, 0);
        if (!err)
            err = take_items(t, &r, base->prefix, &draft, &state);
        if (err) {
            directory_items_discard(&draft);
            return err;
        }
        if (draft.items.n || state == BUS_MESSAGE_LOST) {
            directory_items_finish(&draft, r.number, out);
            out->lost = state == BUS_MESSAGE_LOST;
            return 0;
        }
        base->after =
            r.number; /* nothing has changed up to there: the directory need not remember more for this watch */
    }
}

static void unwatch(struct directory_watch *w)
{
    link_end(&((struct tcp_watch *)w)->link);
}

/* ---- changing ---- */

static int transact(struct directory *d, const struct directory_transaction *x, int64_t until,
                    struct directory_outcome *out)
{
    struct tcp_directory *t = (struct tcp_directory *)d;
    unsigned char *value = malloc(DIRECTORY_BYTES_MAX);
    struct frame_reply r;
    int64_t lease = 0;
    if (!value)
        return error_nomem();
    struct frame_request q = {
        .op = FRAME_DIRECTORY_TRANSACT, .key = "", .value = value, .bytes = bus_message_put_transaction(value, x)};
    for (size_t i = 0; i < x->nchanges && !lease; i++)
        lease = x->changes[i].lease;
    int err = ask(t, &q, false, until, &r);
    free(value);
    if (!err)
        err = judge(t, &r, lease);
    if (!err && (r.bytes != 1 || r.value[0] > 1))
        err = wrong_bytes(t);
    if (!err)
        *out = (struct directory_outcome){.done = r.value[0], .revision = r.number};
    return err;
}

static int about_lease(struct directory *d, enum frame_op op, int64_t number, int64_t until, int64_t *out)
{
    struct tcp_directory *t = (struct tcp_directory *)d;
    struct frame_request q = {.op = op, .key = "", .number = number};
    struct frame_reply r;
    int err = ask(t, &q, true, until, &r);
    if (!err)
        err = judge(t, &r, number);
    if (!err)
        *out = r.number;
    return err;
}

/* If the reply to the first request is lost the lease that it made ends with its connection. */
static int grant(struct directory *d, int64_t ttl_ns, int64_t until, int64_t *lease)
{
    return about_lease(d, FRAME_DIRECTORY_GRANT, (ttl_ns + 999999) / 1000000, until, lease);
}

static int renew(struct directory *d, int64_t lease, int64_t until)
{
    return about_lease(d, FRAME_DIRECTORY_RENEW, lease, until, &lease);
}

static int revoke(struct directory *d, int64_t lease, int64_t until)
{
    return about_lease(d, FRAME_DIRECTORY_REVOKE, lease, until, &lease);
}

/* ---- opening and closing ---- */

static int open_directory(struct directory *d, const char *place, const struct directory_opts *opts, int64_t until)
{
    struct tcp_directory *t = (struct tcp_directory *)d;
    t->link.fd = -1;
    int err = address_parse(place, &t->at);
    if (!err && !(opts->token && *opts->token))
        err = error_set(WEFT_EINVAL,
                        "%s: a token is needed, one that its server has: set WEFT_TOKEN_FILE or WEFT_TOKEN", d->url);
    if (!err)
        err = server_check_token(opts->token, d->url);
    if (!err && !(t->sodium = sodium_find()))
        err = WEFT_EUNSUPPORTED;
    if (!err && !t->at.port)
        err = error_set(WEFT_EINVAL, "%s: the port of the directory is missing", d->url);
    if (!err && !(t->token = strdup(opts->token)))
        err = error_nomem();
    return err ? err : reach(t, &t->link, until);
}

static void close_directory(struct directory *d)
{
    struct tcp_directory *t = (struct tcp_directory *)d;
    link_end(&t->link);
    if (t->token)
        explicit_bzero(t->token, strlen(t->token));
    free(t->token);
}

const struct directory_kind directory_tcp = {
    .scheme = "tcp",
    .form = "tcp:HOST:PORT[/SPACE]",
    .spaces = true,
    .size = sizeof(struct tcp_directory),
    .watch_size = sizeof(struct tcp_watch),
    .open = open_directory,
    .get = get,
    .transact = transact,
    .grant = grant,
    .renew = renew,
    .revoke = revoke,
    .watch = watch,
    .next = next,
    .unwatch = unwatch,
    .close = close_directory,
};
