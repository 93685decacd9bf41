/* A process beside the launcher of a job that outlives it if it is killed, to end the ranks with all that they have
 * started and to remove what the launcher can no longer remove. */
#ifndef WEFT_CLI_RUN_WATCHDOG_H
#define WEFT_CLI_RUN_WATCHDOG_H
#include <stdbool.h>
#include <sys/types.h>

struct watchdog {
    pid_t pid; /* of the watchdog; 0: there is none */
    int ranks;
    pid_t *ends; /* shared with it, one a rank: what it would kill, as kill(2) takes it; 0: nothing */
};

/* Forks the watchdog; clean(arg) is called in it once the ranks have been ended. False: errno says why. Before other
 * threads. */
bool watchdog_start(struct watchdog *g, int ranks, void (*clean)(void *arg), void *arg);
void watchdog_stop(struct watchdog *g); /* all is in order */
#endif
