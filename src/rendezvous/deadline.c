#define _GNU_SOURCE
#include "rendezvous/deadline.h"

#include <errno.h>
#include <time.h>

#include "base/math.h"

int64_t deadline_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t deadline_in(int64_t timeout_ns)
{
    int64_t now = deadline_now();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

int deadline_left_ms(int64_t until)
{
    int64_t left = until - deadline_now();
    return left <= 0 ? 0 : left > INT64_C(3600000000000) ? 3600000 : (int)((left + 999999) / 1000000);
}

void deadline_pause(int64_t *pause_ns, int64_t most_ns, int64_t until)
{
    int64_t ns = min64(*pause_ns, max64(until - deadline_now(), 0));
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
    *pause_ns = min64(*pause_ns * 2, most_ns);
}
