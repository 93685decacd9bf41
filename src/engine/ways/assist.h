/* For tests, which set counters to what they are after many runs. */
#ifndef WEFT_ENGINE_WAYS_ASSIST_H
#define WEFT_ENGINE_WAYS_ASSIST_H
#include "engine/way.h"

/* What `claimed` of a message is after `runs` runs in which both ends copied it. */
uint64_t assist_claimed(uint64_t runs, int64_t bytes);
#endif
