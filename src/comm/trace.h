/* Traces: what a rank did in its runs and when, for Perfetto, chrome://tracing and `weft trace` (docs/trace.md). A comm
 * has a trace if WEFT_TRACE was set when it was opened.
 *
 * An event is one store of 48 bytes into a ring, which is made when the comm is opened or split. If the ring is full
 * the oldest events are dropped, and the file says how many. The ring is written to the file where waiting for a disk
 * does no harm: when an exec is bound again or closed, when the comm has failed, and when it is closed. After each of
 * these the file is complete JSON; the next one goes on where the events of the last one end.
 *
 * Times are those of the host's CLOCK_MONOTONIC. Hosts have different ones, so in each bind the first rank of a host
 * asks rank 0 of the comm for its time, and the file says how far the two clocks were apart and how large the error can
 * be. `weft trace` puts the files of hosts on one clock.
 *
 * The thread that holds the progress lock uses the trace. Exchanges record without that lock: they keep their events
 * until a thread that holds it takes them over (exchange/exchange_trace.h). */
#ifndef WEFT_COMM_TRACE_H
#define WEFT_COMM_TRACE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "comm/event.h"
#include "weft.h"

#define TRACE_PATH 512
#define TRACE_EVENTS 65536 /* of a ring, unless WEFT_TRACE_EVENTS says otherwise */
#define TRACE_NAME 255     /* letters of a tensor's name in a file */
#define TRACE_CLOCKS 64    /* looks at the clock of rank 0 that a file has room for */

#define TRACE_NOBODY (-1)

/* Which arrow begins or ends at an event. An arrow of a message has the same task, run and message at both ends; that
 * of a signal has the same task, run (the signal's value) and step (which signal). */
enum trace_arrow { TRACE_NO_ARROW, TRACE_LEAVES, TRACE_ARRIVES, TRACE_NOTIFIES, TRACE_NOTIFIED };

/* The fields that say what an exec has done. Windows and exchanges say beside their recorders what theirs mean. */
struct trace_event {
    int64_t at, ns;   /* when it began, on core_now(), and how long it took */
    uint64_t task;    /* the number of the exec, window or exchange; of a meeting: 0 */
    uint64_t run;     /* of the exec; of a meeting: its number */
    uint32_t step;    /* of the plan; of a meeting: enum comm_call */
    uint32_t message; /* SEND, RECEIVE, WAIT: its number in its channel, of the run */
    int32_t peer;     /* a rank of the comm, or TRACE_NOBODY */
    uint8_t event;    /* enum event */
    uint8_t arrow;    /* enum trace_arrow */
    bool sends;       /* WAIT: the peer has yet to take the message, or to let it be sent */
    bool failed;      /* RUN, MET, WAIT, BARRIER, ROUND: it did not end well */
};

/* The last slices of a track that several threads may record. A slice that begins inside another one and ends behind it
 * cannot be shown: it begins where that one ends. */
struct trace_nest {
    struct {
        int64_t at, until;
    } last[8];
    uint32_t n;
};
int64_t trace_nest(struct trace_nest *n, int64_t at, int64_t until); /* where the slice is to begin */

struct trace_clock {
    int64_t at, offset_ns, error_ns; /* rank 0's clock is `offset_ns` ahead of this one, give or take error_ns */
};

struct trace {
    char path[TRACE_PATH + 208];
    char plans[TRACE_PATH]; /* the folder where plans are kept for weft trace --sim; empty: nowhere */
    uint64_t recorded, written, dropped;
    uint64_t lost;            /* events of exchanges that were dropped before they came here */
    uint64_t mask;            /* events of the ring - 1 */
    int64_t begun;            /* when the meeting that this rank is in began */
    long end;                 /* of the events in the file; 0: there is no file yet */
    bool broken;              /* the file cannot be written: it is given up */
    bool touched;             /* the ring has its pages */
    uint32_t asked, answered; /* questions for the clock of rank 0 */
    int64_t sent_at;
    struct trace_clock best, clocks[TRACE_CLOCKS];
    uint32_t nclocks;
    struct trace_event ring[];
};

int trace_check(void); /* WEFT_TRACE and WEFT_METRICS make sense; before any peer waits for this rank */
/* For a comm that was opened, after flight_open. */
int trace_open(weft_comm *c);
/* For one that was split from `of`, after flight_split. Without memory for the ring it has no trace. */
void trace_split(weft_comm *c, const weft_comm *of);
void trace_close(weft_comm *c); /* writes the rest */
void trace_write(weft_comm *c); /* writes what is in the ring; does nothing for a comm without a trace */

/* At bind: lets the system give the ring its pages now, those of TRACE_EVENTS events at most, and not while runs go. */
void trace_touch(struct trace *t);

/* The place of the next event, for the caller to fill as a whole. */
static inline struct trace_event *trace_next(struct trace *t)
{
    struct trace_event *e = &t->ring[t->recorded++ & t->mask];
    __builtin_prefetch(&t->ring[(t->recorded + 1) & t->mask], 1); /* by then it is in the cache */
    return e;
}

void trace_meets(struct trace *t); /* the rank enters a meeting */
void trace_met(weft_comm *c, uint32_t call, uint64_t meeting, int err);

/* ---- trace_clock.c ---- */

/* Lets the ranks of other hosts ask this rank for its time; before the first meeting of a collective call. */
void trace_clock_listen(weft_comm *c);
/* Asks rank 0, if this is the first rank of another host. Only between two meetings, when rank 0 waits in the second
 * one. If no answer comes, the file says nothing about the clock. */
void trace_clock_align(weft_comm *c);
#endif
