/* Hosts played on one machine: network namespaces that share a bridge, for `weft run --hosts` and tests. */
#ifndef WEFT_TOOL_NETNS_H
#define WEFT_TOOL_NETNS_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NETNS_HOSTS 64

struct netns {
    pid_t owner; /* the process whose number is in their names */
    int hosts;
    int *files; /* one open namespace each */
};

/* Makes `hosts` namespaces, each with loopback and one address on a bridge of their own. False: `why` says why not (no
 * permission, no ip command). Namespaces that a killed run has left behind are removed first. */
bool netns_make(int hosts, struct netns *out, char *why, size_t cap);
bool netns_enter(const struct netns *n, int host); /* the calling process is on that host from now on */
void netns_remove(struct netns *n);                /* a child of the owner may call it, too */
#endif
