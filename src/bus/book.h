/* The state of a directory: keys, revisions, the last changes, and which keys belong to which lease. It is data alone:
 * no clock, socket or file. The server has one, and so has every process that uses a folder as its directory.
 *
 * A record is one value of a key, or its deletion; it never changes. The keys point to their records in the order of
 * keys, and the log points to the records of the last changes in the order of revisions. A reader that takes its time
 * holds references to the records that it has still to read, so that it reads one revision and copies nothing. */
#ifndef WEFT_BUS_BOOK_H
#define WEFT_BUS_BOOK_H
#include "base/list.h"
#include "base/table.h"
#include "bus/directory.h"

#define BOOK_KEYS_MAX 65536
#define BOOK_BYTES_MAX ((size_t)64 << 20) /* of the keys and values that are there */
#define BOOK_LEASES_MAX 65536
#define BOOK_LOG_MAX 4096                    /* changes that are remembered, */
#define BOOK_LOG_BYTES_MAX ((size_t)8 << 20) /* and bytes of their keys and values; one revision is always kept */

struct book_record {
    int refs;
    int64_t made, revision, lease;
    struct list node; /* in the lease, while the key has this record; the book's own */
    bool deleted;
    uint32_t key_len, bytes;
    unsigned char data[]; /* the key, a zero, and the value */
};
static inline const char *book_key(const struct book_record *r)
{
    return (const char *)r->data;
}
static inline const unsigned char *book_value(const struct book_record *r)
{
    return r->data + r->key_len + 1;
}
static inline struct directory_item book_item(const struct book_record *r)
{
    return (struct directory_item){.key = book_key(r),
                                   .value = book_value(r),
                                   .bytes = r->bytes,
                                   .made = r->made,
                                   .revision = r->revision,
                                   .lease = r->lease,
                                   .deleted = r->deleted};
}
static inline struct book_record *book_hold(struct book_record *r)
{
    r->refs++;
    return r;
}
void book_drop(struct book_record *r);

struct book_lease {
    struct table_node node;
    int64_t id, ttl_ns;
    struct list keys; /* records */
    size_t nkeys;
};

struct book {
    int64_t revision;  /* of the last change */
    int64_t forgotten; /* changes up to this revision are not in the log any more */
    struct book_record **keys;
    size_t nkeys, cap;
    size_t bytes;
    struct book_record **log; /* a ring */
    size_t log_at, log_n, log_cap, log_bytes;
    size_t log_most; /* BOOK_LOG_MAX; tests have less */
    struct table leases;
    size_t lease_size; /* bytes of a lease: those of struct book_lease, and what its user has behind it */
};

/* revision: of an empty directory. */
void book_begin(struct book *b, int64_t revision, size_t lease_size);
void book_end(struct book *b, void (*lease_end)(struct book_lease *l, void *arg), void *arg);

/* Where the keys with the prefix are: keys[*first] up to keys[*end]. */
void book_range(const struct book *b, const char *prefix, size_t *first, size_t *end);
struct book_record *book_find(const struct book *b, const char *key); /* NULL: there is no such key */
/* The i-th change that is remembered, from the oldest one on. */
static inline struct book_record *book_logged(const struct book *b, size_t i)
{
    return b->log[(b->log_at + i) % b->log_cap];
}
size_t book_log_after(const struct book *b, int64_t revision); /* which is the first change after the revision? */
bool book_remembers(const struct book *b, int64_t after);      /* are all changes after that revision there? */

enum book_result {
    BOOK_DONE,
    BOOK_DIFFERS,  /* a compare does not hold */
    BOOK_NO_LEASE, /* a lease of a change has ended */
    BOOK_FULL,     /* a limit is reached; *why says which one */
    BOOK_NOMEM
};
/* The transaction is checked already. What is changed is put into the log. */
enum book_result book_transact(struct book *b, const struct directory_transaction *t, const char **why);
/* For a book that is read from a file: first its leases, then its keys as they are, then the changes that it remembers,
 * in order. False: memory is out, or it does not fit. */
bool book_restore(struct book *b, const struct directory_item *item, bool logged);
bool book_restore_log(struct book *b, const char *key); /* a change whose record the key still has */
/* id 0: a random one is made. NULL: memory is out or there are too many. */
struct book_lease *book_grant(struct book *b, int64_t id, int64_t ttl_ns);
struct book_lease *book_lease(struct book *b, int64_t id); /* NULL: it has ended */
/* Ends a lease, deletes its keys in one revision, and frees it. False: memory is out, and nothing was done. */
bool book_revoke(struct book *b, struct book_lease *l);
#endif
