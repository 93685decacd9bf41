/* The table of names. */
#include "comm/event.h"

const char *event_name(enum event e)
{
    static const char *const names[EVENTS] = {[EVENT_RUN] = "run",
                                              [EVENT_WAIT] = "wait",
                                              [EVENT_SEND] = "send",
                                              [EVENT_RECEIVE] = "receive",
                                              [EVENT_COPY] = "copy",
                                              [EVENT_REDUCE] = "reduce",
                                              [EVENT_MET] = "met",
                                              [EVENT_PUT] = "put",
                                              [EVENT_PUT_ADD] = "put_add",
                                              [EVENT_NOTIFY] = "notify",
                                              [EVENT_BARRIER] = "barrier",
                                              [EVENT_ROUND] = "round",
                                              [EVENT_FREED] = "freed",
                                              [EVENT_TIMEOUT] = "timeout",
                                              [EVENT_FAILED] = "failed",
                                              [EVENT_OPENED] = "opened",
                                              [EVENT_CLOSED] = "closed",
                                              [EVENT_BOUND] = "bound",
                                              [EVENT_UNWRITTEN] = "unwritten"};
    return names[e];
}
