/* Real servers of etcd on loopback, for tests: one, or a cluster. The program is the one that WEFT_ETCD names,
 * otherwise that of the path (Debian: etcd-server). */
#ifndef WEFT_TESTS_ETCDS_H
#define WEFT_TESTS_ETCDS_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { ETCDS_MOST = 3 };

struct etcds {
    int n;
    pid_t pid[ETCDS_MOST]; /* 0: it does not run */
    int client[ETCDS_MOST], peer[ETCDS_MOST];
    char folder[64];
    char url[200]; /* of the directory */
};

/* Starts n servers and waits until a directory can be opened. False: there is no etcd or no libcurl, and it has said
 * so. */
bool etcds_begin(struct etcds *e, int n);
void etcds_run(struct etcds *e, int i); /* starts a server that was killed */
void etcds_kill(struct etcds *e, int i);
void etcds_wipe(const struct etcds *e, int i); /* removes the data of a server that was killed */
void etcds_end(struct etcds *e);
/* Sends a request to the gateway of a server. Returns the code of HTTP; 0: it did not answer. */
long etcds_post(const struct etcds *e, int i, const char *path, const char *body, char *reply, size_t cap);
#endif
