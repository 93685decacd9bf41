/* What happens to comms and execs, for the log of the program. weft is silent unless it is asked. */
#ifndef WEFT_LOG_H
#define WEFT_LOG_H
#include <weft.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weft_log_level {
    WEFT_LOG_ERROR = 1, /* a comm has failed */
    WEFT_LOG_WARNING, /* a wait ran out of time; a trace or metrics cannot be written; an agent does not do its work */
    WEFT_LOG_INFO     /* comms are opened and closed, execs are bound and freed; an agent follows a publisher */
};

typedef struct weft_log_record {
    size_t size;
    enum weft_log_level level;
    const char *event; /* opened, closed, bound, freed, timeout, failed, unwritten, agent */
    const char *comm;  /* the URL of the comm, or which split of it, or of the bus; may be empty */
    int rank;          /* of the caller; -1: not known */
    const char *text;  /* one sentence */
} weft_log_record;

/* From here on, write(arg, r) is called for each record of this level or a more important one, of all comms of the
 * process. One record at a time, in the thread in which it happened, which may be a progress thread. The record is
 * valid until the function returns, which must make no call of weft. A NULL function, or level 0, ends it: when this
 * call has returned, no thread is in the old function. Runs are not logged: start and test make no record. */
WEFT_API int weft_log(enum weft_log_level most, void (*write)(void *arg, const weft_log_record *r), void *arg);

#ifdef __cplusplus
}
#endif
#endif
