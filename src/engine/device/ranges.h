/* Ranges of the caller's memory that some views cover, for memory that is mirrored or pinned. */
#ifndef WEFT_ENGINE_DEVICE_RANGES_H
#define WEFT_ENGINE_DEVICE_RANGES_H
#include "engine/exec.h"

struct range {
    char *from, *end;
    uint64_t at; /* where it is elsewhere: in a mirror, or for a device */
};

/* The first byte of the view's elements, and the byte behind the last one. False: it has none. */
bool ranges_extent(const weft_plan *p, uint32_t tensor, const weft_view *v, bool written, struct range *out);
/* Sorts n ranges by their addresses and joins those that overlap or touch. Returns how many are left. */
size_t ranges_join(struct range *v, size_t n);
/* The last of n sorted ranges that does not begin behind the address; the first one if there is none. n is at least 1.
 */
size_t ranges_find(const struct range *v, size_t n, const char *address);
#endif
