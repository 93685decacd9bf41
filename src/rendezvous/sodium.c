#define _GNU_SOURCE
#include "rendezvous/sodium.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sodium found;
static bool usable;

/* These functions are the same in all versions; only the name of the library's file has changed. */
static const char *const files[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so"};

static bool take(void *library, const char *name, void *function)
{
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at); /* ISO C has no cast from an object's pointer to a function's */
    return at != NULL;
}

static void load(void)
{
    void *library = NULL;
    int (*init)(void);
    for (size_t i = 0; i < sizeof files / sizeof *files && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    usable = library && take(library, "sodium_init", &init) && take(library, "randombytes_buf", &found.random) &&
             take(library, "crypto_generichash", &found.hash) &&
             take(library, "crypto_aead_chacha20poly1305_ietf_encrypt", &found.seal) &&
             take(library, "crypto_aead_chacha20poly1305_ietf_decrypt", &found.open) &&
             take(library, "sodium_memcmp", &found.same) && take(library, "sodium_memzero", &found.wipe) && init() >= 0;
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
