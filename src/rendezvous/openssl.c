#include "rendezvous/openssl.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/library.h"

#define LONG 4096    /* bytes from which on setting it up is worth it, where libsodium has the cipher, too */
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
static const struct evp_cipher *chacha, *aes;
static struct sodium slow;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Version 3 looks the cipher up in tables that it frees when the process exits, while threads may still send frames.
 * Therefore it is looked up here, and kept. Version 1.1 has a constant. */
static const struct evp_cipher *find_cipher(const char *file, const char *name, const char *symbol)
{
    struct evp_cipher *(*fetch)(void *context, const char *name, const char *properties);
    const struct evp_cipher *(*constant)(void);
    if (library_open(&file, 1, (struct library_call[]){{"EVP_CIPHER_fetch", &fetch}, {0}}))
        return fetch(NULL, name, NULL);
    if (library_open(&file, 1, (struct library_call[]){{symbol, &constant}, {0}}))
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
    for (size_t i = 0; i < sizeof files / sizeof *files && !chacha && !aes; i++)
        if (library_open(&files[i], 1, calls)) {
            evp.mark(); /* NULL: this libcrypto does not have it (FIPS has no ChaCha20) */
            chacha = find_cipher(files[i], "ChaCha20-Poly1305", "EVP_chacha20_poly1305");
            aes = find_cipher(files[i], "AES-256-GCM", "EVP_aes_256_gcm");
            evp.forget();
        }
}

bool openssl_usable(void)
{
    pthread_once(&once, load);
    return chacha;
}

/* Does the processor have instructions for AES, and for the product that GCM needs? */
static bool has_instructions(void)
{
#if defined(__aarch64__)
    const unsigned long both = 1ul << 3 | 1ul << 4; /* HWCAP_AES, HWCAP_PMULL */
    return (getauxval(AT_HWCAP) & both) == both;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#else
    return false;
#endif
}

bool openssl_has_aes(void)
{
    pthread_once(&once, load);
    return aes && has_instructions();
}

/* Key, nonce and the additional data. NULL: there is no such cipher, or no memory. */
static struct evp_ctx *prepare(const struct evp_cipher *cipher, unsigned long long n, const unsigned char *key,
                               const unsigned char *nonce, const unsigned char *ad, unsigned long long adlen,
                               bool seals)
{
    int ignored;
    if (!cipher || n > INT_MAX / 2 || adlen > INT_MAX / 2)
        return NULL;
    struct evp_ctx *c = evp.begin();
    if (c && evp.init(c, cipher, NULL, key, nonce, seals) == 1 &&
        (!adlen || evp.update(c, NULL, &ignored, ad, (int)adlen) == 1))
        return c;
    if (c)
        evp.end(c);
    return NULL;
}

static bool seal_by(struct evp_ctx *x, unsigned char *c, unsigned long long *clen, const unsigned char *m,
                    unsigned long long mlen)
{
    int n;
    bool done = x && evp.update(x, c, &n, m, (int)mlen) == 1 && evp.final(x, c + n, &n) == 1 &&
                evp.ctrl(x, GET_TAG, SODIUM_TAG, c + mlen) == 1;
    if (x)
        evp.end(x);
    if (clen)
        *clen = done ? mlen + SODIUM_TAG : 0;
    return done;
}

static int open_by(struct evp_ctx *x, unsigned char *m, unsigned long long *mlen, const unsigned char *c,
                   unsigned long long clen)
{
    unsigned char tag[SODIUM_TAG];
    int n;
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

static int seal_chacha(unsigned char *c, unsigned long long *clen, const unsigned char *m, unsigned long long mlen,
                       const unsigned char *ad, unsigned long long adlen, const unsigned char *nothing,
                       const unsigned char *nonce, const unsigned char *key)
{
    if (mlen >= LONG && openssl_usable() &&
        seal_by(prepare(chacha, mlen, key, nonce, ad, adlen, true), c, clen, m, mlen))
        return 0;
    return slow.seal(c, clen, m, mlen, ad, adlen, nothing, nonce, key); /* libsodium does not fail */
}

static int open_chacha(unsigned char *m, unsigned long long *mlen, unsigned char *nothing, const unsigned char *c,
                       unsigned long long clen, const unsigned char *ad, unsigned long long adlen,
                       const unsigned char *nonce, const unsigned char *key)
{
    struct evp_ctx *x = clen >= LONG && openssl_usable() ? prepare(chacha, clen, key, nonce, ad, adlen, false) : NULL;
    return x ? open_by(x, m, mlen, c, clen) : slow.open(m, mlen, nothing, c, clen, ad, adlen, nonce, key);
}

int openssl_seal_aes(unsigned char *c, unsigned long long *clen, const unsigned char *m, unsigned long long mlen,
                     const unsigned char *ad, unsigned long long adlen, const unsigned char *nothing,
                     const unsigned char *nonce, const unsigned char *key)
{
    (void)nothing;
    return seal_by(prepare(aes, mlen, key, nonce, ad, adlen, true), c, clen, m, mlen) ? 0 : -1;
}

int openssl_open_aes(unsigned char *m, unsigned long long *mlen, unsigned char *nothing, const unsigned char *c,
                     unsigned long long clen, const unsigned char *ad, unsigned long long adlen,
                     const unsigned char *nonce, const unsigned char *key)
{
    (void)nothing;
    struct evp_ctx *x = clen >= SODIUM_TAG ? prepare(aes, clen, key, nonce, ad, adlen, false) : NULL;
    return x ? open_by(x, m, mlen, c, clen) : -1;
}

void openssl_use(struct sodium *s)
{
    slow = *s;
    s->seal = seal_chacha;
    s->open = open_chacha;
}
