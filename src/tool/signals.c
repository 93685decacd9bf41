/* See signals.h. */
#define _POSIX_C_SOURCE 200809L
#include "tool/signals.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

static volatile sig_atomic_t caught;

static void catch_signal(int number)
{
    caught = number;
}

void signals_watch(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction how = {.sa_handler = catch_signal}, was;
    sigemptyset(&how.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!sigaction(ends[i], NULL, &was) && was.sa_handler != SIG_IGN)
            sigaction(ends[i], &how, NULL);
}

int signals_caught(void)
{
    return caught;
}

void signals_obey(void)
{
    if (!caught)
        return;
    fflush(NULL);
    signal(caught, SIG_DFL);
    raise(caught);
}
