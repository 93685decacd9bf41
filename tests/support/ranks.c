#define _GNU_SOURCE
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launched.h"
#include "processes.h"
#include "suite.h"
#include "values.h"

const char *ranks_on = "threads";

bool ranks_forked; /* they are processes, not threads of this one; launched ones are, too */

const char *ranks_hosts; /* of processes: a letter a rank, the host that it believes to be on; NULL: this one */

const char *ranks_said(void)
{
    static _Thread_local char text[1000];
    const char host[] = " on host ";
    size_t n = 0;
    for (const char *at = weft_errmsg(); *at && n + 1 < sizeof text;) {
        if (!strncmp(at, host, strlen(host)))
            at += strlen(host) + strcspn(at + strlen(host), " ,;:");
        else
            text[n++] = *at++;
    }
    text[n] = 0;
    return text;
}

bool ranks_wide(void)
{
    return strcmp(ranks_on, "threads") && strcmp(ranks_on, "shm");
}

void *ranks_shared(size_t bytes)
{
    if (launched.size)
        return launched_shared(bytes);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void ranks_url(char *url, size_t cap, int n, int job, weft_comm_opts *opts)
{
    if (!strcmp(ranks_on, "threads")) {
        snprintf(url, cap, "threads:%d/test-%d", n, job);
        return;
    }
    opts->ranks = n;
    if (launched.size)
        snprintf(url, cap, "%s:", ranks_on);
    else
        snprintf(url, cap, "%s:test-%ld-%d", ranks_on, (long)getpid(), job);
}

void ranks_note(struct ranks_rank *r, const char *file, int line, const char *fmt, ...)
{
    if (r->failed[0])
        return;
    int n = snprintf(r->failed, sizeof r->failed, "%s:%d: rank %d: ", file, line, r->rank);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(r->failed + n, sizeof r->failed - (size_t)n, fmt, ap);
    va_end(ap);
    if (values_wrong() && (size_t)n < sizeof r->failed)
        snprintf(r->failed + n, sizeof r->failed - (size_t)n, "; %s", values_text());
}

void ranks_meet(struct ranks_rank *r)
{
    struct ranks_meeting *m = r->meet;
    pthread_mutex_lock(&m->lock);
    int generation = m->generation;
    if (++m->here == m->size) {
        m->here = 0;
        m->generation++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->generation == generation && !m->broken)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void ranks_break(struct ranks_rank *r)
{
    pthread_mutex_lock(&r->meet->lock);
    r->meet->broken = true;
    pthread_cond_broadcast(&r->meet->changed);
    pthread_mutex_unlock(&r->meet->lock);
}

static void *ranks_main(void *arg)
{
    struct ranks_rank *r = arg;
    int err = weft_comm_open(r->url, &r->opts, &r->comm);
    if (err) {
        ranks_note(r, __FILE__, __LINE__, "open: %s", weft_errmsg());
        ranks_break(r);
        return NULL;
    }
    r->body(r);
    if (r->failed[0])
        ranks_break(r);
    if (!r->keep)
        weft_comm_close(r->comm);
    return NULL;
}

static void ranks_meeting_init(struct ranks_meeting *m, int n)
{
    pthread_mutexattr_t lock;
    pthread_condattr_t changed;
    pthread_mutexattr_init(&lock);
    pthread_condattr_init(&changed);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setpshared(&changed, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&m->lock, &lock);
    pthread_cond_init(&m->changed, &changed);
    pthread_mutexattr_destroy(&lock);
    pthread_condattr_destroy(&changed);
    m->size = n;
}

/* A process that ends otherwise than by the end of its rank has failed, but for the one that is meant to (-1: none). */
static void ranks_fork(struct ranks_rank *r, int n, int dies)
{
    pid_t pids[RANKS_MAX];
    struct process_gate gate;
    process_gate_begin(&gate);
    for (int i = 0; i < n; i++) {
        fflush(NULL);
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            process_gate_pass(&gate);
            if (ranks_hosts)
                setenv("WEFT_HOST", (char[]){ranks_hosts[i], 0}, 1);
            ranks_main(&r[i]);
            _exit(0);
        }
    }
    process_gate_open(&gate);
    for (int left = n; left > 0; left--) {
        int status, i = 0;
        pid_t pid = wait(&status);
        assert_true(pid > 0);
        while (i < n - 1 && pids[i] != pid)
            i++;
        if (status && i != dies) {
            ranks_note(&r[i], __FILE__, __LINE__, "its process ended with status %#x", (unsigned)status);
            ranks_break(&r[i]);
        }
    }
}

/* This process as one of the ranks; all of them have seen what it left when this returns. */
static void ranks_join(struct ranks_rank *r, int n)
{
    assert_true(n <= launched.size);
    launched_meet(); /* all is made ready */
    if (launched.rank < n) {
        r[launched.rank].opts.communicator = launched.ops->group(n);
        ranks_main(&r[launched.rank]);
    }
    launched_meet();
}

static void ranks_run_all(int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *), void *arg,
                          struct ranks_rank *out, int dies)
{
    static atomic_int job;
    struct {
        struct ranks_meeting meet;
        struct ranks_rank r[];
    } *all = ranks_shared(sizeof *all + (size_t)n * sizeof all->r[0]);
    struct ranks_rank *r = all->r;
    pthread_t threads[RANKS_MAX];
    char url[64];
    weft_comm_opts where = {.ranks = 0};
    if (launched.rank == 0)
        ranks_meeting_init(&all->meet, n);
    ranks_url(url, sizeof url, n, atomic_fetch_add(&job, 1), &where);
    for (int i = 0; i < n; i++) {
        if (launched.size && i != launched.rank)
            continue;
        r[i] = (struct ranks_rank){.rank = i, .size = n, .arg = arg, .meet = &all->meet, .body = body, .url = url};
        if (opts)
            r[i].opts = *opts;
        r[i].opts.size = sizeof r[i].opts;
        r[i].opts.rank = i;
        r[i].opts.ranks = where.ranks;
        if (!ranks_forked)
            assert_int_equal(pthread_create(&threads[i], NULL, ranks_main, &r[i]), 0);
    }
    if (launched.size)
        ranks_join(r, n);
    else if (ranks_forked)
        ranks_fork(r, n, dies);
    for (int i = 0; i < n && !ranks_forked; i++)
        pthread_join(threads[i], NULL);
    int failed = 0;
    for (int i = 0; i < n; i++)
        if (r[i].failed[0] && ++failed)
            print_error("%s\n", r[i].failed);
    if (out)
        memcpy(out, r, (size_t)n * sizeof *r);
    munmap(all, sizeof *all + (size_t)n * sizeof all->r[0]);
    if (failed)
        fail_msg("%d of %d ranks failed", failed, n);
}

void ranks_assert_text(const struct ranks_rank *r, const char *part)
{
    if (!strstr(r->text, part))
        fail_msg("rank %d: no \"%s\" in \"%s\"", r->rank, part, r->text);
}

void ranks_run(int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *), void *arg, struct ranks_rank *out)
{
    ranks_run_all(n, opts, body, arg, out, -1);
}

void ranks_run_but(int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *), void *arg, int dies)
{
    ranks_run_all(n, opts, body, arg, NULL, dies);
}

int ranks_on_two_cores(void **state)
{
    (void)state;
    cpu_set_t may, few;
    CPU_ZERO(&few);
    if (sched_getaffinity(0, sizeof may, &may))
        return -1;
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&few) < 2; i++)
        if (CPU_ISSET(i, &may))
            CPU_SET(i, &few);
    return sched_setaffinity(0, sizeof few, &few);
}
