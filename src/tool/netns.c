/* Namespaces are made by ip(8), which gets its commands on its standard input. Their names have the number of this
 * process in them, so that namespaces that a killed run has left can be told from those in use. The machine's own
 * network cannot reach them. */
#define _GNU_SOURCE
#include "tool/netns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "/run/netns"

/* Gives commands to ip, in a namespace or in none. False: it failed, and its first message is in `why`. */
static bool ip(const char *inside, const char *commands, char *why, size_t cap)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC))
        return false;
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        const char *const with[] = {"ip", "-n", inside, "-batch", "-", NULL};
        const char *const without[] = {"ip", "-batch", "-", NULL};
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        execvp("ip", (char *const *)(uintptr_t)(inside ? with : without));
        fprintf(stderr, "the ip command is missing (package iproute2)\n");
        fflush(stderr);
        _exit(127);
    }
    close(out[1]);
    ssize_t told = pid > 0 ? write(in[1], commands, strlen(commands)) : -1; /* a pipe holds more than that */
    close(in[0]); /* only now: without an open reading end the write would end this process */
    close(in[1]);
    char text[256] = "";
    size_t n = 0;
    ssize_t got;
    while (n + 1 < sizeof text && (got = read(out[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    close(out[0]);
    int status = -1;
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (told == (ssize_t)strlen(commands) && status == 0)
        return true;
    text[strcspn(text, "\n")] = 0;
    snprintf(why, cap, "%s", *text ? text : "ip failed");
    return false;
}

static void remove_named(const char *name)
{
    char command[300], why[64];
    snprintf(command, sizeof command, "netns del %s\n", name);
    ip(NULL, command, why, sizeof why);
}

/* Removes namespaces of runs that have ended, or of this one. */
static void sweep(pid_t of)
{
    DIR *d = opendir(FOLDER);
    for (struct dirent *e; d && (e = readdir(d));) {
        long pid;
        int at = 0;
        if (sscanf(e->d_name, "weft-%ld-%n", &pid, &at) != 1 || !at)
            continue;
        if (pid == of || (kill((pid_t)pid, 0) && errno == ESRCH))
            remove_named(e->d_name);
    }
    if (d)
        closedir(d);
}

static bool make_host(int i, char *why, size_t cap)
{
    char hub[64], host[64], commands[512];
    long pid = (long)getpid();
    snprintf(hub, sizeof hub, "weft-%ld-hub", pid);
    snprintf(host, sizeof host, "weft-%ld-%d", pid, i);
    snprintf(commands, sizeof commands, "netns add %s\nlink add eth0 netns %s type veth peer name p%d netns %s\n", host,
             host, i, hub);
    if (!ip(NULL, commands, why, cap))
        return false;
    snprintf(commands, sizeof commands, "link set p%d master br0\nlink set p%d up\n", i, i);
    if (!ip(hub, commands, why, cap))
        return false;
    snprintf(commands, sizeof commands, "link set lo up\naddr add 10.77.0.%d/24 dev eth0\nlink set eth0 up\n", i + 1);
    return ip(host, commands, why, cap);
}

static int open_host(int i)
{
    char path[128];
    snprintf(path, sizeof path, FOLDER "/weft-%ld-%d", (long)getpid(), i);
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool netns_make(int hosts, struct netns *out, char *why, size_t cap)
{
    char hub[64], commands[128];
    *out = (struct netns){.owner = getpid(), .files = calloc((size_t)hosts, sizeof *out->files)};
    if (!out->files) {
        snprintf(why, cap, "no memory");
        return false;
    }
    sweep(getpid());
    snprintf(hub, sizeof hub, "weft-%ld-hub", (long)getpid());
    snprintf(commands, sizeof commands, "netns add %s\n", hub);
    bool made = ip(NULL, commands, why, cap) && ip(hub, "link add br0 type bridge\nlink set br0 up\n", why, cap);
    for (int i = 0; i < hosts && made; i++) {
        made = make_host(i, why, cap);
        int fd = made ? open_host(i) : -1;
        if (made && fd < 0) {
            snprintf(why, cap, "a namespace cannot be opened: %s", strerror(errno));
            made = false;
        }
        if (made)
            out->files[out->hosts++] = fd;
    }
    if (!made)
        netns_remove(out);
    return made;
}

bool netns_enter(const struct netns *n, int host)
{
    return !setns(n->files[host], CLONE_NEWNET);
}

void netns_remove(struct netns *n)
{
    for (int i = 0; i < n->hosts; i++)
        close(n->files[i]);
    free(n->files);
    sweep(n->owner);
    *n = (struct netns){0};
}
