/* What an exec records of its runs, if its comm has a trace (comm/trace.h) or times for metrics (comm/metrics.h), or if
 * a profiler is attached (base/nvtx.h).
 *
 * Bind puts a driver in front of the chosen one: it passes every call on and looks at what has moved. So an exec
 * without a trace has no part in this, except in the pipeline, which asks once for each message and step whether
 * somebody takes the time. Other drivers copy many messages in one walk: their messages are events without a length. */
#ifndef WEFT_ENGINE_TRACER_H
#define WEFT_ENGINE_TRACER_H
#include "engine/driver.h"

struct tracer;

/* At bind, before the last meeting; does nothing if nobody asked for any of these. */
int tracer_make(weft_exec *x, struct program *p);
void tracer_open(struct program *p); /* the driver has been chosen */

/* For the pipeline, only with program->tracer, when it has done a step. */
void tracer_sent(weft_exec *x, const struct exec_out *out); /* the message before out->posted */
void tracer_took(weft_exec *x, const struct exec_in *in, uint32_t message);
void tracer_worked(weft_exec *x, uint32_t step);

void tracer_failed(weft_exec *x); /* the run in flight has failed; does nothing without a trace */

/* For comm_task_ops. */
void tracer_text(const struct comm_task *t, const struct trace_event *e, struct text *text);
#endif
