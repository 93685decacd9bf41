#define _GNU_SOURCE
#include "crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/deadline.h"

#define WAIT_MS 60000

static bool wrong(struct crowd *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!c->text[0])
        vsnprintf(c->text, sizeof c->text, fmt, args);
    va_end(args);
    return false;
}

static bool put(struct crowd *c, int i, const void *bytes, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t more = send(c->client[i].fd, (const char *)bytes + sent, n - sent, MSG_NOSIGNAL);
        if (more < 0)
            return wrong(c, "rank %d: send: %s", i, strerror(errno));
        sent += (size_t)more;
    }
    return true;
}

static bool take(struct crowd *c, int i, void *bytes, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t more = recv(c->client[i].fd, (char *)bytes + got, n - got, 0);
        if (more <= 0)
            return wrong(c, "rank %d: recv: %s", i, more ? strerror(errno) : "the server has closed");
        got += (size_t)more;
    }
    return true;
}

static bool prove(struct crowd *c, int i, const unsigned char *key)
{
    unsigned char hello[FRAME_HELLO], proof[FRAME_PROOF], decision[FRAME_DECISION];
    struct frame_end *end = &c->client[i].end;
    frame_begin(end, sodium_find(), false, key, FRAME_CHACHA, hello);
    if (!put(c, i, hello, sizeof hello) || !take(c, i, hello, sizeof hello))
        return false;
    if (!frame_meet(end, hello))
        return wrong(c, "rank %d: the server says %.8s", i, (const char *)hello);
    frame_prove(end, proof);
    if (!put(c, i, proof, sizeof proof) || !take(c, i, decision, sizeof decision))
        return false;
    return (!decision[0] && frame_believe(end, decision + 1)) || wrong(c, "rank %d: not believed", i);
}

bool crowd_connect(struct crowd *c, int n, const struct address *at, const char *token)
{
    unsigned char key[SODIUM_KEY];
    struct timeval limit = {.tv_sec = 60};
    *c = (struct crowd){.n = n};
    c->client = calloc((size_t)n, sizeof *c->client);
    c->message = malloc(FRAME_MESSAGE_MAX);
    c->frame = malloc(FRAME_LENGTH + FRAME_FRAME_MAX);
    if (!c->client || !c->message || !c->frame)
        return wrong(c, "no memory");
    for (int i = 0; i < n; i++)
        c->client[i].fd = -1;
    frame_token_key(sodium_find(), token, key);
    for (int i = 0; i < n; i++) {
        int *fd = &c->client[i].fd, err = address_connect(at, deadline_now() + INT64_C(60000000000), fd);
        if (err)
            return wrong(c, "rank %d: connect: %s", i, strerror(err));
        fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) & ~O_NONBLOCK);
        setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (!prove(c, i, key))
            return false;
    }
    return true;
}

static bool ask_for(struct crowd *c, int i, enum frame_op op, const char *key, int64_t number, const void *value,
                    size_t bytes, uint32_t wait_ms)
{
    struct frame_request q = {.op = op,
                              .key = key,
                              .key_len = strlen(key),
                              .number = number,
                              .wait_ms = wait_ms,
                              .value = value,
                              .bytes = bytes};
    size_t n = frame_seal(&c->client[i].end, c->message, frame_put_request(c->message, &q), c->frame);
    return put(c, i, c->frame, n);
}

static bool ask(struct crowd *c, int i, enum frame_op op, const char *key, int64_t number, const void *value,
                size_t bytes)
{
    return ask_for(c, i, op, key, number, value, bytes, WAIT_MS);
}

bool crowd_ask(struct crowd *c, int i, enum frame_op op, const char *key, int64_t number, uint32_t wait_ms)
{
    return ask_for(c, i, op, key, number, NULL, 0, wait_ms);
}

bool crowd_reply(struct crowd *c, int i, struct frame_reply *r)
{
    unsigned char length[FRAME_LENGTH];
    if (!take(c, i, length, sizeof length))
        return false;
    size_t n = frame_length(length);
    if (!n || !take(c, i, c->frame, n) || !frame_open(&c->client[i].end, c->frame, n) ||
        !frame_take_reply(c->frame, n - SODIUM_TAG, r))
        return wrong(c, "rank %d: the reply does not open", i);
    return !r->code || wrong(c, "rank %d: %d %.*s", i, r->code, (int)r->bytes, (const char *)r->value);
}

