/* Records: the values of keys that the bus has in the directory, and the names of these keys.
 *
 *   sets/S/epoch            the publisher that has the set: epoch, ranks, run, job, layouts and schema as hashes
 *   sets/S/slots/E/R        leased: how rank R of epoch E is reached: job, host, socket, address, secret; agent 1 if
 *                           it has gone, and the agent of its host has its snapshots
 *   sets/S/parts/V/R        leased: rank R has its part of version V: generation, hash of the digests, sketch
 *   sets/S/versions/V       version V is complete; the hash of every part's digests; the meta text
 *   sets/S/readers/G/R      leased: rank R of a group of readers, and which version it reads or has staged
 *   sets/S/readers/H/relay  leased: how the relay of host H is reached: as a slot
 *   agents/H/U              leased: how the agent of host H and user U is reached: as a slot
 *
 * A record is a text of lines "name value". The line "meta" is the last one, and its value goes to the end. */
#ifndef WEFT_VERSION_RECORD_H
#define WEFT_VERSION_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "bus/directory.h"
#include "weft/bus.h"

#define RECORD_VERSION \
    32 /* bytes of a version as a text, with its zero: "EPOCH.STEP", so that texts sort as versions do */
#define RECORD_KEY (DIRECTORY_KEY_MAX + 1)
#define RECORD_META "\nmeta "

void record_version(const weft_epoch_step *v, char text[RECORD_VERSION]);
bool record_version_take(const char *text, size_t len, weft_epoch_step *out);
/* Which of two versions is newer: negative, 0 or positive. */
int record_version_compare(const weft_epoch_step *a, const weft_epoch_step *b);

void record_hex(struct text *t, const char *name, const unsigned char *bytes, size_t n);
/* The value of a line; false: there is no such line, or its value is not as wanted. */
bool record_find(const char *record, const char *name, const char **at, size_t *len);
bool record_text(const char *record, const char *name, char *out, size_t cap); /* shorter than cap */
bool record_int(const char *record, const char *name, int64_t *out);
bool record_bytes(const char *record, const char *name, unsigned char *out, size_t n);

/* Is it the name of a set, a job or a run? `what` is for the text of WEFT_EINVAL. */
int record_name(const char *call, const char *what, const char *name);
void record_key(char key[RECORD_KEY], const char *set, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
