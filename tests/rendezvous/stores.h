/* Stores for tests: places to open one at, on loopback ports that the system chose, and crews of ranks, threads or
 * processes, that open it and run one function. */
#ifndef WEFT_TESTS_STORES_H
#define WEFT_TESTS_STORES_H
#include <stdbool.h>
#include <stdint.h>

#include "support/clock.h"
#include "support/ranks.h"

#define LONG (60 * SECOND) /* what is waited for comes, on a loaded machine, too */
#define TOKEN "0123456789abcdef-a-token-for-tests"

enum stores_kind {
    STORES_FILE,
    STORES_SERVED /* by the test, as by weft run */,
    STORES_RANK /* by rank 0 */,
    STORES_KINDS
};

struct stores_place {
    enum stores_kind kind;
    char url[256], dir[64];
    struct server *server;
    int reserved; /* a socket that is bound to the port and does not listen, so that nobody else gets it */
};
int stores_reserve(int *port);
void stores_begin(struct stores_place *p, enum stores_kind kind);

/* All that ranks have closed must be gone. */
/* How many names a folder has. */
int stores_names(const char *dir);

void stores_end(struct stores_place *p);
bool stores_sodium(void);

struct stores_rank {
    int rank, size, code; /* of store_open, or as the body likes */
    const char *url, *name, *token;
    int64_t timeout_ns;
    struct store *s;
    void (*body)(struct stores_rank *r);
    void *arg; /* of processes, memory of ranks_shared */
    bool broken;
    char text[1200]; /* the error, or what is wrong */
};
#define STORES_CHECK(r, what)                                                                                 \
    do {                                                                                                      \
        if (!(what) && !(r)->broken) {                                                                        \
            (r)->broken = true;                                                                               \
            snprintf((r)->text, sizeof(r)->text, "rank %d of %d, line %d: %s (%.600s)", (r)->rank, (r)->size, \
                     __LINE__, #what, weft_errmsg());                                                         \
        }                                                                                                     \
    } while (0)
int stores_open(struct stores_rank *r);

/* n ranks, in memory that all share: free by munmap of n of them. */
struct stores_rank *stores_crew(const struct stores_place *p, int n, void (*body)(struct stores_rank *r));
void stores_run(struct stores_rank *ranks, int n, bool forked);
void stores_free(struct stores_rank *ranks, int n);
#endif
