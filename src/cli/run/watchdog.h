/* A process beside the launcher of a job. If the launcher is killed, the watchdog ends the ranks with all that they
 * have started, and removes what the launcher can no longer remove. */
#ifndef WEFT_CLI_RUN_WATCHDOG_H
#define WEFT_CLI_RUN_WATCHDOG_H
#include <stdbool.h>
#include <sys/types.h>

struct watchdog {
    pid_t pid; /* of the watchdog; 0: there is none */
    int ranks;
    /* Shared with the watchdog, one for each rank: what it would kill, as an argument of kill(2); 0: nothing. */
    pid_t *ends;
};

/* Forks the watchdog, which calls clean(arg) after it has ended the ranks. False: errno says why. Call it before there
 * are other threads. */
bool watchdog_start(struct watchdog *g, int ranks, void (*clean)(void *arg), void *arg);
void watchdog_stop(struct watchdog *g); /* ends the watchdog: the launcher itself cleans up */
#endif
