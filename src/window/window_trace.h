/* What a window records of its calls and of what comes from other hosts, if its comm has a trace (comm/trace.h).
 *
 * Inside a host nobody takes part in a put but the rank that puts. So a put has no other end there, and the arrow that
 * shows when its bytes are seen leads from the notify to the wait that it ends: both know the signal and the value that
 * it got. Between hosts each operation is also a message, with an arrow to the rank that does it there. */
#ifndef WEFT_WINDOW_WINDOW_TRACE_H
#define WEFT_WINDOW_WINDOW_TRACE_H
#include "comm/trace.h"
#include "window/window.h"

/* Before the meetings, with the arena of the window. A comm without a trace has none of it. */
int window_trace_make(weft_window *w);
void window_trace_open(weft_window *w);  /* the window is there, and w->task.id is the number of its track */
void window_trace_close(weft_window *w); /* writes the rest; nothing is recorded afterwards */

/* The time at which a call begins, for the calls below. They do nothing for a window without a trace. */
static inline int64_t window_trace_begin(const weft_window *w)
{
    return w->trace ? core_now() : 0;
}
void window_trace_put(weft_window *w, int64_t begun, int rank, int buffer, int64_t bytes, bool add);
/* The call. known: `value` is what the signal has got. Otherwise only what was asked for is known: it is done later, by
 * this rank or on another host. */
void window_trace_notify(weft_window *w, int64_t begun, int rank, uint32_t signal, uint64_t value, bool known);
/* What rank `of` asked for has been done since then. The caller holds the progress lock. */
void window_trace_notified(weft_window *w, int64_t begun, int rank, uint32_t signal, uint64_t value, int of);
/* value: that the signal had when the wait ended. */
void window_trace_wait(weft_window *w, int64_t begun, uint32_t signal, uint64_t value, bool failed);
/* n: the ranks that it was with; -1: all. */
void window_trace_barrier(weft_window *w, int64_t begun, int n, bool failed);
/* Operation number `op` to or from a rank of another host, of this enum remote_kind. The caller holds the progress
 * lock. */
void window_trace_op(weft_window *w, int peer, uint64_t op, uint32_t kind, uint64_t bytes, bool sends);
#endif
