/* Two ends that meet: which cipher they take, and that somebody on the way who changes what they say, or frames, is
 * found out. */
#include "rendezvous/frame.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/openssl.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define MOST (FRAME_MESSAGE_MAX)

struct pair {
    struct frame_end client, server;
    unsigned char *message, *frame, *other;
};

/* What somebody on the way does to the ciphers of the hellos: bits that are turned. */
struct meddler {
    unsigned to_server, to_client;
};

static const struct sodium *need_sodium(void)
{
    const struct sodium *na = sodium_find();
    if (!na) {
        print_message("skip: libsodium is not installed\n");
        skip();
    }
    return na;
}

static void need_aes(void)
{
    need_sodium();
    if (openssl_has_aes())
        return;
    print_message("skip: libcrypto is not installed, or the processor has no instructions for AES\n");
    skip();
}

/* True: both ends believe each other. */
static bool meet(struct pair *p, unsigned client, unsigned server, struct meddler m)
{
    unsigned char asks[FRAME_HELLO], answers[FRAME_HELLO], proof[FRAME_PROOF], key[SODIUM_KEY];
    const struct sodium *na = need_sodium();
    frame_token_key(na, "a token of this test", key);
    frame_begin(&p->client, na, false, key, client, asks);
    frame_begin(&p->server, na, true, key, server, answers);
    asks[FRAME_HELLO - 1] ^= (unsigned char)m.to_server;
    answers[FRAME_HELLO - 1] ^= (unsigned char)m.to_client;
    if (!frame_meet(&p->server, asks) || !frame_meet(&p->client, answers))
        return false;
    frame_prove(&p->client, proof);
    bool believed = frame_believe(&p->server, proof);
    frame_prove(&p->server, proof);
    return frame_believe(&p->client, proof) && believed;
}

static void begin(struct pair *p, unsigned ciphers)
{
    p->message = malloc(MOST);
    p->frame = malloc(FRAME_LENGTH + FRAME_FRAME_MAX);
    p->other = malloc(FRAME_LENGTH + FRAME_FRAME_MAX);
    assert_true(meet(p, ciphers, ciphers, (struct meddler){0}));
    assert_int_equal(p->client.aes, ciphers & FRAME_AES ? 1 : 0);
    assert_int_equal(p->server.aes, p->client.aes);
}

static void end(struct pair *p)
{
    frame_forget(&p->client);
    frame_forget(&p->server);
    free(p->message);
    free(p->frame);
    free(p->other);
}

static size_t seal_from(struct pair *p, struct frame_end *from, struct random *g, unsigned char *frame)
{
    size_t n = (size_t)random_in(g, FRAME_HEAD, random_in(g, 0, 3) ? 5000 : MOST);
    for (size_t i = 0; i < n; i++)
        p->message[i] = (unsigned char)random_next(g);
    assert_int_equal(frame_seal(from, p->message, n, frame), n + FRAME_LENGTH + SODIUM_TAG);
    assert_int_equal(frame_length(frame), n + SODIUM_TAG);
    return n;
}

static size_t seal(struct pair *p, struct random *g, unsigned char *frame)
{
    return seal_from(p, &p->client, g, frame);
}

static bool open(struct frame_end *e, unsigned char *frame, size_t n)
{
    return frame_open(e, frame + FRAME_LENGTH, n + SODIUM_TAG);
}

static void cipher_is_the_best_that_both_have(void **state)
{
    (void)state;
    struct pair p;
    for (unsigned c = 0; c < 8; c++)
        for (unsigned s = 0; s < 8; s++) { /* 4: a cipher of another time */
            assert_true(meet(&p, c, s, (struct meddler){0}));
            assert_int_equal(p.client.aes, (c & s & FRAME_AES) != 0);
            assert_int_equal(p.server.aes, p.client.aes);
        }
}

/* Whatever is done to the ciphers, one end at least does not believe the other. */
static void downgrade_is_found_out(void **state)
{
    (void)state;
    struct pair p;
    for (unsigned both = FRAME_CHACHA; both <= (FRAME_CHACHA | FRAME_AES); both += FRAME_AES)
        for (unsigned a = 0; a < 256; a++)
            for (unsigned b = 0; b < 256; b += a ? 51 : 1)
                assert_int_equal(meet(&p, both, both, (struct meddler){a, b}), !a && !b);
    /* Both hellos without AES: each end takes ChaCha20, and neither is believed. */
    assert_false(meet(&p, FRAME_AES, FRAME_AES, (struct meddler){FRAME_AES, FRAME_AES}));
    assert_false(p.client.aes || p.server.aes);
    unsigned char proof[FRAME_PROOF];
    frame_prove(&p.client, proof);
    assert_false(frame_believe(&p.server, proof));
    frame_prove(&p.server, proof);
    assert_false(frame_believe(&p.client, proof));
}

