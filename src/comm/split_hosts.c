/* Splits of comms on several hosts, where ranks do not all see each other's cards. A founder asks those next to it in a
 * tree of the list's hosts for their lists. All ranks of a new group open its wire together. For that they exchange
 * bytes, as ranks that open a comm do through a store: each rank puts its bytes into a table in the memory of its host.
 * The founder of each host mails the bytes of its host's ranks to the other founders, and puts what these send into the
 * table. */
#include "comm/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/mail.h"
#include "comm/relay.h"
#include "transport/hosts/hosts.h"

enum { ASK = MAIL_KIND(MAIL_SPLIT, 1), LIST = MAIL_KIND(MAIL_SPLIT, 2), SHARE = MAIL_KIND(MAIL_SPLIT, 3) };

#define ROUNDS 2 /* each round has its own part of the table, so that no rank writes where others may still read */
#define SHARE_MOST 4096

struct share {
    _Alignas(CORE_LINE) _Atomic uint32_t there; /* stored (release) after the other members */
    int32_t code;                               /* the error of a rank that has failed and gives nothing */
    uint32_t bytes;
    unsigned char data[SHARE_MOST];
};

struct split_table {
    struct share shares[ROUNDS][1]; /* one for each rank, in each round */
};

static struct share *share_of(const struct split *s, uint32_t round, int rank)
{
    return &s->table->shares[0][0] + (size_t)round * (size_t)s->n + (size_t)rank;
}

static bool is_there(const struct share *sh)
{
    return atomic_load_explicit(&sh->there, memory_order_seq_cst);
}

static void send_to(const struct split *s, int peer, struct split_mail *m, const void *bytes)
{
    m->meeting = s->meeting;
    if (bytes)
        memcpy(m->data, bytes, m->bytes);
    (void)mail_send(s->parent, peer, m, offsetof(struct split_mail, data) + m->bytes);
}

/* ---- lists ---- */

static void send_list(const struct split *s, int peer)
{
    int most = SPLIT_BYTES / (int)sizeof *s->ranks;
    for (int at = 0; at == 0 || at < s->n; at += most) {
        int n = s->n - at < most ? s->n - at : most;
        struct split_mail m = {.kind = LIST, .total = (uint32_t)s->n, .at = (uint32_t)at};
        m.bytes = (uint32_t)n * (uint32_t)sizeof *s->ranks;
        send_to(s, peer, &m, n ? s->ranks + at : NULL);
    }
}

static void take_list(struct split *s, int peer, const struct split_mail *m)
{
    uint32_t n = m->bytes / (uint32_t)sizeof *s->ranks;
    if (peer != s->asked || !s->theirs || m->total > (uint32_t)s->parent->size || n > m->total || m->at > m->total - n)
        return;
    s->theirs->n = (int32_t)m->total;
    memcpy(s->theirs->ranks + m->at, m->data, n * sizeof *s->ranks);
    s->have = (int)(m->at + n); /* pieces come in order */
}

static bool lacks_list(void *arg, int i)
{
    const struct split *s = arg;
    (void)i;
    return s->have < 0 || s->have < s->theirs->n;
}

/* Asks the rank for its list, and compares it with this rank's. */
static int ask(struct split *s, int rank)
{
    struct split_mail m = {.kind = ASK};
    size_t most = (size_t)s->parent->size;
    s->theirs = calloc(1, sizeof *s->theirs + most * sizeof *s->theirs->ranks);
    if (!s->theirs)
        return error_nomem();
    s->asked = rank;
    s->have = -1;
    send_to(s, rank, &m, NULL);
    int err = comm_wait_ranks(s->parent, &(struct comm_wait_ranks){&rank, 1, lacks_list, s, "weft_comm_split"});
    if (!err)
        err = split_compare(s->card, rank, s->theirs->n ? s->theirs : NULL);
    free(s->theirs);
    s->theirs = NULL;
    return err;
}

/* If each founder's list is equal to those of the founders next to it, all are equal. */
int split_hosts_compare(struct split *s)
{
    const struct transport_hosts *h = s->link->hosts;
    int near[RELAY_HOSTS + 1], n = relay_tree(h->host[s->rank], h->nhosts, near), err = 0;
    for (int i = 0; i < n && !err; i++)
        err = ask(s, s->ranks[h->firsts[near[i]]]);
    return err;
}

/* ---- giving ---- */

int split_hosts_table_make(struct split *s, uint64_t *place)
{
    weft_comm *c = s->parent;
    size_t bytes = ROUNDS * (size_t)s->n * sizeof(struct share);
    s->passed = calloc((size_t)s->n, sizeof *s->passed);
    s->table = c->transport->alloc(c->link, bytes, place);
    return s->passed && s->table ? 0 : error_nomem();
}

void split_hosts_table_find(struct split *s, uint64_t place)
{
    weft_comm *c = s->parent;
    s->table = c->transport->reach(c->link, s->ranks[s->founder], place);
}

void split_hosts_table_drop(struct split *s)
{
    weft_comm *c = s->parent;
    if (s->rank == s->founder && s->table && !core_failed(c->group))
        c->transport->release(c->link, s->table);
    free(s->passed);
}

static void call_near(const struct split *s)
{
    const weft_comm *c = s->parent;
    for (int i = 0; i < s->n; i++)
        if (!transport_elsewhere(c->link, s->ranks[i]))
            core_ring(c->group, s->ranks[i]);
}

