/* Opening and closing comms, and their failures. */
#include "comm/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/forks.h"
#include "comm/environment.h"
#include "comm/mail.h"
#include "comm/open.h"
#include "comm/progress.h"
#include "transport/hosts/hosts.h"
#include "window/remote.h"

#define SPIN_TURNS 2000
#define BEAT_NS \
    INT64_C(20000000) /* a death is seen so soon by who sleeps; a rank that is idle wakes fifty times a second */

/* Where the caller's options and URL leave something open, the launcher's environment says it: the URL, or the name
 * behind its scheme, and rank and size. */
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
        return error_set(WEFT_EUNSUPPORTED, "%s: the job spans several machines, %s: one; auto: joins them", job->url,
                         (*t)->scheme);
    return 0;
}

void comm_begin(weft_comm *c, struct transport_link *l, const weft_comm_opts *o, bool dedicated_cores,
                struct comm_family *f)
{
    c->transport = l->transport;
    c->link = l;
    c->group = l->group;
    c->rank = l->rank;
    c->size = l->size;
    c->opts = *o;
    c->deadline_ns = o->deadline_ns;
    c->beat_ns = o->deadline_ns / 8 < BEAT_NS ? o->deadline_ns / 8 + 1 : BEAT_NS;
    c->staged = o->staged || !l->transport->can.loads;
    c->channel_buckets = o->channel_buckets;
    c->dedicated_cores = dedicated_cores;
    c->spin_turns = dedicated_cores ? SPIN_TURNS : 0;
    c->stretch = 1;
    c->kin = c;
    c->family = f;
    c->threaded = f->seat != NULL;
    if (!f->comms++) {
        f->any = c;
        progress_settle(f);
    }
    staging_init(&c->staging, o->inflight_bytes, o->inflight_buckets);
}

static void comm_free(weft_comm *c);

/* Joins the group; b is the comm's on success, else freed. */
static int open_comm(struct boot *b, const weft_comm_opts *o, weft_comm **out)
{
    weft_comm *c = calloc(1, sizeof *c);
    struct comm_family *f = NULL;
    struct transport_link *link;
    int err = c ? progress_open(o->progress == WEFT_PROGRESS_THREAD, b->transport->can.wide, &f) : error_nomem();
    bool seated = !err && f->seat;
    if (!err)
        err = boot_join(b, &link);
    if (err) {
        if (f)
            progress_close(f);
        if (seated)
            progress_leave(f);
        free(c);
        boot_free(b, 0);
        return err;
    }
    if (!link->hosts)
        progress_unseat(f);
    seated = f->seat;
    const struct transport_link *home = link->hosts ? link->hosts->home : link;
    int crowd = link->hosts ? link->hosts->crowd : link->size, cores = core_cores(home->group);
    if (link->hosts && link->hosts->cores > cores)
        cores = link->hosts->cores;
    comm_begin(c, link, o, crowd <= cores, f);
    flight_open(c, b->transport->scheme, b->place);
    struct mail *mail = link->hosts ? mail_new() : NULL;
    if (mail)
        mail_open(c, mail);
    else if (link->hosts)
        err = error_nomem();
    c->boot = b;
    if (err)
        comm_free(c);
    if (seated)
        progress_leave(f);
    if (!err)
        *out = c;
    return err;
}

int weft_comm_open(const char *url, const weft_comm_opts *opts, weft_comm **out)
{
    weft_comm_opts o = {.size = sizeof o};
    struct environment_job job;
    if (!out)
        return error_set(WEFT_EINVAL, "weft_comm_open: out must not be NULL");
    if (opts && opts->size < sizeof opts->size)
        return error_set(WEFT_EINVAL, "weft_comm_open: opts.size is not set");
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (o.ranks < 0)
        return error_set(WEFT_EINVAL, "ranks is %d: it must not be negative", o.ranks);
    const char *place = NULL;
    const struct transport *t = NULL;
    int err = environment_settle(&o);
    if (!err)
        err = flight_check();
    if (!err)
        err = find_group(url, &o, &job, &t, &place);
    if (err)
        return err;
    struct boot *b;
    err = boot_new(t, place, &o, &b);
    if (err)
        return err;
    return open_comm(b, &o, out);
}

int weft_comm_reopen(weft_comm *c, const int *ranks, int n, weft_comm **out)
{
    if (!c || !ranks || !out)
        return error_set(WEFT_EINVAL, "weft_comm_reopen: arguments must not be NULL");
    if (progress_called_back(c))
        return error_set(WEFT_EBUSY, "weft_comm_reopen: not inside a callback");
    if (!c->boot)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_reopen: the comm was split from another: open that again");
    if (c->boot->transport->can.wide && !c->boot->meet)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_reopen: %s: was opened by MPI, which does not outlive its ranks",
                         c->boot->transport->scheme);
    int rank = -1;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->size || (i && ranks[i] <= ranks[i - 1]))
            return error_set(WEFT_EINVAL, "weft_comm_reopen: ranks must ascend, from 0 to %d", c->size - 1);
        if (ranks[i] == c->rank)
            rank = i;
    }
    if (rank < 0)
        return error_set(WEFT_EINVAL, "weft_comm_reopen: rank %d itself is not in the list", c->rank);
    struct boot *b;
    weft_comm_opts o = c->opts;
    o.rank = rank;
    o.ranks = n;
    int err = boot_again(c->boot, ranks, n, rank, &b);
    if (err)
        return err;
    return open_comm(b, &o, out);
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
    *out = (weft_machine){.size = sizeof *out};
    const struct transport_hosts *hosts = c->link->hosts;
    if (!hosts || hosts->nhosts == 1)
        return 0;
    int each = (c->size + hosts->nhosts - 1) / hosts->nhosts;
    bool regular = true;
    for (int r = 0; r < c->size; r++)
        regular &= hosts->host[r] == r / each;
    if (regular) {
        out->ranks_per_host = each;
    } else {
        out->ranks = c->size;
        out->host = hosts->host;
    }
    return 0;
}

