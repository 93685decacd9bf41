/* The log: what weft tells the program's own log about, if it asked for that by weft_log. Not for what is done in start
 * or test: a record takes a lock and formats a text. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H
#include <stdatomic.h>
#include <stdbool.h>

#include "weft/log.h"

extern _Atomic int log_most; /* the enum weft_log_level that is asked for; 0: none */

static inline bool log_wants(enum weft_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_most, memory_order_relaxed);
}

/* Does nothing if nobody wants it. comm may be NULL, and rank is -1 then. Leaves this thread's error text as it is. */
void log_write(enum weft_log_level level, const char *event, const char *comm, int rank, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
#endif
