/* BLAKE2s (RFC 7693): a cryptographic hash of up to 32 bytes, also with a key. weft's sockets prove with it that a
 * process belongs to the job. It is written here because the library must not need others for that: libsodium is
 * optional, and only a store over TCP requires it. */
#ifndef WEFT_BASE_BLAKE2S_H
#define WEFT_BASE_BLAKE2S_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLAKE2S_MOST 32 /* bytes of a hash, and of a key */

struct blake2s {
    uint32_t h[8];
    uint64_t count; /* bytes that were compressed */
    unsigned char block[64];
    size_t filled, length;
};

/* length: bytes of the result, 1 to 32. keylen 0: no key. */
void blake2s_begin(struct blake2s *b, size_t length, const void *key, size_t keylen);
void blake2s_add(struct blake2s *b, const void *bytes, size_t n);
void blake2s_end(struct blake2s *b, void *out); /* and wipes b */

/* Are the two equal? The time does not depend on where they differ. */
bool blake2s_same(const void *a, const void *b, size_t n);
void blake2s_wipe(void *bytes, size_t n); /* the compiler does not leave it out */
#endif
