/* Drivers, ways and orders can be switched off, to see what each is worth and to look for a fault: by
 * weft_bind_opts.ways or WEFT_WAYS, "-eager,-weave". Each has a bit. What one end of a message has switched off is off
 * for the message, so both ends still choose alike; whether it is eager is its sender's decision. driver_bit and
 * way_table_bit have the bits of rows. */
#ifndef WEFT_ENGINE_TOGGLE_H
#define WEFT_ENGINE_TOGGLE_H
#include <stdbool.h>
#include <stdint.h>

/* What is no row of a table and can be switched off all the same. */
enum toggle_extra { TOGGLE_WEAVE, TOGGLE_EXTRAS };

static inline uint64_t toggle_extra(enum toggle_extra e)
{
    return UINT64_C(1) << (48 + e);
}

/* The names that can be switched off, from 0 on; NULL after the last. */
const char *toggle_name(int i);
/* Reads a list "-name,-name"; NULL is an empty one. Names that there are not, and what cannot be switched off, are
 * refused. */
int toggle_parse(const char *text, uint64_t *off);
bool toggle_is_off(uint64_t off, const char *name);
#endif
