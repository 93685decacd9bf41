/* The events of a rank, and their names. The flight recorder, traces, metrics and the log use this one table, so that
 * an event has one name everywhere. */
#ifndef WEFT_COMM_EVENT_H
#define WEFT_COMM_EVENT_H

enum event {
    EVENT_RUN = 1,   /* a run of an exec */
    EVENT_WAIT,      /* a part of a run in which nothing moved */
    EVENT_SEND,      /* a message leaves this rank: it is packed, pushed, or shown to the receiver */
    EVENT_RECEIVE,   /* a message is taken by this rank */
    EVENT_COPY,      /* a step of this rank alone */
    EVENT_REDUCE,    /* a fold */
    EVENT_MET,       /* a meeting of all ranks */
    EVENT_PUT,       /* into a window: the call */
    EVENT_PUT_ADD,   /* the same, added to what is there */
    EVENT_NOTIFY,    /* a signal of a window is set or added to */
    EVENT_BARRIER,   /* of a window */
    EVENT_ROUND,     /* of an exchange */
    EVENT_FREED,     /* an exec was closed */
    EVENT_TIMEOUT,   /* a wait ran out of time */
    EVENT_FAILED,    /* the comm has failed */
    EVENT_OPENED,    /* a comm */
    EVENT_CLOSED,    /* a comm */
    EVENT_BOUND,     /* an exec */
    EVENT_UNWRITTEN, /* a trace or metrics: the file cannot be written */
    EVENTS
};

const char *event_name(enum event e);
#endif
