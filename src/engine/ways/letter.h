/* What is in a slot of a letter. The number of the run stands behind the message, and is stored
 * when the message is there. A tiny message is laid out otherwise: each word has four bytes of it and
 * the low half of the run's number, so that nothing needs an order among its stores, and a reader
 * that polls cannot take the line away between the message and its signal. */
#ifndef WEFT_ENGINE_WAYS_LETTER_H
#define WEFT_ENGINE_WAYS_LETTER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "transport/core/core.h"

/* A letter has slots that runs use in turn: of LETTERS, run r's is r % LETTERS. Readers say that they are done every
 * LETTERS / 2 runs only.
 *
 * Where every reader sends something back in each run, nothing has to be said and two slots are enough (way.c says when
 * they are better). Whoever ends run r has got what its readers send in run r; so these had ended run r - 1 and read
 * all of its letters, whose slots are those of run r + 1. Sending releases what was read before, getting it acquires
 * that. */
#define LETTERS 16
#define LETTERS_ANSWERED 2
#define LETTER_MOST 4096 /* bytes of a message */
#define LETTER_TINY 32   /* bytes of a message that is laid out in words */

/* Of a letter that has so many slots, a power of 2. */
static inline int64_t letter_slot(uint64_t run, uint32_t slots, int64_t slot_bytes)
{
    return (int64_t)(run & (slots - 1)) * slot_bytes;
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

/* Where the number of a large letter stands in a slot of its own. The message comes first, and so is aligned like the
 * slot. Letters that are always written together have one number behind the last of them. */
static inline int64_t letter_number(int64_t message)
{
    return (message + 7) / 8 * 8;
}

/* The message, or all that share the number, is complete. Release: pairs with the reader's fence. */
static inline void letter_seal(char *slot, uint64_t run, int64_t number)
{
    atomic_store_explicit(letter_words(slot + number), run, CORE_TELL);
}

static inline bool letter_sealed(const char *slot, uint64_t run, int64_t number)
{
    return atomic_load_explicit(letter_words(slot + number), CORE_LOOK) == run;
}

/* Release: the letters that were read before may be written again by who sees this one. */
static inline void letter_tell(char *slot, uint64_t run, int64_t word, uint32_t part)
{
    atomic_store_explicit(&letter_words(slot)[word], run << 32 | part, CORE_TELL);
}

static inline uint64_t letter_word(const char *slot, int64_t word)
{
    return atomic_load_explicit(&letter_words(slot)[word], CORE_LOOK);
}

static inline int64_t letter_tiny_bytes(int64_t message)
{
    return (message + 3) / 4 * 8;
}

static inline void letter_tell_part(char *slot, uint64_t run, int64_t word, const char *message, size_t bytes)
{
    uint32_t part = 0;
    memcpy(&part, message + 4 * word, bytes);
    letter_tell(slot, run, word, part);
}

static inline void letter_write_tiny(char *slot, uint64_t run, const char *message, int64_t bytes)
{
    int64_t whole = bytes / 4;
    if (bytes == 8) { /* what most of them are, without a loop */
        letter_tell_part(slot, run, 0, message, 4);
        letter_tell_part(slot, run, 1, message, 4);
        return;
    }
    for (int64_t i = 0; i < whole; i++)
        letter_tell_part(slot, run, i, message, 4);
    if (bytes % 4)
        letter_tell_part(slot, run, whole, message, (size_t)(bytes % 4));
}

/* The message, if the letter of this run is there. Each word proves itself, so it needs no fence. */
static inline bool letter_read_tiny(const char *slot, uint64_t run, void *message, int64_t bytes)
{
    uint32_t part[LETTER_TINY / 4];
    if (bytes == 8) {
        uint64_t a = letter_word(slot, 0), b = letter_word(slot, 1);
        if (a >> 32 != (run & UINT32_MAX) || b >> 32 != (run & UINT32_MAX))
            return false;
        part[0] = (uint32_t)a;
        part[1] = (uint32_t)b;
        memcpy(message, part, 8);
        return true;
    }
    for (int64_t i = 0; 4 * i < bytes; i++) {
        uint64_t word = letter_word(slot, i);
        if (word >> 32 != (run & UINT32_MAX))
            return false;
        part[i] = (uint32_t)word;
    }
    letter_copy(message, part, bytes);
    return true;
}

/* Is the letter of this run there? Who then reads it fences it from the look (core_fence_looks). */
static inline bool letter_there(const char *slot, uint64_t run, int64_t bytes, int64_t number)
{
    if (bytes > LETTER_TINY)
        return letter_sealed(slot, run, number);
    for (int64_t i = 0; 4 * i < bytes; i++)
        if (letter_word(slot, i) >> 32 != (run & UINT32_MAX))
            return false;
    return true;
}
#endif
