/* Proofs, frames and messages: bytes to bytes, without sockets or time. */
#include "rendezvous/frame.h"

#include <string.h>

#include "rendezvous/openssl.h"

/* ---- messages ---- */

size_t frame_put_request(unsigned char *out, const struct frame_request *r)
{
    memset(out, 0, FRAME_HEAD);
    out[0] = (unsigned char)r->op;
    out[1] = (unsigned char)r->key_len;
    memcpy(out + 4, &r->wait_ms, 4);
    memcpy(out + 8, &r->number, 8);
    if (r->key_len)
        memcpy(out + FRAME_HEAD, r->key, r->key_len);
    if (r->bytes)
        memcpy(out + FRAME_HEAD + r->key_len, r->value, r->bytes);
    return FRAME_HEAD + r->key_len + r->bytes;
}

bool frame_take_request(const unsigned char *in, size_t n, struct frame_request *r)
{
    if (n < FRAME_HEAD || n > FRAME_MESSAGE_MAX || in[0] < FRAME_JOIN || in[0] > FRAME_DIRECTORY_WATCH || in[2] ||
        in[3])
        return false;
    *r = (struct frame_request){.op = (enum frame_op)in[0], .key_len = in[1]};
    if (r->key_len > n - FRAME_HEAD)
        return false;
    memcpy(&r->wait_ms, in + 4, 4);
    memcpy(&r->number, in + 8, 8);
    r->key = (const char *)in + FRAME_HEAD;
    r->value = in + FRAME_HEAD + r->key_len;
    r->bytes = n - FRAME_HEAD - r->key_len;
    bool keyed = r->op == FRAME_SET || r->op == FRAME_GET || r->op == FRAME_GATHER;
    size_t most = r->op == FRAME_JOIN || r->op == FRAME_LEAVE ? STORE_NAME_MAX : STORE_KEY_MAX;
    if ((keyed || r->key_len) && !store_word(r->key, r->key_len, most))
        return false;
    return r->bytes <= (r->op == FRAME_SET                  ? STORE_VALUE_MAX
                        : r->op == FRAME_DIRECTORY_TRANSACT ? FRAME_TRANSACTION_MAX
                                                            : 0);
}

size_t frame_put_reply(unsigned char *out, const struct frame_reply *r)
{
    int32_t code = r->code;
    memset(out, 0, FRAME_HEAD);
    memcpy(out, &code, 4);
    memcpy(out + 8, &r->number, 8);
    if (r->bytes)
        memcpy(out + FRAME_HEAD, r->value, r->bytes);
    return FRAME_HEAD + r->bytes;
}

bool frame_take_reply(const unsigned char *in, size_t n, struct frame_reply *r)
{
    int32_t code;
    if (n < FRAME_HEAD || n > FRAME_HEAD + FRAME_REPLY_MAX)
        return false;
    memcpy(&code, in, 4);
    *r = (struct frame_reply){.code = code, .value = in + FRAME_HEAD, .bytes = n - FRAME_HEAD};
    memcpy(&r->number, in + 8, 8);
    return code <= 0 && code > -100;
}

/* ---- proofs ---- */

void frame_token_key(const struct sodium *na, const char *token, unsigned char key[SODIUM_KEY])
{
    static const unsigned char what[] = "weft store token";
    na->hash(key, SODIUM_KEY, (const unsigned char *)token, strlen(token), what, sizeof what - 1);
}

static void derive(const struct frame_end *e, const char *what, unsigned char out[SODIUM_KEY])
{
    unsigned char text[16 + sizeof e->says];
    size_t n = strlen(what);
    memcpy(text, what, n);
    memcpy(text + n, e->says, sizeof e->says);
    e->sodium->hash(out, SODIUM_KEY, text, n + sizeof e->says, e->key, sizeof e->key);
}

unsigned frame_ciphers(void)
{
    return FRAME_CHACHA | (openssl_has_aes() ? FRAME_AES : 0);
}

void frame_begin(struct frame_end *e, const struct sodium *na, bool server, const unsigned char key[SODIUM_KEY],
                 unsigned ciphers, unsigned char hello[FRAME_HELLO])
{
    *e = (struct frame_end){.sodium = na, .server = server};
    unsigned char *mine = e->says + (server ? FRAME_SAYS : 0);
    memcpy(e->key, key, sizeof e->key);
    na->random(mine, FRAME_NONCE);
    mine[FRAME_NONCE] = (unsigned char)(ciphers | FRAME_CHACHA);
    memcpy(hello, FRAME_MAGIC, FRAME_MAGIC_SIZE);
    memcpy(hello + FRAME_MAGIC_SIZE, mine, FRAME_SAYS);
}

static void derive_senders(struct frame_end *e)
{
    derive(e, "client sends", e->server ? e->takes : e->sends);
    derive(e, "server sends", e->server ? e->sends : e->takes);
}

