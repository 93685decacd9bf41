/* A move on real memory: the ranks of a URL as threads of a team, each with its comm and its exec. */
#ifndef WEFT_CLI_RUNNER_H
#define WEFT_CLI_RUNNER_H
#include "cli/team.h"
#include "weft.h"

/* Where the ranks run. */
struct runner_place {
    char url[256]; /* complete, for weft_comm_open */
    int ranks;
};
/* Completes a URL for a world of that many ranks: "threads:" alone gets as many ranks as needed, and a name. Exit code;
 * what no such group can hold is CLI_BAD. */
int runner_place(const char *url, int world, struct runner_place *out, struct failure *why);

struct runner {
    struct team *team;
    const struct runner_place *place;
    weft_plan *const *plans;
    const weft_view *src, *dst; /* one a rank */
    bool staged;
    weft_comm **comms;
    weft_exec **execs;
};

/* Opens comms and binds on the team (as many ranks as the place has). What it is given must outlive it. CLI_OK, CLI_BAD if
 * bind refuses the buffers, or CLI_WRONG. */
int runner_open(struct runner *r, struct failure *why);
int runner_run(struct runner *r, struct failure *why); /* once on all ranks */
void runner_close(struct runner *r);
#endif
