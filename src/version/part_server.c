#define _GNU_SOURCE
#include "version/part_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "base/thread.h"
#include "rendezvous/deadline.h"
#include "rendezvous/dial.h"
#include "version/part_link.h"

#define SECOND INT64_C(1000000000)
#define PROVE_NS (5 * SECOND) /* within which a stranger must have proved itself */
#define IDLE_NS (60 * SECOND) /* within which a reader must ask for more */
#define SEND_NS (30 * SECOND) /* within which a reader must take a frame */
#define SHORT 16384           /* bytes of a run that are copied into a frame with others: a frame costs more */

struct part_server {
    pthread_mutex_t lock;
    pthread_cond_t left;
    pthread_t thread;
    int local, tcp, stop; /* sockets; an eventfd */
    struct list sources, readers;
    size_t nreaders;
    _Atomic bool stops;
    const struct sodium *sodium;
    char socket[PART_SERVER_SOCKET], address[ADDRESS_TEXT], secret[PART_SERVER_SECRET];
};

struct reader {
    struct list node;
    struct part_server *server;
    int fd;
    bool tcp;
    struct part_server_source *uses; /* what it is served from now; NULL: nothing */
    struct part_server_source *held; /* the relay whose version it holds; NULL: none */
};

/* ---- one request ---- */

static int stream(struct part_server *s, struct part_server_source *p, struct part_link *l, const unsigned char *bytes,
                  int64_t n, const struct snapshot *snapshot, uint64_t generation, const struct part_link_message *m);

static int reply(struct part_link *l, const struct part_link_message *m)
{
    struct part_link_message r = *m;
    r.magic = PART_LINK_MAGIC;
    return part_link_send(l, &r, sizeof r, deadline_in(SEND_NS));
}

/* A reply without data. `told`: the text of the code follows. */
static int refuse(struct reader *r, struct part_link *l, int code, bool told)
{
    const char *text = told ? weft_errmsg() : "";
    struct part_link_message m = {.op = code, .bytes = (int64_t)strlen(text)};
    int why = reply(l, &m);
    return why || !*text ? why : stream(r->server, r->uses, l, (const unsigned char *)text, m.bytes, NULL, 0, NULL);
}

