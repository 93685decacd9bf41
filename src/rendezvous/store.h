/* Rendezvous: a store is a small set of keys and values in which the ranks of a job find each other before they can
 * send anything. The URL says where the store is:
 *
 *   file:DIR          files in a folder that all ranks see; it may be on NFS
 *   tcp:HOST:PORT     served over the network by weft run or by rank 0
 *   pmix:             tcp:, served by rank 0. The launcher's PMIx carries its address and token to the other ranks
 *
 * Opening is collective: `size` processes open with the same name, each with a different rank. Together they make one
 * new, empty store. It is separate from stores that were opened earlier, that have another name, or that a dead job has
 * left behind. A store belongs to one thread at a time.
 *
 * Every call that may wait takes a timeout in ns (0: look once). When the time is over it returns WEFT_ETIMEOUT, with
 * the key in the text. WEFT_ETRANSPORT means that the store is gone or does not follow the protocol; all later calls
 * return it, too. A server that does not answer is taken to be gone 10 s after the timeout. */
#ifndef WEFT_RENDEZVOUS_STORE_H
#define WEFT_RENDEZVOUS_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/roster.h"

#define STORE_KEY_MAX 200     /* bytes of a key: letters, digits and . _ - : / @ + */
#define STORE_NAME_MAX 64     /* bytes of a store's name, of the same letters */
#define STORE_VALUE_MAX 65536 /* bytes of a value */
#define STORE_RANKS_MAX 65536
#define STORE_ENTRIES_MAX 262144            /* keys of one store */
#define STORE_BYTES_MAX ((size_t)256 << 20) /* of all the keys and values that one process serves */

/* What a store asks of its caller, and tells it, while this rank waits for others. Ranks have the numbers of the store
 * that waits. Both return an error with its text set, with which the wait ends. */
struct store_watch {
    int (*vain)(void *arg, int rank); /* is it in vain to wait for that rank (-1: for any)? 0: no */
    int (*died)(void *arg, int rank); /* the store has seen that the process of that rank has ended */
    void *arg;
};

struct store_opts {
    const char *name; /* of the group of ranks that meets; NULL or empty: the whole job */
    int rank, size;
    const char *token;  /* for tcp:; NULL: there is none */
    int64_t timeout_ns; /* within which all ranks must have opened the store */
    int ended; /* a file of base/ended.h: when a rank of it has ended, this rank waits no more; 0 or -1: none */
    struct store_watch watch;
};

struct store;

/* WEFT_EINVAL (URL, options; no token), WEFT_EUNSUPPORTED (a library is missing), WEFT_EBUSY (the rank is taken),
 * WEFT_EMISMATCH (ranks differ about the size), WEFT_ETIMEOUT (the text names the ranks that did not come),
 * WEFT_EPEER (a rank has ended), WEFT_ETRANSPORT (wrong token; no such place), WEFT_ENOMEM. After an error this rank
 * counts as one that has not come.
 */
int store_open(const char *url, const struct store_opts *opts, struct store **out);
/* The process that serves a store waits until the other ranks have closed theirs, for linger_ns at most; the other
 * processes do not wait. A store that all ranks have closed leaves nothing behind. NULL is allowed. */
void store_close(struct store *s, int64_t linger_ns);

/* Sets a value of 0 to STORE_VALUE_MAX bytes. Other ranks get the value that was set last. */
int store_set(struct store *s, const char *key, const void *value, size_t bytes, int64_t timeout_ns);
/* Waits until the key is set. For a value that does not fit into cap bytes it returns WEFT_EINVAL, and *bytes says how
 * many the value has. */
int store_get(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t timeout_ns);
int store_wait(struct store *s, const char *key, int64_t timeout_ns);

/* One value of each rank, for instance its address, which other ranks fetch when they first need it. That costs a rank
 * one request for each rank that it asks for, where store_gather gives it the values of all. store_offer sets this
 * rank's value of the prefix; store_part gets the one of `rank`, as store_get does, and waits for it. */
int store_offer(struct store *s, const char *prefix, const void *mine, size_t bytes, int64_t timeout_ns);
int store_part(struct store *s, const char *prefix, int rank, void *value, size_t cap, size_t *bytes,
               int64_t timeout_ns);

/* Each rank's value, in one piece of memory: rank r's bytes are bytes[at[r]] up to bytes[at[r + 1]]. */
struct store_parts {
    unsigned char *bytes;
    size_t *at;
};
/* Collective: every rank gives a value and gets the values of all ranks. A prefix can be used once. The text of
 * WEFT_ETIMEOUT names the ranks whose value is missing. */
