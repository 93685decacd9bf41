/* What the environment says: settings of a comm that the caller left open, and the job that a launcher started this
 * process in. It is read here and nowhere else, when a comm is opened. */
#ifndef WEFT_EXEC_ENVIRONMENT_H
#define WEFT_EXEC_ENVIRONMENT_H
#include "weft.h"

struct environment_job {
    char url[160];
    int rank, size;
};

/* Fills in what the caller left open: first from WEFT_*, then the defaults. */
int environment_settle(weft_comm_opts *o);
/* The job this process is a rank of. WEFT_EINVAL if the launcher's variables make no sense, WEFT_EUNSUPPORTED if the job
 * spans several machines. */
int environment_job(struct environment_job *job, bool *found);
const char *environment_modules(void); /* where modules are looked for first; NULL: nowhere */
int environment_no_job(void); /* sets and returns the error of one who needs a job */
#endif
