/* The keeper of a bus: its connection to the directory, its lease, and the keys that it has there. A thread renews the
 * lease. If the lease has ended (the process was stopped, the directory was away or has forgotten everything), the
 * keeper takes a new one and puts the keys again that it was told to keep. It also puts them again if the directory has
 * lost keys of this process though the lease is alive.
 *
 * Keys of a publisher stand behind a fence: the key of its set's epoch. They are put again only if that key has the
 * publisher's own record still, or is gone with everything else. If another publisher has taken the epoch, the fence is
 * over, and so is the publisher.
 *
 * All calls may be made by any thread. They wait for each other, and for the directory until the time is over. */
#ifndef WEFT_VERSION_KEEPER_H
#define WEFT_VERSION_KEEPER_H
#include <pthread.h>

#include "base/list.h"
#include "version/record.h"

#define KEEPER_LEASE (-1) /* as the lease of a change: that of the keeper */

struct keeper_fence {
    char key[RECORD_KEY];
    char *value;
    _Atomic int64_t revision;
    _Atomic bool over;
};

struct keeper {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool runs, stops;
    struct directory *directory;
    int64_t lease, lease_ns; /* lease 0: none */
    bool stale;              /* keys have to be put again */
    struct list keys;
};

int keeper_start(struct keeper *k, const char *url, const struct directory_opts *opts, int64_t lease_ns);
void keeper_stop(struct keeper *k);

int keeper_get(struct keeper *k, const char *prefix, int64_t until, struct directory_items *out);
/* A transaction; changes may have KEEPER_LEASE. If that lease had ended, all keys are put again first. */
int keeper_transact(struct keeper *k, const struct directory_compare *compares, size_t ncompares,
                    struct directory_change *changes, size_t nchanges, int64_t until, struct directory_outcome *out);
/* From now on puts this key again if it is lost. `leased`: with the keeper's lease. */
int keeper_keep(struct keeper *k, const char *key, const void *value, size_t bytes, bool leased,
                struct keeper_fence *fence);
/* Erases a key of a publisher as soon as the directory can be reached, unless the fence is over. */
int keeper_erase(struct keeper *k, const char *key, struct keeper_fence *fence);
void keeper_forget(struct keeper *k, const char *key);
void keeper_forget_all(struct keeper *k, const struct keeper_fence *fence);
#endif
