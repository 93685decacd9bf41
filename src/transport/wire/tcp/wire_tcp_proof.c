/* How two ranks prove to each other that they belong to one group. All ranks of a group have one key, which nobody else
 * knows. MAC(x) is BLAKE2s of x with that key, cut to 16 bytes.
 *
 *   caller    magic, from, to, number, nonce a,  MAC("call", all that)
 *   listener  magic, nonce b,                    MAC("answer", the call, b)
 *   caller    0,                                 MAC("proof", the call, b)
 *
 * The call shows which rank calls. Its number makes it count once: a stranger that repeats a recorded call is
 * turned away. A stranger that repeats a call before the listener has heard it cannot make the proof. The two nonces
 * are fresh, so a recorded answer or proof is worth nothing. Nothing is sent to a stranger.
 *
 * A rank that leaves does not wait for the answer of a busy peer. It sends its last frames behind the call:
 *
 *   caller    bytes, MAC("last", the call, the frames), the frames
 *
 * The key. Each rank puts a random secret into its card, and the key is a hash of all of them with the key of
 * `wire_boot`. That one comes from the token. Of a group that was split off it is the key of the group that it was
 * split from: its cards travel over that group's wire, where others may read them. Data is not encrypted. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/blake2s.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "weft.h"

#define MAGIC UINT64_C(0x3570637474666577) /* "wefttcp5" */

static bool draw(void *bytes, size_t n)
{
    return getrandom(bytes, n, 0) == (ssize_t)n;
}

/* ---- the key ---- */

static void check_of(const struct wire_boot *boot, const struct tcp_card *card, unsigned char out[sizeof card->check])
{
    static const char what[] = "weft tcp card";
    struct blake2s b;
    blake2s_begin(&b, sizeof card->check, boot->key, boot->key ? WIRE_KEY : 0);
    blake2s_add(&b, what, sizeof what);
    blake2s_add(&b, card->secret, sizeof card->secret);
    blake2s_end(&b, out);
}

int tcp_proof_card(const struct wire_boot *boot, struct tcp_card *card)
{
    if (!draw(card->secret, sizeof card->secret))
        return boot->error(WEFT_EIO, "no random number: %s", strerror(errno));
    check_of(boot, card, card->check);
    return 0;
}

int tcp_proof_key(const struct wire_boot *boot, struct tcp_card *cards, unsigned char key[WIRE_KEY])
{
    static const char what[] = "weft tcp key";
    struct blake2s b;
    int err = 0;
    blake2s_begin(&b, WIRE_KEY, boot->key, boot->key ? WIRE_KEY : 0);
    blake2s_add(&b, what, sizeof what);
    for (int i = 0; i < boot->size; i++) {
        struct tcp_card *c = &cards[i];
        unsigned char check[sizeof c->check];
        check_of(boot, c, check);
        if (!err && !blake2s_same(check, c->check, sizeof check))
            err =
                boot->error(WEFT_EMISMATCH,
                            "tcp: rank %d and rank %d have different tokens, or only one of them has one (WEFT_TOKEN, "
                            "WEFT_TOKEN_FILE)",
                            boot->rank, i);
        blake2s_add(&b, c->secret, sizeof c->secret);
        blake2s_wipe(c->secret, sizeof c->secret);
    }
    blake2s_end(&b, key);
    return err;
}

/* ---- proofs ---- */

static void mac(const struct tcp_wire *w, const char *what, const struct tcp_call *c, const unsigned char *nonce,
                const void *bytes, size_t n, unsigned char out[TCP_MAC])
{
    struct blake2s b;
    blake2s_begin(&b, TCP_MAC, w->key, sizeof w->key);
    blake2s_add(&b, what, strlen(what) + 1);
    blake2s_add(&b, c, offsetof(struct tcp_call, mac));
    if (nonce)
        blake2s_add(&b, nonce, TCP_NONCE);
    blake2s_add(&b, bytes, n);
    blake2s_end(&b, out);
}

bool tcp_proof_call(struct tcp_wire *w, struct tcp_peer *p)
{
    p->call = (struct tcp_call){
        .magic = MAGIC, .from = (uint32_t)w->base.rank, .to = (uint32_t)p->rank, .number = ++p->calls};
    if (!draw(p->call.nonce, sizeof p->call.nonce))
        return false;
    mac(w, "call", &p->call, NULL, NULL, 0, p->call.mac);
    return true;
}

bool tcp_proof_hear(struct tcp_wire *w, const struct tcp_call *c)
{
    unsigned char want[TCP_MAC];
    if (c->magic != MAGIC || c->to != (uint32_t)w->base.rank || c->from >= (uint32_t)w->base.size || c->from == c->to)
        return false;
    mac(w, "call", c, NULL, NULL, 0, want);
    if (!blake2s_same(want, c->mac, sizeof want))
        return false;
    struct tcp_peer *p = tcp_peer(w, (int)c->from);
    if (!p || c->number <= p->heard)
        return false;
    p->heard = c->number;
    return true;
}

bool tcp_proof_answer(const struct tcp_wire *w, struct tcp_peer *p, struct tcp_answer *a)
{
    *a = (struct tcp_answer){.magic = MAGIC};
    if (!draw(a->nonce, sizeof a->nonce))
        return false;
    memcpy(p->nonce, a->nonce, sizeof p->nonce);
    mac(w, "answer", &p->taken, p->nonce, NULL, 0, a->mac);
    return true;
}

bool tcp_proof_answered(const struct tcp_wire *w, const struct tcp_peer *p)
{
    unsigned char want[TCP_MAC];
    mac(w, "answer", &p->call, p->answer.nonce, NULL, 0, want);
    return p->answer.magic == MAGIC && blake2s_same(want, p->answer.mac, sizeof want);
}

struct tcp_proof tcp_proof_make(const struct tcp_wire *w, const struct tcp_peer *p)
{
    struct tcp_proof proof = {.bytes = 0};
    mac(w, "proof", &p->call, p->answer.nonce, NULL, 0, proof.mac);
    return proof;
}

struct tcp_proof tcp_proof_last(const struct tcp_wire *w, const struct tcp_peer *p, const void *frames, size_t n)
{
    struct tcp_proof proof = {.bytes = n};
    mac(w, "last", &p->call, NULL, frames, n, proof.mac);
    return proof;
}

bool tcp_proof_holds(const struct tcp_wire *w, const struct tcp_peer *p)
{
    unsigned char want[TCP_MAC];
    if (p->proof.bytes)
        mac(w, "last", &p->taken, NULL, p->words, p->proof.bytes, want);
    else
        mac(w, "proof", &p->taken, p->nonce, NULL, 0, want);
    return blake2s_same(want, p->proof.mac, sizeof want);
}
