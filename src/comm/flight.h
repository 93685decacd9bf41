/* The flight recorder of a comm: what a rank did last, and what it waits for, for the time when a job hangs or fails.
 *
 * What is in flight is not recorded: a run keeps what it needs to know of itself, and the text is made of that when
 * somebody asks. The ring keeps what is over and would be forgotten: meetings, execs that were freed, timeouts, the
 * failure. It has a fixed size, and an event is a few stores. Where WEFT_FLIGHT names a folder, the text is written
 * there when a wait runs out of time, when the comm has failed, and after a signal. */
#ifndef WEFT_COMM_FLIGHT_H
#define WEFT_COMM_FLIGHT_H
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "weft.h"

#define FLIGHT_EVENTS 256
#define FLIGHT_DIR 512
#define FLIGHT_NAME 200
#define FLIGHT_LATE_TEXT 320

enum flight_kind { FLIGHT_MET = 1, FLIGHT_FREED, FLIGHT_LATE, FLIGHT_FAILED };

struct flight_event {
    uint8_t kind;
    uint32_t call;   /* FLIGHT_MET: enum comm_call */
    int32_t code;    /* how it ended */
    uint64_t number; /* of the meeting, or of the exec */
    uint64_t digest; /* of the plan, where there is one; for FLIGHT_FREED the runs that were started */
};

struct flight_recorder {
    char job[FLIGHT_NAME];  /* the comm that was opened, as a URL */
    char name[FLIGHT_NAME]; /* this comm: the same, or which split of it */
    int ranks;              /* of the job */
    int opened;             /* which of the comms of this process */
    char dir[FLIGHT_DIR];   /* where files go; empty: nowhere */
    uint32_t signals;       /* that were answered */
    int64_t wrote_at;       /* core_now() of the last file for a timeout */
    bool failed;            /* the failure was recorded */
    char late[FLIGHT_LATE_TEXT];

    uint32_t call; /* of the meeting that this rank is in; 0: none */
    uint64_t meeting, digest;

    uint64_t events; /* so far; the n-th stands in ring[n % FLIGHT_EVENTS] */
    struct flight_event ring[FLIGHT_EVENTS];
};

struct core_vote;

/* Reads the environment, and has the process listen to the signal; before anybody waits for this rank. */
int flight_check(void);
/* For a comm that was opened by this URL, in two parts. */
void flight_open(weft_comm *c, const char *scheme, const char *place);
void flight_split(weft_comm *c, const weft_comm *of, uint64_t meeting); /* for one that was split from another */

static inline void flight_record(struct flight_recorder *f, enum flight_kind kind, uint32_t call, int code,
                                 uint64_t number, uint64_t digest)
{
    f->ring[f->events++ % FLIGHT_EVENTS] =
        (struct flight_event){.kind = (uint8_t)kind, .call = call, .code = code, .number = number, .digest = digest};
}

/* The rank enters a meeting, and is through with it. */
static inline void flight_meets(struct flight_recorder *f, uint32_t call, uint64_t meeting, uint64_t digest)
{
    f->call = call;
    f->meeting = meeting;
    f->digest = digest;
}
static inline void flight_met(struct flight_recorder *f, int code)
{
    flight_record(f, FLIGHT_MET, f->call, code, f->meeting, f->digest);
    f->call = 0;
}

/* These three with the progress lock; without it the first two do nothing. */
void flight_late(weft_comm *c);   /* time has run out, and this thread's error text says for what */
void flight_failed(weft_comm *c); /* the comm has failed; what was in flight still is */
void flight_look(weft_comm *c);   /* has there been a signal? */

/* ---- flight_text.c ---- */

/* All that there is to say, as one JSON object; docs/flight.md tells what stands in it. */
void flight_text(const weft_comm *c, const char *why, struct text *t);
/* For tasks that describe themselves: */
int flight_text_rank(const weft_comm *c, int rank); /* its number in the comm that was opened */
void flight_text_member(struct text *t, const char *key,
                        const char *value);                          /* of an object, not the first; NULL: null */
void flight_text_fate(const weft_comm *c, int peer, struct text *t); /* a member: is the peer here? */
#endif
