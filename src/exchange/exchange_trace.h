/* What an exchange records of its rounds, messages and waits, if its comm has a trace (comm/trace.h). Threads put,
 * receive and wait without the progress lock, so events are kept here under the lock of the exchange. A thread that
 * holds the progress lock hands them over: the pass of the task, and the end. */
#ifndef WEFT_EXCHANGE_EXCHANGE_TRACE_H
#define WEFT_EXCHANGE_EXCHANGE_TRACE_H
#include "comm/trace.h"
#include "exchange/exchange.h"

#define EXCHANGE_TRACE_KEPT 4096 /* events until the next pass; what is more is dropped, and counted */

int exchange_trace_make(weft_exchange *x, int nins, int nouts); /* does nothing for a comm without a trace */
void exchange_trace_open(weft_exchange *x);                     /* with the progress lock */
void exchange_trace_close(weft_exchange *x);                    /* writes the rest */
void exchange_trace_free(weft_exchange *x);

static inline int64_t exchange_trace_now(const weft_exchange *x)
{
    return x->trace ? core_now() : 0;
}

/* With the lock, and only if x->trace. */
void exchange_trace_begun(weft_exchange *x); /* a round */
void exchange_trace_sent(weft_exchange *x, const struct exchange_out *out, const struct exchange_head *head,
                         int64_t at);
void exchange_trace_received(weft_exchange *x, const struct exchange_in *in, const struct message *m);
void exchange_trace_complete(weft_exchange *x, bool failed);

/* Takes the lock. peer: the rank that was waited for, which had to take something, or otherwise to send. */
void exchange_trace_waited(weft_exchange *x, int64_t at, int peer, bool sends);
int exchange_trace_missing(const weft_exchange *x); /* a rank that has not ended the round, or TRACE_NOBODY */

/* Hands over what is kept; with the progress lock. */
void exchange_trace_pass(weft_exchange *x);

/* For comm_task_ops. */
void exchange_trace_text(const struct comm_task *task, const struct trace_event *e, struct text *t);
#endif
