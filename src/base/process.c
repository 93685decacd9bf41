#define _GNU_SOURCE
#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

/* The first bytes of a small file as a text; empty if there is none. */
static void read_text(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, cap - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
}

uint64_t process_start(int64_t pid, bool *zombie)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    read_text(path, text, sizeof text);
    /* The name, in parentheses, may hold anything; after it come the state and 18 fields before the start. */
    char *at = strrchr(text, ')');
    if (!at || !at[1])
        return 0;
    bool ended = at[2] == 'Z' || at[2] == 'X';
    long threads = 0;
    for (int field = 2; field < 22 && at; field++) {
        at = strchr(at + 1, ' ');
        if (at && field + 1 == 20)
            threads = strtol(at, NULL, 10);
    }
    *zombie = ended && threads <= 1; /* the state is that of the first thread, and other threads may outlive it */
    return at ? strtoull(at, NULL, 10) : 0;
}

#define PF_EXITING 0x4 /* of the kernel's flags of a task, in /proc/PID/stat */

/* Has the task of this path begun to end? A task that is not there has ended. */
static bool task_ending(const char *path)
{
    char text[512];
    read_text(path, text, sizeof text);
    char *at = strrchr(text, ')');
    for (int field = 2; field < 9 && at; field++)
        at = strchr(at + 1, ' ');
    return !at || strtoul(at, NULL, 10) & PF_EXITING;
}

bool process_ending(int64_t pid)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (!task_ending(path))
        return false;
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid); /* the first thread may end before the others */
    DIR *d = opendir(path);
    bool ending = true;
    for (struct dirent *e; d && ending && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%lld/task/%.20s/stat", (long long)pid, e->d_name);
        ending = task_ending(path);
    }
    if (d)
        closedir(d);
    return ending;
}

uint64_t process_net(void)
{
    char boot[64];
    struct stat net;
    read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (!*boot || stat("/proc/self/ns/net", &net))
        return 0;
    uint64_t h = hash_u64(hash_bytes(net.st_dev, boot, strlen(boot)), net.st_ino);
    return h ? h : 1;
}

void process_self(struct process_id *out)
{
    struct stat space;
    bool zombie;
    *out = (struct process_id){.pid = getpid()};
    read_text("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot);
    out->boot[strcspn(out->boot, " \n")] = 0;
    if (gethostname(out->host, sizeof out->host - 1) || !out->host[0])
        strcpy(out->host, "unknown");
    if (!stat("/proc/self/ns/pid", &space))
        out->space = space.st_ino;
    out->start = process_start(out->pid, &zombie);
}

enum process_fate process_judge(const struct process_id *p)
{
    struct process_id self;
    process_self(&self);
    if (!self.boot[0] || strcmp(self.boot, p->boot) || self.space != p->space || !self.start || !p->start)
        return PROCESS_ELSEWHERE;
    bool zombie = false;
    uint64_t start = process_start(p->pid, &zombie);
    return start == p->start && !zombie ? PROCESS_HERE : PROCESS_GONE;
}
