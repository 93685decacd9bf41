/* Rendezvous: a store is a small set of keys and values in which the ranks of a job find each other before they can
 * send anything. Where it is, its URL says:
 *
 *   file:DIR          files in a folder that all ranks see, NFS too
 *   tcp:HOST:PORT     served over the network by weft run or by rank 0
 *   pmix:             tcp:, served by rank 0, whose place and token go through the launcher's PMIx
 *
 * Opening is collective: `size` opens with one name, each with another rank, make one store, empty at first and apart
 * from all that were opened before, at the same time under another name, or are left of a job that died. A store
 * belongs to one thread at a time.
 *
 * Every call that may wait takes a timeout in ns (0: look once) and returns WEFT_ETIMEOUT, with the key in its text,
 * when it runs out. WEFT_ETRANSPORT: the store is gone, or does not do what it should; it stays so. A server that says
 * nothing is taken to be gone 10 s after the timeout. */
#ifndef WEFT_RENDEZVOUS_STORE_H
#define WEFT_RENDEZVOUS_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_KEY_MAX 200     /* bytes of a key: letters, digits and . _ - : / @ + */
#define STORE_NAME_MAX 64     /* of a store's name, likewise */
#define STORE_VALUE_MAX 65536 /* bytes of a value */
#define STORE_RANKS_MAX 65536
#define STORE_ENTRIES_MAX 262144            /* keys of one store */
#define STORE_BYTES_MAX ((size_t)256 << 20) /* of all the keys and values that one process serves */

struct store_opts {
    const char *name; /* of the group that meets; NULL or empty: of the job */
    int rank, size;
    const char *token;  /* for tcp:; NULL: there is none */
    int64_t timeout_ns; /* for all ranks to come */
};

struct store;

/* WEFT_EINVAL (URL, options; no token), WEFT_EUNSUPPORTED (a library is missing), WEFT_EBUSY (the rank is taken),
 * WEFT_EMISMATCH (ranks differ about the size), WEFT_ETIMEOUT (the text names the ranks that did not come),
 * WEFT_ETRANSPORT (wrong token; no such place), WEFT_ENOMEM. On an error this rank has not come. */
int store_open(const char *url, const struct store_opts *opts, struct store **out);
/* The process that serves a store waits for the other ranks to close theirs, linger_ns at most; nobody else waits.
 * What all have closed leaves nothing behind. NULL is fine. */
void store_close(struct store *s, int64_t linger_ns);

/* A value of 0 to STORE_VALUE_MAX bytes. The last one set is what others get. */
int store_set(struct store *s, const char *key, const void *value, size_t bytes, int64_t timeout_ns);
/* Waits until the key is there. A value that does not fit into cap bytes is WEFT_EINVAL; *bytes says how many it has.
 */
int store_get(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t timeout_ns);
int store_wait(struct store *s, const char *key, int64_t timeout_ns);

/* Each rank's value, in one piece of memory: rank r's bytes are bytes[at[r]] up to bytes[at[r + 1]]. */
struct store_parts {
    unsigned char *bytes;
    size_t *at;
};
/* Collective: every rank gives a value and gets all. A prefix is used once. WEFT_ETIMEOUT names the ranks whose value
 * is missing. */
int store_gather(struct store *s, const char *prefix, const void *mine, size_t bytes, int64_t timeout_ns,
                 struct store_parts *out);
void store_parts_free(struct store_parts *p);

/* Collective among the survivors of a failure: a store of these n ranks of s, numbered by the list, of which this one
 * is a member. Where the rank that served s is not among them, the lowest of them serves again. s must still be closed;
 * where this rank serves it, after the new one. */
int store_again(struct store *s, const int *survivors, int n, int64_t timeout_ns, struct store **out);

/* ---- for the kinds of store ---- */

struct store {
    const struct store_kind *kind;
    int rank, size;
    char name[STORE_NAME_MAX + 1];
    char *url; /* for texts */
};

#define STORE_PARTS (STORE_VALUE_MAX + 4)

/* Keys, values and options are checked before they come here; `until` is a time of store_now(). */
struct store_kind {
    const char *scheme;
    const char *form; /* how such a URL looks, for people */
    int (*open)(const char *place, const struct store_opts *opts, int64_t until, struct store **out);
    int (*set)(struct store *s, const char *key, const void *value, size_t bytes, int64_t until);
    int (*get)(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t until);
    /* Of the values PREFIX/r of the ranks r from `first` on some, one at least: *count of them, each as its length[4]
     * and its bytes, in STORE_PARTS bytes. */
    int (*parts)(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until);
    /* opts are those of the new store; survivors are ranks of s. */
    int (*again)(struct store *s, const int *survivors, const struct store_opts *opts, int64_t until,
                 struct store **out);
    void (*close)(struct store *s, int64_t until); /* ends with store_free */
};
/* Begins and ends the part of a store that all kinds have; s is from malloc, with this part first. */
int store_init(struct store *s, const struct store_kind *kind, const char *place, const struct store_opts *opts);
void store_free(struct store *s);
extern const struct store_kind store_file, store_tcp, store_pmix;

int64_t store_now(void); /* ns, of a clock that only goes forward */
int64_t store_until(int64_t timeout_ns);
int store_left_ms(int64_t until); /* rounded up; 0 when it is over */
/* Sleeps, not beyond until; twice as long next time, up to most_ns. */
void store_pause(int64_t *pause_ns, int64_t most_ns, int64_t until);
int store_late(const struct store *s, const char *key);     /* sets and returns WEFT_ETIMEOUT */
bool store_word(const char *text, size_t len, size_t most); /* are these a key's letters, 1 to most of them? */
int store_part_key(const struct store *s, const char *prefix, int rank, char key[STORE_KEY_MAX + 1]);
/* "rank 3", "ranks 1, 2 and 5 more": those of 0 .. size-1 for which here(arg, r) is false. */
void store_missing(char *text, size_t cap, int size, bool (*here)(void *arg, int rank), void *arg);
#endif
