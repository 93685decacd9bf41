/* Threads that share the work of a long copy with the thread that needs it. They are made when the first such copy
 * comes, sleep between copies, and end with copy_threads_end. Parts of a copy are claimed one by one, so that a thread
 * that gets less of its core does fewer of them. */
#ifndef WEFT_VERSION_COPY_THREADS_H
#define WEFT_VERSION_COPY_THREADS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

#define COPY_THREADS_MOST 64
#define COPY_THREADS_USUAL 4         /* unless the caller says another number: more seldom gain */
#define COPY_THREADS_LEAST (1 << 20) /* bytes of a part: a thread needs some time to wake up */

struct copy_threads {
    int wanted;    /* with the thread of the caller; 1: it copies alone */
    int64_t least; /* bytes of a part */
    int made;
    pthread_t thread[COPY_THREADS_MOST - 1];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned long turn; /* copies that were begun */
    bool open;          /* this one has parts that may be claimed */
    int busy;           /* threads that claim parts of it */
    bool ends;
    void (*part)(void *arg, int i); /* of this copy */
    void *arg;
    int parts;
    atomic_int next; /* the part that nobody has claimed */
};

/* How many cores there are for each of `ranks` ranks of this host, at most COPY_THREADS_USUAL. */
int copy_threads_usual(int ranks);
/* What an option `threads` means: 0 is copy_threads_usual, for the ranks of the comm that are on this host, or without
 * a comm for `ranks`. WEFT_EINVAL: it is negative, or too large. */
int copy_threads_choose(const char *call, int64_t wanted, const weft_comm *comm, int ranks, int *out);

void copy_threads_begin(struct copy_threads *t, int wanted, int64_t least);
/* In how many parts n bytes are copied: several for each thread, since threads are not equally fast. */
int copy_threads_parts(const struct copy_threads *t, int64_t n);
/* What is before part i if n is cut into parts. */
static inline int64_t copy_threads_cut(int64_t n, int i, int parts)
{
    return n / parts * i + n % parts * i / parts;
}
/* Calls part(arg, i) for each i below `parts`, on any of the threads, and returns when all have returned. */
void copy_threads_run(struct copy_threads *t, int parts, void (*part)(void *arg, int i), void *arg);
void copy_threads_end(struct copy_threads *t);
#endif
