/* Whether the system has enough memory. Neither a memfd nor an anonymous mapping has a limit of its own, and a system
 * that runs out of memory kills processes. So weft does not ask for memory that the system plainly does not have.
 *
 * A process may use what the machine has left, and what is left to its control group and to each group above it: a job
 * of Slurm, a service of systemd and a container in a container are groups below others, and any of them may have a
 * limit. What files take in the page cache is counted against a group, but is given up when memory is short. The limit
 * memory.high is left out: it slows a group down and ends nobody. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/transport.h"

#define ASK_FROM ((uint64_t)16 << 20) /* smaller requests are not checked */
#define PATH 4096
#define LINE 8192

/* A number in a file of the system, after `field` at the begin of a line; UINT64_MAX if the file does not have it. */
static uint64_t system_says(const char *root, const char *path, const char *name, const char *field)
{
    char line[256], whole[PATH];
    uint64_t n = UINT64_MAX;
    if (snprintf(whole, sizeof whole, "%s%s%s", root, path, name) >= (int)sizeof whole)
        return n;
    FILE *f = fopen(whole, "re");
    while (f && n == UINT64_MAX && fgets(line, sizeof line, f)) {
        char *digits = line + strlen(field), *end;
        if (strncmp(line, field, strlen(field)))
            continue;
        unsigned long long value = strtoull(digits, &end, 10);
        if (end != digits)
            n = value;
    }
    if (f)
        fclose(f);
    return n;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- control groups ---- */

/* The two versions of control groups: how their memory files are called. */
struct version {
    const char *type; /* of the file system */
    const char *limit, *used, *files[2];
    const char *counts; /* a file that says whether the groups below count for this one; NULL: they do */
};
static const struct version versions[] = {
    {"cgroup2", "/memory.max", "/memory.current", {"active_file ", "inactive_file "}, NULL},
    {"cgroup",
     "/memory.limit_in_bytes",
     "/memory.usage_in_bytes",
     {"total_active_file ", "total_inactive_file "},
     "/memory.use_hierarchy"},
};
enum { VERSION_2, VERSION_1 };

/* What is left to one group; UINT64_MAX: it has no limit. */
static uint64_t left_to(const char *root, const char *group, const struct version *v)
{
    uint64_t limit = system_says(root, group, v->limit, ""), used = system_says(root, group, v->used, "");
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        uint64_t files = system_says(root, group, "/memory.stat", v->files[i]);
        if (files != UINT64_MAX)
            used -= used < files ? used : files;
    }
    return limit > used ? limit - used : 0;
}

/* The least that is left to the group `path` below the mount point, and to those above it. The path is cut. */
static uint64_t left_to_all(const char *root, const char *mount, char *path, const struct version *v)
{
    uint64_t least = UINT64_MAX;
    char group[PATH];
    for (bool own = true;; own = false) {
        size_t n = strlen(path);
        while (n && path[n - 1] == '/')
            path[--n] = 0;
        if (snprintf(group, sizeof group, "%s%s", mount, path) >= (int)sizeof group)
            return least;
        uint64_t left =
            own || !v->counts || system_says(root, group, v->counts, "") ? left_to(root, group, v) : UINT64_MAX;
        least = left < least ? left : least;
        char *last = strrchr(path, '/');
        if (!last)
            return least;
        *last = 0;
    }
}

/* This process's group in the hierarchy that has the memory, as /proc/self/cgroup says: "0::/path" for version 2,
 * "4:cpu,memory:/path" for version 1. */
static bool own_group(const char *root, const struct version *v, char path[PATH])
{
    char line[LINE], name[PATH];
    bool found = false;
    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *f = fopen(name, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *rest = line, *number = strsep(&rest, ":"), *controllers = strsep(&rest, ":"), *one;
        if (!rest)
            continue;
        rest[strcspn(rest, "\n")] = 0;
        if (v == &versions[VERSION_2])
            found = !strcmp(number, "0") && !*controllers;
        else
            while (!found && (one = strsep(&controllers, ",")))
                found = !strcmp(one, "memory");
        if (found && snprintf(path, PATH, "%s", rest) >= PATH)
            found = false;
    }
    if (f)
        fclose(f);
    return found;
}

/* mountinfo writes spaces, tabs, newlines and backslashes as a backslash and three octal digits. */
static void decode(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] && text[3]) {
            *to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 3;
        } else {
            *to++ = *text;
        }
    }
    *to = 0;
}

/* Takes a line of mountinfo apart: "ID PARENT DEVICE ROOT MOUNT OPTIONS [TAG...] - TYPE SOURCE OPTIONS". False: another
 * file system is mounted there. */
static bool mounted(char *line, const struct version *v, char **of, char **at)
{
    char *rest = strstr(line, " - "), *word[5];
    if (!rest)
        return false;
    *rest = 0;
    rest += 3;
    char *type = strsep(&rest, " ");
    strsep(&rest, " ");
    char *options = rest ? rest : line + strlen(line), *one;
    bool has = v == &versions[VERSION_2];
    options[strcspn(options, "\n")] = 0;
    while (!has && (one = strsep(&options, ",")))
        has = !strcmp(one, "memory");
    for (int i = 0; i < 5; i++)
        if (!(word[i] = strsep(&line, " ")))
            return false;
    *of = word[3];
    *at = word[4];
    decode(*of);
    decode(*at);
    return has && !strcmp(type, v->type);
}

/* In a container the part of the hierarchy that is mounted may begin at a group (`of`), and the process may see its own
 * path from there, or from the top. A path that does not fit is taken to be the mount point. */
static uint64_t left_in(const char *root, const struct version *v)
{
    char line[LINE], name[PATH], own[PATH], path[PATH], *of, *at;
    uint64_t least = UINT64_MAX;
    if (!own_group(root, v, own))
        return least;
    snprintf(name, sizeof name, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(name, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (!mounted(line, v, &of, &at))
            continue;
        size_t n = strcmp(of, "/") ? strlen(of) : 0;
        bool below = !strncmp(own, of, n) && (!own[n] || own[n] == '/') && !strstr(own, "/..");
        snprintf(path, sizeof path, "%s", below ? own + n : strcmp(of, "/") && !strstr(own, "/..") ? own : "");
        uint64_t left = left_to_all(root, strcmp(at, "/") ? at : "", path, v);
        least = left < least ? left : least;
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t transport_afford_left(const char *root)
{
    uint64_t machine = system_says(root, "/proc/meminfo", "", "MemAvailable:");
    uint64_t swap = system_says(root, "/proc/meminfo", "", "SwapFree:");
    uint64_t least = machine < UINT64_MAX / 1024 ? machine * 1024 : UINT64_MAX;
    if (swap < UINT64_MAX / 1024)
        least = sum(least, swap * 1024);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        uint64_t left = left_in(root, &versions[i]);
        least = left < least ? left : least;
    }
    return least;
}

bool transport_afford(uint64_t bytes)
{
    return bytes < ASK_FROM || bytes < transport_afford_left("");
}
