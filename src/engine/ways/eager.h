/* Eager messages: small ones, which the sender packs into a slot of its block that carries its own signal. The number
 * of the run, its stamp, stands behind the message and is stored when the message is there. A message of up to
 * EAGER_INLINE bytes is inline: each word of the slot has four bytes of it and the low half of the run's number, so
 * that nothing needs an order among its stores, and a reader that polls cannot take the line away between the message
 * and its signal. */
#ifndef WEFT_ENGINE_WAYS_EAGER_H
#define WEFT_ENGINE_WAYS_EAGER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/exec.h"
#include "transport/core/core.h"

/* A message has slots that runs use in turn: of EAGER_SLOTS, run r's is r % EAGER_SLOTS. Readers say that they are done
 * every EAGER_SLOTS / 2 runs only.
 *
 * Where every reader sends something back in each run, nothing has to be acknowledged and two slots are enough. The
 * rank that ends run r has got what its readers send in run r; so these had ended run r - 1 and read all of its
 * messages, whose slots are those of run r + 1. Sending releases what was read before, getting it acquires that. */
#define EAGER_SLOTS 16
#define EAGER_SLOTS_UNACKED 2
#define EAGER_MOST 4096 /* bytes of a message */
#define EAGER_INLINE 32 /* bytes of a message that is laid out in words */

/* Where the slot of a run is, of `slots`, a power of 2. */
static inline int64_t eager_offset(uint64_t run, uint32_t slots, int64_t slot_bytes)
{
    return (int64_t)(run & (slots - 1)) * slot_bytes;
}

static inline _Atomic uint64_t *eager_words(const char *slot)
{
    return (_Atomic uint64_t *)(uintptr_t)slot;
}

/* The sizes that small messages mostly have, without a call. */
static inline void eager_copy(void *dst, const void *src, int64_t bytes)
{
    switch (bytes) {
    case 4: memcpy(dst, src, 4); break;
    case 8: memcpy(dst, src, 8); break;
    case 16: memcpy(dst, src, 16); break;
    default: memcpy(dst, src, (size_t)bytes);
    }
}

/* Where the stamp stands in a slot of its own. The message comes first, and so is aligned like the slot. Messages that
 * are always written together have one stamp behind the last of them. */
static inline int64_t eager_stamp_offset(int64_t message)
{
    return (message + 7) / 8 * 8;
}

/* The message, or all that have the stamp in common, is complete. Release: pairs with the reader's fence. */
static inline void eager_stamp(char *slot, uint64_t run, int64_t stamp)
{
    atomic_store_explicit(eager_words(slot + stamp), run, CORE_TELL);
}

static inline bool eager_stamped(const char *slot, uint64_t run, int64_t stamp)
{
    return atomic_load_explicit(eager_words(slot + stamp), CORE_LOOK) == run;
}

/* Release: whoever sees this word may write again into the slots that were read before it. */
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
    if (bytes == 8) { /* what most of them are, without a loop */
        eager_store_part(slot, run, 0, message, 4);
        eager_store_part(slot, run, 1, message, 4);
        return;
    }
    for (int64_t i = 0; i < whole; i++)
        eager_store_part(slot, run, i, message, 4);
    if (bytes % 4)
        eager_store_part(slot, run, whole, message, (size_t)(bytes % 4));
}

/* The message, if that of this run is there. Each word proves itself, so it needs no fence. */
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

/* Is the message of this run there? The caller fences the look from what it then reads (core_fence_looks). */
static inline bool eager_there(const char *slot, uint64_t run, int64_t bytes, int64_t stamp)
{
    if (bytes > EAGER_INLINE)
        return eager_stamped(slot, run, stamp);
    for (int64_t i = 0; 4 * i < bytes; i++)
        if (eager_word(slot, i) >> 32 != (run & UINT32_MAX))
            return false;
    return true;
}

/* Bytes in whole lines of cache. */
static inline int64_t eager_lines(int64_t bytes)
{
    return (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

/* ---- eager.c ---- */

/* Which SENDs are eager, from the plan alone; room for all in *p. */
int eager_choose(const weft_exec *x, struct program *p);
void eager_write(const weft_exec *x, const struct exec_eager *e);         /* does not stamp a joint one */
void eager_stamp_joint(const weft_exec *x);                               /* the joint ones, if any */
const char *eager_slot(const weft_exec *x, const struct exec_step *step); /* RECV of an eager one: this run's slot */
/* At the start of a run, when all that can be launched is: stamps the joint ones and wakes their readers. */
void eager_launch_joint(weft_exec *x);
#endif
