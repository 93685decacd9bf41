#define _GNU_SOURCE
#include "version/part_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/blake2s.h"
#include "base/error.h"
#include "base/math.h"
#include "rendezvous/address.h"
#include "rendezvous/deadline.h"
#include "rendezvous/dial.h"

/* The time until which the next bytes must come. */
static int64_t turn(const struct part_client *c, int64_t until)
{
    return min64(until, deadline_in(c->silence));
}

static int failed(const struct part_client *c, int why)
{
    return error_set(why == EPROTO ? WEFT_EMISMATCH : WEFT_EPEER, "%s %s", c->name,
                     why == ETIMEDOUT ? "does not answer in time"
                     : why == EPROTO  ? "sent bytes that do not fit the protocol"
                                      : "has gone");
}

static int connect_here(struct part_client *c, int *out)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(c->slot->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(WEFT_EIO, "no socket: %s", strerror(errno));
    memcpy(a.sun_path + 1, c->slot->socket, n);
    if (connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n))) {
        int why = errno;
        close(fd);
        return error_set(WEFT_EPEER, "%s cannot be reached: %s", c->name, strerror(why));
    }
    *out = fd;
    return 0;
}

static int connect_there(struct part_client *c, int64_t until)
{
    struct address a;
    const struct sodium *na;
    uint64_t full;
    int fd, why = 0;
    if (!c->slot->address[0])
        return error_set(WEFT_EPEER,
                         "%s is on another host and does not listen for readers of other hosts "
                         "(weft_bus_opts.listen)",
                         c->name);
    int err = address_parse(c->slot->address, &a);
    if (err)
        return err;
    if (!(na = sodium_find()))
        return WEFT_EUNSUPPORTED;
    why = address_connect(&a, turn(c, until), &fd);
    if (why)
        return why < 0
                   ? why
                   : error_set(WEFT_EPEER, "%s cannot be reached at %s: %s", c->name, c->slot->address, strerror(why));
    err = part_link_begin(&c->link, fd);
    if (err)
        return err;
    c->link.sealed = true;
    enum dial_result result =
        dial_prove(fd, na, c->slot->secret, frame_ciphers(), turn(c, until), &c->link.end, &why, &full);
    if (result == DIAL_PROVED)
        return 0;
    if (result == DIAL_STRANGE)
        return error_set(WEFT_EPEER, "%s at %s has another version of weft", c->name, c->slot->address);
    if (result == DIAL_AGAIN && why == ECONNRESET) /* as versions before 6 do */
        return error_set(WEFT_EPEER, "%s at %s closes the connection: has it another version of weft?", c->name,
                         c->slot->address);
    return error_set(WEFT_EPEER, "%s at %s does not prove that it has the secret of its record", c->name,
                     c->slot->address);
}

int part_client_open(const char *host, const char *set, const struct catalog_slot *slot, int64_t silence, int64_t until,
                     struct part_client *out)
{
    int fd = -1;
    *out = (struct part_client){
        .link.fd = -1, .silence = silence, .slot = slot, .set = set, .local = !strcmp(host, slot->host)};
    if (slot->relay)
        snprintf(out->name, sizeof out->name, "relay %s", slot->job);
    else if (slot->agent)
        snprintf(out->name, sizeof out->name, "agent %s", slot->job);
    else
        snprintf(out->name, sizeof out->name, "rank %d of publisher %s", slot->rank, slot->job);
    int err = out->local ? connect_here(out, &fd) : connect_there(out, until);
    if (!err && out->local)
        err = part_link_begin(&out->link, fd);
    if (err)
        part_client_close(out);
    return err;
}

void part_client_close(struct part_client *c)
{
    if (c->link.buffer)
        part_link_end(&c->link);
    c->link.fd = -1;
}

static int take(struct part_client *c, unsigned char *to, int64_t n, int64_t until, bool *torn);

