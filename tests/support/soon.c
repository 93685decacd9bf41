#define _GNU_SOURCE
#include "soon.h"

#include "suite.h"

#define SOON_NS INT64_C(2000000000)
#define TRIES 5

static struct {
    int all, late;
} soon;

bool soon_enough(int64_t ns)
{
    soon.all++;
    soon.late += ns > SOON_NS;
    return ns <= SOON_LATE_NS;
}

void soon_judge(void)
{
    int all = soon.all, late = soon.late;
    soon.all = soon.late = 0;
    if (late > 0)
        print_message("%d of %d survivors knew after more than 2 s\n", late, all);
    if (late > 1 + all / 50)
        fail_msg("%d of %d survivors knew after more than 2 s", late, all);
}

void soon_at_last(int64_t (*die)(void *arg), void *arg)
{
    int64_t ns = 0;
    for (int i = 0; i < TRIES; i++) {
        ns = die(arg);
        if (ns <= SOON_NS)
            return;
        print_message("a survivor knew after %lld ms\n", (long long)(ns / 1000000));
    }
    fail_msg("in each of %d deaths a survivor knew after more than 2 s, at last after %lld ms", TRIES,
             (long long)(ns / 1000000));
}
