/* What is in a slot of a letter. The number of the run stands in front of the message, and is stored
 * when the message is there. A tiny message is laid out otherwise: each word has four bytes of it and
 * the low half of the run's number, so that nothing needs an order among its stores, and a reader
 * that polls cannot take the line away between the message and its signal. */
#ifndef WEFT_EXEC_LETTER_H
#define WEFT_EXEC_LETTER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "transport/core.h"

/* A letter has LETTERS slots that runs use in turn: run r's is r % LETTERS. Readers say that they are done every
 * LETTERS / 2 runs only. */
#define LETTERS 16
#define LETTER_HEAD 8
#define LETTER_MOST 4096 /* bytes of a message */
#define LETTER_TINY 32   /* bytes of a message that is laid out in words */

static inline int64_t letter_slot(uint64_t run, int64_t slot_bytes)
{
    return (int64_t)(run % LETTERS) * slot_bytes;
}

static inline _Atomic uint64_t *letter_words(const char *slot)
{
    return (_Atomic uint64_t *)(uintptr_t)slot;
}

/* The sizes that small messages mostly have, without a call. */
static inline void letter_copy(void *dst, const void *src, int64_t bytes)
{
    switch (bytes) {
    case 4: memcpy(dst, src, 4); break;
    case 8: memcpy(dst, src, 8); break;
    case 16: memcpy(dst, src, 16); break;
    default: memcpy(dst, src, (size_t)bytes);
    }
}

/* The message that is complete behind the head. Release: pairs with the reader's fence. */
static inline void letter_seal(char *slot, uint64_t run)
{
    atomic_store_explicit(letter_words(slot), run, CORE_TELL);
}

static inline void letter_tell(char *slot, uint64_t run, int64_t word, uint32_t part)
{
    atomic_store_explicit(&letter_words(slot)[word], run << 32 | part, CORE_TELL_ALONE);
}

static inline bool letter_told(const char *slot, uint64_t run, int64_t word)
{
    return atomic_load_explicit(&letter_words(slot)[word], CORE_LOOK) >> 32 == (run & UINT32_MAX);
}

/* part has LETTER_TINY bytes, of which the first `bytes` count. */
static inline void letter_write_tiny(char *slot, uint64_t run, const uint32_t *part, int64_t bytes)
{
    letter_tell(slot, run, 0, part[0]);
    for (int64_t i = 1; 4 * i < bytes; i++)
        letter_tell(slot, run, i, part[i]);
}

/* Is the letter of this run there? Who then reads it fences it from the look (core_fence_looks). */
static inline bool letter_there(const char *slot, uint64_t run, int64_t bytes)
{
    if (bytes > LETTER_TINY)
        return atomic_load_explicit(letter_words(slot), CORE_LOOK) == run;
    for (int64_t i = 1; 4 * i < bytes; i++)
        if (!letter_told(slot, run, i))
            return false;
    return letter_told(slot, run, 0);
}

static inline void letter_read_tiny(const char *slot, void *message, int64_t bytes)
{
    uint32_t part[LETTER_TINY / 4];
    for (int64_t i = 0; 4 * i < bytes; i++)
        part[i] = (uint32_t)atomic_load_explicit(&letter_words(slot)[i], memory_order_relaxed);
    letter_copy(message, part, bytes);
}
#endif