bool crowd_join(struct crowd *c, const char *name)
{
    struct frame_reply r;
    for (int i = 0; i < c->n; i++)
        if (!ask(c, i, FRAME_JOIN, name, (int64_t)i | (int64_t)c->n << 32, NULL, 0))
            return false;
    for (int i = 0; i < c->n; i++)
        if (!crowd_reply(c, i, &r))
            return false;
    return true;
}

/* A value that no other rank has. */
static void value_of(int rank, unsigned char *value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        value[i] = (unsigned char)((unsigned)rank >> (i % 4 * 8));
}

bool crowd_offer(struct crowd *c, const char *prefix, size_t bytes)
{
    char key[STORE_KEY_MAX];
    unsigned char value[1024];
    struct frame_reply r;
    for (int i = 0; i < c->n; i++) {
        snprintf(key, sizeof key, "%s/%d", prefix, i);
        value_of(i, value, bytes);
        if (!ask(c, i, FRAME_SET, key, 0, value, bytes))
            return false;
    }
    for (int i = 0; i < c->n; i++)
        if (!crowd_reply(c, i, &r))
            return false;
    return true;
}

bool crowd_part(struct crowd *c, const char *prefix, int step, size_t bytes)
{
    char key[STORE_KEY_MAX];
    unsigned char value[1024];
    struct frame_reply r;
    for (int i = 0; i < c->n; i++) {
        snprintf(key, sizeof key, "%s/%d", prefix, (i + step) % c->n);
        if (!ask(c, i, FRAME_GET, key, 0, NULL, 0))
            return false;
    }
    for (int i = 0; i < c->n; i++) {
        value_of((i + step) % c->n, value, bytes);
        if (!crowd_reply(c, i, &r))
            return false;
        if (r.bytes != bytes || memcmp(r.value, value, bytes))
            return wrong(c, "rank %d got a wrong value", i);
    }
    return true;
}

bool crowd_await(struct crowd *c, const char *key)
{
    struct frame_reply r;
    for (int i = 1; i < c->n; i++)
        if (!ask(c, i, FRAME_GET, key, 0, NULL, 0))
            return false;
    if (!ask(c, 0, FRAME_SET, key, 0, "go", 2) || !crowd_reply(c, 0, &r))
        return false;
    for (int i = 1; i < c->n; i++)
        if (!crowd_reply(c, i, &r) || r.bytes != 2 || memcmp(r.value, "go", 2))
            return wrong(c, "rank %d: not woken", i);
    return true;
}

static bool take_chunk(struct crowd *c, int i, size_t bytes)
{
    unsigned char value[1024];
    struct frame_reply r;
    int *got = &c->client[i].got;
    if (!crowd_reply(c, i, &r))
        return false;
    if (r.number < 1 || r.bytes != (size_t)r.number * (4 + bytes))
        return wrong(c, "rank %d: a chunk of %lld values has %zu bytes", i, (long long)r.number, r.bytes);
    for (int64_t k = 0; k < r.number; k++) {
        value_of(*got + (int)k, value, bytes);
        if (memcmp(r.value + (size_t)k * (4 + bytes) + 4, value, bytes))
            return wrong(c, "rank %d gathered a wrong value of rank %d", i, *got + (int)k);
    }
    *got += (int)r.number;
    return true;
}

bool crowd_gather(struct crowd *c, const char *prefix, size_t bytes)
{
    bool more = true;
    for (int i = 0; i < c->n; i++)
        c->client[i].got = 0;
    while (more) {
        more = false;
        for (int i = 0; i < c->n; i++)
            if (c->client[i].got < c->n && !ask(c, i, FRAME_GATHER, prefix, c->client[i].got, NULL, 0))
                return false;
        for (int i = 0; i < c->n; i++) {
            if (c->client[i].got == c->n)
                continue;
            if (!take_chunk(c, i, bytes))
                return false;
            more |= c->client[i].got < c->n;
        }
    }
    return true;
}

void crowd_leave(struct crowd *c)
{
    for (int i = 0; c->client && i < c->n; i++) {
        if (c->client[i].fd < 0)
            continue;
        ask(c, i, FRAME_LEAVE, "", 0, NULL, 0);
        close(c->client[i].fd);
    }
    free(c->client);
    free(c->message);
    free(c->frame);
    c->client = NULL;
}
