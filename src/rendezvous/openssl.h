/* Ciphers of OpenSSL's libcrypto, where it is installed. It is opened when the first long message is sealed or opened,
 * or when somebody asks for AES.
 *
 * ChaCha20-Poly1305: the bytes are those of libsodium, so that ends with and without libcrypto understand each other.
 * On AArch64 it is three times as fast: libsodium has no vector code there.
 *
 * AES-256-GCM: 2.7 times as fast again on a Neoverse-N1, which has instructions for it. libsodium has it on x86-64, and
 * since 1.0.19 on AArch64; weft takes libcrypto's in any case. */
#ifndef WEFT_RENDEZVOUS_OPENSSL_H
#define WEFT_RENDEZVOUS_OPENSSL_H
#include <stdbool.h>

#include "rendezvous/sodium.h"

/* Replaces seal and open of libsodium's functions. These are used for short messages still, and where libcrypto is
 * not installed, or fails. */
void openssl_use(struct sodium *s);
/* Opens libcrypto, once. false: it is not installed, or does not have ChaCha20-Poly1305. From any thread. */
bool openssl_usable(void);
/* Is there AES-256-GCM, and a processor that makes it fast? From any thread. */
bool openssl_has_aes(void);
/* Only where openssl_has_aes, and after openssl_use. The message is `nhead` bytes of `head` and the bytes of `m` behind
 * them: m, which may be where c has these bytes, need not be copied to join them. Sealed bytes are n + nhead +
 * SODIUM_TAG. False: they are not what was sealed, and nothing of them is left; or there is no memory. */
bool openssl_seal_aes(unsigned char *c, const unsigned char *head, size_t nhead, const unsigned char *m, size_t n,
                      const unsigned char *ad, size_t adlen, const unsigned char *nonce, const unsigned char *key);
bool openssl_open_aes(unsigned char *head, size_t nhead, unsigned char *m, const unsigned char *c, size_t clen,
                      const unsigned char *ad, size_t adlen, const unsigned char *nonce, const unsigned char *key);
#endif
