/* When the flight recorder writes, and where to. */
#define _GNU_SOURCE
#include "comm/flight.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/environment.h"
#include "comm/lock.h"

#define AGAIN_NS INT64_C(1000000000) /* a caller that polls with short timeouts writes no more often */

static _Atomic uint32_t signals; /* number of signals that have come */
static _Atomic int opened;       /* number of comms that this process has opened */

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed); /* a count: it publishes nothing else */
}

/* A program that handles the signal itself keeps its handler. */
static void listen_to(int number)
{
    struct sigaction now, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    if (!sigaction(number, NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        sigaction(number, &ours, NULL);
}

int flight_check(void)
{
    struct environment_flight e;
    int err = environment_flight(&e);
    if (!err && *e.dir && e.signal)
        listen_to(e.signal);
    return err;
}

void flight_open(weft_comm *c, const char *scheme, const char *place)
{
    struct flight_recorder *f = &c->flight;
    struct environment_flight e;
    if (!environment_flight(&e))
        strcpy(f->dir, e.dir);
    if (snprintf(f->job, sizeof f->job, "%s:%s", scheme, place) >= (int)sizeof f->job)
        snprintf(f->job, sizeof f->job, "%s:%.80s-%016llx", scheme, place,
                 (unsigned long long)hash_bytes(0, place, strlen(place)));
    strcpy(f->name, f->job);
    f->ranks = c->size;
    f->opened = atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed);
    f->signals = atomic_load_explicit(&signals, memory_order_relaxed);
}

void flight_split(weft_comm *c, const weft_comm *of, uint64_t meeting)
{
    struct flight_recorder *f = &c->flight;
    strcpy(f->dir, of->flight.dir);
    strcpy(f->job, of->flight.job);
    uint64_t parent = hash_bytes(meeting, of->flight.name, strlen(of->flight.name));
    snprintf(f->name, sizeof f->name, "%.140s/%08x.%d", f->job, (unsigned)parent, c->link->origin[0]);
    f->ranks = of->flight.ranks;
    f->opened = atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed);
    f->signals = of->flight.signals;
}

/* ---- files ---- */

/* Returns the text in memory that the caller frees; NULL: no memory. Peers go on meanwhile, so the text may grow
 * between two tries. */
static char *compose(const weft_comm *c, const char *why, size_t *len)
{
    char *buf = NULL;
    for (size_t cap = 4096;;) {
        char *more = realloc(buf, cap);
        if (!more) {
            free(buf);
            return NULL;
        }
        buf = more;
        struct text t = text_start(buf, cap);
        flight_text(c, why, &t);
        if (t.len < cap) {
            *len = t.len;
            return buf;
        }
        cap = t.len + t.len / 8 + 1024;
    }
}

static bool write_all(const char *path, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    while (n) {
        ssize_t did = write(fd, bytes, n);
        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            break;
        bytes += did;
        n -= (size_t)did;
    }
    return !close(fd) && !n;
}

/* The process id and its count of comms tell apart files of other jobs and of comms of the same name. */
void flight_file_name(const weft_comm *c, const char *kind, const char *suffix, char *buf, size_t cap)
{
    char clean[81];
    size_t n = 0;
    for (const char *s = c->flight.name; *s && n + 1 < sizeof clean; s++)
        clean[n++] = isalnum((unsigned char)*s) || strchr("._-", *s) ? *s : '-';
    clean[n] = 0;
    snprintf(buf, cap, "weft-%s-%s-%d-%ld-%d.%s", kind, clean, c->link->origin ? c->link->origin[c->rank] : c->rank,
             (long)getpid(), c->flight.opened, suffix);
}

/* A file that cannot be written is given up: the caller gets another error already. */
static void write_file(weft_comm *c, const char *why)
{
    char name[200], path[FLIGHT_DIR + 208], fresh[FLIGHT_DIR + 208];
    size_t len;
    char *text = *c->flight.dir ? compose(c, why, &len) : NULL;
    if (!text)
        return;
    flight_file_name(c, "flight", "json", name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", c->flight.dir, name);
    snprintf(fresh, sizeof fresh, "%s/.%s", c->flight.dir, name);
    unlink(fresh);
    if (!write_all(fresh, text, len) || rename(fresh, path))
        unlink(fresh);
    free(text);
}

/* A sibling may hold up what one comm waits for, so all siblings write. */
static void write_siblings(weft_comm *c, const char *why)
{
    weft_comm *k = c;
    do
        write_file(k, why);
    while ((k = k->sibling) != c);
}

/* ---- reasons ---- */

void flight_log(const weft_comm *c, enum weft_log_level level, enum event event, const char *text)
{
    if (log_wants(level))
        log_write(level, event_name(event), c->flight.name, flight_text_rank(c, c->rank), "%s", text);
}

static bool may_look(const weft_comm *c)
{
    return !c->has_lock || lock_held(c->family);
}

void flight_late(weft_comm *c)
{
    struct flight_recorder *f = &c->flight;
    if (!may_look(c))
        return;
    flight_record(f, EVENT_TIMEOUT, 0, WEFT_ETIMEOUT, 0, 0);
    c->metrics.timeouts++;
    snprintf(f->late, sizeof f->late, "%s", weft_errmsg());
    flight_log(c, WEFT_LOG_WARNING, EVENT_TIMEOUT, f->late);
    int64_t now = core_now();
    if (!*f->dir || (f->wrote_at && now - f->wrote_at < AGAIN_NS))
        return;
    f->wrote_at = now;
    write_siblings(c, "timeout");
}

void flight_failed(weft_comm *c)
{
    struct flight_recorder *f = &c->flight;
    const char *text;
    if (!may_look(c) || f->failed) /* only a thread that may look at the comm touches it */
        return;
    f->failed = true;
    flight_record(f, EVENT_FAILED, 0, core_failure(c->group, &text), 0, 0);
    flight_log(c, WEFT_LOG_ERROR, EVENT_FAILED, text);
    write_file(c, "failure");
    trace_write(c);
    metrics_write(c);
}

void flight_look(weft_comm *c)
{
    uint32_t come = atomic_load_explicit(&signals, memory_order_relaxed);
    if (come == c->flight.signals)
        return;
    c->flight.signals = come;
    write_file(c, "signal");
}

int weft_comm_dump(weft_comm *c, char *buf, size_t cap, size_t *len)
{
    if (!c || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_comm_dump: arguments must not be NULL");
    struct comm_family *f = comm_enter(c);
    struct text t = text_start(buf, cap);
    flight_text(c, "call", &t);
    comm_leave(f);
    *len = t.len;
    return 0;
}
