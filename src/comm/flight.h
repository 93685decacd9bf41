/* The flight recorder of a comm: what a rank did last, and what it waits for, for the time when a job hangs or fails.
 *
 * What is in flight is not recorded: the text describes each run from the run's own state at that moment. The ring
 * keeps what is over and would be forgotten: meetings, execs that were freed, timeouts, the failure. It has a fixed
 * size, and an event is a few stores. If WEFT_FLIGHT names a folder, the text is written there when a wait runs out of
 * time, when the comm has failed, and after a signal. */
#ifndef WEFT_COMM_FLIGHT_H
#define WEFT_COMM_FLIGHT_H
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "comm/event.h"
#include "weft/log.h"

#define FLIGHT_EVENTS 256
#define FLIGHT_DIR 512
#define FLIGHT_NAME 200
#define FLIGHT_LATE_TEXT 320

struct flight_event {
    uint8_t event;   /* enum event */
    uint32_t call;   /* EVENT_MET: enum comm_call */
    int32_t code;    /* how it ended */
    uint64_t number; /* of the meeting, or of the exec */
    uint64_t digest; /* of the plan, if there is one; for EVENT_FREED the number of runs that were started */
};

struct flight_recorder {
    char job[FLIGHT_NAME];  /* the comm that was opened, as a URL */
    char name[FLIGHT_NAME]; /* this comm: the same URL, or which split of it */
    int ranks;              /* of the job */
    int opened;             /* which of the comms of this process */
    char dir[FLIGHT_DIR];   /* where files go; empty: nowhere */
    uint32_t signals;       /* signals that were answered */
    int64_t wrote_at;       /* core_now() of the last file for a timeout */
    bool failed;            /* the failure was recorded already */
    char late[FLIGHT_LATE_TEXT];

    uint32_t call; /* of the meeting that this rank is in; 0: none */
    uint64_t meeting, digest;

    uint64_t events; /* number of events so far; event n is in ring[n % FLIGHT_EVENTS] */
    struct flight_event ring[FLIGHT_EVENTS];
};

struct core_vote;

/* Reads the environment and installs the signal handler. Called before any peer waits for this rank. */
int flight_check(void);
/* For a comm that was opened; scheme and place are the two parts of its URL. */
void flight_open(weft_comm *c, const char *scheme, const char *place);
void flight_split(weft_comm *c, const weft_comm *of, uint64_t meeting); /* for a comm that was split from `of` */

static inline void flight_record(struct flight_recorder *f, enum event event, uint32_t call, int code, uint64_t number,
                                 uint64_t digest)
{
    f->ring[f->events++ % FLIGHT_EVENTS] =
        (struct flight_event){.event = (uint8_t)event, .call = call, .code = code, .number = number, .digest = digest};
}

/* The rank enters a meeting; and leaves it. */
static inline void flight_meets(struct flight_recorder *f, uint32_t call, uint64_t meeting, uint64_t digest)
{
    f->call = call;
    f->meeting = meeting;
    f->digest = digest;
}
static inline void flight_met(struct flight_recorder *f, int code)
{
    flight_record(f, EVENT_MET, f->call, code, f->meeting, f->digest);
    f->call = 0;
}

/* Tells the program's log (base/log.h) about an event of the comm. */
void flight_log(const weft_comm *c, enum weft_log_level level, enum event event, const char *text);

/* The caller of these three holds the progress lock; if it does not, the first two do nothing. */
void flight_late(weft_comm *c);   /* a wait ran out of time, and this thread's error text says which */
void flight_failed(weft_comm *c); /* the comm has failed, and what was in flight is not ended yet */
void flight_look(weft_comm *c);   /* writes the text if a signal has come */

/* The name of a file of this comm: weft-KIND-COMM-RANK-PID-N.SUFFIX. */
void flight_file_name(const weft_comm *c, const char *kind, const char *suffix, char *buf, size_t cap);

/* ---- flight_text.c ---- */

/* The whole text, as one JSON object; docs/flight.md describes its members. */
void flight_text(const weft_comm *c, const char *why, struct text *t);
/* For tasks that describe themselves: */
int flight_text_rank(const weft_comm *c, int rank); /* its number in the comm that was opened */
void flight_text_member(struct text *t, const char *key,
                        const char *value);                          /* a member that is not the first; NULL: null */
void flight_text_fate(const weft_comm *c, int peer, struct text *t); /* a member that says whether the peer is here */
#endif
