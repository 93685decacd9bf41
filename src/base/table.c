#include "base/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define FIRST 16 /* buckets */

static struct table_node **bucket(const struct table *t, uint64_t hash)
{
    return &t->buckets[hash & (t->nbuckets - 1)];
}

struct table_node *table_find(struct table *t, const char *key, size_t len)
{
    if (!t->used)
        return NULL;
    uint64_t hash = hash_bytes(t->seed, key, len);
    struct table_node *n = *bucket(t, hash);
    for (t->steps++; n && (n->hash != hash || n->len != len || memcmp(n->key, key, len)); n = n->next)
        t->steps++;
    return n;
}

/* Doubles the number of buckets. Without memory for them nothing changes. */
static void grow(struct table *t)
{
    struct table old = *t;
    size_t n = t->nbuckets ? t->nbuckets * 2 : FIRST;
    struct table_node **buckets = calloc(n, sizeof *buckets);
    if (!buckets)
        return;
    t->buckets = buckets;
    t->nbuckets = n;
    for (size_t i = 0; i < old.nbuckets; i++) {
        for (struct table_node *e = old.buckets[i], *next; e; e = next) {
            struct table_node **at = bucket(t, e->hash);
            next = e->next;
            e->next = *at;
            *at = e;
            t->steps++;
        }
    }
    free(old.buckets);
}

bool table_put(struct table *t, struct table_node *n, const char *key, size_t len)
{
    if (t->used >= t->nbuckets)
        grow(t);
    if (!t->buckets)
        return false;
    *n = (struct table_node){.hash = hash_bytes(t->seed, key, len), .key = key, .len = len};
    struct table_node **at = bucket(t, n->hash);
    n->next = *at;
    *at = n;
    t->used++;
    return true;
}

void table_remove(struct table *t, struct table_node *n)
{
    struct table_node **at = bucket(t, n->hash);
    for (t->steps++; *at != n; at = &(*at)->next)
        t->steps++;
    *at = n->next;
    t->used--;
}

void table_clear(struct table *t, void (*end)(struct table_node *n, void *arg), void *arg)
{
    for (size_t i = 0; i < t->nbuckets; i++) {
        for (struct table_node *n = t->buckets[i], *next; n; n = next) {
            next = n->next;
            end(n, arg);
        }
    }
    free(t->buckets);
    *t = (struct table){.seed = t->seed, .steps = t->steps};
}