/* ---- the end ---- */

static void sweep(weft_comm *c)
{
    for (struct comm_grave **at = &c->graves; *at;) {
        struct comm_grave *g = *at;
        /* Acquire: pairs with the release of the last holder; it looks at the memory no more. */
        if (atomic_load_explicit(g->holders, memory_order_acquire)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        c->transport->release(c->link, g->memory);
        free(g);
    }
}

void comm_bury(weft_comm *c, struct comm_grave *grave, const _Atomic uint32_t *holders, void *memory)
{
    *grave = (struct comm_grave){.next = c->graves, .holders = holders, .memory = memory};
    c->graves = grave;
    sweep(c);
}

static void kin_leave(weft_comm *c)
{
    const char *text;
    bool tainted = c->tainted || core_failure(c->group, &text);
    weft_comm *k = c;
    for (; k->kin != c; k = k->kin)
        k->kin->tainted |= tainted;
    k->kin = c->kin;
    if (c->family->any == c)
        c->family->any = k;
}

static void comm_free(weft_comm *c)
{
    remote_close(c);
    mail_close(c);
    kin_leave(c);
    if (--c->family->comms == 0) /* before its bell goes */
        progress_close(c->family);
    sweep(c);
    while (c->graves) { /* the group keeps the memory for those who still look at it */
        struct comm_grave *g = c->graves;
        c->graves = g->next;
        free(g);
    }
    staging_close(&c->staging);
    comm_windows_free(c);
    bool failed = core_failed(c->group); /* then some will never close theirs, and nobody waits for them */
    c->transport->leave(c->link);
    free(c->verdict);
    boot_free(c->boot, failed ? 0 : c->deadline_ns);
    free(c);
}

void comm_exec_gone(weft_comm *c)
{
    if (--c->execs == 0 && c->closed)
        comm_free(c);
}

bool comm_inherited(const weft_comm *c)
{
    return c->family->forks != forks_count();
}

void weft_comm_close(weft_comm *c)
{
    if (!c || comm_inherited(c))
        return;
    struct comm_family *f = comm_enter(c);
    c->closed = true;
    if (c->execs == 0)
        comm_free(c);
    comm_leave(f);
}

/* ---- failures ---- */

int comm_told(weft_comm *c)
{
    const char *text;
    int code = core_failure(c->group, &text);
    if (code)
        flight_failed(c);
    return code ? error_set(code, "%s", text) : 0;
}

bool comm_tainted(const weft_comm *c)
{
    const char *text;
    bool tainted = c->tainted;
    const weft_comm *k = c;
    do
        tainted |= core_failure(k->group, &text) != 0;
    while ((k = k->kin) != c);
    return tainted;
}

int comm_fail(weft_comm *c, int code, const char *fmt, ...)
{
    char text[CORE_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!core_failed(c->group))
        mail_failure(c, code, text);
    core_fail(c->group, c->rank, code, text);
    return comm_failure(c);
}

const char *comm_who(const weft_comm *c, int rank, char *buf)
{
    struct text t = text_start(buf, COMM_WHO);
    const char *host = hosts_name(c->link, rank);
    text_printf(&t, "rank %d", rank);
    if (c->link->origin)
        text_printf(&t, " (opened as rank %d)", c->link->origin[rank]);
    if (host)
        text_printf(&t, " on host %s", host);
    return buf;
}

const char *comm_ended(const weft_comm *c, int rank)
{
    return transport_far(c->link, rank) ? "has died or cannot be reached" : "has died";
}

#define PREFIX 6 /* room for "ranks " */

void comm_name(struct comm_names *names, const weft_comm *c, int rank, const char *note)
{
    enum { ONE = 24 + HOSTS_NAME + 40, MORE = 24 };
    char *end = names->text + PREFIX + names->len;
    const char *host = hosts_name(c->link, rank);
    if (PREFIX + names->len + ONE + MORE > sizeof names->text) {
        names->left++;
        return;
    }
    names->len += (size_t)snprintf(end, ONE, "%s%d%s%s%s", names->n++ ? ", " : "", rank, host ? " on host " : "",
                                   host ? host : "", note);
}

const char *comm_named(struct comm_names *names)
{
    if (names->left)
        snprintf(names->text + PREFIX + names->len, 24, " and %d more", names->left);
    memcpy(names->text, names->n > 1 ? "ranks " : " rank ", PREFIX);
    return names->text + (names->n > 1 ? 0 : 1);
}
