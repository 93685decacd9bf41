/* Folds in two levels, for groups on several hosts: the terms of a host's ranks are folded inside the host, so that one
 * partial value of each host crosses the network. The result enters a host once and is passed on inside.
 *
 * A slice is folded by its owner. On the owner's host its terms go to the owner directly. On every other host they go
 * to a leader, which folds them and sends the partial value. For an allreduce the piece is cut so that all ranks of all
 * hosts own and lead equally much: each host sends 2 (H - 1) / H of the piece. Copies need no row for this: the general
 * lowering sends what a host needs to it once (feed.h). */
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "lower/rows/rows.h"

/* The group's members, host by host in the order of their first members. */
struct levels {
    const struct job *j;
    struct group g;      /* for kinds with axes */
    bool rooted;         /* kinds without axes: all of the source's ranks */
    int64_t size;        /* members */
    int64_t *member;     /* their numbers in the group, or on the source's mesh */
    int64_t *first;      /* members first[h] to first[h + 1] - 1 are on host h */
    int64_t hosts, most; /* the most of one host */
    int64_t me, home;    /* this rank's place among the members, and its host; -1: it is not a member */
};

/* A slice that goes to its owner. */
struct share {
    int64_t owner; /* the owner's place; -1: a root that is not a member */
    int64_t host;  /* the owner's host; -1: one without members */
    int rank;      /* the owner's */
    int64_t turn;  /* which of a host's members leads */
    int64_t part, pieces;
};

static int rank_of(const struct levels *l, int64_t place)
{
    return l->rooted ? mesh_rank(l->j->src, l->member[place]) : slice_group_rank(&l->g, l->member[place]);
}

static int levels_open(const struct job *j, const struct recognised *r, bool rooted, struct levels *l)
{
    *l = (struct levels){.j = j, .rooted = rooted, .me = -1, .home = -1};
    if (!rooted)
        slice_group_open(j, r, &l->g);
    int64_t n = l->size = rooted ? j->src->mesh : l->g.size, mine = rooted ? j->si : l->g.me;
    l->member = arena_alloc(j->arena, (size_t)n * sizeof *l->member);
    l->first = arena_alloc(j->arena, (size_t)(n + 1) * sizeof *l->first);
    int *host = arena_alloc(j->arena, (size_t)n * sizeof *host);
    if (!l->member || !l->first || !host)
        return error_nomem();
    for (int64_t k = 0; k < n; k++) {
        l->member[k] = k; /* for rank_of */
        host[k] = machine_host(j->machine, rank_of(l, k));
    }
    for (int64_t k = 0, done = 0; done < n; k++) {
        int on = host[k]; /* -1: placed already */
        if (on < 0)
            continue;
        l->first[l->hosts] = done;
        for (int64_t i = k; i < n; i++)
            if (host[i] == on) {
                if (i == mine) {
                    l->me = done;
                    l->home = l->hosts;
                }
                l->member[done++] = i;
                host[i] = -1;
            }
        l->most = max64(l->most, done - l->first[l->hosts]);
        l->hosts++;
    }
    l->first[l->hosts] = n;
    return 0;
}

static int64_t members_on(const struct levels *l, int64_t host)
{
    return l->first[host + 1] - l->first[host];
}

static int64_t leader(const struct levels *l, const struct share *s, int64_t host)
{
    return l->first[host] + s->turn % members_on(l, host);
}

/* If a host has one member, its term itself crosses the network. */
static int partial_dtype(const struct levels *l, int64_t host)
{
    int raw = l->j->src->dtype;
    return members_on(l, host) > 1 ? dtype_acc(raw) : raw;
}

/* The term of the member at a place. */
static int open_term(const struct levels *l, const struct share *s, int64_t place, int64_t to, struct slice *out)
{
    if (l->rooted)
        return slice_whole(l->j, place == l->me, s->part, s->pieces, out);
    return slice_open(&l->g, l->member[place], l->member[to], s->part, s->pieces, out);
}

/* Collects the terms of a host's members, at one of them or at the owner: this rank's own, and those of the others. */
static int take_terms(const struct levels *l, const struct share *s, int64_t host, struct slice *term)
{
    int rc = 0;
    for (int64_t k = l->first[host]; k < l->first[host + 1] && !rc; k++, term++) {
        rc = open_term(l, s, k, s->owner, term);
        if (!rc && k != l->me)
            rc = slice_recv_temp(term, 0, rank_of(l, k), l->j->src->dtype);
    }
    return rc;
}

static int send_up(const struct levels *l, const struct share *s)
{
    struct slice own, sum;
    int64_t n = members_on(l, l->home), lead = leader(l, s, l->home);
    if (l->home == s->host || lead != l->me) {
        int rc = open_term(l, s, l->me, s->owner, &own);
        return rc ? rc : slice_send(&own, 0, l->home == s->host ? s->rank : rank_of(l, lead), l->j->src->dtype);
    }
    struct slice *term = arena_alloc(l->j->arena, (size_t)n * sizeof *term);
    if (!term)
        return error_nomem();
    int rc = take_terms(l, s, l->home, term);
    sum = term[0];
    if (!rc && n > 1)
        rc = slice_fold(term, (size_t)n, 0, false, false, 0, &sum);
    return rc ? rc : slice_send(&sum, 1, s->rank, partial_dtype(l, l->home));
}

