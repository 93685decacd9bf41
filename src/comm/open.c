/* Opening: what the transport needs to know, and the store through which ranks on several hosts exchange addresses. */
#define _POSIX_C_SOURCE 200809L
#include "comm/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/blake2s.h"
#include "base/ended.h"
#include "base/error.h"
#include "base/hash.h"

static int open_store(struct opening *b)
{
    char name[STORE_NAME_MAX + 1];
    /* Each comm of a job has a store of its own. */
    snprintf(name, sizeof name, "%.40s-%016llx", b->meet->name,
             (unsigned long long)hash_bytes(0, b->place, strlen(b->place)));
    struct store_opts opts = {.name = name,
                              .rank = b->ask.rank,
                              .size = b->ask.size,
                              .token = *b->meet->token ? b->meet->token : NULL,
                              .timeout_ns = b->ask.wait_ns,
                              .ended = b->ask.ended};
    return store_open(b->meet->at, &opts, &b->store);
}

/* The key of the token, for sockets. Each comm has its own. */
static void set_key(struct opening *b)
{
    static const char what[] = "weft comm key";
    struct blake2s h;
    b->ask.key = NULL;
    if (!b->meet || !*b->meet->token)
        return;
    blake2s_begin(&h, sizeof b->key, what, sizeof what);
    blake2s_add(&h, b->meet->token, strlen(b->meet->token) + 1);
    blake2s_add(&h, b->place, strlen(b->place));
    blake2s_end(&h, b->key);
    b->ask.key = b->key;
}

/* For the store: has the launcher seen that this rank has ended (-1: any rank)? A gather does not end for a rank whose
 * part is there. So a rank that has opened the comm may end while others still open it. */
static int has_ended(void *arg, int rank)
{
    const struct opening *b = arg;
    char how[80];
    int who = ended_look(b->ask.ended, how, sizeof how);
    return who < 0 || (rank >= 0 && rank != who)
               ? 0
               : error_set(WEFT_EPEER, "%s: %s before all ranks had opened the comm", b->store->url, how);
}

/* What all ranks tell each other. Each time it has a name of its own in the store. */
static int roster(void *arg, const struct roster_ask *ask, struct roster *out)
{
    struct opening *b = arg;
    char prefix[32];
    int err = b->store ? 0 : open_store(b);
    if (!err && b->ask.ended >= 0)
        store_set_watch(b->store, &(struct store_watch){.vain = has_ended, .arg = b});
    snprintf(prefix, sizeof prefix, "wire%d", b->rosters++);
    return err ? err : store_roster(b->store, prefix, ask, b->ask.wait_ns, out);
}

static struct opening *make(const struct transport *t, const char *place, const struct environment_store *meet,
                            const char *modules, const char *wire)
{
    struct opening *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->transport = t;
    b->place = strdup(place);
    b->modules = modules ? strdup(modules) : NULL;
    b->wire = wire ? strdup(wire) : NULL;
    b->meet = meet ? malloc(sizeof *b->meet) : NULL;
    if (!b->place || (modules && !b->modules) || (wire && !b->wire) || (meet && !b->meet)) {
        open_free(b, 0);
        return NULL;
    }
    if (meet)
        *b->meet = *meet;
    return b;
}

static void set_ask(struct opening *b, int rank, int size, int64_t wait_ns, uint64_t machine)
{
    b->ask = (struct transport_ask){.place = b->place,
                                    .rank = rank,
                                    .size = size,
                                    .wait_ns = wait_ns,
                                    .ended = -1,
                                    .host = b->host,
                                    .host_name = b->host_name,
                                    .machine = machine,
                                    .roster = b->meet ? roster : NULL,
                                    .roster_arg = b,
                                    .modules = b->modules,
                                    .wire = b->wire};
    set_key(b);
}

int open_new(const struct transport *t, const char *place, const weft_comm_opts *o, struct opening **out)
{
    struct environment_place e = {.machine = 0};
    struct environment_store meet;
    bool known = false;
    if (t->can.wide)
        environment_place(&e);
    if (t->can.wide && !t->can.sized) {
        int err = environment_store(NULL, &meet);
        if (err && (t->can.meets || *meet.at))
            return err;
        known = !err;
    }
    struct opening *b = make(t, place, known ? &meet : NULL, e.modules, e.wire);
    if (!b)
        return error_nomem();
    memcpy(b->host, e.host, sizeof b->host);
    memcpy(b->host_name, e.name, sizeof b->host_name);
    set_ask(b, o->rank, o->ranks, o->deadline_ns, e.machine);
    b->ask.communicator = o->communicator;
    b->ask.ended = environment_ended(o->rank, o->ranks);
    *out = b;
    return 0;
}

int open_join(struct opening *b, struct transport_link **out)
{
    int err = b->transport->join(&b->ask, out);
    if (b->ask.ended >= 0 && b->store)
        store_set_watch(b->store, NULL);
    if (b->ask.ended >= 0)
        close(b->ask.ended); /* once all have come, ranks may end as they like */
    b->ask.ended = -1;
    if (err || !b->ask.vain || !b->store)
        return err;
    /* All ranks that are left have joined, or none: again.c says why. */
    struct roster all = {.all = NULL};
    err = roster(b, &(struct roster_ask){.mine = "", .bytes = 1}, &all);
    roster_drop(&all);
    if (err)
        (*out)->transport->leave(*out);
    return err;
}

void open_end(struct opening *b)
{
    b->ask.vain = NULL;
    if (b->store)
        store_set_watch(b->store, NULL);
}

int open_again(const struct opening *of, const int *ranks, int n, int rank, const struct store_watch *watch,
               struct opening **out)
{
    char place[64];
    uint64_t list = hash_bytes((uint64_t)of->generation, ranks, (size_t)n * sizeof *ranks);
    snprintf(place, sizeof place, "again-%016llx", (unsigned long long)hash_bytes(list, of->place, strlen(of->place)));
    struct opening *b = make(of->transport, place, of->meet, of->modules, of->wire);
    if (!b)
        return error_nomem();
    memcpy(b->host, of->host, sizeof b->host);
    memcpy(b->host_name, of->host_name, sizeof b->host_name);
    b->generation = of->generation + 1;
    set_ask(b, rank, n, of->ask.wait_ns, of->ask.machine);
    b->ask.vain = watch->vain;
    b->ask.vain_arg = watch->arg;
    if (of->store)
        store_set_watch(of->store, watch);
    int err = of->store ? store_again(of->store, ranks, n, of->ask.wait_ns, &b->store) : 0;
    if (of->store)
        store_set_watch(of->store, NULL);
    if (err) {
        open_free(b, 0);
        return err;
    }
    *out = b;
    return 0;
}

void open_free(struct opening *b, int64_t linger_ns)
{
    if (!b)
        return;
    store_close(b->store, linger_ns);
    blake2s_wipe(b->key, sizeof b->key);
    if (b->ask.ended >= 0)
        close(b->ask.ended);
    free(b->place);
    free(b->meet);
    free(b->modules);
    free(b->wire);
    free(b);
}
