/* ucx_perftest between two hosts: starts the server, and the client when the server listens; see link.h. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/ranks/link.h"
#include "bench/work/work.h"

#define PORT 13337    /* its default */
#define PATIENCE 20.0 /* s */

/* Starts one end, bound to a core as ranks of weft are. The client's output goes to `out`. */
static pid_t start(const struct bench_link *l, const struct perftest *p, int host, int out)
{
    pid_t parent = getpid(), pid = fork();
    if (pid)
        return pid;
    char size[32], runs[16], warm[16], core[16], server[32];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || !link_enter_peer(l, host))
        _exit(127);
    if (p->written) {
        setenv("UCX_ALLOC_PRIO", "heap", 1);
        setenv("MALLOC_PERTURB_", "85", 1);
    }
    snprintf(size, sizeof size, "%" PRId64, p->bytes);
    snprintf(runs, sizeof runs, "%d", p->runs);
    snprintf(warm, sizeof warm, "%d", p->runs / 10 + 1);
    snprintf(core, sizeof core, "%d", host);
    const char *argv[16] = {"ucx_perftest"};
    int n = 1;
    if (host == 0)
        argv[n++] = link_address(1, server, sizeof server);
    const char *const rest[] = {"-t", p->test, "-s", size, "-n", runs, "-w", warm};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        argv[n++] = rest[i];
    if (work_cores() > 1) {
        argv[n++] = "-c";
        argv[n++] = core;
    }
    if (dup2(out, STDOUT_FILENO) < 0 || !freopen("/dev/null", "w", stderr))
        _exit(127);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Looks into the list of sockets of the process's network; state 0A means that a socket listens. */
static bool listens(pid_t pid)
{
    char path[64], line[256], want[16];
    snprintf(want, sizeof want, ":%04X ", PORT);
    bool found = false;
    for (int v6 = 0; v6 < 2 && !found; v6++) {
        snprintf(path, sizeof path, "/proc/%ld/net/tcp%s", (long)pid, v6 ? "6" : "");
        FILE *f = fopen(path, "r");
        while (f && !found && fgets(line, sizeof line, f)) {
            const char *at = strstr(line, want), *state = at ? strstr(at, " 0A ") : NULL;
            found = state != NULL;
        }
        if (f)
            fclose(f);
    }
    return found;
}

static bool await_server(pid_t pid)
{
    for (double end = work_now() + PATIENCE; work_now() < end; usleep(1000)) {
        if (listens(pid))
            return true;
        siginfo_t ended = {.si_pid = 0};
        if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) || ended.si_pid)
            return false;
    }
    return false;
}

/* "Final: runs, percentile, average, overall us, average, overall MB/s, ...": the time of a message overall. */
static double read_final(FILE *f)
{
    char line[512];
    double us = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Final: %*s %*s %*s %lf", &us) != 1 && !strncmp(line, "Final:", 6))
            us = 0;
    return us * 1e-6;
}

static void finish(pid_t pid)
{
    for (double end = work_now() + PATIENCE; waitpid(pid, NULL, WNOHANG) == 0; usleep(1000))
        if (work_now() > end)
            kill(pid, SIGKILL);
}

double link_perftest(const struct bench_link *l, const struct perftest *p, char *why, size_t cap)
{
    FILE *got = tmpfile();
    double seconds = 0;
    fflush(NULL);
    pid_t server = got ? start(l, p, 1, fileno(got)) : -1;
    if (server > 0 && await_server(server)) {
        FILE *out = tmpfile();
        pid_t client = out ? start(l, p, 0, fileno(out)) : -1;
        if (client > 0) {
            finish(client);
            rewind(out);
            seconds = read_final(out);
        }
        if (out)
            fclose(out);
    } else if (server > 0) {
        kill(server, SIGKILL);
    }
    if (server > 0)
        finish(server);
    if (got)
        fclose(got);
    if (!(seconds > 0))
        snprintf(why, cap, "ucx_perftest is not there (package ucx-utils), or it failed");
    return seconds;
}
