/* The list of tensors of a version, from one of the processes that have a part of it. */
#ifndef WEFT_VERSION_LAYOUTS_H
#define WEFT_VERSION_LAYOUTS_H
#include "version/bus.h"
#include "version/catalog.h"

/* avoid (may be NULL): ranks of the publisher that did not answer are marked. WEFT_EPEER: none of them has. */
int layouts_read(weft_bus *b, const char *set, const struct catalog_version *v, bool *avoid, int64_t until,
                 struct schema **out);
#endif
