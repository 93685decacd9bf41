/* Messages and the pool of their blocks: free lists by power of two under one lock. */
#include "exchange/message.h"

#include <pthread.h>
#include <stdlib.h>

#define SMALLEST 8 /* blocks of 256 bytes and up */
#define CLASSES 40
#define ALIGN 64 /* of payloads */

struct message_pool {
    pthread_mutex_t lock;
    size_t users; /* references: the exchange and its messages */
    int64_t kept, keep;
    struct message *free[CLASSES];
};

struct message_pool *message_pool_new(int64_t keep)
{
    struct message_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    if (pthread_mutex_init(&p->lock, NULL)) {
        free(p);
        return NULL;
    }
    p->users = 1;
    p->keep = keep;
    return p;
}

static size_t class_bytes(uint32_t class)
{
    return (size_t)1 << (class + SMALLEST);
}

/* Called with the lock; releases the lock. */
static void leave(struct message_pool *p)
{
    size_t users = --p->users;
    pthread_mutex_unlock(&p->lock);
    if (users)
        return;
    for (int i = 0; i < CLASSES; i++)
        while (p->free[i]) {
            struct message *m = p->free[i];
            p->free[i] = m->next;
            free(m);
        }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void message_pool_leave(struct message_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    leave(p);
}

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

struct message *message_new(struct message_pool *p, size_t meta_bytes, size_t bytes, bool elsewhere)
{
    size_t front = round_up(sizeof(struct message)), held = elsewhere ? 0 : bytes;
    uint32_t class = 0;
    if (meta_bytes > SIZE_MAX / 4 || held > SIZE_MAX / 4)
        return NULL;
    size_t need = front + round_up(meta_bytes) + held;
    while (class < CLASSES && class_bytes(class) < need)
        class ++;
    if (class == CLASSES)
        return NULL;
    pthread_mutex_lock(&p->lock);
    struct message *m = p->free[class];
    if (m) {
        p->free[class] = m->next;
        p->kept -= (int64_t)class_bytes(class);
    }
    p->users++;
    pthread_mutex_unlock(&p->lock);
    if (!m && !(m = aligned_alloc(ALIGN, class_bytes(class)))) {
        message_pool_leave(p);
        return NULL;
    }
    char *data = (char *)m + front;
    *m = (struct message){.is = {.meta = meta_bytes ? data : NULL,
                                 .meta_bytes = meta_bytes,
                                 .payload = held ? data + round_up(meta_bytes) : NULL,
                                 .bytes = bytes},
                          .pool = p,
                          .class = class,
                          .held = meta_bytes + held};
    return m;
}

void weft_message_free(weft_message *is)
{
    if (!is)
        return;
    struct message *m = (struct message *)is;
    struct message_pool *p = m->pool;
    pthread_mutex_lock(&p->lock);
    if (p->kept + (int64_t)class_bytes(m->class) <= p->keep) {
        p->kept += (int64_t)class_bytes(m->class);
        m->next = p->free[m->class];
        p->free[m->class] = m;
        m = NULL;
    }
    leave(p);
    free(m);
}
