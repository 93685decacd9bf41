/* Opening and closing comms. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "base/sized.h"
#include "comm/again.h"
#include "comm/environment.h"
#include "comm/family.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "comm/open.h"
#include "comm/survive.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"

#define SPIN_TURNS 2000
#define BEAT_NS INT64_C(20000000) /* a rank that sleeps wakes 50 times a second, */
#define CROWD 64                  /* and less often if there are more ranks than this on its machine */

/* Takes from the launcher's environment what the caller's options and URL leave open: the URL, or the name behind its
 * scheme, and rank and size. */
static int find_group(const char *url, weft_comm_opts *o, struct environment_job *job, const struct transport **t,
                      const char **place)
{
    bool have_job = false;
    if (url && !(*t = transport_find(url, place)))
        return WEFT_EINVAL;
    if (url && ((*t)->can.sized || (o->ranks && **place)))
        return 0;
    int err = environment_job(job, &have_job);
    if (err || (!url && !have_job))
        return err ? err : environment_no_job();
    if (!have_job)
        return 0;
    if (!url && !(*t = transport_find(job->url, place)))
        return WEFT_EINVAL;
    const char *name = strchr(job->url, ':');
    if (!**place && name && !(*t)->can.sized)
        *place = name + 1;
    if (o->ranks)
        return 0;
    o->rank = job->rank;
    o->ranks = job->size;
    if (job->spans && !(*t)->can.wide)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: the job spans several machines, but %s: is for one: use auto:", job->url, (*t)->scheme);
    return 0;
}

/* If many ranks share a machine, each wakes less often, so that those that wait take little time from those that work.
 * A rank that waits is woken for all that it waits for, and one of many still finds out soon that another has died. */
static int64_t beat(const struct transport_link *l, int64_t deadline_ns)
{
    int64_t ns = BEAT_NS * (1 + (l->hosts ? l->hosts->crowd : l->size) / CROWD);
    return deadline_ns / 8 < ns ? deadline_ns / 8 + 1 : ns;
}

void comm_begin(weft_comm *c, struct transport_link *l, const weft_comm_opts *o, bool dedicated_cores,
                struct comm_family *f)
{
    c->transport = l->transport;
    c->profiled = nvtx_open();
    c->link = l;
    c->group = l->group;
    c->rank = l->rank;
    c->me = &l->group->ranks[l->rank];
    c->size = l->size;
    c->opts = *o;
    c->deadline_ns = o->deadline_ns;
    c->beat_ns = beat(l, o->deadline_ns);
    c->staged = o->staged || !l->transport->can.loads;
    c->channel_buckets = o->channel_buckets;
    c->dedicated_cores = dedicated_cores;
    c->spin_turns = dedicated_cores ? SPIN_TURNS : 0;
    c->stretch = 1;
    c->sibling = c;
    c->family = f;
    c->has_lock = f->lock != NULL;
    if (!f->comms++) {
        f->any = c;
        family_settle(f);
    }
    staging_init(&c->staging, o->inflight_bytes, o->inflight_buckets);
}

void comm_begin_mail(weft_comm *c, struct mail *mail)
{
    mail_open(c, mail);
    survive_open(c);
}

static void comm_free(weft_comm *c);

/* Joins the group. On success the comm owns b; otherwise b is freed. */
static int open_comm(struct opening *b, const weft_comm_opts *o, weft_comm **out)
{
    weft_comm *c = calloc(1, sizeof *c);
    struct comm_family *f = NULL;
    struct transport_link *link;
    int err = c ? family_open(o->progress == WEFT_PROGRESS_THREAD, b->transport->can.wide, &f) : error_nomem();
    bool locked = !err && f->lock;
    if (!err)
        err = open_join(b, &link);
    if (err) {
        if (f)
            family_close(f);
        if (locked)
            lock_leave(f);
        free(c);
        open_free(b, 0);
        return err;
    }
    if (!link->hosts)
        family_unlock(f);
    locked = f->lock;
    const struct transport_link *home = link->hosts ? link->hosts->home : link;
    int crowd = link->hosts ? link->hosts->crowd : link->size, cores = core_cores(home->group);
    if (link->hosts && link->hosts->cores > cores)
        cores = link->hosts->cores;
    comm_begin(c, link, o, crowd <= cores, f);
    flight_open(c, b->transport->scheme, b->place);
    struct mail *mail = link->hosts ? mail_new() : NULL;
    if (mail)
        comm_begin_mail(c, mail);
    else if (link->hosts)
        err = error_nomem();
    if (!err)
        err = trace_open(c);
    if (!err)
        err = metrics_open(c);
    c->opening = b;
    if (err)
        comm_free(c);
    if (!err)
        flight_log(c, WEFT_LOG_INFO, EVENT_OPENED, "the comm is open");
    if (locked)
        lock_leave(f);
    if (!err)
        *out = c;
    return err;
}

