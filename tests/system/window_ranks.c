/* A rank that works with windows, for hosts.sh: any launcher starts it, on any transport. Ends with 0 when all was
 * right. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "support/share.h"
#include "support/suite.h"
#include "support/window_cases.h"
#include "support/window_ends.h"
#include "support/window_forms.h"
#include "support/window_puts.h"
#include "support/window_stress.h"

int main(void)
{
    int turns = (int)test_share(20, 1000), runs = (int)test_share(5, 200), rounds = (int)test_share(2, 40);
    int64_t ns = test_share(200, 10000) * MS, bytes = 9000008;
    const struct {
        const char *name;
        void (*body)(struct ranks_rank *r);
        void *arg;
        int least, most;
    } all[] = {
        {"shape", window_shape, NULL, 1, 16},
        {"ping-pong", window_ping_pong, NULL, 1, 16},
        {"sums that are not finite", window_add_ends, NULL, 2, 16},
        {"comparisons", window_compare, NULL, 2, 4},
        {"timeouts", window_timeouts, NULL, 2, 4},
        {"arguments", window_arguments, NULL, 1, 16},
        {"progress", window_progress, NULL, 2, 4},
        {"generations", window_generations, &turns, 1, 16},
        {"neighbours", window_neighbours, &turns, 2, 16},
        {"overlap", window_overlap, &turns, 3, 3},
        {"forms", forms_body, &runs, 2, FORMS_MOST},
        {"stress", stress_body, &ns, 2, 16},
        {"random operations", puts_random_body, &rounds, 1, 8},
        {"order through others", puts_third_body, &turns, 3, 16},
        {"barriers of the comm", puts_barrier_body, NULL, 1, 16},
        {"large puts", puts_large_body, &bytes, 2, 4},
        {"callbacks", puts_callback_body, NULL, 2, 6},
    };
    weft_comm *c;
    if (weft_comm_open(NULL, NULL, &c)) {
        fprintf(stderr, "open: %s\n", weft_errmsg());
        return 1;
    }
    static struct ranks_rank r;
    int done = 0;
    r = (struct ranks_rank){.rank = weft_comm_rank(c), .size = weft_comm_size(c), .comm = c};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (r.size < all[i].least || r.size > all[i].most)
            continue;
        r.arg = all[i].arg;
        all[i].body(&r);
        if (r.failed[0]) {
            fprintf(stderr, "%s: %s\n", all[i].name, r.failed);
            return 1;
        }
        done++;
    }
    if (r.rank == 0)
        printf("windows on %d ranks: %d cases\n", r.size, done);
    weft_comm_close(c);
    return 0;
}
