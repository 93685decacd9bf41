/* What ranks on different hosts tell each other beside data: votes, failures, that they are at work, that
 * they have left. It comes by the mail of the wire and is put where ranks of one host look for it: into the
 * core of the group, of which each host has its own. */
#ifndef WEFT_COMM_MAIL_H
#define WEFT_COMM_MAIL_H
#include "comm/comm.h"

struct mail *mail_new(void); /* NULL: no memory */
/* Makes the mail of a comm on several hosts one of its tasks. It moves the wire, puts what has come in its place and
 * passes on what this host's ranks have voted. */
void mail_open(weft_comm *c, struct mail *mail);
void mail_close(weft_comm *c); /* says goodbye first */

/* The calls below do nothing for a comm on one host. */

/* Moves what comes and goes by the wires of the comm and of its kin, and nothing else; calls nobody back. */
bool mail_move_kin(weft_comm *c);
/* May what has come be wrong? A wire that cannot cancel delivers what its sender has given up, from memory that may be
 * another thing by then. Word that it gave up was sent before that, and is looked for. */
bool mail_doubts(weft_comm *c);
/* Sees to it that all mail, and what this host's ranks have voted, is on its way; gives up after ns. */
void mail_flush(weft_comm *c, int64_t ns);
void mail_failure(weft_comm *c, int code, const char *text);
/* To one far rank, with which this one has been in touch: why the comm has failed. Who leaves a comm that has failed
 * tells those who wait for it: they may hear that it left before others tell them why. */
void mail_failure_to(weft_comm *c, int peer);
void mail_freed(const weft_exec *x); /* to the far ranks that it has messages with */
/* For survive.c, when the comm has failed and its tasks no longer pass: takes what has come. */
void mail_receive(weft_comm *c);
void mail_survives(weft_comm *c, uint32_t times); /* to all that are left: this rank is one of them */
/* For split.c: bytes of at most MAIL_BYTES, s->bytes of them, to one far rank. */
#define MAIL_BYTES (CORE_TEXT - 1)
struct split_mail;
void mail_split(weft_comm *c, int peer, const struct split_mail *s, const void *bytes);
struct pipe_mail;
void mail_pipe(weft_comm *c, int peer, const struct pipe_mail *p); /* for pipe_far.c */
void mail_verdict(weft_comm *c, uint32_t times, const unsigned char *list, size_t bytes);
#endif