/* Whole frames are opened once, in order, at the other end; all others are not opened. */
static void meddle_once(unsigned ciphers, int64_t seed, int how)
{
    struct pair p;
    struct random g = random_of(19, 5 * seed + how);
    begin(&p, ciphers);
    for (int64_t k = random_in(&g, 0, 3); k; k--) {
        size_t n = seal(&p, &g, p.frame);
        assert_int_equal(memcmp(p.frame + FRAME_LENGTH, p.message, n) != 0, 1);
        assert_true(open(&p.server, p.frame, n));
        assert_memory_equal(p.frame + FRAME_LENGTH, p.message, n);
    }
    size_t n = seal(&p, &g, p.frame), whole = FRAME_LENGTH + n + SODIUM_TAG;
    memcpy(p.other, p.frame, whole);
    switch (how) {
    case 0: /* changed, tag or text */
        p.frame[random_in(&g, FRAME_LENGTH, (int64_t)whole - 1)] ^= (unsigned char)(1 << random_in(&g, 0, 7));
        assert_false(open(&p.server, p.frame, n));
        for (size_t k = 0; k < n; k++) /* nothing of it is seen */
            assert_int_equal(p.frame[FRAME_LENGTH + k], 0);
        break;
    case 1: /* twice */
        assert_true(open(&p.server, p.frame, n));
        assert_false(open(&p.server, p.other, n));
        break;
    case 2: /* left out: the second one comes first */
        n = seal(&p, &g, p.frame);
        assert_false(open(&p.server, p.frame, n));
        break;
    case 3: /* sent back to its sender */ assert_false(open(&p.client, p.frame, n)); break;
    default: /* cut */ assert_false(open(&p.server, p.frame, (size_t)random_in(&g, 0, (int64_t)n - 1)));
    }
    /* Of another connection with the same token. */
    assert_true(meet(&p, ciphers, ciphers, (struct meddler){0}));
    assert_false(open(&p.server, p.other, whole - FRAME_LENGTH - SODIUM_TAG));
    end(&p);
}

static void meddle(unsigned ciphers)
{
    for (int64_t i = 0; suite_seed(&i, 0, test_share(8, 400)); i++)
        for (int how = 0; how < 5; how++)
            meddle_once(ciphers, i, how);
}

static void meddled_chacha(void **state)
{
    (void)state;
    meddle(FRAME_CHACHA);
}

static void meddled_aes(void **state)
{
    (void)state;
    need_aes();
    meddle(FRAME_CHACHA | FRAME_AES);
}

/* Does this key open the frame that an end has taken last, with the nonce of that frame? */
static bool opens_with(const struct frame_end *e, const unsigned char key[SODIUM_KEY], unsigned char *frame, size_t n)
{
    unsigned char nonce[SODIUM_NONCE] = {0};
    uint64_t number = e->taken - 1;
    memcpy(nonce + SODIUM_NONCE - sizeof number, &number, sizeof number);
    unsigned char *at = frame + FRAME_LENGTH;
    if (e->aes)
        return openssl_open_aes(NULL, 0, at, at, n + SODIUM_TAG, frame, FRAME_LENGTH, nonce, key);
    return !e->sodium->open(at, NULL, NULL, at, n + SODIUM_TAG, frame, FRAME_LENGTH, nonce, key);
}

/* A message in two pieces, the second one anywhere or in the frame already, is the frame of the whole message. It is
 * opened into two pieces, and nothing is left of one that was changed. */
static void check_parts(unsigned ciphers)
{
    enum { HEAD = 16 };
    struct pair p;
    struct random g = random_of(7, ciphers);
    unsigned char head[HEAD], none[HEAD] = {0}, *to = malloc(MOST);
    begin(&p, ciphers);
    for (int i = 0; i < 40; i++) {
        size_t n = (size_t)random_in(&g, i % 2 ? HEAD : HEAD + 1, i % 4 ? 9000 : MOST), rest = n - HEAD;
        const unsigned char *second = p.message + HEAD;
        for (size_t k = 0; k < n; k++)
            p.message[k] = (unsigned char)random_next(&g);
        if (i % 3 == 0) {
            memcpy(p.frame + FRAME_LENGTH + HEAD, second, rest);
            second = p.frame + FRAME_LENGTH + HEAD;
        }
        assert_int_equal(frame_seal_parts(&p.client, p.message, HEAD, second, rest, p.frame),
                         n + FRAME_LENGTH + SODIUM_TAG);
        p.client.sent--;
        assert_int_equal(frame_seal(&p.client, p.message, n, p.other), n + FRAME_LENGTH + SODIUM_TAG);
        assert_memory_equal(p.frame, p.other, n + FRAME_LENGTH + SODIUM_TAG);
        p.other[FRAME_LENGTH + (size_t)random_in(&g, 0, (int64_t)n)] ^= 4;
        memset(to, 1, rest);
        assert_false(frame_open_parts(&p.server, p.other + FRAME_LENGTH, n + SODIUM_TAG, head, HEAD, to));
        if (p.server.aes) { /* otherwise these were not touched */
            assert_memory_equal(head, none, HEAD);
            for (size_t k = 0; k < rest; k++)
                assert_int_equal(to[k], 0);
        }
        p.server.taken--;
        assert_true(frame_open_parts(&p.server, p.frame + FRAME_LENGTH, n + SODIUM_TAG, head, HEAD, to));
        assert_memory_equal(head, p.message, HEAD);
        assert_memory_equal(to, p.message + HEAD, rest);
        assert_false(frame_open_parts(&p.server, p.frame + FRAME_LENGTH, HEAD + SODIUM_TAG - 1, head, HEAD, to));
        p.server.taken--;
    }
    end(&p);
    free(to);
}

