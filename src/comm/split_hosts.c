/* Splits of comms on several hosts, where ranks do not all see each other's cards. A founder asks those next to it in a
 * tree of the list's hosts for their lists. All ranks of a new group open its wire together. For that they exchange
 * bytes, as ranks that open a comm do through a store: each rank puts its bytes, its share, into a table in the memory
 * of its host. The founder of each host passes on the shares of its host's ranks, and those that come, to the founders
 * next to it in the tree, and puts what comes into the table. So every share comes to every host once, several of them
 * in one mail, and a founder is connected with a few others. */
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
#define SHARE_ALIGN 64

struct share {
    _Atomic uint32_t there; /* stored (release) after the other members, and the bytes */
    int32_t code;           /* the error of a rank that has failed and gives nothing */
    uint32_t bytes;
    uint64_t at; /* where they are, from the end of the table on */
};

struct split_table {
    _Alignas(CORE_LINE) _Atomic uint64_t top;  /* bytes that shares have taken so far */
    _Atomic uint32_t arrived[ROUNDS];          /* shares of the round that are there */
    _Alignas(CORE_LINE) struct share shares[]; /* one for each rank, in each round; then their bytes */
};

/* Of a founder: what it passes on. */
struct split_relay {
    int n, ranks[RELAY_HOSTS + 1]; /* founders next to this one: ranks of the parent */
    int *near, nnear;              /* ranks of the new group that are on this host */
    uint8_t *passed;               /* for each of those: rounds that are in the queue */
    /* Shares that are there and were not passed on yet. */
    struct waiting {
        int32_t rank, from; /* from: which of the founders has sent it; -1: none */
        uint32_t round;
    } * queue;
    size_t queued, sent;
    struct share_mail {
        uint32_t kind;
        uint32_t round;
        uint64_t meeting;
        uint32_t bytes;
        unsigned char items[WIRE_MAIL - 32]; /* each: a struct item, and its bytes */
    } mails[RELAY_HOSTS + 1];
};

struct item {
    int32_t rank, code;
    uint32_t total, at, bytes; /* bytes of the share; offset of these bytes; how many follow */
};

static size_t table_bytes(int n)
{
    return sizeof(struct split_table) + ROUNDS * (size_t)n * sizeof(struct share);
}

static struct share *share_of(const struct split *s, uint32_t round, int rank)
{
    return &s->table->shares[(size_t)round * (size_t)s->n + (size_t)rank];
}

/* Its bytes, which lie behind the table. */
static unsigned char *bytes_of(const struct split *s, const struct share *sh)
{
    return (unsigned char *)s->table + table_bytes(s->n) + sh->at;
}

/* Takes memory for them: there is enough for SHARE_MOST of each rank in each round. */
static void take_room(const struct split *s, struct share *sh, uint32_t bytes)
{
    sh->bytes = bytes;
    sh->at = atomic_fetch_add_explicit(&s->table->top, (bytes + SHARE_ALIGN - 1) / SHARE_ALIGN * SHARE_ALIGN,
                                       memory_order_relaxed);
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
    size_t n = (size_t)s->n;
    struct split_relay *r = calloc(1, sizeof *r);
    s->relay = r;
    s->table = c->transport->alloc(c->link, table_bytes(s->n) + ROUNDS * n * SHARE_MOST, place);
    if (!r || !s->table)
        return error_nomem();
    r->near = malloc(n * sizeof *r->near);
    r->passed = calloc(n, sizeof *r->passed);
    r->queue = malloc(ROUNDS * n * sizeof *r->queue);
    if (!r->near || !r->passed || !r->queue)
        return error_nomem();
    for (int i = 0; i < s->n; i++)
        if (!transport_elsewhere(c->link, s->ranks[i]))
            r->near[r->nnear++] = i;
    return 0;
}

void split_hosts_table_find(struct split *s, uint64_t place)
{
    weft_comm *c = s->parent;
    s->table = c->transport->reach(c->link, s->ranks[s->founder], place);
}

