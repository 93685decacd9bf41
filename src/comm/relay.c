#include "comm/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/ballot.h"
#include "comm/mail.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"

enum {
    BALLOT = MAIL_KIND(MAIL_RELAY, 1),
    RESULT = MAIL_KIND(MAIL_RELAY, 2),
    LACKS = MAIL_KIND(MAIL_RELAY, 3),
    CALL = MAIL_KIND(MAIL_RELAY, 4) /* says nothing: it makes a connection */
};
#define PATIENCE 4 /* after 1/4 of the deadline ranks tell each other which ranks they wait for */

#define CALL_NS INT64_C(500000000) /* after that a rank connects with those whose ballots it waits for */

struct lacks {
    int32_t n; /* at most CORE_LACKS: of more ranks the lowest numbers are told */
    int32_t ranks[CORE_LACKS];
};

struct relay_mail {
    uint32_t kind;
    uint64_t meeting;
    union { /* of these the packet has as much as is used */
        struct ballot ballot;
        struct core_result result;
        struct lacks lacks;
    };
};
#define HEAD offsetof(struct relay_mail, ballot)
_Static_assert(sizeof(struct relay_mail) <= WIRE_MAIL, "a packet fits");

/* What the host below has said. */
struct below {
    uint64_t reported; /* meetings for which its ballot has come */
    struct ballot ballot;
    uint64_t told; /* the meeting, plus 1, for which it has said which ranks it waits for */
    struct lacks lacks;
};

struct relay {
    struct comm_task task; /* first member: a pointer to it is one to the relay */
    weft_comm *comm;
    bool first;         /* this rank is the first of its host */
    int host, nbelow;   /* its host; how many are below it, from number RELAY_HOSTS * host + 1 on */
    uint64_t up;        /* meetings whose ballot has gone up, or was judged here */
    int64_t since;      /* when this rank saw that meeting `up` is under way; 0: it is not */
    struct lacks lacks; /* what was last told for meeting `up` */
    struct below below[RELAY_HOSTS];
};

int relay_tree(int host, int hosts, int out[RELAY_HOSTS + 1])
{
    int n = 0;
    if (host)
        out[n++] = (host - 1) / RELAY_HOSTS;
    for (int i = 1; i <= RELAY_HOSTS && (int64_t)host * RELAY_HOSTS + i < hosts; i++)
        out[n++] = host * RELAY_HOSTS + i;
    return n;
}

int relay_neighbours(const weft_comm *c, int ranks[RELAY_HOSTS + 1])
{
    const struct transport_hosts *h = c->link->hosts;
    int n = h ? relay_tree(h->host[c->rank], h->nhosts, ranks) : 0;
    for (int i = 0; i < n; i++)
        ranks[i] = h->firsts[ranks[i]];
    return n;
}

static int first_below(const struct relay *r, int i)
{
    return r->comm->link->hosts->firsts[r->host * RELAY_HOSTS + 1 + i];
}

static int first_above(const struct relay *r)
{
    return r->comm->link->hosts->firsts[(r->host - 1) / RELAY_HOSTS];
}

static size_t result_bytes(const struct core_result *x)
{
    return offsetof(struct core_result, text) + strlen(x->text) + 1;
}

/* ---- down ---- */

static void send_down(const struct relay *r, const struct relay_mail *m, size_t bytes)
{
    for (int i = 0; i < r->nbelow; i++)
        (void)mail_send(r->comm, first_below(r, i), m, HEAD + bytes);
}

static void conclude(struct relay *r, const struct relay_mail *m)
{
    send_down(r, m, result_bytes(&m->result)); /* before a rank of this host goes on, and perhaps leaves */
    core_conclude(r->comm->group, m->meeting, &m->result);
}

static void judge(struct relay *r, uint64_t meeting, const struct ballot *b)
{
    struct relay_mail m = {.kind = RESULT, .meeting = meeting};
    struct core_result *x = &m.result;
    *x = (struct core_result){.tally = {.note = b->note, .first = b->first}};
    x->code = ballot_judge(r->comm, b);
    x->tally.differ = x->code != 0;
    if (x->code)
        snprintf(x->text, sizeof x->text, "%s", weft_errmsg());
    conclude(r, &m);
}

/* ---- up ---- */

static bool all_reported(const struct relay *r)
{
    for (int i = 0; i < r->nbelow; i++)
        if (r->below[i].reported <= r->up)
            return false;
    return true;
}

