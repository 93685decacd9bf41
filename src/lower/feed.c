#include "lower/feed.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"

#define GRAIN 16384 /* bytes: the stretch of one taker is not cut into parts smaller than this */

/* Which piece of the source a rank has, as the mesh position of its replica 0, or -1. */
static int64_t piece_of(const struct job *j, int rank)
{
    int64_t index = mesh_index(j->src, rank);
    return index < 0 ? -1 : axes_part(j->src, j->s_split, index);
}

/* ---- same mesh: which replicas of t have s ---- */

/* How many of the first n replicas of t have the same coordinates on the fixed axes as s. */
static int64_t count_having(const struct feed *f, int64_t n)
{
    const weft_layout *l = f->j->dst;
    int64_t below = 1, count = 0, same = 1; /* same: all digits above agree with the pattern */
    int64_t digit[WEFT_MAX_AXES], rest = n;
    if (f->none_has)
        return 0;
    for (int a = l->naxes - 1; a >= 0; a--)
        if (f->j->d_free & 1u << a) {
            digit[a] = rest % l->axis[a].size;
            rest /= l->axis[a].size;
            below *= f->fixed & 1u << a ? 1 : l->axis[a].size;
        }
    if (rest)
        return below; /* n is all of them */
    for (int a = 0; a < l->naxes && same; a++)
        if (f->j->d_free & 1u << a) {
            if (f->fixed & 1u << a) {
                int64_t c = layout_coord(f->j->src, f->s, a);
                count += c < digit[a] ? below : 0;
                same = c == digit[a];
            } else {
                below /= l->axis[a].size;
                count += digit[a] * below;
            }
        }
    return count;
}

static void same_mesh(struct feed *f, struct feed_line *line)
{
    const struct job *j = f->j;
    f->fixed = j->s_split & j->d_free;
    for (int a = 0; a < j->src->naxes; a++)
        if ((j->s_split & ~j->d_free & 1u << a) && layout_coord(j->src, f->s, a) != layout_coord(j->dst, f->t, a))
            f->none_has = true;
    line->takers = j->d_replicas - count_having(f, j->d_replicas);
}