/* The text of a refusal. */
static int refused(struct part_client *c, const struct part_link_message *r, int64_t until)
{
    unsigned char text[ERROR_TEXT];
    bool torn;
    if (!r->bytes)
        return error_set(WEFT_EPEER, "%s no longer has what its record says", c->name);
    if (r->bytes >= (int64_t)sizeof text || r->op > 0)
        return failed(c, EPROTO);
    int err = take(c, text, r->bytes, until, &torn);
    if (!err && torn)
        err = failed(c, ECONNRESET);
    text[r->bytes] = 0;
    return err ? err : error_set(r->op, "%s", (const char *)text);
}

/* Sends a request, with a bitmap of m->count bits if there is one, and takes the head of the reply. */
static int ask(struct part_client *c, struct part_link_message *m, const unsigned char *bits, int64_t until,
               struct part_link_message *r)
{
    const unsigned char *in;
    size_t n = 0, name = strlen(c->set), map = bits ? (size_t)(m->count + 7) / 8 : 0;
    unsigned char *request = malloc(sizeof *m + name + map);
    if (!request)
        return error_nomem();
    m->name = (uint32_t)name;
    memcpy(request, m, sizeof *m);
    memcpy(request + sizeof *m, c->set, name);
    if (map)
        memcpy(request + sizeof *m + name, bits, map);
    int why = part_link_send(&c->link, request, sizeof *m + name + map, turn(c, until));
    free(request);
    if (!why)
        why = part_link_receive(&c->link, &in, &n, turn(c, until));
    if (!why && n != sizeof *r)
        why = EPROTO;
    if (why)
        return failed(c, why);
    memcpy(r, in, sizeof *r);
    if (r->magic != PART_LINK_MAGIC || r->bytes < 0)
        return failed(c, EPROTO);
    return r->op ? refused(c, r, until) : 0;
}

static int take(struct part_client *c, unsigned char *to, int64_t n, int64_t until, bool *torn)
{
    *torn = false;
    for (int64_t at = 0; at < n;) {
        size_t have;
        int why = part_link_receive_data(&c->link, torn, to + at, (size_t)(n - at), &have, turn(c, until));
        if (why)
            return failed(c, why);
        if (*torn)
            return 0;
        at += (int64_t)have;
    }
    return 0;
}

static struct part_link_message message(const struct part_client *c, enum part_link_op op,
                                        const struct part_client_of *of)
{
    struct part_link_message m = {.magic = PART_LINK_MAGIC, .op = (int32_t)op, .rank = c->slot->rank};
    m.epoch = c->slot->epoch;
    m.flags = c->slot->relay ? PART_LINK_RELAY : 0;
    if (of) {
        m.rank = of->rank;
        m.epoch = of->version.epoch;
        m.step = of->version.step;
        m.generation = of->generation;
    }
    return m;
}

struct part_client_of part_client_of(const struct catalog_part *p)
{
    struct part_client_of of = {
        .version = p->version, .rank = p->rank, .generation = p->generation, .digests = p->digests};
    memcpy(of.hash, p->hash, sizeof of.hash);
    return of;
}

int part_client_layouts(struct part_client *c, int64_t until, unsigned char **bytes, size_t *size)
{
    struct part_link_message m = message(c, PART_LINK_LAYOUTS, NULL), r;
    bool torn;
    int err = ask(c, &m, NULL, until, &r);
    if (err)
        return err;
    int64_t n = r.bytes;
    if ((uint64_t)n > SCHEMA_BYTES_MAX)
        return failed(c, EPROTO);
    unsigned char *to = malloc((size_t)n + 1);
    if (!to)
        return error_nomem();
    err = take(c, to, n, until, &torn);
    if (!err && torn)
        err = failed(c, ECONNRESET);
    if (err) {
        free(to);
        return err;
    }
    *bytes = to;
    *size = (size_t)n;
    return 0;
}

