#ifndef WEFT_ENGINE_EXEC_MAIL_H
#define WEFT_ENGINE_EXEC_MAIL_H
#include "engine/exec.h"

void exec_mail_open(weft_comm *c); /* from here on execs of the comm hear their peers on other hosts */
/* With a run in flight, now and then: peers that wait for this rank have to tell it from one that has stalled. */
void exec_mail_pulse(weft_exec *x, int64_t now);
void exec_mail_freed(const weft_exec *x); /* unless the comm has failed */
#endif
