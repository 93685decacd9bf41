/* The environment: settings of a comm that the caller left open, and the job in which a launcher started this process.
 * Only environment.c reads the environment, when a comm is opened. */
#ifndef WEFT_COMM_ENVIRONMENT_H
#define WEFT_COMM_ENVIRONMENT_H
#include "comm/flight.h"
#include "comm/trace.h"
#include "rendezvous/server.h"
#include "weft.h"

struct environment_job {
    char url[160]; /* scheme and name */
    int rank, size;
    bool spans; /* the launcher says that the job has several machines */
};

/* On which host this rank is, and where modules are. */
struct environment_place {
    const char *modules; /* WEFT_MODULES: a folder */
    const char *wire;    /* WEFT_WIRE: tcp or ucx; NULL: not said */
    uint64_t machine;    /* identifies the system and its boot */
    char host[160];      /* WEFT_HOST; otherwise the boot of the system and the network namespace */
    char name[64];       /* for texts: WEFT_HOST, otherwise the system's name */
};
void environment_place(struct environment_place *p);

/* Where the flight recorder writes (WEFT_FLIGHT: a folder; empty: nowhere) and after which signal (WEFT_FLIGHT_SIGNAL;
 * 0: none). WEFT_EINVAL if the folder cannot be written or the signal does not exist. */
struct environment_flight {
    char dir[FLIGHT_DIR];
    int signal;
};
int environment_flight(struct environment_flight *out);

/* Where files of a rank go: a folder that exists, or a file; empty: nowhere. */
struct environment_output {
    char path[TRACE_PATH];
    bool folder;
};
/* WEFT_TRACE, and the events of a ring, a power of two: WEFT_TRACE_EVENTS. WEFT_EINVAL if the folder cannot be written
 * or the number makes no sense. */
int environment_trace(struct environment_output *out, int64_t *events);
int environment_metrics(struct environment_output *out); /* WEFT_METRICS */

/* Fills in what the caller left open: first from WEFT_*, then the defaults. */
int environment_settle(weft_comm_opts *o);
/* The job that this process is a rank of. Its URL is WEFT_URL. Without WEFT_URL it is auto: if the job spans several
 * machines or was told where to meet, otherwise shm:. WEFT_EINVAL if the launcher's variables make no sense. */
int environment_job(struct environment_job *job, bool *found);
/* Where the ranks of the job meet, for store_open. */
struct environment_store {
    char at[512];
    char name[STORE_NAME_MAX + 1];    /* of the job; empty: it has none */
    char token[SERVER_TOKEN_MAX + 2]; /* empty: none is set */
};

/* Takes `at`; without it WEFT_AT; without both what the launcher offers: PMIx, or torchrun's master. WEFT_EINVAL if
 * there is none of these, or if the token or its file cannot be used. out->at is empty then if WEFT_AT does not say
 * where. */
int environment_store(const char *at, struct environment_store *out);
/* Reads the token in a file that no other user can read. `option` stands before the path in texts. */
int environment_token_file(const char *option, const char *path, char token[SERVER_TOKEN_MAX + 2]);
int environment_token(char token[SERVER_TOKEN_MAX + 2]); /* of WEFT_TOKEN or WEFT_TOKEN_FILE; empty: neither is set */

/* A file of base/ended.h, if this process is rank `rank` of `size` of a job of weft run; -1: there is none. */
int environment_ended(int rank, int size);

const char *environment_modules(void); /* where modules are looked for first; NULL: nowhere */
int environment_no_job(void);          /* sets and returns the error of a caller that needs a job */
#endif