/* The replica of t that is k-th on the line; and the position of a replica, which must lack s. */
static int64_t feed_taker(const struct feed *f, const struct feed_line *l, int64_t k)
{
    if (l->taker)
        return l->taker[k];
    if (f->j->meet == JOB_APART || f->none_has)
        return k;
    int64_t lo = k, hi = f->j->d_replicas - 1; /* the first r with r + 1 - having(r + 1) = k + 1 */
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (mid + 1 - count_having(f, mid + 1) > k)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static int64_t feed_place(const struct feed *f, const struct feed_line *l, int64_t replica)
{
    if (!l->taker)
        return replica - count_having(f, f->j->meet == JOB_SAME ? replica : 0);
    for (int64_t k = 0; k < l->takers; k++)
        if (l->taker[k] == replica)
            return k;
    return -1;
}

/* ---- walk ---- */

static int d_rank(const struct feed *f, int64_t replica)
{
    return mesh_rank(f->j->dst, f->t + axes_offset(f->j->dst, f->j->d_free, replica));
}

static int s_rank(const struct feed *f, int64_t replica)
{
    return mesh_rank(f->j->src, f->s + axes_offset(f->j->src, f->j->s_free, replica));
}

static int64_t bytes_of(const struct feed *f)
{
    return f->length * f->other * (int64_t)weft_dtype_size(f->j->wire);
}

static bool hand_on(const struct feed *f, int64_t takers)
{
    return machine_hand_on(f->j->machine, bytes_of(f), takers);
}

/* The replicas of one piece, host by host. Kept from pair to pair: mostly one of the two pieces stays the same. That of
 * the destination is also kept from tensor to tensor, since most tensors of a model have the same one. */
struct walk_side {
    const weft_layout *of;
    int64_t at;      /* mesh position of the piece's replica 0 */
    int64_t n;       /* replicas; 0: nothing was walked yet */
    int64_t *number; /* numbers of the replicas, by host and ascending on each host */
    int *rank;       /* of each of them */
    /* For each replica: the piece of the source that its rank has, as a mesh position, or -1; UNKNOWN until somebody
     * asks. NULL for the source's own side. */
    int64_t *has;
    bool asked;
    int64_t most;          /* replicas on a host */
    int64_t hosts, *first; /* replicas first[h] to first[h + 1] - 1 of that order are on one host */
    int *host;             /* the number of that host, ascending */
};

struct walk {
    struct walk_side src, *dst;
    struct feed_line *line;
    /* Takers on hosts that hold the piece; takers on other hosts, and where each of these hosts starts. */
    int64_t *near, *far, *other_host;
};

enum { UNKNOWN = -2 };

struct walk_replica {
    int host, rank;
    int64_t number;
};

static int by_host(const void *a, const void *b)
{
    const struct walk_replica *x = a, *y = b;
    return x->host != y->host ? (x->host < y->host ? -1 : 1) : x->number < y->number ? -1 : x->number > y->number;
}

static int side_room(struct arena *arena, const weft_layout *of, int64_t replicas, struct walk_side *w)
{
    size_t n = (size_t)replicas;
    w->of = of;
    w->number = arena_alloc(arena, n * sizeof *w->number);
    w->rank = arena_alloc(arena, n * sizeof *w->rank);
    w->first = arena_alloc(arena, (n + 1) * sizeof *w->first);
    w->host = arena_alloc(arena, n * sizeof *w->host);
    return w->number && w->rank && w->first && w->host ? 0 : error_nomem();
}

/* The side of the destination, as it was for the tensor before if the replicas are the same ranks. */
static int keep_side(const struct job *j, struct walk_side **out)
{
    struct walk_side *w = *out = j->d->side;
    if (w && j->d->side_set == j->d_free && layout_same_mesh(w->of, j->dst) && layout_same_sizes(w->of, j->dst)) {
        for (int64_t k = 0; k < w->n && w->asked; k++)
            w->has[k] = UNKNOWN;
        w->asked = false;
        return 0;
    }
    arena_reset(&j->d->sides);
    j->d->side = NULL;
    w = arena_alloc(&j->d->sides, sizeof *w);
    if (!w)
        return error_nomem();
    *w = (struct walk_side){.has = arena_alloc(&j->d->sides, (size_t)j->d_replicas * sizeof *w->has)};
    if (!w->has || side_room(&j->d->sides, j->dst, j->d_replicas, w))
        return error_nomem();
    j->d->side_set = j->d_free;
    *out = j->d->side = w;
    return 0;
}

static int walk_room(const struct job *j, struct walk *w)
{
    size_t ns = (size_t)j->s_replicas, nd = (size_t)j->d_replicas;
    int rc = side_room(j->arena, j->src, j->s_replicas, &w->src);
    if (!rc)
        rc = keep_side(j, &w->dst);
    if (rc)
        return rc;
    w->near = arena_alloc(j->arena, nd * sizeof *w->near);
    w->far = arena_alloc(j->arena, nd * sizeof *w->far);
    w->other_host = arena_alloc(j->arena, (nd + 1) * sizeof *w->other_host);
    w->line = arena_alloc(j->arena, ((ns < nd ? ns : nd) + 1) * sizeof *w->line);
    return w->near && w->far && w->other_host && w->line ? 0 : error_nomem();
}

static int walk_side(const struct job *j, bool source, int64_t at, struct walk_side *w)
{
    const weft_layout *l = source ? j->src : j->dst;
    uint32_t set = source ? j->s_free : j->d_free;
    int64_t n = source ? j->s_replicas : j->d_replicas;
    if (w->n && w->at == at)
        return 0;
    struct arena arena = {0};
    struct walk_replica *v = arena_alloc(&arena, (size_t)n * sizeof *v);
    if (!v)
        return error_nomem();
    bool sorted = true;
    struct axes_walk place = {.offset = at};
    for (int64_t r = 0; r < n; r++, axes_next(l, set, &place)) {
        int rank = mesh_rank(l, place.offset);
        v[r] = (struct walk_replica){machine_host(j->machine, rank), rank, r};
        sorted = sorted && (!r || v[r - 1].host <= v[r].host);
    }
    if (!sorted)
        qsort(v, (size_t)n, sizeof *v, by_host);
    w->hosts = w->most = 0;
    for (int64_t r = 0; r < n; r++) {
        w->number[r] = v[r].number;
        w->rank[r] = v[r].rank;
        if (w->has)
            w->has[r] = UNKNOWN;
        if (!r || v[r].host != v[r - 1].host) {
            w->first[w->hosts] = r;
            w->host[w->hosts++] = v[r].host;
        }
        w->most = max64(w->most, r + 1 - w->first[w->hosts - 1]);
    }
    w->first[w->hosts] = w->n = n;
    w->at = at;
    arena_free(&arena);
    return 0;
}

/* Does the k-th replica of the destination have piece s of the source? */
static bool has_piece(const struct job *j, struct walk_side *dst, int64_t k, int64_t s)
{
    if (dst->has[k] == UNKNOWN)
        dst->has[k] = piece_of(j, dst->rank[k]);
    dst->asked = true;
    return dst->has[k] == s;
}

/* On how many hosts the ranks of a layout are. Negative: an error. */
static int64_t hosts_of(const struct job *j, bool source)
{
    const weft_layout *l = source ? j->src : j->dst;
    struct draft_hosts *known = &j->d->hosts[source];
    if (known->of && layout_same_mesh(known->of, l))
        return known->n;
    /* Host numbers are less than the number of the machine's ranks, which may be more than the ranks of the world. */
    size_t most = (size_t)(j->machine->host ? j->machine->ranks : j->d->world);
    struct arena arena = {0};
    bool *seen = arena_alloc(&arena, most * sizeof *seen);
    if (!seen)
        return error_nomem();
    memset(seen, 0, most * sizeof *seen);
    int64_t n = 0;
    for (int64_t i = 0; i < l->mesh; i++) {
        bool *s = &seen[machine_host(j->machine, mesh_rank(l, i))];
        n += !*s;
        *s = true;
    }
    arena_free(&arena);
    *known = (struct draft_hosts){l, n};
    return n;
}

/* One line for all takers, which are on these hosts. None of the hosts has a replica of the source. */
static int far_line(const struct feed *f, int64_t takers, const int64_t *taker, int64_t hosts, const int64_t *host,
                    int64_t most, struct feed_line *out)
{
    const struct job *j = f->j;
    *out = (struct feed_line){
        .takers = takers, .givers = j->s_replicas, .taker = taker, .host = host, .hosts = hand_on(f, most) ? hosts : 0};
    if (hosts < 2 || machine_group(bytes_of(f), hosts, 1, hosts) < 2) /* whatever the numbers of hosts are */
        return 0;
    const int64_t from = hosts_of(j, true), to = hosts_of(j, false);
    if (from < 0 || to < 0)
        return WEFT_ENOMEM;
    const int64_t together = machine_group(bytes_of(f), hosts, from, to);
    if (together > 1) {
        out->hosts = hosts;
        out->groups = ceil_div(hosts, together);
    }
    return 0;
}

/* Makes lines by host: one for each host that holds replicas and needs more, then one for all other hosts, fed by all
 * replicas. */
static int walk_mesh(struct feed *f)
{
    const struct job *j = f->j;
    struct walk *w = j->walk;
    int rc = w->line ? 0 : walk_room(j, w);
    if (!rc)
        rc = walk_side(j, true, f->s, &w->src);
    if (!rc)
        rc = walk_side(j, false, f->t, w->dst);
    if (rc)
        return rc;
    struct walk_side *dst = w->dst;
    int64_t *near = w->near, far = 0, hosts = 0, most = 0;
    f->line = w->line;
    f->nlines = 0;
    if (w->src.host[w->src.hosts - 1] < dst->host[0] || dst->host[dst->hosts - 1] < w->src.host[0])
        return far_line(f, dst->n, dst->number, dst->hosts, dst->first, dst->most, &f->line[f->nlines++]);
    for (int64_t h = 0, g = 0; h < dst->hosts; h++) {
        int64_t first = dst->first[h], end = dst->first[h + 1];
        while (g < w->src.hosts && w->src.host[g] < dst->host[h])
            g++;
        if (g == w->src.hosts || w->src.host[g] != dst->host[h]) { /* no replica of the source is on this host */
            w->other_host[hosts++] = far;
            memcpy(w->far + far, dst->number + first, (size_t)(end - first) * sizeof *w->far);
            far += end - first;
            most = max64(most, end - first);
            continue;
        }
        struct feed_line *l = &f->line[f->nlines];
        *l = (struct feed_line){.taker = near, .givers = w->src.first[g + 1] - w->src.first[g]};
        l->giver = w->src.hosts == 1 ? NULL : w->src.number + w->src.first[g];
        for (int64_t k = first; k < end; k++)
            if (!has_piece(j, dst, k, f->s))
                near[l->takers++] = dst->number[k];
        near += l->takers;
        f->nlines += l->takers > 0;
    }
    w->other_host[hosts] = far;
    return far ? far_line(f, far, w->far, hosts, w->other_host, most, &f->line[f->nlines++]) : 0;
}

/* ---- lines ---- */

int feed_walk_open(struct job *j)
{
    j->walk = arena_alloc(j->arena, sizeof *j->walk);
    if (!j->walk)
        return error_nomem();
    *j->walk = (struct walk){0};
    return 0;
}

/* Which giver comes first on a line that not all givers share: lines of one source piece begin with different ones. */
static int64_t first_giver(const struct feed *f, const struct feed_line *l)
{
    const struct job *j = f->j;
    uint32_t tell = j->d_split; /* axes that distinguish the lines of s; pieces along the cut dim may be on one line */
    for (int a = 0; a < j->dst->naxes && j->chunk; a++)
        tell &= ~(j->dst->axis[a].role == j->cut ? 1u << a : 0);
    int64_t number = axes_number(j->dst, tell, f->t);
    return (int64_t)((j->d->tensor + (uint64_t)f->s + (uint64_t)(number * l->used)) % (uint64_t)l->givers);
}

int feed_open(const struct job *j, int64_t s, int64_t t, int64_t length, int64_t first, int64_t other, int64_t s_piece,
              struct feed *f)
{
    *f = (struct feed){.j = j, .s = s, .t = t, .length = length, .other = other, .line = &f->one, .nlines = 1};
    f->one = (struct feed_line){.takers = j->d_replicas, .givers = j->s_replicas};
    if (j->meet == JOB_SAME)
        same_mesh(f, &f->one);
    int rc = j->meet == JOB_WALK ? walk_mesh(f) : 0;
    for (size_t i = 0; i < f->nlines && !rc; i++) {
        struct feed_line *l = &f->line[i];
        l->used = 1;
        if (l->givers == 1) /* it feeds the whole line */
            continue;
        int64_t feeds = 1, takers = l->groups ? l->groups : l->takers; /* feeds: destination pieces on the line */
        l->total = (wide)(l->groups ? l->groups : l->hosts ? l->hosts : l->takers) * length;
        if (j->chunk) {
            int64_t whole;
            layout_piece_extent(j->src, j->cut, s_piece, &whole);
            l->base = (wide)first * l->takers;
            l->total = (wide)whole * l->takers;
            feeds = ceil_div(whole, j->chunk);
        }
        int64_t bytes = (int64_t)weft_dtype_size(j->wire) * other; /* of one position of the line */
        wide filled = wide_mul(l->total, bytes) / GRAIN;
        int64_t grains = filled > l->givers ? l->givers : (int64_t)filled;
        int64_t want = takers > l->givers ? l->givers : min64(takers * min64(feeds, l->givers), l->givers);
        l->used = max64(1, min64(l->givers, max64(want, grains)));
        l->turn = l->used == l->givers ? 0 : first_giver(f, l);
    }
    return rc;
}

/* The position on the line at which giver i's part starts. */
static wide part_start(const struct feed_line *l, int64_t i)
{
    return i ? wide_div(wide_mul(i, l->total) + l->used - 1, l->used) : 0;
}

/* Clips a distance on the line to the range 0 to most. */
static int64_t clip(wide x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : (int64_t)x;
}

/* The length of the stretch that starts at p of a taker (or a host) whose part of the line starts at `start`. It ends
 * where another giver sends, or where another of the `share` ranks of the host receives. */
static int64_t cut_end(const struct feed *f, const struct feed_line *l, wide start, int64_t p, int64_t share,
                       int64_t *giver, int64_t *member)
{
    int64_t end = f->length, last = l->used - 1, g = 0;
    if (last)
        g = clip(wide_div(wide_mul(start + p, l->used), l->total), last);
    if (g < last)
        end = clip(part_start(l, g + 1) - start, end);
    *giver = g;
    *member = 0;
    if (share > 1) {
        *member = mul_div(p, share, f->length);
        end = min64(end, (int64_t)wide_div((wide)(*member + 1) * f->length + share - 1, share));
    }
    return end;
}

static int giver_rank(const struct feed *f, const struct feed_line *l, int64_t g)
{
    int64_t who = (g + l->turn) % l->givers;
    return s_rank(f, l->giver ? l->giver[who] : who);
}

/* ---- hosts that pass stretches on to each other ---- */

static int64_t up(wide a, int64_t b)
{
    return (int64_t)wide_div(a + b - 1, b);
}

/* Hosts that pass stretches on to each other. Each group has all of the pair's positions, in shares. */
struct group {
    const struct feed *f;
    const struct feed_line *l;
    int64_t number, first, hosts; /* its hosts are first to first + hosts - 1 of the line */
    int64_t shares, turn;         /* share k goes to the host first + (k + turn) % hosts */
};

static struct group group_of(const struct feed *f, const struct feed_line *l, int64_t number)
{
    struct group g = {.f = f, .l = l, .number = number, .first = mul_div(number, l->hosts, l->groups)};
    g.hosts = mul_div(number + 1, l->hosts, l->groups) - g.first;
    g.shares = min64(f->length, machine_shares(bytes_of(f), g.hosts));
    g.turn = (int64_t)((f->j->d->tensor + (uint64_t)f->s + (uint64_t)f->t) % (uint64_t)g.hosts);
    return g;
}

/* The taker with this number on a host of the line, in turn. */
static int taker_rank(const struct group *g, int64_t host, int64_t member)
{
    const struct feed_line *l = g->l;
    return d_rank(g->f, l->taker[l->host[host] + member % (l->host[host + 1] - l->host[host])]);
}

/* Who gets a stretch from the source. */
struct owner {
    int64_t host, member;
};

/* The end of the stretch that starts at p: another giver, host or taker has the next one. */
static int64_t stretch_end(const struct group *g, int64_t p, int64_t *giver, struct owner *o)
{
    const struct feed_line *l = g->l;
    int64_t length = g->f->length, k = mul_div(p, g->shares, length), none;
    int64_t from = up((wide)k * length, g->shares), to = up((wide)(k + 1) * length, g->shares);
    int64_t end = cut_end(g->f, l, (wide)g->number * length, p, 1, giver, &none);
    o->host = g->first + (k + g->turn) % g->hosts;
    int64_t takers = l->host[o->host + 1] - l->host[o->host];
    o->member = mul_div(p - from, takers, to - from);
    return min64(end, min64(to, from + up((wide)(o->member + 1) * (to - from), takers)));
}

/* This rank is the place-th taker. The owner of a stretch gives it to its mates and to one taker on each other host of
 * the group, which gives it to its own mates. */
static int receive_in_group(const struct feed *f, const struct feed_line *l, int64_t place,
                            int (*visit)(void *arg, const struct feed_cut *c), void *arg)
{
    int64_t h = 0, number = 0;
    while (l->host[h + 1] <= place)
        h++;
    while (mul_div(number + 1, l->hosts, l->groups) <= h)
        number++;
    const struct group group = group_of(f, l, number);
    int64_t takers = l->host[h + 1] - l->host[h], me = place - l->host[h];
    int *to = arena_alloc(f->j->arena, (size_t)(takers + group.hosts) * sizeof *to), rc = 0;
    if (!to)
        return error_nomem();
    size_t mates = 0, all;
    for (int64_t k = 0; k < takers; k++)
        if (k != me)
            to[mates++] = taker_rank(&group, h, k);
    all = mates;
    for (int64_t k = group.first; k < group.first + group.hosts; k++)
        if (k != h)
            to[all++] = taker_rank(&group, k, me);
    for (int64_t p = 0, giver; p < f->length && !rc;) {
        struct owner o;
        struct feed_cut c = {.from = p, .to = stretch_end(&group, p, &giver, &o), .mates = to};
        bool here = o.host == h, leads = me == o.member % takers;
        c.origin = giver_rank(f, l, giver);
        c.nmates = !leads ? 0 : here ? all : mates;
        c.stage = here ? !leads : 1 + !leads;
        c.rank = here && leads ? c.origin : taker_rank(&group, leads ? o.host : h, o.member);
        rc = visit(arg, &c);
        p = c.to;
    }
    return rc;
}

/* What this rank, the g-th giver of the line, sends to owners in a group. */
static int send_to_group(const struct feed *f, const struct feed_line *l, int64_t g, int64_t number,
                         int (*visit)(void *arg, const struct feed_cut *c), void *arg)
{
    const struct group group = group_of(f, l, number);
    int rc = 0;
    for (int64_t p = clip(part_start(l, g) - (wide)number * f->length, f->length), who; p < f->length && !rc;) {
        struct owner o;
        struct feed_cut c = {.from = p, .to = stretch_end(&group, p, &who, &o)};
        if (who != g)
            break;
        c.rank = taker_rank(&group, o.host, o.member);
        rc = visit(arg, &c);
        p = c.to;
    }
    return rc;
}

/* This rank is the place-th taker of a line with fan-out. */
static int receive_on_host(const struct feed *f, const struct feed_line *l, int64_t place,
                           int (*visit)(void *arg, const struct feed_cut *c), void *arg)
{
    int64_t h = 0;
    while (l->host[h + 1] <= place)
        h++;
    int64_t first = l->host[h], share = l->host[h + 1] - first, me = place - first;
    int *mates = arena_alloc(f->j->arena, (size_t)share * sizeof *mates);
    if (!mates)
        return error_nomem();
    size_t n = 0;
    for (int64_t k = 0; k < share; k++)
        if (k != me)
            mates[n++] = d_rank(f, l->taker[first + k]);
    int rc = 0;
    for (int64_t p = 0, g, member; p < f->length && !rc;) {
        struct feed_cut c = {.from = p, .to = cut_end(f, l, (wide)h * f->length, p, share, &g, &member)};
        c.origin = giver_rank(f, l, g);
        if (member == me) {
            c.rank = c.origin;
            c.mates = mates;
            c.nmates = n;
        } else {
            c.rank = d_rank(f, l->taker[first + member]);
            c.stage = 1;
        }
        rc = visit(arg, &c);
        p = c.to;
    }
    return rc;
}

int feed_receive(const struct feed *f, int (*visit)(void *arg, const struct feed_cut *c), void *arg)
{
    for (size_t i = 0; i < f->nlines; i++) {
        const struct feed_line *l = &f->line[i];
        int64_t place = feed_place(f, l, f->j->d_replica), g, member;
        if (place < 0)
            continue;
        if (l->groups)
            return receive_in_group(f, l, place, visit, arg);
        if (l->hosts)
            return receive_on_host(f, l, place, visit, arg);
        int rc = 0;
        for (int64_t p = 0; p < f->length && !rc;) {
            struct feed_cut c = {.from = p, .to = cut_end(f, l, l->base + (wide)place * f->length, p, 1, &g, &member)};
            c.rank = giver_rank(f, l, g);
            rc = visit(arg, &c);
            p = c.to;
        }
        return rc;
    }
    return error_set(WEFT_EINVAL, "lower: rank %d takes no part in a piece that it lacks", f->j->d->rank);
}

static int64_t my_place(const struct feed_line *l, int64_t me)
{
    if (!l->giver)
        return me;
    for (int64_t k = 0; k < l->givers; k++)
        if (l->giver[k] == me)
            return k;
    return -1;
}

/* What this rank, the g-th giver of the line, sends to its k-th taker or host. */
static int send_to(const struct feed *f, const struct feed_line *l, int64_t g, int64_t k,
                   int (*visit)(void *arg, const struct feed_cut *c), void *arg)
{
    int64_t first = l->hosts ? l->host[k] : k, share = l->hosts ? l->host[k + 1] - first : 1;
    wide start = l->base + (wide)k * f->length;
    int64_t p = clip(part_start(l, g) - start, f->length), who, member;
    int rc = 0;
    while (p < f->length && !rc) {
        struct feed_cut c = {.from = p, .to = cut_end(f, l, start, p, share, &who, &member)};
        if (who != g)
            break;
        c.rank = d_rank(f, feed_taker(f, l, first + member));
        rc = visit(arg, &c);
        p = c.to;
    }
    return rc;
}

int feed_send(const struct feed *f, int (*visit)(void *arg, const struct feed_cut *c), void *arg)
{
    for (size_t i = 0; i < f->nlines; i++) {
        const struct feed_line *l = &f->line[i];
        int64_t who = my_place(l, f->j->s_replica), n = l->groups ? l->groups : l->hosts ? l->hosts : l->takers;
        if (who < 0 || !n)
            continue;
        int64_t g = (who - l->turn + l->givers) % l->givers;
        if (g >= l->used)
            continue;
        /* The takers, hosts or groups that this part of the line overlaps. The last part also has what ghosts need
         * beyond the line. */
        int64_t k = clip(wide_div(part_start(l, g) - l->base, f->length), n), end = n;
        if (g < l->used - 1)
            end = clip(wide_div(part_start(l, g + 1) - l->base + f->length - 1, f->length), n);
        for (; k < end; k++) {
            int rc = l->groups ? send_to_group(f, l, g, k, visit, arg) : send_to(f, l, g, k, visit, arg);
            if (rc)
                return rc;
        }
    }
    return 0;
}
