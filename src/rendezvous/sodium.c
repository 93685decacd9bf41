#include "rendezvous/sodium.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/library.h"
#include "rendezvous/openssl.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sodium found;
static bool usable;

/* These functions are the same in all versions; only the name of the library's file has changed. */
static const char *const files[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so"};

static void load(void)
{
    int (*init)(void);
    const struct library_call calls[] = {
        {"sodium_init", &init},
        {"randombytes_buf", &found.random},
        {"crypto_generichash", &found.hash},
        {"crypto_aead_chacha20poly1305_ietf_encrypt", &found.seal},
        {"crypto_aead_chacha20poly1305_ietf_decrypt", &found.open},
        {"sodium_memcmp", &found.same},
        {"sodium_memzero", &found.wipe},
        {0},
    };
    usable = library_open(files, sizeof files / sizeof *files, calls) && init() >= 0;
    if (usable)
        openssl_use(&found);
}

const struct sodium *sodium_find(void)
{
    pthread_once(&once, load);
    if (usable)
        return &found;
    error_set(WEFT_EUNSUPPORTED,
              "tcp: stores need libsodium, which is not installed (Debian: apt-get install libsodium23); "
              "file:DIR needs nothing");
    return NULL;
}