/* The source that a request is about, with one user more; NULL: there is none. */
static struct part_server_source *find(struct reader *r, const struct part_link_message *m, const char *set, size_t len)
{
    struct part_server *s = r->server;
    struct part_server_source *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (struct list *n = list_first(&s->sources); n && !found; n = list_after(&s->sources, n)) {
        struct part_server_source *p = LIST_OF(n, struct part_server_source, node);
        bool relay = m->flags & PART_LINK_RELAY, keep = m->op == PART_LINK_KEEP;
        if (keep || p->agent ? keep && p->agent
                             : p->relay == relay && (relay || (p->epoch == m->epoch && p->rank == m->rank)) &&
                                   strlen(p->set) == len && !memcmp(p->set, set, len))
            found = p;
    }
    if (found)
        found->users++;
    r->uses = found;
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void leave(struct reader *r)
{
    struct part_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    r->uses->users--;
    r->uses = NULL;
    pthread_cond_broadcast(&s->left);
    pthread_mutex_unlock(&s->lock);
}

static bool leaving(struct part_server *s, const struct part_server_source *p)
{
    pthread_mutex_lock(&s->lock);
    bool leaves = p->leaves || s->stops;
    pthread_mutex_unlock(&s->lock);
    return leaves;
}

/* Sends bytes in frames. With a snapshot: each chunk is copied, and then it is checked that it was not torn. bytes
 * NULL: those that the request asks for, by the source's copy. */
static int stream(struct part_server *s, struct part_server_source *p, struct part_link *l, const unsigned char *bytes,
                  int64_t n, const struct snapshot *snapshot, uint64_t generation, const struct part_link_message *m)
{
    int why = 0;
    bool torn = false;
    for (int64_t at = 0, take; at < n && !why && !torn; at += take) {
        unsigned char *room = part_link_room(l);
        take = min64(n - at, PART_LINK_CHUNK);
        torn = !bytes && p->copy(p->owner, m, m->at + at, take, room);
        if (snapshot)
            memcpy(room, bytes + at, (size_t)take);
        torn = torn || (snapshot && !snapshot_still(snapshot, generation)) || leaving(s, p);
        size_t size = part_link_seal(l, torn, bytes && !snapshot ? bytes + at : room, torn ? 0 : (size_t)take);
        why = part_link_send_sealed(l, size, deadline_in(SEND_NS));
    }
    return why;
}

/* Seals the next frame of the runs, and takes it off them. */
static size_t seal_runs(struct part_link *l, struct part_blocks_runs *runs)
{
    unsigned char *room = part_link_room(l);
    size_t n = 0;
    for (; runs->n && runs->v->bytes < SHORT && runs->v->bytes <= PART_LINK_CHUNK - n; runs->v++, runs->n--) {
        memcpy(room + n, runs->v->at, runs->v->bytes);
        n += runs->v->bytes;
    }
    if (n)
        return part_link_seal(l, false, room, n);
    const unsigned char *at = runs->v->at;
    n = (size_t)min64((int64_t)runs->v->bytes, PART_LINK_CHUNK);
    runs->v->at += n;
    runs->v->bytes -= n;
    if (!runs->v->bytes) {
        runs->v++;
        runs->n--;
    }
    return part_link_seal(l, false, at, n);
}

/* The bytes of blocks that are read where they are. A frame that was torn while it was sealed is not sent: it has its
 * number, and none can take its place. Then the connection ends. */
static int stream_runs(struct part_server *s, const struct part_server_source *p, struct part_link *l,
                       const struct part_server_blocks *b)
{
    for (struct part_blocks_runs runs = b->runs; runs.n;) {
        if (leaving(s, p))
            return ECONNRESET;
        bool held = !p->hold || p->hold(p->owner, b->round);
        size_t size = held ? seal_runs(l, &runs) : part_link_seal(l, true, part_link_room(l), 0);
        bool torn = held && b->snapshot.data && !snapshot_still(&b->snapshot, b->generation);
        if (held && p->drop)
            p->drop(p->owner);
        int why = torn ? ECONNRESET : part_link_send_sealed(l, size, deadline_in(SEND_NS));
        if (why || !held)
            return why;
    }
    return 0;
}

static int give_part(struct reader *r, struct part_server_source *p, struct part_link *l,
                     const struct part_link_message *m)
{
    struct part_server *s = r->server;
    struct part_server_part part = {0};
    bool file = m->flags & PART_LINK_FILE;
    if (file && l->sealed)
        return EPROTO;
    int why, code = p->part(p->owner, m, &part);
    if (code)
        return refuse(r, l, code, p->relay);
    if (p->relay && file && !r->held) {
        pthread_mutex_lock(&s->lock);
        p->users++;
        r->held = p;
        pthread_mutex_unlock(&s->lock);
    } else if (p->relay && file)
        p->release(p->owner); /* it holds the version already */
    if (m->op == PART_LINK_READ && (m->at < 0 || m->count < 0 || m->at > part.bytes || m->count > part.bytes - m->at))
        why = refuse(r, l, WEFT_EINVAL, false);
    else if (m->op == PART_LINK_READ) {
        why = reply(l, &(struct part_link_message){.bytes = m->count});
        if (!why)
            why = part.snapshot.data
                      ? stream(s, p, l, part.snapshot.data + m->at, m->count, &part.snapshot, part.generation, NULL)
                      : stream(s, p, l, NULL, m->count, NULL, 0, m);
    } else {
        file = file && part.snapshot.data;
        why = reply(l, &(struct part_link_message){.bytes = (int64_t)part.size,
                                                   .generation = part.generation,
                                                   .flags = file ? PART_LINK_FILE : 0});
        if (!why)
            why = stream(s, p, l, part.digests, (int64_t)part.size, NULL, 0, NULL);
        if (!why && file)
            why = part_link_send_file(l, part.snapshot.fd, deadline_in(SEND_NS));
    }
    free(part.digests);
    return why;
}

static int give_blocks(struct reader *r, struct part_server_source *p, struct part_link *l,
                       const struct part_link_message *m, const unsigned char *wanted)
{
    struct part_server_blocks blocks = {0};
    int code = p->take(p->owner, m, wanted, &blocks);
    if (code)
        return refuse(r, l, code, false);
    int why = reply(l, &(struct part_link_message){.bytes = (int64_t)(blocks.size + blocks.runs.bytes),
                                                   .count = (int64_t)blocks.n});
    if (!why)
        why = stream(r->server, p, l, blocks.payload, (int64_t)blocks.size, NULL, 0, NULL);
    if (!why)
        why = stream_runs(r->server, p, l, &blocks);
    free(blocks.payload);
    return why;
}

static int await_blocks(struct reader *r, struct part_server_source *p, struct part_link *l,
                        const struct part_link_message *m, const unsigned char *wanted)
{
    int64_t missing = 0;
    if (r->held != p)
        return EPROTO;
    int code = p->await(p->owner, m, wanted, &missing);
    return code ? refuse(r, l, code, true) : reply(l, &(struct part_link_message){.count = missing});
}

static int keep_part(struct reader *r, struct part_server_source *p, struct part_link *l,
                     const struct part_link_message *m, const char *name)
{
    char set[WEFT_BUS_NAME + 1];
    if (l->sealed)
        return EPROTO;
    snprintf(set, sizeof set, "%.*s", (int)m->name, name);
    int code = p->keep(p->owner, set, m);
    return code ? refuse(r, l, code, true) : reply(l, &(struct part_link_message){0});
}

/* The bitmap behind a request. */
static bool take_bitmap(const struct part_link_message *m, const unsigned char *message, size_t n,
                        const unsigned char **wanted)
{
    *wanted = message + sizeof *m + m->name;
    return m->at >= 0 && m->at <= INT32_MAX && m->count >= 0 && m->count <= PART_LINK_BLOCKS &&
           n - sizeof *m - m->name == (size_t)(m->count + 7) / 8;
}

/* 0: the connection goes on. */
static int serve(struct reader *r, struct part_link *l)
{
    struct part_server *s = r->server;
    const unsigned char *message, *wanted = NULL;
    size_t n;
    struct part_link_message m;
    int why = part_link_receive(l, &message, &n, deadline_in(IDLE_NS));
    if (why)
        return why;
    if (n < sizeof m)
        return EPROTO;
    memcpy(&m, message, sizeof m);
    bool bitmap = m.op == PART_LINK_TAKE || m.op == PART_LINK_AWAIT;
    if (m.magic != PART_LINK_MAGIC || m.name > WEFT_BUS_NAME || m.name > n - sizeof m ||
        (bitmap ? !take_bitmap(&m, message, n, &wanted) : n != sizeof m + m.name))
        return EPROTO;
    const char *name = (const char *)message + sizeof m;
    struct part_server_source *p = find(r, &m, name, m.name);
    if (!p)
        return refuse(r, l, WEFT_EPEER, false);
    switch (m.op) {
    case PART_LINK_LAYOUTS:
        why = reply(l, &(struct part_link_message){.bytes = (int64_t)p->layouts_size});
        if (!why)
            why = stream(s, p, l, p->layouts, (int64_t)p->layouts_size, NULL, 0, NULL);
        break;
    case PART_LINK_PART:
    case PART_LINK_READ: why = give_part(r, p, l, &m); break;
    case PART_LINK_TAKE: why = give_blocks(r, p, l, &m, wanted); break;
    case PART_LINK_AWAIT: why = await_blocks(r, p, l, &m, wanted); break;
    case PART_LINK_KEEP: why = keep_part(r, p, l, &m, name); break;
    default: why = EPROTO;
    }
    leave(r);
    return why;
}

/* ---- connections ---- */

/* The server's side of the proofs of frame.h. */
static int prove(struct part_server *s, struct part_link *l)
{
    unsigned char hello[FRAME_HELLO], other[FRAME_HELLO], proof[FRAME_PROOF], decision[FRAME_DECISION] = {0};
    unsigned char key[SODIUM_KEY];
    int64_t until = deadline_in(PROVE_NS);
    frame_token_key(s->sodium, s->secret, key);
    frame_begin(&l->end, s->sodium, true, key, frame_ciphers(), hello);
    s->sodium->wipe(key, sizeof key);
    l->sealed = true;
    int why = dial_receive(l->fd, other, FRAME_MAGIC_SIZE, until);
    enum frame_version version = why ? FRAME_NONE : frame_version(other);
    if (version == FRAME_OTHER) { /* with the version, and without the rest */
        memset(hello + FRAME_MAGIC_SIZE, 0, FRAME_SAYS);
        dial_send(l->fd, hello, sizeof hello, until);
    }
    if (!why && version != FRAME_SAME)
        why = EPROTO;
    if (!why)
        why = dial_receive(l->fd, other + FRAME_MAGIC_SIZE, FRAME_SAYS, until);
    if (!why && !frame_meet(&l->end, other))
        why = EPROTO;
    if (!why)
        why = dial_send(l->fd, hello, sizeof hello, until);
    if (!why)
        why = dial_receive(l->fd, proof, sizeof proof, until);
    if (why)
        return why;
    decision[0] = !frame_believe(&l->end, proof);
    if (!decision[0])
        frame_prove(&l->end, decision + 1);
    why = dial_send(l->fd, decision, sizeof decision, until);
    return why ? why : decision[0] ? EACCES : 0;
}

static bool same_user(int fd)
{
    struct ucred c;
    socklen_t size = sizeof c;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) && (c.uid == geteuid() || c.uid == 0);
}