int part_client_part(struct part_client *c, const struct part_client_of *of, unsigned char *digests, size_t size,
                     int64_t until, int *file, uint64_t *generation)
{
    struct part_link_message m = message(c, PART_LINK_PART, of), r;
    unsigned char hash[CATALOG_PART];
    struct blake2s b;
    bool torn;
    m.flags |= c->local ? PART_LINK_FILE : 0;
    *file = -1;
    int err = ask(c, &m, NULL, until, &r);
    if (!err && r.bytes != (int64_t)(of->digests ? size : 0))
        err = error_set(WEFT_EMISMATCH, "%s has %lld bytes of digests, and %zu are expected", c->name,
                        (long long)r.bytes, size);
    if (!err)
        err = take(c, digests, r.bytes, until, &torn);
    if (!err && torn)
        err = failed(c, ECONNRESET);
    if (err)
        return err;
    *generation = r.generation;
    blake2s_begin(&b, sizeof hash, NULL, 0);
    blake2s_add(&b, digests, (size_t)r.bytes);
    blake2s_end(&b, hash);
    if (memcmp(hash, of->hash, sizeof hash))
        return error_set(WEFT_EMISMATCH, "%s has digests that are not those of the version's record", c->name);
    int why = c->local && r.flags & PART_LINK_FILE ? part_link_receive_file(&c->link, file, turn(c, until)) : 0;
    return why ? failed(c, why) : 0;
}

int part_client_read(struct part_client *c, const struct part_client_of *of, int64_t at, int64_t n, void *to,
                     int64_t until, bool *torn)
{
    struct part_link_message m = message(c, PART_LINK_READ, of), r;
    m.at = at;
    m.count = n;
    int err = ask(c, &m, NULL, until, &r);
    if (!err && r.bytes != n)
        err = failed(c, EPROTO);
    return err ? err : take(c, to, n, until, torn);
}

#define PAYLOAD_MAX (2 * PART_LINK_MOST) /* heads and bytes */

int part_client_take(struct part_client *c, const struct part_client_of *of, struct part_link_message *m,
                     const unsigned char *wanted, int64_t until, struct part_client_blocks *out)
{
    struct part_link_message full = message(c, PART_LINK_TAKE, of), r;
    bool torn;
    full.flags |= m->flags;
    full.at = m->at;
    full.count = m->count;
    full.who = m->who;
    full.lost = m->lost;
    full.base = m->base;
    full.most = m->most;
    int err = ask(c, &full, wanted, until, &r);
    if (!err && (r.bytes > PAYLOAD_MAX || r.count < 0 || r.count > r.bytes / (int64_t)sizeof(struct part_link_block) ||
                 !r.count != !r.bytes))
        err = failed(c, EPROTO);
    if (err)
        return err;
    if (out->room < (size_t)r.bytes) {
        free(out->payload);
        out->payload = malloc(PAYLOAD_MAX);
        out->room = out->payload ? PAYLOAD_MAX : 0;
        if (!out->payload)
            return error_nomem();
    }
    err = take(c, out->payload, r.bytes, until, &torn);
    bool whole = !err && r.bytes && !torn;
    out->size = whole ? (size_t)r.bytes : 0;
    out->n = whole ? (size_t)r.count : 0;
    return err;
}

int part_client_keep(struct part_client *c, const struct part_client_of *of, int64_t until)
{
    struct part_link_message m = message(c, PART_LINK_KEEP, of), r;
    struct ucred agent;
    socklen_t size = sizeof agent; /* it will be given memory, and any user can listen at a name without a file */
    if (getsockopt(c->link.fd, SOL_SOCKET, SO_PEERCRED, &agent, &size) || (agent.uid != geteuid() && agent.uid))
        return error_set(WEFT_EPEER, "%s is not a process of this user", c->name);
    m.flags |= of->digests ? PART_LINK_DIGESTS : 0;
    memcpy(&m.who, of->hash, sizeof m.who);
    memcpy(&m.lost, of->hash + sizeof m.who, sizeof m.lost);
    return ask(c, &m, NULL, until, &r);
}

int part_client_await(struct part_client *c, const struct part_client_of *of, int64_t at, int64_t count,
                      const unsigned char *wanted, uint32_t flags, int64_t until, int64_t *missing)
{
    struct part_link_message m = message(c, PART_LINK_AWAIT, of), r;
    m.at = at;
    m.count = count;
    m.flags |= flags;
    int err = ask(c, &m, wanted, until, &r);
    *missing = err ? 0 : r.count;
    return err;
}
