#include "memory_levels.h"

#include "memory/memory.h"

static int best(void)
{
    static int level = -1;
    if (level < 0)
        level = memory_level(-1); /* which also goes there */
    return level;
}

static const char *levels_name(size_t i)
{
    return i <= (size_t)best() ? memory_level_name(best() - (int)i) : NULL;
}

static int levels_enter(size_t i)
{
    int level = best() - (int)i;
    return memory_level(level) != level;
}

const struct suite_places memory_levels = {levels_name, NULL, levels_enter, NULL, NULL};