static void give(struct split *s, const void *bytes, size_t n, int code)
{
    struct share *sh = share_of(s, s->gathered++, s->rank);
    if (n)
        memcpy(sh->data, bytes, n);
    sh->bytes = (uint32_t)n;
    sh->code = code;
    atomic_store_explicit(&sh->there, 1, memory_order_seq_cst);
    call_near(s);
}

static void send_share(const struct split *s, int rank, uint32_t round)
{
    const struct share *sh = share_of(s, round, rank);
    const struct transport_hosts *hosts = s->link->hosts;
    for (uint32_t at = 0; at == 0 || at < sh->bytes; at += SPLIT_BYTES) {
        uint32_t n = sh->bytes - at < SPLIT_BYTES ? sh->bytes - at : SPLIT_BYTES;
        struct split_mail m = {
            .kind = SHARE, .rank = rank, .round = round, .code = sh->code, .total = sh->bytes, .at = at, .bytes = n};
        for (int h = 0; h < hosts->nhosts; h++)
            if (hosts->firsts[h] != s->rank)
                send_to(s, s->ranks[hosts->firsts[h]], &m, sh->data + at);
    }
}

/* Called by the founder: mails what ranks of its host have given and other hosts do not have yet. */
static bool pass(struct comm_task *t, bool idle)
{
    struct split *s = (struct split *)t;
    const weft_comm *c = s->parent;
    bool moved = false;
    (void)idle;
    if (!s->passed || !s->link)
        return false;
    for (int r = 0; r < s->n; r++) {
        if (transport_elsewhere(c->link, s->ranks[r]))
            continue;
        for (; s->passed[r] < ROUNDS && is_there(share_of(s, s->passed[r], r)); moved = true)
            send_share(s, r, s->passed[r]++);
    }
    return moved;
}

/* The founder of a host speaks for the ranks of the new group that are there. */
static bool is_founder_of(const struct split *s, int peer, int rank)
{
    const struct transport_hosts *h = s->parent->link->hosts;
    for (int i = 0; i < s->n; i++)
        if (h->host[s->ranks[i]] == h->host[s->ranks[rank]])
            return s->ranks[i] == peer;
    return false;
}

/* Pieces of a share come in order. */
static void take_share(struct split *s, int peer, const struct split_mail *m)
{
    if (!s->passed || m->rank < 0 || m->rank >= s->n || m->round >= ROUNDS || m->total > SHARE_MOST ||
        m->bytes > m->total || m->at > m->total - m->bytes ||
        !transport_elsewhere(s->parent->link, s->ranks[m->rank]) || !is_founder_of(s, peer, m->rank))
        return;
    struct share *sh = share_of(s, m->round, m->rank);
    memcpy(sh->data + m->at, m->data, m->bytes);
    sh->bytes = m->total;
    sh->code = m->code;
    if (m->at + m->bytes < m->total)
        return;
    atomic_store_explicit(&sh->there, 1, memory_order_seq_cst);
    call_near(s);
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct split *s = c->splitting;
    struct split_mail m;
    if (n < offsetof(struct split_mail, data) || n > sizeof m)
        return;
    memcpy(&m, packet, n);
    if (!s || s->meeting != m.meeting || m.bytes > n - offsetof(struct split_mail, data))
        return; /* for a split that has failed here */
    switch (m.kind) {
    case ASK: send_list(s, peer); break;
    case LIST: take_list(s, peer, &m); break;
    case SHARE: take_share(s, peer, &m); break;
    default: break;
    }
}

static const struct comm_task_ops split_task = {.pass = pass};

void split_hosts_begin(struct split *s)
{
    weft_comm *c = s->parent;
    c->splitting = s;
    if (!c->mail)
        return;
    mail_handle(c, MAIL_SPLIT, take);
    s->task.ops = &split_task;
    comm_task_add(c, &s->task);
}

void split_hosts_end(struct split *s)
{
    comm_task_remove(s->parent, &s->task);
    s->parent->splitting = NULL;
}

static bool lacks_share(void *arg, int i)
{
    const struct split *s = arg;
    return !is_there(share_of(s, s->gathered - 1, i));
}

static int gather(void *arg, const void *mine, size_t bytes, void *all)
{
    struct split *s = arg;
    uint32_t round = s->gathered;
    if (round == ROUNDS || bytes > SHARE_MOST)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_split: ranks can tell each other %d bytes, not %zu", SHARE_MOST,
                         bytes);
    give(s, mine, bytes, 0);
    int err = comm_wait_ranks(s->parent, &(struct comm_wait_ranks){s->ranks, s->n, lacks_share, s, "weft_comm_split"});
    for (int r = 0; r < s->n && !err; r++) {
        const struct share *sh = share_of(s, round, r);
        if (sh->code)
            err = error_set(sh->code, "weft_comm_split: rank %d cannot open its end of the new group", s->ranks[r]);
        else
            memcpy((char *)all + (size_t)r * bytes, sh->data, sh->bytes < bytes ? sh->bytes : bytes);
    }
    return err;
}

int split_hosts_wire(struct split *s)
{
    const struct wire_boot boot = {
        .rank = s->rank, .size = s->n, .gather = gather, .arg = s, .wait_ns = s->parent->deadline_ns, .no_shm = true};
    int err = hosts_split_connect(s->link, s->parent->link, s->ranks, &boot);
    while (err && s->gathered < ROUNDS) /* the others wait for what this rank would have given */
        give(s, NULL, 0, err);
    return err;
}
