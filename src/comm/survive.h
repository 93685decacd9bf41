/* Survivor agreement: which ranks are left of a comm that has failed. */
#ifndef WEFT_COMM_SURVIVE_H
#define WEFT_COMM_SURVIVE_H
#include "comm/comm.h"

/* From here on this rank receives the questions of ranks of other hosts, also before it asks itself. */
void survive_open(weft_comm *c);
/* Before the mail ends. Tells ranks of other hosts if this rank leaves a comm that has failed for good. */
void survive_close(weft_comm *c);
/* This rank has opened a comm with others again: to ranks that are not in it, it has not just left. */
void survive_went_on(weft_comm *c);
/* For a rank that has its list and waits for others: answers ranks that have not. */
void survive_serve(weft_comm *c);
#endif
