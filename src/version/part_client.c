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
    if (dial_prove(fd, na, c->slot->secret, turn(c, until), &c->link.end, &why, &full) == DIAL_PROVED)
        return 0;
    return error_set(WEFT_EPEER, "%s at %s does not prove that it has the secret of its record", c->name,
                     c->slot->address);
}

int part_client_open(const char *host, const char *set, const struct catalog_slot *slot, int64_t silence, int64_t until,
                     struct part_client *out)
{
    int fd = -1;
    *out = (struct part_client){
        .link.fd = -1, .silence = silence, .slot = slot, .set = set, .local = !strcmp(host, slot->host)};
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

/* Sends a request and takes the head of the reply. */
static int ask(struct part_client *c, const struct part_link_message *m, int64_t until, int64_t *bytes)
{
    unsigned char request[sizeof *m + WEFT_BUS_NAME];
    const unsigned char *in;
    struct part_link_message r;
    size_t n = strlen(c->set);
    memcpy(request, m, sizeof *m);
    memcpy(request + sizeof *m, c->set, n);
    int why = part_link_send(&c->link, request, sizeof *m + n, turn(c, until));
    if (!why)
        why = part_link_receive(&c->link, &in, &n, turn(c, until));
    if (!why && n != sizeof r)
        why = EPROTO;
    if (why)
        return failed(c, why);
    memcpy(&r, in, sizeof r);
    if (r.magic != PART_LINK_MAGIC || r.bytes < 0)
        return failed(c, EPROTO);
    if (r.op)
        return error_set(WEFT_EPEER, "%s no longer has what its record says", c->name);
    *bytes = r.bytes;
    return 0;
}

static int take(struct part_client *c, unsigned char *to, int64_t n, int64_t until, bool *torn)
{
    *torn = false;
    for (int64_t at = 0; at < n;) {
        const unsigned char *in;
        size_t have;
        int why = part_link_receive(&c->link, &in, &have, turn(c, until));
        if (!why && (have < PART_LINK_HEAD || (int64_t)(have - PART_LINK_HEAD) > n - at || in[0] > 1 ||
                     (have == PART_LINK_HEAD && !in[0])))
            why = EPROTO;
        if (why)
            return failed(c, why);
        *torn = in[0];
        if (*torn)
            return 0;
        memcpy(to + at, in + PART_LINK_HEAD, have - PART_LINK_HEAD);
        at += (int64_t)(have - PART_LINK_HEAD);
    }
    return 0;
}

static struct part_link_message message(const struct part_client *c, enum part_link_op op)
{
    return (struct part_link_message){
        .magic = PART_LINK_MAGIC, .op = (int32_t)op, .rank = c->slot->rank, .epoch = c->slot->epoch};
}

int part_client_layouts(struct part_client *c, int64_t until, unsigned char **bytes, size_t *size)
{
    struct part_link_message m = message(c, PART_LINK_LAYOUTS);
    int64_t n;
    bool torn;
    int err = ask(c, &m, until, &n);
    if (err)
        return err;
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

int part_client_part(struct part_client *c, const struct catalog_part *part, unsigned char *digests, size_t size,
                     int64_t until, int *file)
{
    struct part_link_message m = message(c, PART_LINK_PART);
    unsigned char hash[CATALOG_PART];
    struct blake2s b;
    int64_t n;
    bool torn;
    m.step = part->version.step;
    m.generation = part->generation;
    m.file = c->local;
    *file = -1;
    int err = ask(c, &m, until, &n);
    if (!err && n != (int64_t)(part->digests ? size : 0))
        err = error_set(WEFT_EMISMATCH, "%s has %lld bytes of digests, and %zu are expected", c->name, (long long)n,
                        size);
    if (!err)
        err = take(c, digests, n, until, &torn);
    if (!err && torn)
        err = failed(c, ECONNRESET);
    if (err)
        return err;
    blake2s_begin(&b, sizeof hash, NULL, 0);
    blake2s_add(&b, digests, (size_t)n);
    blake2s_end(&b, hash);
    if (memcmp(hash, part->hash, sizeof hash))
        return error_set(WEFT_EMISMATCH, "%s has digests that are not those of the version's record", c->name);
    int why = c->local ? part_link_receive_file(&c->link, file, turn(c, until)) : 0;
    return why ? failed(c, why) : 0;
}

int part_client_read(struct part_client *c, const struct catalog_part *part, int64_t at, int64_t n, void *to,
                     int64_t until, bool *torn)
{
    struct part_link_message m = message(c, PART_LINK_READ);
    int64_t bytes;
    m.step = part->version.step;
    m.generation = part->generation;
    m.at = at;
    m.count = n;
    int err = ask(c, &m, until, &bytes);
    if (!err && bytes != n)
        err = failed(c, EPROTO);
    return err ? err : take(c, to, n, until, torn);
}
