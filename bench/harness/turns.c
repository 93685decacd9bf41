#include "bench/harness/turns.h"

static int64_t wrong_of(const struct contender *c)
{
    int64_t n = 0;
    for (uint32_t r = 0; r < c->orders->ranks; r++)
        n += c->orders->report[r].wrong;
    return n;
}

int turns_open(struct contender *c, const struct work_cell *cell, int64_t *wrong, struct failure *why)
{
    struct order open = {.verb = ORDER_OPEN, .cell = *cell}, check = {.verb = ORDER_CHECK};
    if (contenders_do(c, &open) || contenders_do(c, &check))
        return failure_set(why, CLI_WRONG, "%s", c->why);
    *wrong = wrong_of(c);
    return CLI_OK;
}

int turns_time(struct contender *c, int runs, double *seconds, struct failure *why)
{
    struct order time = {.verb = ORDER_TIME, .warm = runs / 10 + 1, .runs = runs};
    if (contenders_do(c, &time))
        return failure_set(why, CLI_WRONG, "%s", c->why);
    *seconds = 0;
    for (uint32_t r = 0; r < c->orders->ranks; r++)
        *seconds = c->orders->report[r].each > *seconds ? c->orders->report[r].each : *seconds;
    return CLI_OK;
}
