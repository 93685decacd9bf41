/* Preloaded by wire_late.sh before an MPI library: a send of a message that is set up once is over no earlier
 * than LATE_NS after its start. MPI may do so, too: it does not say in which order a rank learns that its send is over
 * and receives what the peer sent after it had received the message. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdbool.h>
#include <time.h>

#define LATE_NS 20000000
#define SENDS 4096 /* a send that finds no room here is not late */

static struct send {
    MPI_Request request;
    long long start;
    bool over; /* MPI has said so, and the caller was not told yet */
    MPI_Status status;
} sends[SENDS];
static int n;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct send *find(MPI_Request request)
{
    for (int i = 0; i < n; i++)
        if (sends[i].request == request)
            return &sends[i];
    return NULL;
}

static int note(int code, const MPI_Request *request)
{
    struct send *s = find(MPI_REQUEST_NULL); /* of a send that was freed */
    if (!s && n < SENDS)
        s = &sends[n++];
    if (!code && s)
        *s = (struct send){.request = *request};
    return code;
}

int MPI_Send_init(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *out)
{
    return note(PMPI_Send_init(memory, count, type, to, tag, comm, out), out);
}

int MPI_Ssend_init(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *out)
{
    return note(PMPI_Ssend_init(memory, count, type, to, tag, comm, out), out);
}

int MPI_Request_free(MPI_Request *request)
{
    struct send *s = find(*request);
    if (s)
        s->request = MPI_REQUEST_NULL;
    return PMPI_Request_free(request);
}

int MPI_Start(MPI_Request *request)
{
    struct send *s = find(*request);
    if (s)
        s->start = now();
    return PMPI_Start(request);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    struct send *s = *request == MPI_REQUEST_NULL ? NULL : find(*request);
    if (!s)
        return PMPI_Test(request, done, status);
    int over = 0, code = s->over ? MPI_SUCCESS : PMPI_Test(request, &over, &s->status);
    s->over |= over;
    *done = s->over && now() >= s->start + LATE_NS;
    if (*done) {
        s->over = false;
        if (status != MPI_STATUS_IGNORE)
            *status = s->status;
    }
    return code;
}
