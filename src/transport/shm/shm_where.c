/* What a rank says whose peers did not come: where it has waited, and which other groups are being gathered there. Jobs
 * that are started apart and differ in the name, or are in different containers, see from it in what they differ. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "transport/shm/shm.h"

#define NAMES 4                  /* other names that are told */
#define SOCKETS "/proc/net/unix" /* of this network namespace */

/* The socket names of the ranks are those of a network namespace. */
static void put_place(struct text *t)
{
    char host[65] = "", net[64];
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1); /* net:[NUMBER] */
    net[n > 0 ? n : 0] = 0;
    const char *number = strchr(net, '[');
    text_printf(t, "host %s", host[0] ? host : "(unknown)");
    if (number)
        text_printf(t, ", network namespace %.*s", (int)strcspn(number + 1, "]"), number + 1);
}

/* The next socket whose name begins with a prefix: the rest of its name, in `line`. NULL: there is none. */
static const char *next_socket(FILE *f, const char *prefix, char *line, int size)
{
    char mark[32]; /* names that are in no file system are shown with a @ */
    snprintf(mark, sizeof mark, " @%s", prefix);
    while (f && fgets(line, size, f)) {
        const char *at = strstr(line, mark);
        line[strcspn(line, "\n")] = 0;
        if (at)
            return at + strlen(mark);
    }
    if (f)
        fclose(f);
    return NULL;
}

bool shm_where_claimed(const char *name, int rank)
{
    char line[512], own[SHM_NAME + 16];
    const char *found;
    FILE *f = fopen(SOCKETS, "re");
    snprintf(own, sizeof own, "%d:%s", rank, name);
    while ((found = next_socket(f, SHM_CLAIMS, line, sizeof line))) {
        if (!strcmp(found, own)) {
            fclose(f);
            return true;
        }
    }
    return false;
}

static bool among(char names[][SHM_NAME + 1], int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* Up to NAMES names of groups, except `own`, whose ranks are waiting for each other now; *more: there are others. */
static int other_groups(const char *own, char names[NAMES][SHM_NAME + 1], bool *more)
{
    char line[512];
    const char *name;
    int n = 0;
    FILE *f = fopen(SOCKETS, "re");
    *more = false;
    while ((name = next_socket(f, SHM_GATHERS, line, sizeof line))) {
        if (strlen(name) > SHM_NAME || !strcmp(name, own) || among(names, n, name))
            continue;
        if (n < NAMES)
            snprintf(names[n++], SHM_NAME + 1, "%s", name);
        else
            *more = true;
    }
    return n;
}

int shm_where(const char *own, int size)
{
    char text[ERROR_TEXT], names[NAMES][SHM_NAME + 1];
    bool more;
    int n = other_groups(own, names, &more);
    struct text t = text_start(text, sizeof text);
    text_printf(&t, "%s; this rank waited for %d ranks on ", weft_errmsg(), size);
    put_place(&t);
    text_put(&t, ": all ranks need the same name, number of ranks, machine and network namespace");
    for (int i = 0; i < n; i++) {
        text_put(&t, i ? ", shm:" : "; other ranks wait there now under shm:");
        text_escaped(&t, names[i]);
    }
    if (more)
        text_put(&t, " and other names");
    return error_set(WEFT_ETIMEOUT, "%s", text);
}
