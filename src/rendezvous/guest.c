#include "rendezvous/guest.h"

#include <stdlib.h>
#include <string.h>

void guest_begin(struct guest *g, int64_t now)
{
    *g = (struct guest){.stage = GUEST_HELLO, .want = FRAME_HELLO, .since = now};
}

void guest_end(struct guest *g, struct desk *d)
{
    desk_leave(d, &g->at_desk);
    frame_forget(&g->end);
    free(g->in);
    free(g->out);
    g->in = g->out = NULL;
}

bool guest_known(const struct guest *g)
{
    return g->stage >= GUEST_LENGTH;
}

size_t guest_room(struct guest *g, unsigned char **at)
{
    if (g->broken || g->at_desk.waits || g->out_at < g->out_end)
        return 0;
    *at = (g->stage == GUEST_MESSAGE ? g->in : g->first) + g->have;
    return g->want - g->have;
}

static void expect(struct guest *g, enum guest_stage stage, size_t bytes)
{
    g->stage = stage;
    g->want = bytes;
    g->have = 0;
}

/* Room for n more bytes to be sent. */
static unsigned char *say(struct guest *g, size_t n)
{
    if (g->out_at == g->out_end)
        g->out_at = g->out_end = 0;
    unsigned char *out = realloc(g->out, g->out_end + n);
    if (!out) {
        g->broken = true;
        return NULL;
    }
    g->out = out;
    g->out_end += n;
    return out + g->out_end - n;
}

void guest_answer(struct desk_guest *at_desk, const struct frame_reply *r)
{
    struct guest *g = (struct guest *)at_desk;
    unsigned char *message = malloc(FRAME_HEAD + r->bytes), *frame = NULL;
    if (message)
        frame = say(g, FRAME_LENGTH + FRAME_HEAD + r->bytes + SODIUM_TAG);
    if (frame)
        frame_seal(&g->end, message, frame_put_reply(message, r), frame);
    g->broken |= !frame;
    free(message);
}

static bool greet(struct guest *g, const struct sodium *na, const unsigned char *key)
{
    unsigned char *hello = say(g, FRAME_HELLO);
    if (!hello)
        return false;
    frame_begin(&g->end, na, true, key, hello);
    if (!frame_meet(&g->end, g->first)) {
        g->out_end = g->out_at; /* somebody else's protocol: no word */
        return false;
    }
    expect(g, GUEST_PROOF, FRAME_PROOF);
    return true;
}

static bool examine(struct guest *g)
{
    unsigned char *verdict = say(g, FRAME_VERDICT);
    if (!verdict)
        return false;
    memset(verdict, 0, FRAME_VERDICT);
    verdict[0] = !frame_believe(&g->end, g->first);
    if (verdict[0])
        return false;
    frame_prove(&g->end, verdict + 1);
    expect(g, GUEST_LENGTH, FRAME_LENGTH);
    g->since = 0;
    return true;
}

static bool measure(struct guest *g)
{
    size_t n = frame_length(g->first);
    if (!n)
        return false;
    g->in = malloc(n);
    if (!g->in)
        return false;
    expect(g, GUEST_MESSAGE, n);
    return true;
}

static bool hear(struct guest *g, struct desk *d, int64_t now)
{
    struct frame_request r;
    bool fine = frame_open(&g->end, g->in, g->want) && frame_take_request(g->in, g->want - SODIUM_TAG, &r) &&
                desk_ask(d, &g->at_desk, &r, now);
    free(g->in);
    g->in = NULL;
    expect(g, GUEST_LENGTH, FRAME_LENGTH);
    g->since = 0;
    return fine && !g->broken;
}

bool guest_take(struct guest *g, size_t n, struct desk *d, const struct sodium *na, const unsigned char *key,
                int64_t now)
{
    g->have += n;
    if (guest_known(g) && !g->since)
        g->since = now;
    if (g->have < g->want)
        return true;
    switch (g->stage) {
    case GUEST_HELLO: return greet(g, na, key);
    case GUEST_PROOF: return examine(g);
    case GUEST_LENGTH: return measure(g);
    case GUEST_MESSAGE: break;
    }
    return hear(g, d, now);
}
