/* Frames that libsodium has sealed are opened by libcrypto, and the other way round; what was changed is not opened. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/library.h"
#include "rendezvous/openssl.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define MOST 200000

static bool load_slow(struct sodium *s)
{
    static const char *const files[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so"};
    const struct library_call calls[] = {{"crypto_aead_chacha20poly1305_ietf_encrypt", &s->seal},
                                         {"crypto_aead_chacha20poly1305_ietf_decrypt", &s->open},
                                         {"sodium_memzero", &s->wipe},
                                         {0}};
    return library_open(files, 3, calls);
}

static void fill(struct random *g, unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)random_in(g, 0, 255);
}

/* libsodium's functions, and those with libcrypto; skips the test without one of them. */
static void load_both(struct sodium *slow, struct sodium *fast)
{
    if (!load_slow(slow)) {
        print_message("skip: libsodium is not installed\n");
        skip();
    }
    *fast = *slow;
    openssl_use(fast);
    if (!openssl_usable()) {
        print_message("skip: libcrypto is not installed\n");
        skip();
    }
}

static void both_ways(void **state)
{
    (void)state;
    struct sodium slow = {0}, fast;
    load_both(&slow, &fast);
    unsigned char *plain = malloc(MOST), *sealed = malloc(MOST + SODIUM_TAG), *other = malloc(MOST + SODIUM_TAG),
                  *opened = malloc(MOST);
    for (int64_t i = 0; suite_seed(&i, 0, test_share(40, 400)); i++) {
        struct random g = random_of(77, i);
        unsigned char key[SODIUM_KEY], nonce[SODIUM_NONCE], ad[4];
        size_t n = (size_t)random_in(&g, 4000, i % 4 ? 20000 : MOST), adlen = (size_t)random_in(&g, 0, 4);
        unsigned long long a = 0, b = 0;
        fill(&g, key, sizeof key);
        fill(&g, nonce, sizeof nonce);
        fill(&g, ad, sizeof ad);
        fill(&g, plain, n);
        assert_int_equal(slow.seal(sealed, &a, plain, n, ad, adlen, NULL, nonce, key), 0);
        assert_int_equal(fast.seal(other, &b, plain, n, ad, adlen, NULL, nonce, key), 0);
        assert_int_equal(a, n + SODIUM_TAG);
        assert_int_equal(b, a);
        assert_memory_equal(sealed, other, a);
        assert_int_equal(fast.open(opened, &a, NULL, sealed, b, ad, adlen, nonce, key), 0);
        assert_int_equal(a, n);
        assert_memory_equal(opened, plain, n);
        sealed[random_in(&g, 0, (int64_t)b - 1)] ^= (unsigned char)(1 << random_in(&g, 0, 7));
        assert_int_equal(fast.open(opened, &a, NULL, sealed, b, ad, adlen, nonce, key), -1);
        assert_int_equal(fast.open(other, &a, NULL, other, b, ad, adlen, nonce, key), 0); /* in place */
        assert_memory_equal(other, plain, n);
    }
    free(plain);
    free(sealed);
    free(other);
    free(opened);
}

static void *seal_on(void *arg)
{
    const struct sodium *fast = arg;
    unsigned char plain[5000] = {0}, sealed[sizeof plain + SODIUM_TAG], key[SODIUM_KEY] = {0};
    for (;;)
        if (fast->seal(sealed, NULL, plain, sizeof plain, NULL, 0, NULL, key, key) ||
            fast->open(plain, NULL, NULL, sealed, sizeof sealed, NULL, 0, key, key))
            _exit(1);
    return NULL;
}

/* A process exits while threads of it seal and open: libcrypto frees what it has, and no thread uses that any more. */
static void exits(void **state)
{
    (void)state;
    struct sodium slow = {0}, fast;
    load_both(&slow, &fast);
    for (int64_t i = 0, n = test_share(20, 300); i < n; i++) {
        pid_t child = fork();
        if (!child) {
            pthread_t thread;
            for (int k = 0; k < 3; k++)
                if (pthread_create(&thread, NULL, seal_on, &fast))
                    _exit(2);
            usleep((useconds_t)(500 + i * 20));
            exit(0);
        }
        int status;
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways), cmocka_unit_test(exits)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
