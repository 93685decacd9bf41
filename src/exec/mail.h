/* What ranks on different hosts tell each other beside data: votes, failures, that they are at work, that
 * they have left. It comes by the mail of the wire and is put where ranks of one host look for it: into the
 * core of the group, of which each host has its own. */
#ifndef WEFT_EXEC_MAIL_H
#define WEFT_EXEC_MAIL_H
#include "exec/comm.h"

/* Moves the wire, puts what has come in its place and passes on what this host's ranks have voted. */
bool mail_pass(weft_comm *c);
/* Sees to it that all that was mailed is on its way, within a bounded time. */
void mail_flush(weft_comm *c);
void mail_failure(weft_comm *c, int code, const char *text);     /* to all far ranks */
void mail_pulse(weft_comm *c, int peer, uint64_t exec, uint64_t run); /* this rank is at work in it */
void mail_goodbye(weft_comm *c);                                 /* this rank leaves */
#endif
