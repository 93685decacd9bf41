/* Ranks as processes: children of this one that do one thing after another. They are copies of it, made when the crew
 * is opened: they see what is in memory then, and of what is written later only what is in shared mappings. */
#ifndef WEFT_CLI_CREW_H
#define WEFT_CLI_CREW_H
#include "cli/team.h"

struct crew;

int crew_open(int ranks, struct crew **out, struct failure *why); /* CLI_OK or CLI_WRONG */
/* As team_do: work(arg, r) on all ranks at once. A rank that has ended counts as WEFT_EPEER; so do all when a
 * signal was caught (signals_watch), which ends those that work. */
int crew_do(struct crew *c, team_work *work, void *arg, struct failure *why);
void crew_close(struct crew *c); /* and waits for their ends */

void *crew_alloc(size_t bytes); /* zeroed memory that parent and crew share; NULL: none */
void crew_free(void *memory, size_t bytes);
#endif
