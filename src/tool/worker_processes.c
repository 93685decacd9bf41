/* Processes that wait for work; see worker_processes.h. Each process gets its orders and answers them through a
 * socket. */
#define _GNU_SOURCE
#include "tool/worker_processes.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool/signals.h"
#include "weft.h"

#define LOOK_MS 50 /* how often signals are looked for while work is done */

struct order {
    worker_work *work;
    void *arg;
};
struct answer {
    int err;
    char text[1024];
};
struct member {
    pid_t pid; /* 0: has ended */
    int socket;
    struct answer answer;
};
struct worker_processes {
    int ranks;
    struct member member[];
};

void *worker_processes_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void worker_processes_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

static ssize_t receive(int fd, void *data, size_t n)
{
    ssize_t got;
    do
        got = recv(fd, data, n, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

static void serve(struct worker_processes *c, int rank, pid_t parent)
{
    struct order o;
    struct answer a;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (int r = 0; r < rank; r++)
        close(c->member[r].socket);
    int fd = c->member[rank].socket;
    while (receive(fd, &o, sizeof o) == (ssize_t)sizeof o) {
        memset(&a, 0, sizeof a);
        a.err = o.work(o.arg, rank);
        if (a.err)
            snprintf(a.text, sizeof a.text, "%s", weft_errmsg());
        if (send(fd, &a, sizeof a, MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

static int start(struct worker_processes *c, int rank)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -1;
    pid_t parent = getpid(), pid = fork();
    c->member[rank] = (struct member){.pid = pid > 0 ? pid : 0, .socket = pid ? pair[0] : pair[1]};
    if (pid == 0) {
        close(pair[0]);
        serve(c, rank, parent);
    }
    close(pair[1]);
    if (pid < 0)
        close(pair[0]);
    return pid < 0 ? -1 : 0;
}

int worker_processes_open(int ranks, struct worker_processes **out, struct failure *why)
{
    struct worker_processes *c = calloc(1, sizeof *c + (size_t)ranks * sizeof c->member[0]);
    if (!c)
        return failure_set(why, CLI_WRONG, "no memory for %d processes", ranks);
    fflush(stdout);
    for (; c->ranks < ranks; c->ranks++) {
        if (start(c, c->ranks)) {
            failure_set(why, CLI_WRONG, "process %d of %d could not be started: %s", c->ranks, ranks, strerror(errno));
            worker_processes_close(c);
            return CLI_WRONG;
        }
    }
    *out = c;
    return CLI_OK;
}

static void note_end(struct member *m)
{
    int status = 0;
    waitpid(m->pid, &status, 0);
    m->pid = 0;
    m->answer.err = WEFT_EPEER;
    if (WIFSIGNALED(status))
        snprintf(m->answer.text, sizeof m->answer.text, "its process was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(m->answer.text, sizeof m->answer.text, "its process ended with code %d", WEXITSTATUS(status));
}

/* False: its process has ended. A signal ends all that have not answered. */
static bool await_answer(struct worker_processes *c, struct member *m)
{
    struct pollfd p = {.fd = m->socket, .events = POLLIN};
    while (poll(&p, 1, LOOK_MS) <= 0)
        for (int r = 0; r < c->ranks && signals_caught(); r++)
            if (c->member[r].pid)
                kill(c->member[r].pid, SIGKILL);
    return receive(m->socket, &m->answer, sizeof m->answer) == (ssize_t)sizeof m->answer;
}

int worker_processes_do(struct worker_processes *c, worker_work *work, void *arg, struct failure *why)
{
    struct order o = {.work = work, .arg = arg};
    for (int r = 0; r < c->ranks; r++)
        if (c->member[r].pid)
            send(c->member[r].socket, &o, sizeof o, MSG_NOSIGNAL);
    for (int r = 0; r < c->ranks; r++) {
        struct member *m = &c->member[r];
        if (m->pid && !await_answer(c, m))
            note_end(m);
    }
    if (signals_caught()) {
        failure_set(why, CLI_WRONG, "interrupted");
        return WEFT_EPEER;
    }
    int first = -1;
    for (int r = 0; r < c->ranks; r++) /* a rank that has ended is the cause of the errors of the others */
        if (c->member[r].answer.err && (first < 0 || (c->member[first].pid && !c->member[r].pid)))
            first = r;
    if (first < 0)
        return 0;
    const struct member *m = &c->member[first];
    const char *text = m->answer.text[0] ? m->answer.text : weft_strerror(m->answer.err);
    if (strstr(text, "rank "))
        failure_set(why, CLI_WRONG, "%s", text);
    else
        failure_set(why, CLI_WRONG, "rank %d: %s", first, text);
    return m->answer.err;
}

void worker_processes_close(struct worker_processes *c)
{
    if (!c)
        return;
    for (int r = 0; r < c->ranks; r++) {
        shutdown(c->member[r].socket, SHUT_RDWR); /* processes that were started later have copies of it */
        close(c->member[r].socket);
    }
    for (int r = 0; r < c->ranks; r++)
        if (c->member[r].pid)
            waitpid(c->member[r].pid, NULL, 0);
    free(c);
}