/* Sends the ballot of meeting `up`, if it is complete. */
static bool report(struct relay *r)
{
    weft_comm *c = r->comm;
    struct core_group *g = c->group;
    if (atomic_load_explicit(&g->home, memory_order_seq_cst) <= r->up || !all_reported(r))
        return false;
    struct relay_mail m = {.kind = BALLOT, .meeting = r->up};
    ballot_begin(&m.ballot);
    for (int i = 0; i < g->here; i++)
        ballot_add(&m.ballot, g->ranks[i].indexed, core_vote_of(g, g->ranks[i].indexed, m.meeting));
    for (int i = 0; i < r->nbelow; i++)
        ballot_merge(&m.ballot, &r->below[i].ballot);
    r->up++;
    r->since = 0;
    r->lacks.n = 0;
    if (r->host)
        (void)mail_send(c, first_above(r), &m, HEAD + offsetof(struct ballot, text) + strlen(m.ballot.text) + 1);
    else
        judge(r, m.meeting, &m.ballot);
    return true;
}

/* ---- ranks that are waited for ---- */

static void add_lack(struct lacks *l, int rank)
{
    if (l->n < CORE_LACKS)
        l->ranks[l->n++] = rank;
}

static void tell_lacks(struct relay *r, const struct lacks *l)
{
    struct relay_mail m = {.kind = LACKS, .meeting = r->up, .lacks = *l};
    size_t bytes = offsetof(struct lacks, ranks) + (size_t)l->n * sizeof *l->ranks;
    r->lacks = *l;
    if (r->host) {
        (void)mail_send(r->comm, first_above(r), &m, HEAD + bytes);
        return;
    }
    core_put_lacks(r->comm->group, r->up, l->ranks, l->n);
    send_down(r, &m, bytes);
}

/* A rank that ended before it sent anything has no connection that could break. So this rank makes one with each host
 * below whose ballot does not come: it fails if the rank there has ended. */
static void call_below(const struct relay *r)
{
    struct wire *wire = r->comm->link->hosts->wire;
    const struct relay_mail m = {.kind = CALL, .meeting = r->up};
    for (int i = 0; i < r->nbelow; i++)
        if (r->below[i].reported <= r->up && !wire->ops->used(wire, first_below(r, i)))
            (void)mail_send(r->comm, first_below(r, i), &m, HEAD);
}

/* Those of the ranks of this host and of hosts below that have not come, once the meeting takes long. */
static void look_for_lacks(struct relay *r)
{
    weft_comm *c = r->comm;
    struct core_group *g = c->group;
    if (g->ranks[c->rank].meetings <= r->up)
        return; /* this rank is not in the meeting itself */
    int64_t now = core_now();
    if (!r->since)
        r->since = now;
    if (now - r->since >= CALL_NS)
        call_below(r);
    if (now - r->since < c->deadline_ns / PATIENCE)
        return;
    struct lacks l = {0};
    for (int i = 0; i < g->here; i++)
        if (!core_entered(g, g->ranks[i].indexed, r->up))
            add_lack(&l, g->ranks[i].indexed);
    for (int i = 0; i < r->nbelow; i++) {
        const struct below *b = &r->below[i];
        if (b->reported > r->up)
            continue;
        for (int k = 0; k < b->lacks.n && b->told == r->up + 1; k++)
            add_lack(&l, b->lacks.ranks[k]);
        if (b->told != r->up + 1)
            add_lack(&l, first_below(r, i));
    }
    if (l.n != r->lacks.n || memcmp(l.ranks, r->lacks.ranks, (size_t)l.n * sizeof *l.ranks) != 0)
        tell_lacks(r, &l);
}

/* ---- what comes ---- */

static struct below *below_of(struct relay *r, int peer)
{
    for (int i = 0; i < r->nbelow; i++)
        if (first_below(r, i) == peer)
            return &r->below[i];
    return NULL;
}

static bool is_text(const char *text, const void *packet, size_t n)
{
    size_t at = (size_t)(text - (const char *)packet);
    return at < n && memchr(text, 0, n - at);
}

static bool are_lacks(const struct relay *r, const struct lacks *l, size_t bytes)
{
    if (bytes < offsetof(struct lacks, ranks) || l->n < 0 || l->n > CORE_LACKS ||
        bytes != offsetof(struct lacks, ranks) + (size_t)l->n * sizeof *l->ranks)
        return false;
    for (int i = 0; i < l->n; i++)
        if (l->ranks[i] < 0 || l->ranks[i] >= r->comm->size)
            return false;
    return true;
}

