/* See watchdog.h. The watchdog does not get signals to the launcher's process group. It gets SIGTERM when the launcher
 * ends. */
#define _GNU_SOURCE
#include "cli/run/watchdog.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The watchdog must not keep the launcher's output open: readers wait for its end. */
static void leave_output(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
}

static void watch(const struct watchdog *g, pid_t launcher, void (*clean)(void *arg), void *arg)
{
    sigset_t end;
    sigfillset(&end);
    sigprocmask(SIG_BLOCK, &end, NULL);
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    prctl(PR_SET_NAME, "weft-watchdog");
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    leave_output();
    while (getppid() == launcher)
        sigwaitinfo(&end, NULL);
    for (int r = 0; r < g->ranks; r++)
        if (g->ends[r])
            kill(g->ends[r], SIGKILL);
    clean(arg);
    _exit(0);
}

bool watchdog_start(struct watchdog *g, int ranks, void (*clean)(void *arg), void *arg)
{
    pid_t launcher = getpid();
    void *shared =
        mmap(NULL, (size_t)ranks * sizeof *g->ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *g = (struct watchdog){.ranks = ranks, .ends = shared};
    if (shared == MAP_FAILED)
        return false;
    g->pid = fork();
    if (g->pid == 0)
        watch(g, launcher, clean, arg);
    if (g->pid < 0)
        munmap(shared, (size_t)ranks * sizeof *g->ends);
    return g->pid > 0;
}

void watchdog_stop(struct watchdog *g)
{
    kill(g->pid, SIGKILL);
    waitpid(g->pid, NULL, 0);
    munmap(g->ends, (size_t)g->ranks * sizeof *g->ends);
    *g = (struct watchdog){0};
}