static void parts_are_one_message_chacha(void **state)
{
    (void)state;
    check_parts(FRAME_CHACHA);
}

static void parts_are_one_message_aes(void **state)
{
    (void)state;
    need_aes();
    check_parts(FRAME_CHACHA | FRAME_AES);
}

/* Messages from one end to the other around the changes of its key. A key that is over does not open what the next one
 * has sealed, with the nonce of that frame. */
static void change_keys(struct pair *p, struct frame_end *from, struct frame_end *to)
{
    struct random g = random_of(5, to->server);
    unsigned char old[SODIUM_KEY];
    for (uint64_t round = 1; round < 4; round++) {
        from->sent = to->taken = round * FRAME_KEY_FRAMES - 2;
        memcpy(old, to->takes, sizeof old);
        for (int i = 0; i < 4; i++) {
            size_t n = seal_from(p, from, &g, p->frame);
            memcpy(p->other, p->frame, FRAME_LENGTH + n + SODIUM_TAG);
            assert_int_equal(memcmp(old, from->sends, sizeof old) != 0, i >= 2);
            assert_true(open(to, p->frame, n));
            assert_memory_equal(p->frame + FRAME_LENGTH, p->message, n);
            assert_memory_equal(to->takes, from->sends, sizeof to->takes);
            assert_int_equal(opens_with(to, old, p->other, n), i < 2);
        }
    }
}

static void check_keys(unsigned ciphers)
{
    struct pair p;
    begin(&p, ciphers);
    change_keys(&p, &p.client, &p.server);
    change_keys(&p, &p.server, &p.client);
    end(&p);
}

/* A key seals FRAME_KEY_FRAMES frames. Then both ends go on with the next one. */
static void keys_go_on_chacha(void **state)
{
    (void)state;
    check_keys(FRAME_CHACHA);
}

static void keys_go_on_aes(void **state)
{
    (void)state;
    need_aes();
    check_keys(FRAME_CHACHA | FRAME_AES);
}

static void unhex(const char *text, unsigned char *to)
{
    for (size_t i = 0; text[2 * i]; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        to[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

/* Test case 16 of "The Galois/Counter Mode of Operation (GCM)", McGrew and Viega. */
static void aes_is_the_standard_one(void **state)
{
    (void)state;
    need_aes();
    unsigned char key[32], nonce[12], ad[20], plain[60], sealed[76], got[76];
    unhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key);
    unhex("cafebabefacedbaddecaf888", nonce);
    unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2", ad);
    unhex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
          "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
          plain);
    unhex("522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
          "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
          sealed);
    assert_true(openssl_seal_aes(got, NULL, 0, plain, sizeof plain, ad, sizeof ad, nonce, key));
    assert_memory_equal(got, sealed, sizeof sealed);
    assert_true(openssl_open_aes(NULL, 0, got, got, sizeof sealed, ad, sizeof ad, nonce, key));
    assert_memory_equal(got, plain, sizeof plain);
    ad[3] ^= 1;
    assert_false(openssl_open_aes(NULL, 0, got, sealed, sizeof sealed, ad, sizeof ad, nonce, key));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cipher_is_the_best_that_both_have),
                                       cmocka_unit_test(downgrade_is_found_out),
                                       cmocka_unit_test(meddled_chacha),
                                       cmocka_unit_test(meddled_aes),
                                       cmocka_unit_test(keys_go_on_chacha),
                                       cmocka_unit_test(keys_go_on_aes),
                                       cmocka_unit_test(parts_are_one_message_chacha),
                                       cmocka_unit_test(parts_are_one_message_aes),
                                       cmocka_unit_test(aes_is_the_standard_one)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
