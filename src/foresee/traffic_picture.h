/* What ranks send to each other, as a picture (SVG): a square for each pair, the darker the more bytes. */
#ifndef WEFT_FORESEE_TRAFFIC_PICTURE_H
#define WEFT_FORESEE_TRAFFIC_PICTURE_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRAFFIC_PICTURE_RANKS 256 /* most that are drawn: a square is then as small as can be seen */

struct traffic {
    int from, to;
    int64_t bytes, messages;
};

/* Draws n pairs of `ranks` ranks, up to TRAFFIC_PICTURE_RANKS. Rows send, columns receive. The pairs may also be of
 * hosts, or of other groups. about: what the picture shows, for those who cannot see it. */
void traffic_picture_print(FILE *to, const struct traffic *pairs, size_t n, int ranks, const char *about);
#endif
