/* The few functions of libsodium that the store needs. The library is loaded when a tcp: store is first opened or
 * served: weft is built and runs without it. */
#ifndef WEFT_RENDEZVOUS_SODIUM_H
#define WEFT_RENDEZVOUS_SODIUM_H
#include <stddef.h>

#define SODIUM_KEY 32
#define SODIUM_TAG 16
#define SODIUM_NONCE 12

/* What encrypts and authenticates. c and m do not overlap. */
typedef int sodium_seal(unsigned char *c, unsigned long long *clen, const unsigned char *m, unsigned long long mlen,
                        const unsigned char *ad, unsigned long long adlen, const unsigned char *nothing,
                        const unsigned char *nonce, const unsigned char *key);
/* -1: the bytes were not sealed with this key and nonce; nothing of them is in m, which may be c. */
typedef int sodium_open(unsigned char *m, unsigned long long *mlen, unsigned char *nothing, const unsigned char *c,
                        unsigned long long clen, const unsigned char *ad, unsigned long long adlen,
                        const unsigned char *nonce, const unsigned char *key);

struct sodium {
    void (*random)(void *bytes, size_t n);
    /* A keyed hash (BLAKE2b). */
    int (*hash)(unsigned char *out, size_t outlen, const unsigned char *in, unsigned long long inlen,
                const unsigned char *key, size_t keylen);
    /* ChaCha20-Poly1305 (IETF). seal does not fail. Long messages go to libcrypto (openssl.h). */
    sodium_seal *seal;
    sodium_open *open;
    /* 0 or -1, in a time that does not depend on where they differ. */
    int (*same)(const void *a, const void *b, size_t n);
    void (*wipe)(void *bytes, size_t n);
};

/* NULL, with WEFT_EUNSUPPORTED set, if the library is not installed. */
const struct sodium *sodium_find(void);
#endif
