#include "lower/rows.h"

#include <string.h>

#include "base/error.h"

static const struct row table[] = {
    {0},
};
#define ROWS (sizeof table / sizeof *table - 1)

const char *weft_algorithm_name(int i)
{
    return i == 0 ? "direct" : i > 0 && (size_t)i <= ROWS ? table[i - 1].name : NULL;
}

int rows_choose(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row)
{
    (void)j;
    (void)r;
    *row = NULL;
    if (!o->algorithm || !strcmp(o->algorithm, "direct"))
        return 0;
    return error_set(WEFT_EINVAL, "lower: there is no algorithm '%s'", o->algorithm);
}
