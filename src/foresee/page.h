/* One page (HTML) with all that is known of a move: numbers, who holds what, bytes between ranks and hosts, the time
 * line, the busiest links, the critical path. It needs nothing beside itself: no script, no font, no network. */
#ifndef WEFT_FORESEE_PAGE_H
#define WEFT_FORESEE_PAGE_H
#include "foresee/changes.h"

struct page {
    const char *src, *dst; /* of one tensor; NULL for several */
    const struct scene *scene;
    const struct scene_run *run; /* run->events.span NULL: nothing was simulated, and the page is without times */
    const struct changes *changes;
};

/* Writes the page to a file. An exit code, and in *why what is wrong. */
int page_write(const char *path, const struct page *p, struct failure *why);
#endif