void split_hosts_table_drop(struct split *s)
{
    weft_comm *c = s->parent;
    struct split_relay *r = s->relay;
    if (s->rank == s->founder && s->table && !core_failed(c->group))
        c->transport->release(c->link, s->table);
    if (r) {
        free(r->near);
        free(r->passed);
        free(r->queue);
    }
    free(r);
}

/* The share is there. The rank that brings the last one of a round rings the others of its host. */
static void put(struct split *s, struct share *sh, uint32_t round)
{
    const weft_comm *c = s->parent;
    atomic_store_explicit(&sh->there, 1, memory_order_seq_cst);
    bool all = atomic_fetch_add_explicit(&s->table->arrived[round], 1, memory_order_seq_cst) + 1 == (uint32_t)s->n;
    for (int i = 0; i < s->n && all; i++)
        if (!transport_elsewhere(c->link, s->ranks[i]))
            core_ring(c->group, s->ranks[i]);
    if (!all && s->rank != s->founder)
        core_ring(c->group, s->ranks[s->founder]); /* it passes it on */
}

static void give(struct split *s, const void *bytes, size_t n, int code)
{
    uint32_t round = s->gathered++;
    struct share *sh = share_of(s, round, s->rank);
    take_room(s, sh, (uint32_t)n);
    if (n)
        memcpy(bytes_of(s, sh), bytes, n);
    sh->code = code;
    put(s, sh, round);
}

/* ---- passing on ---- */

static void flush(const struct split *s, int to)
{
    struct share_mail *m = &s->relay->mails[to];
    if (m->bytes)
        (void)mail_send(s->parent, s->relay->ranks[to], m, offsetof(struct share_mail, items) + m->bytes);
    m->bytes = 0;
}

/* Adds a share to what goes to a founder next to this one. */
static void add(const struct split *s, int to, uint32_t round, int rank)
{
    struct share_mail *m = &s->relay->mails[to];
    const struct share *sh = share_of(s, round, rank);
    struct item item = {.rank = rank, .code = sh->code, .total = sh->bytes};
    do {
        if (m->bytes && (m->round != round || sizeof m->items - m->bytes <= sizeof item + SHARE_ALIGN))
            flush(s, to);
        uint32_t room = (uint32_t)(sizeof m->items - m->bytes - sizeof item), left = item.total - item.at;
        item.bytes = left < room ? left : room;
        m->kind = SHARE;
        m->round = round;
        m->meeting = s->meeting;
        memcpy(m->items + m->bytes, &item, sizeof item);
        memcpy(m->items + m->bytes + sizeof item, bytes_of(s, sh) + item.at, item.bytes);
        m->bytes += (uint32_t)sizeof item + item.bytes;
        item.at += item.bytes;
    } while (item.at < item.total);
}

static void queue(struct split_relay *r, uint32_t round, int rank, int from)
{
    r->queue[r->queued++] = (struct waiting){.rank = rank, .from = from, .round = round};
}

/* The founders next to this one, once its link is made. */
static void know_next(const struct split *s)
{
    struct split_relay *r = s->relay;
    const struct transport_hosts *h = s->link->hosts;
    if (r->n)
        return;
    r->n = relay_tree(h->here, h->nhosts, r->ranks);
    for (int i = 0; i < r->n; i++)
        r->ranks[i] = s->ranks[h->firsts[r->ranks[i]]];
}

/* Called by the founder: passes on what ranks of its host have given, and what has come from other hosts. */
static bool pass(struct comm_task *t, bool idle)
{
    struct split *s = (struct split *)t;
    struct split_relay *r = s->relay;
    (void)idle;
    if (!r || !s->link)
        return false;
    know_next(s);
    for (int i = 0; i < r->nnear; i++)
        while (r->passed[i] < ROUNDS && is_there(share_of(s, r->passed[i], r->near[i])))
            queue(r, r->passed[i]++, r->near[i], -1);
    bool moved = r->sent < r->queued;
    for (; r->sent < r->queued; r->sent++)
        for (int to = 0; to < r->n; to++)
            if (to != r->queue[r->sent].from)
                add(s, to, r->queue[r->sent].round, r->queue[r->sent].rank);
    for (int to = 0; to < r->n && moved; to++)
        flush(s, to);
    return moved;
}