static bool is_rank(const struct relay *r, const struct ballot_vote *v, bool may_lack)
{
    return v->rank < r->comm->size && v->rank >= (may_lack ? -1 : 0);
}

static void take_ballot(struct relay *r, int peer, const struct relay_mail *m, size_t n)
{
    struct below *b = below_of(r, peer);
    const struct ballot *x = &m->ballot;
    if (!b || m->meeting != r->up || !is_text(x->text, m, n) || !is_rank(r, &x->lowest, false) ||
        !is_rank(r, &x->call, true) || !is_rank(r, &x->digest, true) || x->refuser < -1 ||
        x->refuser >= r->comm->size || (x->refuser >= 0) != (x->code < 0))
        return;
    b->ballot = *x;
    b->reported = m->meeting + 1;
}

static void take_result(struct relay *r, int peer, const struct relay_mail *m, size_t n)
{
    uint64_t met = atomic_load_explicit(&r->comm->group->met, memory_order_relaxed); /* only this rank changes it */
    if (!r->host || peer != first_above(r) || m->meeting != met || m->meeting >= r->up ||
        !is_text(m->result.text, m, n))
        return;
    conclude(r, m);
}

static void take_lacks(struct relay *r, int peer, const struct relay_mail *m, size_t n)
{
    struct below *b = below_of(r, peer);
    if (n < HEAD || !are_lacks(r, &m->lacks, n - HEAD))
        return;
    if (b && m->meeting == r->up) {
        b->told = m->meeting + 1;
        b->lacks = m->lacks;
    } else if (r->host && peer == first_above(r)) {
        core_put_lacks(r->comm->group, m->meeting, m->lacks.ranks, m->lacks.n);
        send_down(r, m, n - HEAD);
    }
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct relay_mail m = {0};
    if (n < HEAD || n > sizeof m || !c->relay->first)
        return;
    memcpy(&m, packet, n);
    switch (m.kind) {
    case BALLOT: take_ballot(c->relay, peer, &m, n); break;
    case RESULT: take_result(c->relay, peer, &m, n); break;
    case LACKS: take_lacks(c->relay, peer, &m, n); break;
    default: break;
    }
}

/* ---- the task ---- */

static bool pass(struct comm_task *t, bool idle)
{
    struct relay *r = (struct relay *)t;
    (void)idle;
    if (!r->first)
        return false;
    bool moved = report(r);
    if (!moved)
        look_for_lacks(r);
    return moved;
}

static void relay_close(struct comm_task *t)
{
    struct relay *r = (struct relay *)t;
    relay_move(r->comm);
    r->comm->relay = NULL;
    comm_task_remove(r->comm, t);
    free(r);
}

static const struct comm_task_ops relay_task = {.pass = pass, .wire = true, .close = relay_close};

struct relay *relay_new(void)
{
    return calloc(1, sizeof(struct relay));
}

void relay_open(weft_comm *c, struct relay *r)
{
    const struct transport_hosts *h = c->link->hosts;
    int near[RELAY_HOSTS + 1];
    r->host = h->host[c->rank];
    r->nbelow = relay_tree(r->host, h->nhosts, near) - (r->host > 0);
    r->first = h->firsts[r->host] == c->rank;
    r->comm = c;
    r->task.ops = &relay_task;
    c->relay = r;
    mail_handle(c, MAIL_RELAY, take);
    comm_task_add(c, &r->task);
}

void relay_move(weft_comm *c)
{
    if (c->relay && c->relay->first && !core_failed(c->group))
        report(c->relay);
}

bool relay_awaits(const weft_comm *c, int rank)
{
    const struct relay *r = c->relay;
    if (!r || !r->first)
        return false;
    if (r->host && first_above(r) == rank)
        return true;
    for (int i = 0; i < r->nbelow; i++)
        if (first_below(r, i) == rank)
            return r->below[i].reported <= r->up;
    return false;
}

bool relay_needs(const weft_comm *c, int rank)
{
    return c->relay && c->link->hosts->firsts[c->relay->host] == rank;
}

/* A rank knows of the hosts below its own. The host above speaks for all others. */
void relay_names(const weft_comm *c, uint64_t meeting, struct comm_names *names)
{
    const struct relay *r = c->relay;
    if (!r)
        return;
    for (int i = 0; r->first && i < r->nbelow; i++)
        if (r->below[i].reported <= meeting)
            names_add(names, c, first_below(r, i), "");
    if (!names->n && r->host)
        names_add(names, c, first_above(r), " or a rank behind it");
}
