#include "rendezvous/connection.h"

#include <stdlib.h>
#include <string.h>

void connection_begin(struct connection *c, int64_t now)
{
    *c = (struct connection){.stage = CONNECTION_HELLO, .want = FRAME_HELLO, .since = now};
}

void connection_end(struct connection *c, struct server_state *d)
{
    server_state_leave(d, &c->client);
    frame_forget(&c->end);
    free(c->in);
    free(c->out);
    c->in = c->out = NULL;
}

bool connection_known(const struct connection *c)
{
    return c->stage >= CONNECTION_LENGTH;
}

size_t connection_room(struct connection *c, unsigned char **at)
{
    if (c->broken || c->client.waits || c->out_at < c->out_end)
        return 0;
    *at = (c->stage == CONNECTION_MESSAGE ? c->in : c->first) + c->have;
    return c->want - c->have;
}

static void expect(struct connection *c, enum connection_stage stage, size_t bytes)
{
    c->stage = stage;
    c->want = bytes;
    c->have = 0;
}

/* Makes room for n more bytes to send. */
static unsigned char *say(struct connection *c, size_t n)
{
    if (c->out_at == c->out_end)
        c->out_at = c->out_end = 0;
    unsigned char *out = realloc(c->out, c->out_end + n);
    if (!out) {
        c->broken = true;
        return NULL;
    }
    c->out = out;
    c->out_end += n;
    return out + c->out_end - n;
}

/* Most connections are idle for most of their time: they keep no buffers. */
void connection_sent(struct connection *c)
{
    free(c->out);
    c->out = NULL;
    c->out_at = c->out_end = 0;
}

void connection_answer(struct server_state *d, struct server_client *client, const struct frame_reply *r)
{
    (void)d;
    struct connection *c = (struct connection *)client;
    unsigned char *message = malloc(FRAME_HEAD + r->bytes), *frame = NULL;
    if (message)
        frame = say(c, FRAME_LENGTH + FRAME_HEAD + r->bytes + SODIUM_TAG);
    if (frame)
        frame_seal(&c->end, message, frame_put_reply(message, r), frame);
    c->broken |= !frame;
    free(message);
}

/* Other versions have hellos of other lengths: the first bytes are enough to tell them. */
static bool is_strange(struct connection *c)
{
    enum frame_version v = c->have < FRAME_MAGIC_SIZE ? FRAME_SAME : frame_version(c->first);
    unsigned char *hello = v == FRAME_OTHER ? say(c, FRAME_HELLO) : NULL;
    if (hello)
        memcpy(memset(hello, 0, FRAME_HELLO), FRAME_MAGIC, FRAME_MAGIC_SIZE);
    return v != FRAME_SAME;
}

static bool greet(struct connection *c, const struct sodium *na, const struct connection_keys *keys)
{
    unsigned char *hello = say(c, FRAME_HELLO);
    if (!hello)
        return false;
    frame_begin(&c->end, na, true, keys->of[0].key, FRAME_CHACHA, hello);
    if (!frame_meet(&c->end, c->first)) {
        c->out_end = c->out_at; /* it does not name the cipher that all have: it gets no answer */
        return false;
    }
    expect(c, CONNECTION_PROOF, FRAME_PROOF);
    return true;
}

/* Which of the tokens does the client have? */
static bool believe(struct connection *c, const struct connection_keys *keys)
{
    for (int i = 0; i < keys->n; i++) {
        if (i)
            frame_rekey(&c->end, keys->of[i].key);
        if (frame_believe(&c->end, c->first)) {
            c->client.rights = keys->of[i].rights;
            return true;
        }
    }
    return false;
}

static bool examine(struct connection *c, const struct connection_keys *keys)
{
    unsigned char *decision = say(c, FRAME_DECISION);
    if (!decision)
        return false;
    memset(decision, 0, FRAME_DECISION);
    decision[0] = !believe(c, keys);
    if (decision[0])
        return false;
    frame_prove(&c->end, decision + 1);
    expect(c, CONNECTION_LENGTH, FRAME_LENGTH);
    c->since = 0;
    return true;
}

static bool measure(struct connection *c)
{
    size_t n = frame_length(c->first);
    if (!n)
        return false;
    c->in = malloc(n);
    if (!c->in)
        return false;
    expect(c, CONNECTION_MESSAGE, n);
    return true;
}

static bool hear(struct connection *c, struct server_state *d, int64_t now)
{
    struct frame_request r;
    bool fine = frame_open(&c->end, c->in, c->want) && frame_take_request(c->in, c->want - SODIUM_TAG, &r) &&
                server_state_ask(d, &c->client, &r, now);
    free(c->in);
    c->in = NULL;
    expect(c, CONNECTION_LENGTH, FRAME_LENGTH);
    c->since = 0;
    return fine && !c->broken;
}

bool connection_take(struct connection *c, size_t n, struct server_state *d, const struct sodium *na,
                     const struct connection_keys *keys, int64_t now)
{
    c->have += n;
    if (connection_known(c) && !c->since)
        c->since = now;
    if (c->stage == CONNECTION_HELLO && is_strange(c))
        return false;
    if (c->have < c->want)
        return true;
    switch (c->stage) {
    case CONNECTION_HELLO: return greet(c, na, keys);
    case CONNECTION_PROOF: return examine(c, keys);
    case CONNECTION_LENGTH: return measure(c);
    case CONNECTION_MESSAGE: break;
    }
    return hear(c, d, now);
}
