/* The keys and values of one session of the server, and the places where clients wait for them. Every call takes
 * constant time in the mean, apart from packing values, which is done once for each value.
 *
 * A key PREFIX/r, with r a rank of the session, is a part of the prefix. A prefix counts its parts: it is whole when
 * all ranks have set theirs. */
#ifndef WEFT_RENDEZVOUS_SERVER_KEYS_H
#define WEFT_RENDEZVOUS_SERVER_KEYS_H
#include "base/list.h"
#include "base/table.h"
#include "rendezvous/frame.h"

/* A key, as long as it is set or clients wait for it. */
struct server_entry {
    struct table_node node;
    struct list waiting;  /* clients */
    unsigned char *value; /* NULL: it is not set */
    size_t bytes;
    char key[];
};

/* Some of the values of a prefix, from rank `first` on, as a reply has them. */
struct server_chunk {
    int first, count;
    size_t bytes;
    unsigned char packed[];
};

/* A prefix, as long as it has parts or clients wait for it. Its chunks are made when it is first gathered, so that each
 * value is packed once and not once for each rank. They are freed when all ranks have had them. */
struct server_prefix {
    struct table_node node;
    struct list waiting; /* clients */
    int here;            /* how many parts are set */
    int given;           /* how many times the last chunk was given */
    struct server_chunk **chunks;
    size_t nchunks;
    char *late; /* the text of server_keys_missing, and until when it will do */
    int64_t late_until;
    char key[];
};

struct server_keys {
    int size; /* ranks of the session */
    struct table entries, prefixes;
    struct server_chunk *loose; /* one that was made and is not kept */
    size_t *bytes;              /* counts what all sessions hold */
    uint64_t *steps;            /* counts what was looked at beside tables */
};

void server_keys_begin(struct server_keys *k, int size, uint64_t seed, size_t *bytes, uint64_t *steps);
void server_keys_end(struct server_keys *k);

/* The entry of a key. With `make` one is made that is not set, and NULL means that memory is out. */
struct server_entry *server_keys_entry(struct server_keys *k, const char *key, size_t len, bool make);
void server_keys_spare_entry(struct server_keys *k, struct server_entry *e); /* frees it if it is of no use */
struct server_prefix *server_keys_prefix(struct server_keys *k, const char *key, size_t len, bool make);
void server_keys_spare_prefix(struct server_keys *k, struct server_prefix *p);

/* Sets the key of the request. *whole: the prefix that has got its last part by it, or NULL. Returns NULL if there is
 * no room; *why has the text of the refusal. The caller answers the clients that wait for the entry and for the prefix.
 */
struct server_entry *server_keys_set(struct server_keys *k, const struct frame_request *r, struct server_prefix **whole,
                                     const char **why);

/* The values of a whole prefix from rank `first` on, as many as fit into a reply. It is valid until the next call,
 * which is server_keys_given. NULL: memory is out. */
const struct server_chunk *server_keys_chunk(struct server_keys *k, struct server_prefix *p, int first);
void server_keys_given(struct server_keys *k, struct server_prefix *p, const struct server_chunk *chunk);

/* "'PREFIX' of ranks 1, 5 did not come in time". It is made once a second at most, for all clients that ask. */
const char *server_keys_missing(struct server_keys *k, struct server_prefix *p, int64_t now);
#endif