/* From which of the founders next to this one shares of the rank come; -1: from none. */
static int comes_from(const struct split *s, int rank)
{
    const struct transport_hosts *h = s->link->hosts;
    int host = h->host[rank], from = (h->here - 1) / RELAY_HOSTS; /* from above, unless it is below this host */
    if (host == h->here)
        return -1;
    for (int at = host; at > h->here; at = (at - 1) / RELAY_HOSTS)
        if ((at - 1) / RELAY_HOSTS == h->here)
            from = at;
    for (int i = 0; i < s->relay->n; i++)
        if (s->relay->ranks[i] == s->ranks[h->firsts[from]])
            return i;
    return -1;
}

/* Pieces of a share come in order. Returns whether the piece is one that this founder may send. */
static bool take_item(struct split *s, int peer, uint32_t round, const struct item *m, const unsigned char *bytes)
{
    if (m->rank < 0 || m->rank >= s->n || m->total > SHARE_MOST || m->bytes > m->total || m->at > m->total - m->bytes)
        return false;
    struct share *sh = share_of(s, round, m->rank);
    int from = comes_from(s, m->rank);
    if (from < 0 || s->relay->ranks[from] != peer || is_there(sh) || (m->at && sh->bytes != m->total))
        return false;
    if (!m->at)
        take_room(s, sh, m->total);
    memcpy(bytes_of(s, sh) + m->at, bytes, m->bytes);
    sh->code = m->code;
    if (m->at + m->bytes < m->total)
        return true;
    put(s, sh, round);
    queue(s->relay, round, m->rank, from);
    return true;
}

static void take_shares(struct split *s, int peer, const void *packet, size_t n)
{
    struct share_mail m;
    struct item item;
    memcpy(&m, packet, n);
    if (!s->relay || !s->link || m.round >= ROUNDS || m.bytes > n - offsetof(struct share_mail, items))
        return;
    know_next(s);
    for (size_t at = 0; m.bytes - at >= sizeof item; at += sizeof item + item.bytes) {
        memcpy(&item, m.items + at, sizeof item);
        if (item.bytes > m.bytes - at - sizeof item || !take_item(s, peer, m.round, &item, m.items + at + sizeof item))
            return;
    }
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct split *s = c->splitting;
    struct split_mail m;
    uint64_t meeting;
    if (n < offsetof(struct share_mail, items))
        return;
    memcpy(&m.kind, packet, sizeof m.kind);
    memcpy(&meeting, (const char *)packet + offsetof(struct share_mail, meeting), sizeof meeting);
    if (m.kind == SHARE && s && s->meeting == meeting && n <= sizeof(struct share_mail))
        take_shares(s, peer, packet, n);
    if (m.kind == SHARE || n < offsetof(struct split_mail, data) || n > sizeof m)
        return;
    memcpy(&m, packet, n);
    if (!s || s->meeting != m.meeting || m.bytes > n - offsetof(struct split_mail, data))
        return; /* for a split that has failed here */
    switch (m.kind) {
    case ASK: send_list(s, peer); break;
    case LIST: take_list(s, peer, &m); break;
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
    uint32_t round = s->gathered - 1;
    return atomic_load_explicit(&s->table->arrived[round], memory_order_seq_cst) < (uint32_t)s->n &&
           !is_there(share_of(s, round, i));
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
            memcpy((char *)all + (size_t)r * bytes, bytes_of(s, sh), sh->bytes < bytes ? sh->bytes : bytes);
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
