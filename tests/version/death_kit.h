/* Processes of a test that publish and read versions, and are killed or stopped. */
#ifndef WEFT_VERSION_DEATH_KIT_H
#define WEFT_VERSION_DEATH_KIT_H
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bus/directories.h"
#include "support/processes.h"
#include "weft/bus.h"

struct shared; /* what the processes of a test tell each other: each test has its own */

static inline int32_t element(int64_t epoch, int64_t step, int64_t i)
{
    return (int32_t)(epoch * 1000003 + step * 7919 + i);
}

static inline void await(const _Atomic int64_t *word, int64_t least)
{
    for (int64_t until = clock_now() + LONG; *word < least; clock_pause(MS))
        if (clock_now() > until)
            fail_msg("a process does not get on");
}

static inline pid_t child(void (*body)(struct shared *), struct shared *x)
{
    fflush(stdout);
    pid_t pid = process_fork(120);
    if (!pid) {
        body(x);
        fflush(stdout);
        _exit(0);
    }
    return pid;
}

static inline void finish(pid_t pid, int signal)
{
    int status;
    if (signal)
        kill(pid, signal);
    if (waitpid(pid, &status, 0) != pid)
        fail_msg("waitpid: %s", strerror(errno));
    if (!signal && status)
        fail_msg("a process ended with status %x", status);
}
#endif
