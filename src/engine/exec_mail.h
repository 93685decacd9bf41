/* What the ranks of an exec that are on different hosts tell each other by mail. */
#ifndef WEFT_ENGINE_EXEC_MAIL_H
#define WEFT_ENGINE_EXEC_MAIL_H
#include "engine/exec.h"

void exec_mail_open(weft_comm *c); /* from here on, execs of the comm hear their peers on other hosts */
/* Called now and then while a run is in flight: tells the peers that this rank is at work, so that those that wait for
 * it do not think that it has stalled. */
void exec_mail_pulse(weft_exec *x, int64_t now);
void exec_mail_freed(const weft_exec *x); /* tells the peers, unless the comm has failed */
#endif
