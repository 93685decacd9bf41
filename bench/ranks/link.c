/* See link.h. */
#define _GNU_SOURCE
#include "bench/ranks/link.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_SHM "^sysv,posix,cma,knem,xpmem"

/* "agent ADDRESS COMMAND...": the command is a text for the shell, as with rsh. */
static bool write_agent(const struct bench_link *l)
{
    FILE *f = fopen(l->agent, "w");
    if (!f)
        return false;
    fprintf(f,
            "#!/bin/sh\n"
            "host=$((${1##*.} - 1))\n"
            "shift\n"
            "exec nsenter --net=/run/netns/weft-%ld-$host unshare --uts sh -c \"hostname weft-host$host; $*\"\n",
            (long)getpid());
    return !fclose(f) && !chmod(l->agent, 0700);
}

bool link_make(int hosts, struct bench_link *out, char *why, size_t cap)
{
    *out = (struct bench_link){.agent = ""};
    if (!temp_folder_make(NULL, "hosts", &out->folder, why, cap))
        return false;
    snprintf(out->agent, sizeof out->agent, "%s/agent", out->folder.path);
    bool made = write_agent(out);
    if (!made)
        snprintf(why, cap, "%s: %s", out->agent, strerror(errno));
    made = made && netns_make(hosts, &out->netns, why, cap);
    if (!made)
        temp_folder_remove(&out->folder);
    return made;
}

void link_remove(struct bench_link *l)
{
    netns_remove(&l->netns);
    temp_folder_remove(&l->folder);
}

int link_host(const struct bench_link *l, int rank, int ranks)
{
    return rank * l->netns.hosts / ranks;
}

const char *link_address(int host, char *buf, size_t cap)
{
    snprintf(buf, cap, "10.77.0.%d", host + 1);
    return buf;
}

bool link_enter(const struct bench_link *l, int host)
{
    char text[sizeof l->folder.path + 8];
    snprintf(text, sizeof text, "host%d", host);
    setenv("WEFT_HOST", text, 1);
    snprintf(text, sizeof text, "file:%s", l->folder.path);
    setenv("WEFT_AT", text, 1);
    return netns_enter(&l->netns, host);
}

bool link_enter_peer(const struct bench_link *l, int host)
{
    char name[32];
    int n = snprintf(name, sizeof name, "weft-host%d", host);
    setenv("UCX_TLS", NO_SHM, 1);
    return netns_enter(&l->netns, host) && !unshare(CLONE_NEWUTS) && !sethostname(name, (size_t)n);
}

/* ---- counters ---- */

static int64_t received_here(void)
{
    char line[512];
    int64_t bytes = -1;
    FILE *f = fopen("/proc/thread-self/net/dev", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *name = line + strspn(line, " ");
        if (!strncmp(name, "eth0:", 5))
            bytes = strtoll(name + 5, NULL, 10);
    }
    if (f)
        fclose(f);
    return bytes;
}

int64_t link_received(const struct bench_link *l, int host)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int64_t bytes = -1;
    if (home >= 0 && netns_enter(&l->netns, host)) {
        bytes = received_here();
        if (setns(home, CLONE_NEWNET))
            bytes = -1;
    }
    if (home >= 0)
        close(home);
    return bytes;
}

/* ---- tc ---- */

static bool limit_host(const struct bench_link *l, int host, const char *rate)
{
    static const char *const none[] = {"tc", "qdisc", "del", "dev", "eth0", "root", NULL};
    const char *const limit[] = {"tc",   "qdisc", "replace", "dev",   "eth0",    "root", "tbf",
                                 "rate", rate,    "burst",   "256kb", "latency", "50ms", NULL};
    pid_t pid = fork();
    if (!pid) {
        if (netns_enter(&l->netns, host) && freopen("/dev/null", "w", stderr))
            execvp("tc", (char *const *)(uintptr_t)(rate ? limit : none));
        _exit(127);
    }
    int status = -1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

bool link_limit(const struct bench_link *l, const char *rate, char *why, size_t cap)
{
    for (int h = 0; h < l->netns.hosts; h++)
        if (!limit_host(l, h, rate)) {
            snprintf(why, cap, "the tc command is missing, or the kernel has no tbf");
            return false;
        }
    return true;
}
