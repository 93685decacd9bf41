/* Where the ranks of property_turns are: groups of threads with comms that stay open over the whole campaign, one for
 * each size and each way to open a comm; beside each a comm of the same ranks that is split from it, in reverse order.
 */
#ifndef WEFT_TESTS_PROPERTY_PLACES_H
#define WEFT_TESTS_PROPERTY_PLACES_H
#include <stdbool.h>

#include "property_lab.h"

enum { PLACES_RANKS = 8, PLACES_SIZES = 4, PLACES_WAYS = 16 };
extern const int places_size[PLACES_SIZES];

/* How a comm is opened. Those with `spins` work as if each rank had a core for itself. With
 * `cma_least` private memory is read in pieces of at least that many bytes. */
extern const struct places_way {
    const char *scheme;
    bool windows, spins;
    weft_comm_opts opts;
    int64_t cma_least;
} places_ways[PLACES_WAYS];

/* TSan tells threads' accesses apart by address, and with shm each rank sees the shared words at another one. */
#if defined(__SANITIZE_THREAD__)
enum { PLACES_ON = 9 };
#else
enum { PLACES_ON = PLACES_WAYS };
#endif

struct place {
    struct worker_threads *threads;
    int size;
    weft_comm *comm[2][PLACES_RANKS]; /* the one that was opened, the one that was split */
};

/* The place of that way and size, opened if it is not; NULL: `why` says what went wrong. */
struct place *place_get(int way, int size, struct why *why);
void place_close(struct place *p);
void places_close(void);
#endif