/* Folds the slice at its owner; every other rank does its part of that. */
static int fold_up(const struct levels *l, const struct share *s, bool keep, struct slice *out)
{
    const struct job *j = l->j;
    if (s->rank != j->d->rank)
        return l->me < 0 ? 0 : send_up(l, s);
    struct slice *term = arena_alloc(j->arena, (size_t)l->size * sizeof *term);
    size_t n = 0;
    int rc = term ? 0 : error_nomem();
    for (int64_t h = 0; h < l->hosts && !rc; h++) {
        if (h == s->host) {
            rc = take_terms(l, s, h, term + n);
            n += (size_t)members_on(l, h);
            continue;
        }
        int64_t lead = leader(l, s, h);
        rc = open_term(l, s, lead, s->owner, &term[n]);
        if (!rc)
            rc = slice_recv_temp(&term[n++], 1, rank_of(l, lead), partial_dtype(l, h));
    }
    return rc ? rc : slice_fold(term, n, 1, true, keep, row_div(j, l->size), out);
}

static int send_to_mates(const struct levels *l, const struct slice *b, int32_t stage)
{
    int rc = 0;
    for (int64_t k = l->first[l->home]; k < l->first[l->home + 1] && !rc; k++)
        if (k != l->me)
            rc = slice_send(b, stage, rank_of(l, k), l->j->wire);
    return rc;
}

/* Sends what the owner has folded to all members. */
static int hand_down(const struct levels *l, const struct share *s, const struct slice *done)
{
    struct slice b;
    int wire = l->j->wire, rc = 0;
    if (l->me == s->owner) {
        for (int64_t h = 0; h < l->hosts && !rc; h++)
            if (h != s->host)
                rc = slice_send(done, 2, rank_of(l, leader(l, s, h)), wire);
        return rc ? rc : send_to_mates(l, done, 2);
    }
    int64_t lead = leader(l, s, l->home);
    rc = open_term(l, s, s->owner, l->me, &b);
    if (rc)
        return rc;
    if (l->home == s->host)
        return slice_recv_dst(&b, 2, s->rank, wire);
    if (l->me != lead)
        return slice_recv_dst(&b, 3, rank_of(l, lead), wire);
    rc = slice_recv_on(&b, 2, s->rank, wire);
    return rc ? rc : send_to_mates(l, &b, 3);
}

/* Piece number i of an allreduce: one of most * hosts, owned by all hosts in turn. */
static struct share piece(const struct levels *l, int64_t i)
{
    struct share s = {.host = i % l->hosts, .turn = i / l->hosts, .part = i, .pieces = l->most * l->hosts};
    s.owner = leader(l, &s, s.host);
    s.rank = rank_of(l, s.owner);
    return s;
}

int row_levels_allreduce(const struct job *j, const struct recognised *r)
{
    struct levels l;
    struct slice done;
    if (j->si < 0)
        return 0;
    int rc = levels_open(j, r, false, &l);
    for (int64_t i = 0; !rc && i < l.most * l.hosts; i++) {
        struct share s = piece(&l, i);
        rc = fold_up(&l, &s, true, &done);
        if (!rc)
            rc = hand_down(&l, &s, &done);
    }
    return rc;
}

static struct share piece_of_member(const struct levels *l, int64_t host, int64_t place)
{
    return (struct share){.owner = place, .host = host, .rank = rank_of(l, place), .turn = place, .pieces = 1};
}

int row_levels_reduce_scatter(const struct job *j, const struct recognised *r)
{
    struct levels l;
    struct slice done;
    if (j->si < 0)
        return 0;
    int rc = levels_open(j, r, false, &l);
    for (int64_t h = 0; !rc && h < l.hosts; h++)
        for (int64_t k = l.first[h]; !rc && k < l.first[h + 1]; k++) {
            struct share s = piece_of_member(&l, h, k);
            rc = fold_up(&l, &s, false, &done);
        }
    return rc;
}

/* It is cut so that all ranks of a host lead equally much. */
static struct share piece_of_root(const struct levels *l, int64_t i)
{
    const struct job *j = l->j;
    struct share s = {.owner = -1, .host = -1, .rank = mesh_rank(j->dst, 0), .turn = i, .part = i, .pieces = l->most};
    int on = machine_host(j->machine, s.rank);
    for (int64_t h = 0; h < l->hosts; h++)
        if (machine_host(j->machine, rank_of(l, l->first[h])) == on)
            s.host = h;
    for (int64_t k = 0; k < l->size; k++)
        if (rank_of(l, k) == s.rank)
            s.owner = k;
    return s;
}

