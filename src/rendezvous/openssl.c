#include "rendezvous/openssl.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "base/library.h"

#define LONG 4096    /* bytes from which on setting it up is worth it */
#define GET_TAG 0x10 /* EVP_CTRL_AEAD_GET_TAG and _SET_TAG of every version */
#define SET_TAG 0x11

struct evp_ctx;
struct evp_cipher;
static struct {
    struct evp_ctx *(*begin)(void);
    void (*end)(struct evp_ctx *c);
    int (*init)(struct evp_ctx *c, const struct evp_cipher *x, void *engine, const unsigned char *key,
                const unsigned char *nonce, int encrypt);
    int (*update)(struct evp_ctx *c, unsigned char *out, int *outlen, const unsigned char *in, int inlen);
    int (*final)(struct evp_ctx *c, unsigned char *out, int *outlen);
    int (*ctrl)(struct evp_ctx *c, int what, int n, void *arg);
    int (*mark)(void);
    int (*forget)(void);
} evp;
static const struct evp_cipher *cipher;
static struct sodium slow;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;

/* Version 3 looks the cipher up in tables that it frees when the process exits, while threads may still send frames.
 * Therefore it is looked up here, and kept. Version 1.1 has a constant. */
static const struct evp_cipher *find_cipher(const char *file)
{
    struct evp_cipher *(*fetch)(void *context, const char *name, const char *properties);
    const struct evp_cipher *(*constant)(void);
    if (library_open(&file, 1, (struct library_call[]){{"EVP_CIPHER_fetch", &fetch}, {0}}))
        return fetch(NULL, "ChaCha20-Poly1305", NULL);
    if (library_open(&file, 1, (struct library_call[]){{"EVP_chacha20_poly1305", &constant}, {0}}))
        return constant();
    return NULL;
}

static void load(void)
{
    static const char *const files[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    const struct library_call calls[] = {
        {"EVP_CIPHER_CTX_new", &evp.begin}, {"EVP_CIPHER_CTX_free", &evp.end},  {"EVP_CipherInit_ex", &evp.init},
        {"EVP_CipherUpdate", &evp.update},  {"EVP_CipherFinal_ex", &evp.final}, {"EVP_CIPHER_CTX_ctrl", &evp.ctrl},
        {"ERR_set_mark", &evp.mark},        {"ERR_pop_to_mark", &evp.forget},   {0},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files && !usable; i++)
        if (library_open(&files[i], 1, calls)) {
            evp.mark();
            cipher = find_cipher(files[i]); /* NULL: this libcrypto does not have it (FIPS) */
            evp.forget();
            usable = cipher;
        }
}

bool openssl_usable(void)
{
    pthread_once(&once, load);
    return usable;
}

/* Key, nonce and the additional data. NULL: the message is short, there is no libcrypto, or no memory. */
static struct evp_ctx *prepare(unsigned long long n, const unsigned char *key, const unsigned char *nonce,
                               const unsigned char *ad, unsigned long long adlen, bool seals)
{
    int ignored;
    if (n < LONG || n > INT_MAX / 2 || adlen > INT_MAX / 2 || !openssl_usable())
        return NULL;
    struct evp_ctx *c = evp.begin();
    if (c && evp.init(c, cipher, NULL, key, nonce, seals) == 1 &&
        (!adlen || evp.update(c, NULL, &ignored, ad, (int)adlen) == 1))
        return c;
    if (c)
        evp.end(c);
    return NULL;
}

static int seal(unsigned char *c, unsigned long long *clen, const unsigned char *m, unsigned long long mlen,
                const unsigned char *ad, unsigned long long adlen, const unsigned char *nothing,
                const unsigned char *nonce, const unsigned char *key)
{
    struct evp_ctx *x = prepare(mlen, key, nonce, ad, adlen, true);
    int n;
    bool done = x && evp.update(x, c, &n, m, (int)mlen) == 1 && evp.final(x, c + n, &n) == 1 &&
                evp.ctrl(x, GET_TAG, SODIUM_TAG, c + mlen) == 1;
    if (x)
        evp.end(x);
    if (!done) /* libsodium does not fail, and m is as it was */
        return slow.seal(c, clen, m, mlen, ad, adlen, nothing, nonce, key);
    if (clen)
        *clen = mlen + SODIUM_TAG;
    return 0;
}

static int open_sealed(unsigned char *m, unsigned long long *mlen, unsigned char *nothing, const unsigned char *c,
                       unsigned long long clen, const unsigned char *ad, unsigned long long adlen,
                       const unsigned char *nonce, const unsigned char *key)
{
    unsigned char tag[SODIUM_TAG];
    struct evp_ctx *x = prepare(clen, key, nonce, ad, adlen, false);
    int n;
    if (!x)
        return slow.open(m, mlen, nothing, c, clen, ad, adlen, nonce, key);
    unsigned long long bytes = clen - SODIUM_TAG;
    memcpy(tag, c + bytes, sizeof tag);
    bool done = evp.ctrl(x, SET_TAG, SODIUM_TAG, tag) == 1 && evp.update(x, m, &n, c, (int)bytes) == 1 &&
                evp.final(x, m + n, &n) == 1;
    evp.end(x);
    if (!done)
        slow.wipe(m, (size_t)bytes); /* as libsodium does: nobody sees bytes that are not proved */
    if (mlen)
        *mlen = done ? bytes : 0;
    return done ? 0 : -1;
}

void openssl_use(struct sodium *s)
{
    slow = *s;
    s->seal = seal;
    s->open = open_sealed;
}
