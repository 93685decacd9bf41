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

/* `nhead` bytes of `head`, if there are some, and then `n` of `m`. */
static bool seal_by(struct evp_ctx *x, unsigned char *c, const unsigned char *head, size_t nhead,
                    const unsigned char *m, size_t n)
{
    int done = 0;
    bool sealed = x && (!nhead || evp.update(x, c, &done, head, (int)nhead) == 1) &&
                  evp.update(x, c + nhead, &done, m, (int)n) == 1 && evp.final(x, c + nhead + n, &done) == 1 &&
                  evp.ctrl(x, GET_TAG, SODIUM_TAG, c + nhead + n) == 1;
    if (x)
        evp.end(x);
    return sealed;
}

/* n: all bytes without the tag. */
static bool open_by(struct evp_ctx *x, unsigned char *head, size_t nhead, unsigned char *m, const unsigned char *c,
                    size_t n)
{
    unsigned char tag[SODIUM_TAG];
    int done;
    memcpy(tag, c + n, sizeof tag);
    bool opened = evp.ctrl(x, SET_TAG, SODIUM_TAG, tag) == 1 &&
                  (!nhead || evp.update(x, head, &done, c, (int)nhead) == 1) &&
                  evp.update(x, m, &done, c + nhead, (int)(n - nhead)) == 1 && evp.final(x, m + n - nhead, &done) == 1;
    evp.end(x);
    if (!opened) { /* as libsodium does: nobody sees bytes that are not proved */
        slow.wipe(m, n - nhead);
        if (nhead)
            slow.wipe(head, nhead);
    }
    return opened;
}

static int seal_chacha(unsigned char *c, unsigned long long *clen, const unsigned char *m, unsigned long long mlen,
                       const unsigned char *ad, unsigned long long adlen, const unsigned char *nothing,
                       const unsigned char *nonce, const unsigned char *key)
{
    if (mlen >= LONG && openssl_usable() &&
        seal_by(prepare(chacha, mlen, key, nonce, ad, adlen, true), c, NULL, 0, m, (size_t)mlen)) {
        if (clen)
            *clen = mlen + SODIUM_TAG;
        return 0;
    }
    return slow.seal(c, clen, m, mlen, ad, adlen, nothing, nonce, key); /* libsodium does not fail */
}

static int open_chacha(unsigned char *m, unsigned long long *mlen, unsigned char *nothing, const unsigned char *c,
                       unsigned long long clen, const unsigned char *ad, unsigned long long adlen,
                       const unsigned char *nonce, const unsigned char *key)
{
    struct evp_ctx *x = clen >= LONG && openssl_usable() ? prepare(chacha, clen, key, nonce, ad, adlen, false) : NULL;
    if (!x)
        return slow.open(m, mlen, nothing, c, clen, ad, adlen, nonce, key);
    bool opened = open_by(x, NULL, 0, m, c, (size_t)clen - SODIUM_TAG);
    if (mlen)
        *mlen = opened ? clen - SODIUM_TAG : 0;
    return opened ? 0 : -1;
}

bool openssl_seal_aes(unsigned char *c, const unsigned char *head, size_t nhead, const unsigned char *m, size_t n,
                      const unsigned char *ad, size_t adlen, const unsigned char *nonce, const unsigned char *key)
{
    return seal_by(prepare(aes, nhead + n, key, nonce, ad, adlen, true), c, head, nhead, m, n);
}

bool openssl_open_aes(unsigned char *head, size_t nhead, unsigned char *m, const unsigned char *c, size_t clen,
                      const unsigned char *ad, size_t adlen, const unsigned char *nonce, const unsigned char *key)
{
    struct evp_ctx *x = clen >= nhead + SODIUM_TAG ? prepare(aes, clen, key, nonce, ad, adlen, false) : NULL;
    return x && open_by(x, head, nhead, m, c, clen - SODIUM_TAG);
}

void openssl_use(struct sodium *s)
{
    slow = *s;
    s->seal = seal_chacha;
    s->open = open_chacha;
}
