/* Ranks as threads or processes for tests: each runs one function with a comm of its own; what goes wrong is noted and
 * told by the main thread, since cmocka's asserts work there only. Ranks that are processes see what the test had in
 * memory when they began; what they write is seen by others in their struct ranks_rank and in memory of ranks_shared
 * only. Processes that a launcher started (launched.h) all run the test. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "values.h"
#include "weft.h"

#define RANKS_MAX 16

/* Where the ranks run; conformance.h goes through all of them. */
extern const char *ranks_on;

extern bool ranks_forked; /* they are processes, not threads of this one; launched ones are, too */

extern const char *ranks_hosts; /* of processes: a letter a rank, the host that it believes to be on; NULL: this one */

/* The last error without the hosts that ranks are on, if it names them. */
const char *ranks_said(void);

/* Are the ranks connected by a wire? */
bool ranks_wide(void);
void *ranks_shared(size_t bytes);

/* A meeting of all ranks outside weft; a rank that has failed does not come, and nobody waits for it. */
struct ranks_meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, here, generation;
    bool broken;
};

struct ranks_rank {
    int rank, size;
    weft_comm *comm;
    void *arg;
    struct ranks_meeting *meet;
    void (*body)(struct ranks_rank *r);
    const char *url;
    weft_comm_opts opts;
    char text[1200]; /* for bodies that hand an error text over */
    int code;
    bool keep; /* the body closes the comm itself */
    char failed[1600];
};

/* Notes the first failure of a rank; the body should then return. */
void ranks_note(struct ranks_rank *r, const char *file, int line, const char *fmt, ...);
#define RANKS_CHECK(r, condition)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ranks_note((r), __FILE__, __LINE__, "%s (last error: %s)", #condition, weft_errmsg()); \
            return;                                                                                \
        }                                                                                          \
    } while (0)
/* Nothing was wrong in the check of values that ends here (values.h). */
#define RANKS_VALUES(r) RANKS_CHECK(r, values_wrong() == 0)
#define RANKS_OK(r, call) RANKS_CHECK(r, (call) == WEFT_OK)
void ranks_meet(struct ranks_rank *r);

/* A fixture of tests: from here on all ranks share two cores. */
int ranks_on_two_cores(void **state);

/* The text that a rank has handed over has this part in it. */
void ranks_assert_text(const struct ranks_rank *r, const char *part);

/* Runs body on n ranks; out (may be NULL) gets what they left. Fails the test if a rank noted something. */
void ranks_run(int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *), void *arg, struct ranks_rank *out);

/* The same for processes, of which one ends as it likes. */
void ranks_run_but(int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *), void *arg, int dies);
#endif
