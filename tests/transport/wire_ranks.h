/* Ranks for tests of wires: processes that open one by sockets or by UCX and find each other in memory that the test
 * made, or the ranks that an MPI launcher started. A body sees its wire alone, so that the same bodies run on both. */
#ifndef WEFT_TESTS_WIRE_RANKS_H
#define WEFT_TESTS_WIRE_RANKS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "support/clock.h"
#include "support/suite.h"
#include "transport/wire/wire.h"
#include "weft.h"

#define WIRE_RANKS 8
#define WIRE_CARD 8192         /* bytes of an address at most */
#define PATIENCE (60 * SECOND) /* after which something hangs */

extern bool wire_leaks; /* rank 0 of 2 looks for leaks when it ends, which takes seconds */

/* What processes of one test share. */
struct wire_job {
    pthread_barrier_t barrier;
    int size;
    atomic_int signs[WIRE_RANKS]; /* for bodies */
    pid_t pids[WIRE_RANKS];
    _Alignas(16) unsigned char cards[WIRE_RANKS][WIRE_CARD];
    char failed[WIRE_RANKS][512];
};

struct wire_rank {
    int rank, size;
    const char *url;
    struct wire *w;
    struct wire_job *job;  /* NULL under MPI */
    int arrived, released; /* of the barrier by mail */
    void (*on_mail)(struct wire_rank *r, int peer, const unsigned char *bytes, size_t n);
    void *arg;
    char failed[512];
};
__attribute__((format(printf, 4, 5))) void wire_note(struct wire_rank *r, const char *file, int line, const char *fmt,
                                                     ...);

/* In a body: notes what does not hold and leaves the body. */
#define WIRE_CHECK(r, condition)                                                                  \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            wire_note((r), __FILE__, __LINE__, "%s (last error: %s)", #condition, weft_errmsg()); \
            return;                                                                               \
        }                                                                                         \
    } while (0)
#define WIRE_OK(r, call) WIRE_CHECK(r, (call) == WEFT_OK)
bool wire_pump(struct wire_rank *r);

/* Moves things until the condition holds; notes what hangs and leaves the body. */
#define WIRE_UNTIL(r, condition)                                                                \
    do {                                                                                        \
        int64_t until_ = clock_now() + PATIENCE;                                                \
        while (!(condition)) {                                                                  \
            wire_pump(r);                                                                       \
            if ((r)->failed[0])                                                                 \
                return;                                                                         \
            if (clock_now() > until_) {                                                         \
                wire_note((r), __FILE__, __LINE__, "hangs: %s does not come true", #condition); \
                return;                                                                         \
            }                                                                                   \
        }                                                                                       \
    } while (0)
void wire_barrier(struct wire_rank *r);
uint64_t wire_seed(int from, int to, uint64_t tag, uint64_t run);
unsigned char wire_byte(uint64_t seed, size_t i);
void wire_fill(void *memory, size_t bytes, uint64_t seed);

/* Where the memory differs first; bytes: nowhere. */
size_t wire_differs(const void *memory, size_t bytes, uint64_t seed);
int wire_rank_open(struct wire_rank *r, const char *url);

/* Runs body on n processes that have a wire of this URL. The rank `victim` (-1: none) is expected to be killed. The
 * body may set r->w to NULL when it has closed it. What the ranks that failed say, or NULL. */
const char *wire_run(const char *url, int n, int victim, void (*body)(struct wire_rank *), void *arg);

/* The wires as places where tests run, and the URL of the one where they run now: tcp: if they run once. */
extern const struct suite_places wire_places;
extern const char *wire_url;

/* Is there a module for that URL? */
bool wire_have(const char *url);

/* Leaves a test out where there is no module for that URL. */
void wire_need(const char *url);
#endif