int store_gather(struct store *s, const char *prefix, const void *mine, size_t bytes, int64_t timeout_ns,
                 struct store_parts *out);
void store_parts_free(struct store_parts *p);
/* Collective, as store_gather, for values of the same length, of which the ranks of a host get one copy. Only one of
 * them gathers: for the others it costs the same however many ranks there are. Drop the roster by roster_drop. Errors
 * are those of store_gather and of sum_up, and WEFT_EMISMATCH: a rank has given another number of bytes. */
int store_roster(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t timeout_ns,
                 struct roster *out);

/* From here on the caller is asked now and then while this rank waits for others to come or to give their part of a
 * gather. A gather does not end for a rank whose part is there. NULL: never. A store that store_again makes is watched
 * as the store that it is made from. */
void store_set_watch(struct store *s, const struct store_watch *watch);

/* Collective among the survivors of a failure: opens a store for the n ranks of s in the list, which are numbered in
 * its order. The caller is one of them. If the rank that served s is not among them, the lowest of them that can
 * serves the new store (store_tcp.h). The caller must still close s; if it serves s, it closes the new store first. */
int store_again(struct store *s, const int *survivors, int n, int64_t timeout_ns, struct store **out);

/* ---- for the kinds of store ---- */

struct store {
    const struct store_kind *kind;
    int rank, size;
    char name[STORE_NAME_MAX + 1];
    char *url;      /* for texts */
    uint64_t id[2]; /* random, the same on all ranks: no other store has it. Zeros: there is none */
    struct store_watch watch;
};

#define STORE_PARTS (STORE_VALUE_MAX + 4)

/* store.c has checked keys, values and options before it calls these; `until` is a time of deadline_now(). */
struct store_kind {
    const char *scheme;
    const char *form; /* what the URLs of this kind look like, for messages */
    int (*open)(const char *place, const struct store_opts *opts, int64_t until, struct store **out);
    int (*set)(struct store *s, const char *key, const void *value, size_t bytes, int64_t until);
    int (*get)(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t until);
    /* In a gather the others wait until rank 0 has called `parts` for all ranks. */
    bool first_collects;
    /* Gets some of the values PREFIX/r of the ranks r from `first` on, at least one. *count says how many. `packed`
     * has STORE_PARTS bytes, and takes each value as length[4] and its bytes. The text of WEFT_ETIMEOUT names the ranks
     * whose value is missing, unless first_collects. */
    int (*parts)(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until);
    /* store_again: opts are those of the new store; survivors are ranks of s. */
    int (*again)(struct store *s, const int *survivors, const struct store_opts *opts, int64_t until,
                 struct store **out);
    void (*close)(struct store *s, int64_t until); /* calls store_free last */
};
/* Begin and end the part of a store that all kinds have. s is from malloc and begins with this part. */
int store_init(struct store *s, const struct store_kind *kind, const char *place, const struct store_opts *opts);
void store_free(struct store *s);
extern const struct store_kind store_file, store_tcp, store_pmix; /* each in the file of its name */

int store_in_vain(const struct store *s);                             /* 0: the rank may wait on */
int store_check_opts(const char *url, const struct store_opts *opts); /* url is for the text */
/* While the store is opened: 0, or sets and returns WEFT_EPEER because a rank has ended. */
int store_look(const struct store *s, int ended);
int store_late(const struct store *s, const char *key);     /* sets and returns WEFT_ETIMEOUT */
bool store_word(const char *text, size_t len, size_t most); /* is this 1 to `most` letters that a key may have? */
int store_part_key(const struct store *s, const char *prefix, int rank, char key[STORE_KEY_MAX + 1]);
/* For one call of `parts`. A rank that may wait in vain waits for a while, asks, and waits on. */
int store_parts_some(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until);
int store_parts_vain(struct store *s, const char *prefix); /* 0, or the error: a part never comes */
int store_parts_late(struct store *s,
                     const char *prefix); /* sets and returns WEFT_ETIMEOUT; asks for each rank's value */
/* "rank 3", "ranks 1, 2 and 5 more": those of 0 .. size-1 for which here(arg, r) is false. */
void store_missing(char *text, size_t cap, int size, bool (*here)(void *arg, int rank), void *arg);
#endif
