/* The table of ways: the first that fits a message is taken. */
#include "engine/way.h"

const struct way *const ways[] = {
    &way_wire, &way_eager, &way_cross, &way_stream, &way_staged, &way_push, &way_assist, &way_pull, NULL,
};
