/* The served store fed with any bytes: two connections, each with what the input has for it, in turns. An input that
 * begins with an odd byte has the proof made right, and its messages sealed, so that a change reaches what is behind.
 * Whatever comes, a connection holds one message at most, and when both are over nothing is held.
 *
 * libsodium is played by a hash that anybody can compute: here it is not the secrets that are tried. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rendezvous/connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

/* ---- a libsodium without secrets ---- */

static void play_random(void *bytes, size_t n)
{
    memset(bytes, 42, n);
}

static int play_hash(unsigned char *out, size_t outlen, const unsigned char *in, unsigned long long inlen,
                     const unsigned char *key, size_t keylen)
{
    uint64_t h = hash_bytes(hash_bytes(0, key, keylen), in, (size_t)inlen);
    for (size_t i = 0; i < outlen; i++)
        out[i] = (unsigned char)(h = hash_u64(h, i));
    return 0;
}

static uint64_t tag_of(const unsigned char *m, unsigned long long n, const unsigned char *ad, unsigned long long adlen,
                       const unsigned char *nonce, const unsigned char *key)
{
    uint64_t h = hash_bytes(hash_bytes(0, key, SODIUM_KEY), nonce, SODIUM_NONCE);
    return hash_bytes(hash_bytes(h, ad, (size_t)adlen), m, (size_t)n);
}

static int play_seal(unsigned char *c, unsigned long long *clen, const unsigned char *m, unsigned long long mlen,
                     const unsigned char *ad, unsigned long long adlen, const unsigned char *nothing,
                     const unsigned char *nonce, const unsigned char *key)
{
    uint64_t tag[2] = {tag_of(m, mlen, ad, adlen, nonce, key), 0};
    (void)clen, (void)nothing;
    memmove(c, m, (size_t)mlen);
    memcpy(c + mlen, tag, sizeof tag);
    return 0;
}

static int play_open(unsigned char *m, unsigned long long *mlen, unsigned char *nothing, const unsigned char *c,
                     unsigned long long clen, const unsigned char *ad, unsigned long long adlen,
                     const unsigned char *nonce, const unsigned char *key)
{
    uint64_t tag[2] = {tag_of(c, clen - SODIUM_TAG, ad, adlen, nonce, key), 0};
    (void)mlen, (void)nothing;
    memmove(m, c, (size_t)clen - SODIUM_TAG);
    return memcmp(c + clen - SODIUM_TAG, tag, sizeof tag) ? -1 : 0;
}

static int play_same(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) ? -1 : 0;
}

static void play_wipe(void *bytes, size_t n)
{
    memset(bytes, 0, n);
}

static const struct sodium play = {play_random, play_hash, play_seal, play_open, play_same, play_wipe};
static const unsigned char key[SODIUM_KEY] = "any";
static const struct connection_keys keys = {.n = 1, .of = {{.key = "any"}}};

/* ---- one connection ---- */

struct caller {
    struct connection connection;
    struct frame_end end; /* the client's, where it is made right */
    bool over;
};

static struct server_state state;
static int64_t now;

/* Hands bytes to the connection as a socket would: as many as it asks for. What it sends is discarded. */
static void feed(struct caller *c, const unsigned char *bytes, size_t n)
{
    while (!c->over) {
        unsigned char *at;
        must(c->connection.out_end - c->connection.out_at <= FRAME_HELLO + FRAME_LENGTH + FRAME_FRAME_MAX);
        c->connection.out_at = c->connection.out_end;
        size_t room = connection_room(&c->connection, &at);
        must(room <= FRAME_FRAME_MAX);
        if (!room || !n)
            return;
        size_t some = room < n ? room : n;
        memcpy(at, bytes, some);
        bytes += some;
        n -= some;
        c->over = !connection_take(&c->connection, some, &state, &play, &keys, now++);
    }
}

static void greet(struct caller *c)
{
    unsigned char hello[FRAME_HELLO], proof[FRAME_PROOF];
    frame_begin(&c->end, &play, false, key, FRAME_CHACHA, hello);
    unsigned char *at;
    must(connection_room(&c->connection, &at) == FRAME_HELLO);
    memcpy(at, hello, FRAME_HELLO);
    must(connection_take(&c->connection, FRAME_HELLO, &state, &play, &keys, now));
    must(frame_meet(&c->end, c->connection.out));
    c->connection.out_at = c->connection.out_end;
    frame_prove(&c->end, proof);
    feed(c, proof, sizeof proof);
    must(!c->over && connection_known(&c->connection));
}

/* A message of the input's, in a frame that is right. */
static void feed_sealed(struct caller *c, const unsigned char *bytes, size_t n)
{
    unsigned char frame[FRAME_LENGTH + 512 + SODIUM_TAG], message[512] = {0};
    if (n < FRAME_HEAD) { /* a short one is padded, else most would fail at the length */
        memcpy(message, bytes, n);
        n = FRAME_HEAD;
    } else {
        memcpy(message, bytes, n);
    }
    if (!c->over && !c->connection.client.waits)
        feed(c, frame, frame_seal(&c->end, message, n, frame));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct caller callers[2] = {{.over = false}, {.over = false}};
    struct frame_reply r;
    bool sealed = size && data[0] & 1;
    if (frame_take_reply(data, size, &r))
        must(r.code <= 0 && r.bytes == size - FRAME_HEAD);
    state = (struct server_state){.served_by = -1, .answer = connection_answer};
    now = 1;
    for (int i = 0; i < 2; i++) {
        connection_begin(&callers[i].connection, now);
        if (sealed)
            greet(&callers[i]);
    }
    for (size_t at = 1; at < size;) {
        struct caller *c = &callers[data[at] & 1];
        size_t n = data[at] >> 1, left = size - at - 1;
        n = n < left ? n : left;
        if (sealed)
            feed_sealed(c, data + at + 1, n);
        else
            feed(c, data + at + 1, n);
        at += 1 + n;
        if (data[at - 1] == 0xff)
            now += INT64_C(1000000000) << 20;
        while (server_state_next(&state)) {
        }
        must(server_state_expire(&state, now) > now);
    }
    connection_end(&callers[0].connection, &state);
    connection_end(&callers[1].connection, &state);
    server_state_end(&state);
    must(!state.sessions && !state.bytes);
    return 0;
}
