/* Proofs, frames and messages: bytes to bytes, without sockets or time. */
#include "rendezvous/wire.h"

#include <string.h>

/* ---- messages ---- */

size_t wire_put_request(unsigned char *out, const struct wire_request *r)
{
    memset(out, 0, WIRE_HEAD);
    out[0] = (unsigned char)r->op;
    out[1] = (unsigned char)r->key_len;
    memcpy(out + 4, &r->wait_ms, 4);
    memcpy(out + 8, &r->number, 8);
    if (r->key_len)
        memcpy(out + WIRE_HEAD, r->key, r->key_len);
    if (r->bytes)
        memcpy(out + WIRE_HEAD + r->key_len, r->value, r->bytes);
    return WIRE_HEAD + r->key_len + r->bytes;
}

bool wire_take_request(const unsigned char *in, size_t n, struct wire_request *r)
{
    if (n < WIRE_HEAD || n > WIRE_MESSAGE_MAX || in[0] < WIRE_JOIN || in[0] > WIRE_LEAVE || in[2] || in[3])
        return false;
    *r = (struct wire_request){.op = (enum wire_op)in[0], .key_len = in[1]};
    if (r->key_len > n - WIRE_HEAD)
        return false;
    memcpy(&r->wait_ms, in + 4, 4);
    memcpy(&r->number, in + 8, 8);
    r->key = (const char *)in + WIRE_HEAD;
    r->value = in + WIRE_HEAD + r->key_len;
    r->bytes = n - WIRE_HEAD - r->key_len;
    bool keyed = r->op != WIRE_JOIN && r->op != WIRE_LEAVE;
    if ((keyed || r->key_len) && !store_word(r->key, r->key_len, keyed ? STORE_KEY_MAX : STORE_NAME_MAX))
        return false;
    return r->bytes <= (r->op == WIRE_SET ? STORE_VALUE_MAX : 0);
}

size_t wire_put_reply(unsigned char *out, const struct wire_reply *r)
{
    int32_t code = r->code;
    memset(out, 0, WIRE_HEAD);
    memcpy(out, &code, 4);
    memcpy(out + 8, &r->number, 8);
    if (r->bytes)
        memcpy(out + WIRE_HEAD, r->value, r->bytes);
    return WIRE_HEAD + r->bytes;
}

bool wire_take_reply(const unsigned char *in, size_t n, struct wire_reply *r)
{
    int32_t code;
    if (n < WIRE_HEAD || n > WIRE_HEAD + WIRE_REPLY_MAX)
        return false;
    memcpy(&code, in, 4);
    *r = (struct wire_reply){.code = code, .value = in + WIRE_HEAD, .bytes = n - WIRE_HEAD};
    memcpy(&r->number, in + 8, 8);
    return code <= 0 && code > -100;
}

/* ---- proofs ---- */

void wire_token_key(const struct sodium *na, const char *token, unsigned char key[SODIUM_KEY])
{
    static const unsigned char what[] = "weft store token";
    na->hash(key, SODIUM_KEY, (const unsigned char *)token, strlen(token), what, sizeof what - 1);
}

static void derive(const struct wire_end *e, const char *what, unsigned char out[SODIUM_KEY])
{
    unsigned char text[16 + sizeof e->nonces];
    size_t n = strlen(what);
    memcpy(text, what, n);
    memcpy(text + n, e->nonces, sizeof e->nonces);
    e->sodium->hash(out, SODIUM_KEY, text, n + sizeof e->nonces, e->key, sizeof e->key);
}

void wire_begin(struct wire_end *e, const struct sodium *na, bool server, const unsigned char key[SODIUM_KEY],
                unsigned char hello[WIRE_HELLO])
{
    *e = (struct wire_end){.sodium = na, .server = server};
    unsigned char *mine = e->nonces + (server ? WIRE_NONCE : 0);
    memcpy(e->key, key, sizeof e->key);
    na->random(mine, WIRE_NONCE);
    memcpy(hello, WIRE_MAGIC, WIRE_MAGIC_SIZE);
    memcpy(hello + WIRE_MAGIC_SIZE, mine, WIRE_NONCE);
}

bool wire_meet(struct wire_end *e, const unsigned char hello[WIRE_HELLO])
{
    if (memcmp(hello, WIRE_MAGIC, WIRE_MAGIC_SIZE))
        return false;
    memcpy(e->nonces + (e->server ? 0 : WIRE_NONCE), hello + WIRE_MAGIC_SIZE, WIRE_NONCE);
    derive(e, "client sends", e->server ? e->takes : e->sends);
    derive(e, "server sends", e->server ? e->sends : e->takes);
    return true;
}

void wire_prove(const struct wire_end *e, unsigned char proof[WIRE_PROOF])
{
    derive(e, e->server ? "server proves" : "client proves", proof);
}

bool wire_believe(const struct wire_end *e, const unsigned char proof[WIRE_PROOF])
{
    unsigned char want[WIRE_PROOF];
    derive(e, e->server ? "client proves" : "server proves", want);
    return !e->sodium->same(want, proof, sizeof want);
}

void wire_forget(struct wire_end *e)
{
    if (e->sodium)
        e->sodium->wipe(e, sizeof *e);
}

/* ---- frames ---- */

static void nonce_of(uint64_t number, unsigned char nonce[SODIUM_NONCE])
{
    memset(nonce, 0, SODIUM_NONCE);
    memcpy(nonce + SODIUM_NONCE - sizeof number, &number, sizeof number);
}

size_t wire_seal(struct wire_end *e, const unsigned char *message, size_t n, unsigned char *frame)
{
    unsigned char nonce[SODIUM_NONCE];
    uint32_t length = (uint32_t)(n + SODIUM_TAG);
    memcpy(frame, &length, WIRE_LENGTH);
    nonce_of(e->sent++, nonce);
    e->sodium->seal(frame + WIRE_LENGTH, NULL, message, n, frame, WIRE_LENGTH, NULL, nonce, e->sends);
    return WIRE_LENGTH + length;
}

size_t wire_length(const unsigned char length[WIRE_LENGTH])
{
    uint32_t n;
    memcpy(&n, length, WIRE_LENGTH);
    return n >= WIRE_HEAD + SODIUM_TAG && n <= WIRE_FRAME_MAX ? n : 0;
}

bool wire_open(struct wire_end *e, unsigned char *sealed, size_t n)
{
    unsigned char nonce[SODIUM_NONCE], length[WIRE_LENGTH];
    uint32_t n32 = (uint32_t)n;
    memcpy(length, &n32, sizeof n32);
    nonce_of(e->taken++, nonce);
    return n >= SODIUM_TAG && !e->sodium->open(sealed, NULL, NULL, sealed, n, length, sizeof length, nonce, e->takes);
}