int row_levels_reduce(const struct job *j, const struct recognised *r)
{
    struct levels l;
    struct slice done;
    if (j->si < 0 && j->di < 0)
        return 0;
    int rc = levels_open(j, r, true, &l);
    for (int64_t i = 0; !rc && i < l.most; i++) {
        struct share s = piece_of_root(&l, i);
        rc = fold_up(&l, &s, false, &done);
    }
    return rc;
}

/* ---- when it can be used ---- */

/* Which hosts of one group and of another have the same members. */
struct likeness {
    int *there, *here; /* of each host of one group, the host of the other, and back; -1: not seen yet */
};

static bool pair_up(const struct likeness *x, int a, int b)
{
    if (x->there[a] < 0 && x->here[b] < 0) {
        x->there[a] = b;
        x->here[b] = a;
    }
    return x->there[a] == b && x->here[b] == a;
}

/* Are members with the same numbers together on a host in both groups? */
static bool groups_alike(const struct job *j, uint32_t axes, int64_t one, int64_t other, const struct likeness *x)
{
    const weft_layout *l = j->src;
    int64_t n = axes_count(l, axes);
    bool alike = true;
    for (int64_t k = 0; k < n && alike; k++) {
        int64_t off = axes_offset(l, axes, k);
        alike = pair_up(x, machine_host(j->machine, mesh_rank(l, one + off)),
                        machine_host(j->machine, mesh_rank(l, other + off)));
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t off = axes_offset(l, axes, k);
        x->there[machine_host(j->machine, mesh_rank(l, one + off))] = -1;
        x->here[machine_host(j->machine, mesh_rank(l, other + off))] = -1;
    }
    return alike;
}

int row_levels_alike(const struct job *j, const struct recognised *r, bool *alike)
{
    *alike = true;
    if (!r->axes || !j->fold || j->s_replicas == 1) /* below, the axes are folded ones and split nothing */
        return 0;
    /* Host numbers are less than the number of the machine's ranks, which may be more than the ranks of the world. */
    size_t hosts = (size_t)(j->machine->host ? j->machine->ranks : j->d->world);
    struct likeness x = {arena_alloc(j->arena, hosts * sizeof *x.there), arena_alloc(j->arena, hosts * sizeof *x.here)};
    if (!x.there || !x.here)
        return error_nomem();
    memset(x.there, -1, hosts * sizeof *x.there);
    memset(x.here, -1, hosts * sizeof *x.here);
    int64_t pieces = axes_count(j->src, j->s_split);
    for (int64_t p = 0; p < pieces && *alike; p++) {
        int64_t one = axes_offset(j->src, j->s_split, p);
        for (int64_t f = 1; f < j->s_replicas && *alike; f++)
            *alike = groups_alike(j, r->axes, one, one + axes_offset(j->src, j->s_free, f), &x);
    }
    return 0;
}

/* ---- volumes ---- */

/* Bytes that the terms of one element move on their way to its owner. */
static int64_t bytes_up(const struct levels *l, const struct share *s)
{
    int64_t term = (int64_t)weft_dtype_size(l->j->src->dtype), bytes = 0;
    for (int64_t h = 0; h < l->hosts; h++)
        if (h == s->host)
            bytes += (members_on(l, h) - (s->owner >= 0)) * term;
        else
            bytes += (members_on(l, h) - 1) * term + (int64_t)weft_dtype_size(partial_dtype(l, h));
    return bytes;
}

int64_t row_levels_stated_allreduce(const struct job *j, const struct recognised *r)
{
    struct levels l;
    int64_t bytes = 0;
    int rc = j->si < 0 ? 0 : levels_open(j, r, false, &l);
    if (j->si < 0 || rc || l.g.me != 0) /* the first member counts for the group */
        return rc;
    for (int64_t i = 0; i < l.most * l.hosts; i++) {
        struct share s = piece(&l, i);
        struct slice b;
        rc = slice_open(&l.g, 0, 0, s.part, s.pieces, &b);
        if (rc)
            return rc;
        bytes += slice_count(&b) * (bytes_up(&l, &s) + (l.size - 1) * (int64_t)weft_dtype_size(j->wire));
    }
    return bytes;
}

int64_t row_levels_stated_reduce_scatter(const struct job *j, const struct recognised *r)
{
    struct levels l;
    struct slice b;
    if (j->si < 0)
        return 0;
    int rc = levels_open(j, r, false, &l);
    if (!rc)
        rc = slice_open(&l.g, l.g.me, l.g.me, 0, 1, &b);
    if (rc)
        return rc;
    struct share s = piece_of_member(&l, l.home, l.me);
    return slice_count(&b) * bytes_up(&l, &s);
}

int64_t row_levels_stated_reduce(const struct job *j, const struct recognised *r)
{
    struct levels l;
    struct slice b;
    if (j->di < 0)
        return 0;
    int rc = levels_open(j, r, true, &l);
    if (!rc)
        rc = slice_whole(j, false, 0, 1, &b);
    if (rc)
        return rc;
    struct share s = piece_of_root(&l, 0);
    return slice_count(&b) * bytes_up(&l, &s);
}
