/* A hash table of things that have a text as their key. Nodes are parts of what is in the table, so that only the table
 * itself takes memory. All calls take constant time in the mean. */
#ifndef WEFT_BASE_TABLE_H
#define WEFT_BASE_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next;
    uint64_t hash;
    const char *key; /* stays the same while the node is in a table; not closed by a zero */
    size_t len;
};

struct table {
    struct table_node **buckets; /* a power of two of them; NULL: none yet */
    size_t nbuckets, used;
    uint64_t seed;  /* of the hash; a random one keeps others from choosing keys that collide */
    uint64_t steps; /* nodes that were looked at so far */
};

/* A table that is all zeros is empty. */
struct table_node *table_find(struct table *t, const char *key, size_t len);
/* Puts a node in whose key is not there yet. False: memory is out. */
bool table_put(struct table *t, struct table_node *n, const char *key, size_t len);
void table_remove(struct table *t, struct table_node *n);
/* Takes all nodes out, gives each to end(), which may free it, and frees the table's memory. */
void table_clear(struct table *t, void (*end)(struct table_node *n, void *arg), void *arg);
#endif