static void *serve_reader(void *arg)
{
    struct reader *r = arg;
    struct part_server *s = r->server;
    struct part_link l;
    if (!part_link_begin(&l, r->fd)) {
        int why = r->tcp ? prove(s, &l) : same_user(r->fd) ? 0 : EACCES;
        while (!why && !s->stops)
            why = serve(r, &l);
        if (r->held) {
            r->held->release(r->held->owner);
            pthread_mutex_lock(&s->lock);
            r->held->users--;
            r->held = NULL;
            pthread_cond_broadcast(&s->left);
            pthread_mutex_unlock(&s->lock);
        }
        /* The descriptor is closed under the lock: part_server_stop shuts down those that are in the list. */
        pthread_mutex_lock(&s->lock);
        part_link_end(&l);
    } else
        pthread_mutex_lock(&s->lock);
    list_remove(&r->node);
    s->nreaders--;
    pthread_cond_broadcast(&s->left);
    pthread_mutex_unlock(&s->lock);
    free(r);
    return NULL;
}

static void take_reader(struct part_server *s, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (listener == s->tcp) /* a reply is a small frame and then others: none of them waits for an acknowledgement */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct reader *r = calloc(1, sizeof *r);
    pthread_mutex_lock(&s->lock);
    bool taken = r && s->nreaders < PART_SERVER_READERS;
    if (taken) {
        *r = (struct reader){.server = s, .fd = fd, .tcp = listener == s->tcp};
        list_append(&s->readers, &r->node);
        s->nreaders++;
        if (thread_start_detached(serve_reader, r)) {
            list_remove(&r->node);
            s->nreaders--;
            taken = false;
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (!taken) {
        close(fd);
        free(r);
    }
}

static void *accept_readers(void *arg)
{
    struct part_server *s = arg;
    struct pollfd of[3] = {
        {.fd = s->stop, .events = POLLIN}, {.fd = s->local, .events = POLLIN}, {.fd = s->tcp, .events = POLLIN}};
    while (!s->stops) {
        if (poll(of, 3, -1) < 0 && errno != EINTR)
            break;
        for (int i = 1; i < 3; i++)
            if (of[i].revents & POLLIN)
                take_reader(s, of[i].fd);
    }
    return NULL;
}

/* ---- starting and stopping ---- */

static int listen_here(struct part_server *s)
{
    unsigned char random[8];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(WEFT_EIO, "no random number for a socket: %s", strerror(errno));
    int n = snprintf(s->socket, sizeof s->socket, "weft-bus-");
    for (size_t i = 0; i < sizeof random; i++)
        n += snprintf(s->socket + n, sizeof s->socket - (size_t)n, "%02x", random[i]);
    memcpy(a.sun_path + 1, s->socket, (size_t)n);
    s->local = forks_own(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (s->local < 0 || bind(s->local, (struct sockaddr *)&a, size) || listen(s->local, 128))
        return error_set(WEFT_EIO, "no socket for readers on this host: %s", strerror(errno));
    return 0;
}

static int listen_tcp(struct part_server *s, const char *place)
{
    struct address a;
    unsigned char random[32];
    int err = address_parse(place, &a);
    if (!err && !(s->sodium = sodium_find()))
        err = WEFT_EUNSUPPORTED;
    if (!err)
        err = address_listen(&a, &s->tcp);
    if (err > 0)
        return error_set(WEFT_ETRANSPORT, "%s: readers on other hosts cannot be served there: %s", place,
                         strerror(err));
    if (err)
        return err;
    forks_own(s->tcp);
    address_format(&a, s->address);
    s->sodium->random(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(s->secret + 2 * i, 3, "%02x", random[i]);
    return 0;
}

int part_server_start(const char *place, struct part_server **out)
{
    struct part_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_nomem();
    s->local = s->tcp = -1;
    s->stop = forks_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    list_begin(&s->sources);
    list_begin(&s->readers);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->left, NULL);
    int err = s->stop < 0 ? error_set(WEFT_EIO, "no eventfd: %s", strerror(errno)) : listen_here(s);
    if (!err && place)
        err = listen_tcp(s, place);
    if (!err) {
        int why = thread_start(&s->thread, accept_readers, s);
        if (why)
            err = error_set(WEFT_EIO, "no thread can be started: %s", strerror(why));
        else {
            *out = s;
            return 0;
        }
    }
    forks_close(s->local);
    forks_close(s->tcp);
    forks_close(s->stop);
    free(s);
    return err;
}

void part_server_stop(struct part_server *s)
{
    if (!s)
        return;
    s->stops = true;
    uint64_t one = 1;
    while (write(s->stop, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&s->lock);
    for (struct list *n = list_first(&s->readers); n; n = list_after(&s->readers, n))
        shutdown(LIST_OF(n, struct reader, node)->fd, SHUT_RDWR);
    while (s->nreaders)
        pthread_cond_wait(&s->left, &s->lock);
    pthread_mutex_unlock(&s->lock);
    forks_close(s->local);
    forks_close(s->tcp);
    forks_close(s->stop);
    explicit_bzero(s->secret, sizeof s->secret);
    pthread_cond_destroy(&s->left);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

const char *part_server_socket(const struct part_server *s)
{
    return s->socket;
}

const char *part_server_address(const struct part_server *s)
{
    return s->address;
}

const char *part_server_secret(const struct part_server *s)
{
    return s->secret;
}

void part_server_add(struct part_server *s, struct part_server_source *p)
{
    pthread_mutex_lock(&s->lock);
    list_append(&s->sources, &p->node);
    pthread_mutex_unlock(&s->lock);
}

void part_server_remove(struct part_server *s, struct part_server_source *p)
{
    pthread_mutex_lock(&s->lock);
    list_remove(&p->node);
    p->leaves = true;
    for (struct list *n = list_first(&s->readers); n; n = list_after(&s->readers, n))
        if (LIST_OF(n, struct reader, node)->uses == p || LIST_OF(n, struct reader, node)->held == p)
            shutdown(LIST_OF(n, struct reader, node)->fd, SHUT_RDWR);
    while (p->users)
        pthread_cond_wait(&s->left, &s->lock);
    pthread_mutex_unlock(&s->lock);
}
