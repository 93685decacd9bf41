/* Eager messages: small messages that the sender packs into a slot of its control block. The message and its signal
 * travel together: the sender stores the number of the run, the stamp, behind the message when it is complete, and the
 * receiver polls the stamp. A message of up to EAGER_INLINE bytes is inline: each word of the slot has four bytes of it
 * and the low half of the run's number. So its stores need no order, and a receiver that polls cannot take the cache
 * line away between the message and its signal. */
#ifndef WEFT_ENGINE_WAYS_EAGER_H
#define WEFT_ENGINE_WAYS_EAGER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/defaults.h"
#include "engine/exec.h"
#include "transport/core/core.h"

/* A message has several slots, which runs use in turn: run r uses slot r % EAGER_SLOTS. Receivers say only every
 * EAGER_SLOTS / 2 runs that they have read their messages.
 *
 * If every receiver sends something back in each run, nothing has to be acknowledged, and two slots are enough. A rank
 * that ends run r has got what its receivers sent in run r. So these had ended run r - 1 and read all its messages, and
 * the slots of run r - 1 are those of run r + 1. The message back releases what was read before; the rank that gets it
 * acquires that. */
#define EAGER_SLOTS 16            /* slots of a message */
#define EAGER_SLOTS_UNACKED 2     /* slots of an inline message that is not acknowledged */
#define EAGER_MOST DEFAULTS_EAGER /* bytes of a message */
#define EAGER_INLINE 32           /* bytes of an inline message */

/* The offset of the slot of a run. `slots` is a power of 2. */
static inline int64_t eager_offset(uint64_t run, uint32_t slots, int64_t slot_bytes)
{
    return (int64_t)(run & (slots - 1)) * slot_bytes;
}

static inline _Atomic uint64_t *eager_words(const char *slot)
{
    return (_Atomic uint64_t *)(uintptr_t)slot;
}

/* memcpy without a call for the most frequent sizes. */
static inline void eager_copy(void *dst, const void *src, int64_t bytes)
{
    switch (bytes) {
    case 4: memcpy(dst, src, 4); break;
    case 8: memcpy(dst, src, 8); break;
    case 16: memcpy(dst, src, 16); break;
    default: memcpy(dst, src, (size_t)bytes);
    }
}

/* The offset of the stamp in a slot. The message comes first, so that it is aligned as the slot is. Joint messages,
 * which are always written together, have one stamp behind the last of them. */
static inline int64_t eager_stamp_offset(int64_t message)
{
    return (message + 7) / 8 * 8;
}

/* The message, or all messages that share the stamp, are complete. Release: pairs with the receiver's fence. */
static inline void eager_stamp(char *slot, uint64_t run, int64_t stamp)
{
    atomic_store_explicit(eager_words(slot + stamp), run, CORE_TELL);
}

static inline bool eager_stamped(const char *slot, uint64_t run, int64_t stamp)
{
    return atomic_load_explicit(eager_words(slot + stamp), CORE_LOOK) == run;
}

/* Release: a rank that sees this word may write again into the slots that this rank read before. */
static inline void eager_store_word(char *slot, uint64_t run, int64_t word, uint32_t part)
{
    atomic_store_explicit(&eager_words(slot)[word], run << 32 | part, CORE_TELL);
}

static inline uint64_t eager_word(const char *slot, int64_t word)
{
    return atomic_load_explicit(&eager_words(slot)[word], CORE_LOOK);
}

static inline int64_t eager_inline_bytes(int64_t message)
{
    return (message + 3) / 4 * 8;
}

static inline void eager_store_part(char *slot, uint64_t run, int64_t word, const char *message, size_t bytes)
{
    uint32_t part = 0;
    memcpy(&part, message + 4 * word, bytes);
    eager_store_word(slot, run, word, part);
}

static inline void eager_store_inline(char *slot, uint64_t run, const char *message, int64_t bytes)
{
    int64_t whole = bytes / 4;
    if (bytes == 8) { /* the most frequent size, without a loop */
        eager_store_part(slot, run, 0, message, 4);
        eager_store_part(slot, run, 1, message, 4);
        return;
    }
    for (int64_t i = 0; i < whole; i++)
        eager_store_part(slot, run, i, message, 4);
    if (bytes % 4)
        eager_store_part(slot, run, whole, message, (size_t)(bytes % 4));
}

/* Reads the message; false: that of this run is not there. Each word has its own stamp, so no fence is needed. */
static inline bool eager_load_inline(const char *slot, uint64_t run, void *message, int64_t bytes)
{
    uint32_t part[EAGER_INLINE / 4];
    if (bytes == 8) {
        uint64_t a = eager_word(slot, 0), b = eager_word(slot, 1);
        if (a >> 32 != (run & UINT32_MAX) || b >> 32 != (run & UINT32_MAX))
            return false;
        part[0] = (uint32_t)a;
        part[1] = (uint32_t)b;
        memcpy(message, part, 8);
        return true;
    }
    for (int64_t i = 0; 4 * i < bytes; i++) {
        uint64_t word = eager_word(slot, i);
        if (word >> 32 != (run & UINT32_MAX))
            return false;
        part[i] = (uint32_t)word;
    }
    eager_copy(message, part, bytes);
    return true;
}

/* Is the message of this run there? Before the caller reads it, it calls core_fence_looks. */
static inline bool eager_there(const char *slot, uint64_t run, int64_t bytes, int64_t stamp)
{
    if (bytes > EAGER_INLINE)
        return eager_stamped(slot, run, stamp);
    for (int64_t i = 0; 4 * i < bytes; i++)
        if (eager_word(slot, i) >> 32 != (run & UINT32_MAX))
            return false;
    return true;
}

/* Rounds up to whole cache lines. */
static inline int64_t eager_lines(int64_t bytes)
{
    return (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

/* ---- eager.c ---- */

/* Chooses the SENDs that are eager and lays out their slots. It needs no peer. */
int eager_choose(const weft_exec *x, struct program *p);
void eager_write(const weft_exec *x, const struct exec_eager *e);         /* without the stamp of a joint one */
void eager_stamp_joint(const weft_exec *x);                               /* stamps the joint ones, if there are any */
const char *eager_slot(const weft_exec *x, const struct exec_step *step); /* eager RECV: the slot of this run */
/* At the start of a run, after `launch`: stamps the joint ones and wakes their receivers. */
void eager_launch_joint(weft_exec *x);
#endif
