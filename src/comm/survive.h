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
/* Is the rank dead, out of reach, or has it left for good? In a call on the comm, after its mail was received. Mail of
 * ranks that look for a list which this rank has is answered by that. */
bool survive_is_gone(weft_comm *c, int rank);
uint64_t survive_agreed(const weft_comm *c); /* the number of the agreement that gave the last list; 0: none */
/* Mails a rank that this one has given up an attempt to open a comm again (again.c), for rank `gone`, or -1. */
void survive_mail_gives_up(weft_comm *c, int rank, uint64_t id, int gone);
#endif
