/* The directory of the bus: a small set of keys and values by which jobs find each other that know nothing of each
 * other but a URL and a token. The URL says where it is:
 *
 *   tcp:HOST:PORT[/SPACE]    a server of weft (bus_server.h)
 *   file:DIR                 a folder, for the processes of one user on one machine
 *
 * SPACE is put before all keys, with a slash: jobs with different spaces do not see each other's keys.
 *
 * Every change has a revision, a number that only grows. All changes of one transaction have the same one. A key has
 * the revision at which it was made and the one at which it was changed last. A lease is a time within which its owner
 * has to renew it; keys that were put with a lease are deleted when it ends. A watch tells every change of keys with a
 * prefix, in order and none twice. The directory keeps the last changes only: a watch from a revision that it does not
 * remember is told so (`lost`), and gets all keys anew.
 *
 * A directory and its watches belong to one thread at a time; several threads open one each. Every call that may wait
 * has a timeout in ns. WEFT_ETIMEOUT: the time is over; WEFT_ETRANSPORT: the directory cannot be reached, or has
 * refused; WEFT_EPEER: the lease has ended; WEFT_ENOMEM: a limit of the directory is reached. Texts begin with the
 * URL. */
#ifndef WEFT_BUS_DIRECTORY_H
#define WEFT_BUS_DIRECTORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECTORY_KEY_MAX 200     /* bytes of a key with its space: letters, digits and . _ - : / @ + */
#define DIRECTORY_VALUE_MAX 65536 /* bytes of a value */
#define DIRECTORY_CHANGES_MAX 64  /* of a transaction; compares, too */
#define DIRECTORY_BYTES_MAX 98304 /* of a transaction: keys, values, and 32 for each compare and each change */
#define DIRECTORY_LEASE_KEYS 256  /* keys of one lease */
#define DIRECTORY_TTL_MIN_NS INT64_C(100000000)
#define DIRECTORY_TTL_MAX_NS INT64_C(86400000000000)

struct directory;
struct directory_watch;

struct directory_opts {
    const char *token;  /* for tcp:; NULL: there is none */
    int64_t timeout_ns; /* within which the directory must be reached */
};
int directory_open(const char *url, const struct directory_opts *opts, struct directory **out);
const char *directory_url(const struct directory *d);

/* A key as it is, or a change of it. */
struct directory_item {
    const char *key;            /* without the space */
    const unsigned char *value; /* a zero stands behind it */
    size_t bytes;
    int64_t made, revision; /* a key that was deleted has no `made` */
    int64_t lease;          /* 0: none */
    bool deleted;           /* of a watch only */
};
struct directory_items {
    int64_t revision; /* all changes up to this one are in it */
    size_t n;
    struct directory_item *items;
    bool lost;    /* of a watch only: changes were lost, and the items are all keys that there are, in order */
    char *memory; /* what the items point to */
};
void directory_items_free(struct directory_items *items);

/* 1. All keys that begin with the prefix, in the order of their bytes, as they are at one revision. */
int directory_get(struct directory *d, const char *prefix, int64_t timeout_ns, struct directory_items *out);

/* The key's revision must be this one; 0: there must be no such key. */
struct directory_compare {
    const char *key;
    int64_t revision;
};
struct directory_change {
    const char *key;
    const void *value; /* with erase: none */
    size_t bytes;
    int64_t lease; /* 0: none */
    bool erase;    /* deletes the key; a key that is not there stays so */
};
struct directory_transaction {
    const struct directory_compare *compares;
    size_t ncompares;
    const struct directory_change *changes; /* of different keys */
    size_t nchanges;
};
struct directory_outcome {
    bool done;        /* false: a compare did not hold, and nothing was changed */
    int64_t revision; /* of the changes, or of the directory if it was not done or nothing had to be changed */
};
/* 2. All changes if all compares hold, otherwise none. After WEFT_ETRANSPORT or WEFT_ETIMEOUT it may have been done or
 * not, and the text says if that is so: read the keys. */
int directory_transact(struct directory *d, const struct directory_transaction *t, int64_t timeout_ns,
                       struct directory_outcome *out);
/* 3, 4. Transactions of one change. revision < 0: whatever the key's revision is. */
int directory_put_if(struct directory *d, const char *key, int64_t revision, const void *value, size_t bytes,
                     int64_t lease, int64_t timeout_ns, struct directory_outcome *out);
int directory_delete(struct directory *d, const char *key, int64_t revision, int64_t timeout_ns,
                     struct directory_outcome *out);

/* 5. Leases. One that is granted ends ttl_ns after it was granted or renewed last. It ends at once when it is revoked,
 * when the directory is closed, and, where the directory can see that, when its owner's process ends. *lease is not 0.
 * WEFT_EPEER: the lease has ended, and its keys are gone. */
int directory_grant(struct directory *d, int64_t ttl_ns, int64_t timeout_ns, int64_t *lease);
int directory_renew(struct directory *d, int64_t lease, int64_t timeout_ns);
int directory_revoke(struct directory *d, int64_t lease, int64_t timeout_ns);

/* 6. Tells the changes of keys with the prefix after a revision, in order; the changes of one transaction come
 * together. A watch goes on where it was after the connection was lost. directory_next waits for the next changes;
 * after WEFT_ETIMEOUT it can be called again. A watch is closed before its directory. */
int directory_watch(struct directory *d, const char *prefix, int64_t after, struct directory_watch **out);
int directory_next(struct directory_watch *w, int64_t timeout_ns, struct directory_items *out);
void directory_unwatch(struct directory_watch *w); /* NULL is allowed */

/* 7. Ends the leases that were granted here. NULL is allowed. */
void directory_close(struct directory *d);

/* ---- for the kinds of directory ---- */

struct directory {
    const struct directory_kind *kind;
    char *url;
    char *space; /* what is put before keys, with its slash; or empty */
};
struct directory_watch {
    struct directory *directory;
    char prefix[DIRECTORY_KEY_MAX + 1]; /* with the space */
    int64_t after;                      /* the changes up to here have been told */
};

/* directory.c has checked keys, values and times and put the space before keys; `until` is a time of deadline_now().
 * The items that a kind gives have the space still. */
struct directory_kind {
    const char *scheme;
    const char *form;
    bool spaces;             /* the place may end with /SPACE */
    size_t size, watch_size; /* of the kind's structs, which begin with those above and are zeroed otherwise */
    int (*open)(struct directory *d, const char *place, const struct directory_opts *opts, int64_t until);
    int (*get)(struct directory *d, const char *prefix, int64_t until, struct directory_items *out);
    int (*transact)(struct directory *d, const struct directory_transaction *t, int64_t until,
                    struct directory_outcome *out);
    int (*grant)(struct directory *d, int64_t ttl_ns, int64_t until, int64_t *lease);
    int (*renew)(struct directory *d, int64_t lease, int64_t until);
    int (*revoke)(struct directory *d, int64_t lease, int64_t until);
    int (*watch)(struct directory_watch *w);
    /* Sets out->lost, without items, if changes after w->after were lost. */
    int (*next)(struct directory_watch *w, int64_t until, struct directory_items *out);
    void (*unwatch)(struct directory_watch *w); /* also if `watch` has failed */
    void (*close)(struct directory *d);         /* also if `open` has failed */
};
extern const struct directory_kind directory_tcp, directory_file; /* each in the file of its name */

int directory_gone(const struct directory *d, int64_t lease);    /* sets and returns WEFT_EPEER */
int directory_late(const struct directory *d, const char *what); /* sets and returns WEFT_ETIMEOUT */
#endif
