#define _GNU_SOURCE
#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "ranks.h"
#include "suite.h"

int64_t process_below(struct random *r, int64_t n)
{
    return random_in(r, 0, n - 1);
}

int process_open(const char *url, int rank, int ranks, int64_t deadline_ns, weft_comm **out)
{
    return weft_comm_open(
        url,
        &(weft_comm_opts){.size = sizeof(weft_comm_opts), .rank = rank, .ranks = ranks, .deadline_ns = deadline_ns},
        out);
}

int process_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

int process_lines(const char *path, const char *text)
{
    char line[1024];
    int n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    fclose(f);
    return n;
}

int process_dev_shm(const char *text)
{
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, text) != NULL;
    if (d)
        closedir(d);
    return n;
}

void process_nothing_left(const char *name)
{
    assert_int_equal(process_lines("/proc/net/unix", name), 0);
    assert_int_equal(process_lines("/proc/self/maps", "memfd:weft"), 0);
    assert_int_equal(process_dev_shm(name), 0);
}

pid_t process_fork(unsigned seconds)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(seconds);
    }
    return pid;
}

const char *process_end(pid_t pid, char *text)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    text[0] = 0;
    if (WIFSIGNALED(status))
        snprintf(text, PROCESS_END, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (status)
        snprintf(text, PROCESS_END, "exit code %d", WEXITSTATUS(status));
    return text;
}

void process_gate_begin(struct process_gate *g)
{
    assert_int_equal(pipe2(g->ends, O_CLOEXEC), 0);
}

/* The gate is open when nobody can write into it. */
void process_gate_pass(struct process_gate *g)
{
    char nothing;
    close(g->ends[1]);
    while (read(g->ends[0], &nothing, 1) < 0 && errno == EINTR)
        ;
    close(g->ends[0]);
}

void process_gate_open(struct process_gate *g)
{
    close(g->ends[0]);
    close(g->ends[1]);
}

int process_do(int (*f)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(f(arg));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int pair_bind(struct pair *p, const char *src, const char *dst, bool window, weft_comm *c)
{
    weft_lower_opts o = {.size = sizeof o, .world = weft_comm_size(c)};
    weft_local a, b;
    int rank = weft_comm_rank(c);
    *p = (struct pair){.window = window, .comm = c};
    int err = weft_layout_parse(src, &p->src);
    if (!err)
        err = weft_layout_parse(dst, &p->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", p->src, p->dst}, 1, rank, &o, &p->plan);
    if (err || (err = weft_layout_local(p->src, rank, &a)) || (err = weft_layout_local(p->dst, rank, &b)))
        return err;
    if (window) {
        err = weft_comm_alloc(c, (size_t)a.bytes, WEFT_MEMORY_HOST, 0, &p->in);
        if (!err)
            err = weft_comm_alloc(c, (size_t)b.bytes, WEFT_MEMORY_HOST, 0, &p->out);
    } else {
        p->in = malloc((size_t)a.bytes + 1);
        p->out = malloc((size_t)b.bytes + 1);
        memset(p->in, 1, (size_t)a.bytes + 1); /* it is touched, so that it can be measured; with 0 it were calloc */
        memset(p->out, 1, (size_t)b.bytes + 1);
    }
    weft_view in = WEFT_VIEW(p->in, (size_t)a.bytes), out = WEFT_VIEW(p->out, (size_t)b.bytes);
    return err ? err : weft_bind(p->plan, c, &in, &out, NULL, &p->x);
}

void pair_release(struct pair *p)
{
    weft_exec_close(p->x);
    weft_plan_free(p->plan);
    weft_layout_free(p->src);
    weft_layout_free(p->dst);
    if (p->window) {
        weft_comm_free(p->comm, p->in);
        weft_comm_free(p->comm, p->out);
    } else {
        free(p->in);
        free(p->out);
    }
}