enum frame_version frame_version(const unsigned char magic[FRAME_MAGIC_SIZE])
{
    if (!memcmp(magic, FRAME_MAGIC, FRAME_MAGIC_SIZE))
        return FRAME_SAME;
    return memcmp(magic, FRAME_MAGIC, FRAME_MAGIC_SIZE - 1) ? FRAME_NONE : FRAME_OTHER;
}

bool frame_meet(struct frame_end *e, const unsigned char hello[FRAME_HELLO])
{
    if (frame_version(hello) != FRAME_SAME || !(hello[FRAME_HELLO - 1] & FRAME_CHACHA))
        return false;
    memcpy(e->says + (e->server ? 0 : FRAME_SAYS), hello + FRAME_MAGIC_SIZE, FRAME_SAYS);
    e->aes = e->says[FRAME_NONCE] & e->says[FRAME_SAYS + FRAME_NONCE] & FRAME_AES;
    derive_senders(e);
    return true;
}

void frame_rekey(struct frame_end *e, const unsigned char key[SODIUM_KEY])
{
    memcpy(e->key, key, sizeof e->key);
    derive_senders(e);
}

void frame_prove(const struct frame_end *e, unsigned char proof[FRAME_PROOF])
{
    derive(e, e->server ? "server proves" : "client proves", proof);
}

bool frame_believe(const struct frame_end *e, const unsigned char proof[FRAME_PROOF])
{
    unsigned char want[FRAME_PROOF];
    derive(e, e->server ? "client proves" : "server proves", want);
    return !e->sodium->same(want, proof, sizeof want);
}

void frame_forget(struct frame_end *e)
{
    if (e->sodium)
        e->sodium->wipe(e, sizeof *e);
}

/* ---- frames ---- */

/* The nonce of a direction's next frame, and the key, which goes on from time to time. */
static void next_frame(const struct frame_end *e, uint64_t *number, unsigned char key[SODIUM_KEY],
                       unsigned char nonce[SODIUM_NONCE])
{
    static const unsigned char what[] = "next key";
    unsigned char old[SODIUM_KEY];
    if (*number && *number % FRAME_KEY_FRAMES == 0) {
        memcpy(old, key, sizeof old);
        e->sodium->hash(key, SODIUM_KEY, what, sizeof what - 1, old, sizeof old);
        e->sodium->wipe(old, sizeof old);
    }
    memset(nonce, 0, SODIUM_NONCE);
    memcpy(nonce + SODIUM_NONCE - sizeof *number, number, sizeof *number);
    ++*number;
}

size_t frame_seal_parts(struct frame_end *e, const unsigned char *head, size_t nhead, const unsigned char *message,
                        size_t n, unsigned char *frame)
{
    unsigned char nonce[SODIUM_NONCE], *out = frame + FRAME_LENGTH;
    uint32_t length = (uint32_t)(nhead + n + SODIUM_TAG);
    memcpy(frame, &length, FRAME_LENGTH);
    next_frame(e, &e->sent, e->sends, nonce);
    if (e->aes)
        return openssl_seal_aes(out, head, nhead, message, n, frame, FRAME_LENGTH, nonce, e->sends)
                   ? FRAME_LENGTH + length
                   : 0;
    if (nhead) {
        memmove(out + nhead, message, n);
        memcpy(out, head, nhead);
        message = out;
    }
    e->sodium->seal(out, NULL, message, nhead + n, frame, FRAME_LENGTH, NULL, nonce, e->sends);
    return FRAME_LENGTH + length;
}

size_t frame_seal(struct frame_end *e, const unsigned char *message, size_t n, unsigned char *frame)
{
    return frame_seal_parts(e, NULL, 0, message, n, frame);
}

size_t frame_length(const unsigned char length[FRAME_LENGTH])
{
    uint32_t n;
    memcpy(&n, length, FRAME_LENGTH);
    return n >= FRAME_HEAD + SODIUM_TAG && n <= FRAME_FRAME_MAX ? n : 0;
}

bool frame_open_parts(struct frame_end *e, unsigned char *sealed, size_t n, unsigned char *head, size_t nhead,
                      unsigned char *to)
{
    unsigned char nonce[SODIUM_NONCE], length[FRAME_LENGTH];
    uint32_t n32 = (uint32_t)n;
    memcpy(length, &n32, sizeof n32);
    next_frame(e, &e->taken, e->takes, nonce);
    if (n < nhead + SODIUM_TAG)
        return false;
    if (e->aes)
        return openssl_open_aes(head, nhead, to, sealed, n, length, sizeof length, nonce, e->takes);
    if (e->sodium->open(sealed, NULL, NULL, sealed, n, length, sizeof length, nonce, e->takes))
        return false;
    if (nhead)
        memcpy(head, sealed, nhead);
    if (to != sealed + nhead)
        memcpy(to, sealed + nhead, n - nhead - SODIUM_TAG);
    return true;
}

bool frame_open(struct frame_end *e, unsigned char *sealed, size_t n)
{
    return frame_open_parts(e, sealed, n, NULL, 0, sealed);
}
