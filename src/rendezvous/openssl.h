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
/* Only where openssl_has_aes, and after openssl_use. They also fail if there is no memory. */
sodium_seal openssl_seal_aes;
sodium_open openssl_open_aes;
#endif