int weft_comm_open(const char *url, const weft_comm_opts *opts, weft_comm **out)
{
    weft_comm_opts o;
    struct environment_job job;
    if (!out)
        return error_set(WEFT_EINVAL, "weft_comm_open: out must not be NULL");
    int err = sized_read("weft_comm_open", "weft_comm_opts", &o, sizeof o, opts);
    if (err)
        return err;
    if (o.ranks < 0)
        return error_set(WEFT_EINVAL, "ranks is %d: it must not be negative", o.ranks);
    const char *place = NULL;
    const struct transport *t = NULL;
    err = environment_settle(&o);
    if (!err)
        err = flight_check();
    if (!err)
        err = trace_check();
    if (!err)
        err = find_group(url, &o, &job, &t, &place);
    if (err)
        return err;
    struct opening *b;
    err = open_new(t, place, &o, &b);
    if (err)
        return err;
    return open_comm(b, &o, out);
}

int weft_comm_reopen(weft_comm *c, const int *ranks, size_t nranks, weft_comm **out)
{
    if (!c || !ranks || !out)
        return error_set(WEFT_EINVAL, "weft_comm_reopen: arguments must not be NULL");
    if (lock_in_callback(c))
        return error_set(WEFT_EBUSY, "weft_comm_reopen: not inside a callback");
    if (!c->opening)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_reopen: the comm was split from another: open that again");
    if (c->opening->transport->can.wide && !c->opening->meet)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_reopen: %s: was opened by MPI, which does not outlive its ranks",
                         c->opening->transport->scheme);
    if (nranks > (size_t)c->size)
        return error_set(WEFT_EINVAL, "weft_comm_reopen: %zu ranks, the comm has %d", nranks, c->size);
    int rank = -1, n = (int)nranks;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->size || (i && ranks[i] <= ranks[i - 1]))
            return error_set(WEFT_EINVAL, "weft_comm_reopen: ranks must ascend, from 0 to %d", c->size - 1);
        if (ranks[i] == c->rank)
            rank = i;
    }
    if (rank < 0)
        return error_set(WEFT_EINVAL, "weft_comm_reopen: rank %d itself is not in the list", c->rank);
    struct opening *b;
    weft_comm_opts o = c->opts;
    o.rank = rank;
    o.ranks = n;
    struct again a;
    again_begin(&a, c, ranks, n);
    int err = open_again(c->opening, ranks, n, rank, &(struct store_watch){again_vain, again_died, &a}, &b);
    if (!err)
        err = open_comm(b, &o, out);
    if (err) {
        again_give_up(&a, err);
        return err;
    }
    open_end((*out)->opening);
    survive_went_on(c);
    return 0;
}

int comm_timeout_named(const weft_comm *c, const char *call, int64_t *timeout_ns)
{
    if (*timeout_ns != WEFT_DEADLINE)
        return error_set(WEFT_EINVAL,
                         "%s: a timeout of %lld ns: it must be 0 or more, WEFT_FOREVER (%d) or WEFT_DEADLINE (%d)",
                         call, (long long)*timeout_ns, WEFT_FOREVER, WEFT_DEADLINE);
    *timeout_ns = c->deadline_ns;
    return 0;
}

int weft_comm_rank(const weft_comm *c)
{
    return c->rank;
}

int weft_comm_size(const weft_comm *c)
{
    return c->size;
}

int weft_comm_machine(const weft_comm *c, weft_machine *out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_comm_machine: arguments must not be NULL");
    int err = sized_check("weft_comm_machine", "weft_machine", out);
    if (err)
        return err;
    weft_machine m = WEFT_MACHINE_INIT;
    const struct transport_hosts *hosts = c->link->hosts;
    if (hosts && hosts->nhosts > 1) {
        int each = (c->size + hosts->nhosts - 1) / hosts->nhosts;
        bool regular = true;
        for (int r = 0; r < c->size; r++)
            regular &= hosts->host[r] == r / each;
        m.ranks_per_host = regular ? each : 0;
        m.ranks = regular ? 0 : c->size;
        m.host = regular ? NULL : hosts->host;
    }
    sized_write(out, &m, sizeof m);
    return 0;
}

/* ---- the end ---- */

static void leave_siblings(weft_comm *c)
{
    const char *text;
    bool tainted = c->tainted || core_failure(c->group, &text);
    weft_comm *k = c;
    for (; k->sibling != c; k = k->sibling)
        k->sibling->tainted |= tainted;
    k->sibling = c->sibling;
    if (c->family->any == c)
        c->family->any = k;
}

static void comm_free(weft_comm *c)
{
    if (c->closed) /* otherwise it was never open */
        flight_log(c, WEFT_LOG_INFO, EVENT_CLOSED, "the comm is closed");
    trace_close(c);
    metrics_close(c);
    survive_close(c);
    comm_task_close_all(c);
    leave_siblings(c);
    if (--c->family->comms == 0) /* before its bell is freed */
        family_close(c->family);
    comm_deferred_close(c);
    staging_close(&c->staging);
    comm_alloc_free_windows(c);
    bool failed = core_failed(c->group); /* then some ranks will never close theirs, and no rank waits for them */
    c->transport->leave(c->link);
    open_free(c->opening, failed ? 0 : c->deadline_ns);
    free(c);
}

void comm_drop(weft_comm *c)
{
    if (--c->refcount == 0 && c->closed)
        comm_free(c);
}

void weft_comm_close(weft_comm *c)
{
    if (!c || comm_inherited(c))
        return;
    struct error_text kept;
    error_keep(&kept);
    if (c->kept)
        c->forget(c);
    struct comm_family *f = comm_enter(c);
    c->closed = true;
    if (c->refcount == 0)
        comm_free(c);
    comm_leave(f);
    error_restore(&kept);
}
