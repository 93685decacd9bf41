/* Drivers, ways and orders can be switched off, to measure what each is worth or to look for a fault: by
 * weft_bind_opts.ways or WEFT_WAYS, for example "-eager,-weave". Each has a bit. What one end of a message has switched
 * off is off for the message, so both ends still choose the same way. One exception: the sender alone decides whether a
 * message is eager. The bits of drivers and ways are driver_bit and way_table_bit. */
#ifndef WEFT_ENGINE_TOGGLE_H
#define WEFT_ENGINE_TOGGLE_H
#include <stdbool.h>
#include <stdint.h>

/* What can be switched off and is neither a driver nor a way. */
enum toggle_extra { TOGGLE_WEAVE, TOGGLE_EXTRAS };

static inline uint64_t toggle_extra(enum toggle_extra e)
{
    return UINT64_C(1) << (48 + e);
}

/* The i-th name that can be switched off, from 0 on; NULL after the last. */
const char *toggle_name(int i);
/* Reads a list "-name,-name"; NULL is an empty list. Refuses names that do not exist and those that cannot be switched
 * off. */
int toggle_parse(const char *text, uint64_t *off);
bool toggle_is_off(uint64_t off, const char *name);
#endif
