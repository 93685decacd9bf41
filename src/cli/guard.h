/* A process beside the launcher of a job that outlives it if it is killed, to end the ranks with all that they have
 * started and to remove what the launcher can no longer remove. */
#ifndef WEFT_CLI_GUARD_H
#define WEFT_CLI_GUARD_H
#include <stdbool.h>
#include <sys/types.h>

struct guard {
    pid_t pid; /* of the guard; 0: there is none */
    int ranks;
    pid_t *ends; /* shared with it, one a rank: what it would kill, as kill(2) takes it; 0: nothing */
};

/* Forks the guard; clean(arg) is called in it once the ranks have been ended. False: errno says why. Before other
 * threads. */
bool guard_start(struct guard *g, int ranks, void (*clean)(void *arg), void *arg);
void guard_stop(struct guard *g); /* all is in order */
#endif
