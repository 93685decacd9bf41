#define _GNU_SOURCE
#include "clock.h"

#include <time.h>

int64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

void clock_pause(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND}, NULL);
}
