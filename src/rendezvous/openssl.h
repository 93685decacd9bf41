/* ChaCha20-Poly1305 by OpenSSL's libcrypto, where it is installed. The bytes are those of libsodium, so that ends with
 * and without it understand each other. On AArch64 it is three times as fast, which is what limits data between hosts:
 * libsodium has no vector code there. libcrypto is opened when the first long message is sealed or opened. */
#ifndef WEFT_RENDEZVOUS_OPENSSL_H
#define WEFT_RENDEZVOUS_OPENSSL_H
#include <stdbool.h>

#include "rendezvous/sodium.h"

/* Replaces seal and open of libsodium's functions. These are used for short messages still, and where libcrypto is
 * not installed, or fails. */
void openssl_use(struct sodium *s);
/* Opens libcrypto, once. false: it is not installed, or does not have the cipher. From any thread. */
bool openssl_usable(void);
#endif
