/* Ranks as threads of this process: a team stands ready, and does one thing after another on all of its ranks. */
#ifndef WEFT_CLI_TEAM_H
#define WEFT_CLI_TEAM_H
#include "cli/cli.h"

struct team;

/* What one rank does: 0 or a WEFT_E code, whose weft_errmsg() is taken over. */
typedef int team_work(void *arg, int rank);

int team_open(int ranks, struct team **out, struct failure *why); /* CLI_OK, or CLI_WRONG if threads cannot be had */
/* Does work(arg, r) on all ranks at once and waits for all. The first code that is not 0, by rank, with its text in
 * *why (which names the rank unless the text says it already). */
int team_do(struct team *t, team_work *work, void *arg, struct failure *why);
void team_close(struct team *t);
#endif
