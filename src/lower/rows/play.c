#include "lower/rows/play.h"

#include <string.h>

#include "base/math.h"

static bool is(const struct play *x, const char *kind)
{
    return !strcmp(x->kind, kind);
}

/* Every member sends `bytes` to every other of its group. */
static void everyone(struct stages *s, const struct play *x, int64_t bytes, bool folds)
{
    int64_t each = stages_messages(s, bytes);
    for (int i = 0; i < s->n; i++) {
        int64_t near = s->rank[i].mates - 1, far = x->members - 1 - near;
        stages_both(s, i, false, near * each, near * bytes, folds);
        stages_both(s, i, true, far * each, far * bytes, folds);
    }
}

static void all_work(struct stages *s, int64_t bytes, int64_t kernels)
{
    for (int i = 0; i < s->n; i++)
        stages_work(s, i, bytes, kernels);
}

static void fold_all(struct stages *s, int64_t bytes, int64_t kernels, int64_t times)
{
    all_work(s, bytes, kernels);
    stages_end(s, times, false);
}

/* The part of an allgather's result that a member has already. */
static void copy_own(struct stages *s, int64_t bytes)
{
    fold_all(s, bytes, 1, 1);
}

/* ---- the general lowering ---- */

/* Different members that are on the host of rank i, and hosts on which member i is, of those that are looked at. */
static int64_t members_here(const struct stages *s, int i)
{
    int64_t n = 0;
    for (int k = s->rank[i].first; k < s->n; k++) {
        bool first = s->rank[k].host == s->rank[i].host;
        for (int q = s->rank[i].first; q < k && first; q++)
            first = s->rank[q].host != s->rank[k].host || s->rank[q].number != s->rank[k].number;
        n += first;
    }
    return n;
}

static int64_t hosts_with(const struct stages *s, int i)
{
    int64_t n = 0;
    for (int k = 0; k < s->n; k++) {
        bool first = s->rank[k].number == s->rank[i].number;
        for (int q = 0; q < k && first; q++)
            first = s->rank[q].host != s->rank[k].host || s->rank[q].number != s->rank[i].number;
        n += first;
    }
    return n;
}

/* Ranks on the host of rank i that are the same member as it, of its group or another. */
static int64_t copies_here(const struct stages *s, int i)
{
    int64_t n = 0;
    for (int k = s->rank[i].first; k < s->n; k++)
        n += s->rank[k].host == s->rank[i].host && s->rank[k].number == s->rank[i].number;
    return n;
}

static int64_t all_hosts(const struct stages *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->rank[i].first == i;
    return n;
}

/* What comes from other hosts enters a host once, to its ranks in turn, and is passed on there. */
static void gather(struct stages *s, const struct play *x)
{
    int64_t p = x->members, slice = x->bytes / p, hosts = all_hosts(s), each = stages_messages(s, slice);
    for (int i = 0; i < s->n; i++) {
        const struct stages_rank *r = &s->rank[i];
        int64_t have = members_here(s, i), lack = p - have, out = hosts - hosts_with(s, i);
        bool once = machine_hand_on(s->m, slice, r->here);
        stages_both(s, i, false, (have - 1) * each, (have - 1) * slice, false);
        stages_in(s, i, true, lack * each, once ? lack * slice / r->here : lack * slice, false);
        out = once ? out * slice / x->replicas : out * slice * r->here / x->replicas;
        stages_out(s, i, true, out ? lack * each : 0, out, false);
        stages_work(s, i, slice, 1);
    }
    stages_end(s, 1, true);
    bool passes = false;
    for (int i = 0; i < s->n; i++) {
        const struct stages_rank *r = &s->rank[i];
        int64_t lack = p - members_here(s, i), rest = lack * slice - lack * slice / r->here;
        if (r->here < 2 || !lack || !machine_hand_on(s->m, slice, r->here))
            continue;
        stages_both(s, i, false, (r->here - 1) * each, rest, false);
        passes = true;
    }
    if (passes)
        stages_end(s, 1, true);
}

bool play_relayed(const struct play *x)
{
    return is(x, "broadcast") && x->hosts > 2 && machine_group(x->bytes, x->hosts - 1, 1, x->hosts) > 1;
}

/* The root sends the other hosts an even share of the tensor each, which goes on to the others. */
static void relayed(struct stages *s, const struct play *x)
{
    int64_t far = x->hosts - 1, share = x->bytes / machine_shares(x->bytes, far);
    bool passes = false;
    for (int i = 1; i < s->n; i++) {
        int64_t part = share / s->rank[i].here;
        if (s->rank[i].host == s->rank[0].host)
            stages_send(s, 0, i, x->bytes, false);
        else
            stages_in(s, i, true, stages_messages(s, part), part, false);
    }
    stages_out(s, 0, true, far * s->rank[s->n - 1].here, x->bytes, false);
    stages_work(s, 0, x->bytes, 1);
    stages_end(s, 1, true);
    for (int i = 1; i < s->n; i++) {
        int64_t n = s->rank[i].here, part = share / n, each = stages_messages(s, part);
        if (s->rank[i].host == s->rank[0].host)
            continue;
        stages_both(s, i, true, (far - 1) * each, (far - 1) * part, false);
        stages_both(s, i, false, (n - 1) * each, (n - 1) * part, false);
        passes |= n > 1;
    }
    stages_end(s, 1, true);
    for (int i = 1; i < s->n && passes; i++) {
        int64_t n = s->rank[i].here, part = share / n;
        if (s->rank[i].host != s->rank[0].host)
            stages_both(s, i, false, (n - 1) * (far - 1) * stages_messages(s, part), (n - 1) * (far - 1) * part, false);
    }
    if (passes)
        stages_end(s, 1, true);
}

static void broadcast(struct stages *s, const struct play *x)
{
    int64_t bytes = x->bytes;
    bool passes = false;
    if (play_relayed(x)) {
        relayed(s, x);
        return;
    }
    for (int i = 1; i < s->n; i++) {
        const struct stages_rank *r = &s->rank[i];
        bool far = r->host != s->rank[0].host, once = far && machine_hand_on(s->m, bytes, r->here);
        int64_t parts = once ? r->here : 1, part = bytes / parts;
        if (once && i - r->first >= parts)
            continue;
        stages_out(s, 0, far, stages_messages(s, part), part, false);
        stages_in(s, i, far, stages_messages(s, part), part, false);
        passes |= once;
    }
    stages_work(s, 0, bytes, 1);
    stages_end(s, 1, true);
    for (int i = 1; i < s->n && passes; i++) {
        const struct stages_rank *r = &s->rank[i];
        if (r->host == s->rank[0].host || !machine_hand_on(s->m, bytes, r->here))
            continue;
        int64_t parts = r->here, part = bytes / parts, each = stages_messages(s, part);
        int64_t had = i - r->first < parts;
        stages_out(s, i, false, had * (r->here - 1) * each, had * (r->here - 1) * part, false);
        stages_in(s, i, false, (parts - had) * each, (parts - had) * part, false);
    }
    if (passes)
        stages_end(s, 1, true);
}

/* All others send the root `bytes` bytes. */
static void to_root(struct stages *s, const struct play *x, int64_t bytes, bool folds)
{
    int64_t each = stages_messages(s, bytes), near = s->rank[0].mates - 1, far = x->members - 1 - near;
    for (int i = 1; i < s->n; i++)
        stages_out(s, i, s->rank[i].host != s->rank[0].host, each, bytes, folds);
    stages_in(s, 0, false, near * each, near * bytes, folds);
    stages_in(s, 0, true, far * each, far * bytes, folds);
}

static void reduce(struct stages *s, const struct play *x)
{
    to_root(s, x, x->bytes, true);
    stages_end(s, 1, true);
    stages_work(s, 0, x->members * x->bytes, stages_messages(s, x->bytes));
    stages_end(s, 1, false);
}

/* The terms that folders get. Folder i of all ranks of the mesh gets those of the replica of its group that its number
 * says; in large groups it counts as its own. */
static void terms(struct stages *s, const struct play *x, int64_t folders, int64_t part)
{
    int64_t each = stages_messages(s, part), p = x->members;
    for (int i = 0; i < s->n && p > STAGES_RANKS; i++) {
        int64_t mates = s->rank[i].mates, near = folders * (mates - 1) / p, far = folders * (p - mates) / p;
        stages_out(s, i, false, near * each, near * part, true);
        stages_out(s, i, true, far * each, far * part, true);
        stages_in(s, i, false, i < folders ? (mates - 1) * each : 0, (mates - 1) * part, true);
        stages_in(s, i, true, i < folders ? (p - mates) * each : 0, (p - mates) * part, true);
    }
    for (int i = 0; i < s->n && i < folders && p <= STAGES_RANKS; i++) {
        int64_t replica = axes_offset(s->mesh, x->copies, i / p);
        for (int64_t k = 0; k < p; k++)
            if (k != s->rank[i].number)
                stages_send(s, replica + axes_offset(s->mesh, s->axes, k), i, part, true);
    }
}

/* Ranks that get an element of the result of a fold. */
static int64_t takers_of(const struct play *x)
{
    return x->replicas * (is(x, "allreduce") ? x->members : 1);
}

bool play_alike(const struct play *x, int64_t mesh)
{
    bool all_get = is(x, "allreduce");
    int64_t takers = takers_of(x);
    if (!all_get && !is(x, "reduce_scatter"))
        return true;
    return takers <= x->elements && (x->replicas == 1 || !all_get || mesh != takers || takers > STAGES_RANKS);
}

/* Each element is folded once, for all replicas of its group; those that could fold it share the elements. */
static void fold_once(struct stages *s, const struct play *x)
{
    bool all_get = is(x, "allreduce");
    int64_t p = x->members, takers = takers_of(x), folders = min64(takers, x->elements);
    int64_t part = x->bytes / (all_get ? 1 : p) / folders, each = stages_messages(s, part);
    if (play_alike(x, s->mesh->mesh))
        everyone(s, x, part, true);
    else
        terms(s, x, folders, part);
    stages_end(s, 1, true);
    for (int i = 0; i < s->n && (folders == takers || i < folders); i++)
        stages_work(s, i, p * part, each);
    stages_end(s, 1, false);
    for (int i = 0; i < s->n && takers > 1; i++) {
        int64_t same = all_get ? min64(s->rank[i].here, takers) : s->alike ? takers : copies_here(s, i);
        int64_t near = same - 1, far = takers - same;
        bool folds = folders == takers || i < folders;
        stages_out(s, i, false, folds * near * each, folds * near * part, false);
        stages_out(s, i, true, folds * far * each, folds * far * part, false);
        near = min64(near, folders - folds);
        far = folders - folds - near;
        stages_in(s, i, false, near * each, near * part, false);
        stages_in(s, i, true, far * each, far * part, false);
    }
    if (takers > 1)
        stages_end(s, 1, true);
}

void play_direct(struct stages *s, const struct play *x)
{
    if (is(x, "broadcast")) {
        broadcast(s, x);
    } else if (is(x, "reduce")) {
        reduce(s, x);
    } else if (is(x, "allgather") && x->hosts > 1) {
        gather(s, x);
    } else if (is(x, "allreduce") || is(x, "reduce_scatter")) {
        fold_once(s, x);
    } else {
        everyone(s, x, x->bytes / x->members, false);
        all_work(s, x->bytes / x->members, 1);
        stages_end(s, 1, true);
    }
}

/* ---- one and two phases ---- */

void play_one_phase(struct stages *s, const struct play *x)
{
    int64_t each = is(x, "allreduce") ? x->bytes : x->bytes / x->members;
    everyone(s, x, each, true);
    stages_end(s, 1, true);
    fold_all(s, each * x->members, stages_messages(s, each), 1);
}

void play_two_phase(struct stages *s, const struct play *x)
{
    int64_t slice = x->bytes / x->members;
    everyone(s, x, slice, true);
    stages_end(s, 1, true);
    fold_all(s, x->bytes, stages_messages(s, slice), 1);
    everyone(s, x, slice, false);
    stages_end(s, 1, true);
}

/* ---- rings ---- */

static void turn(struct stages *s, const struct play *x, int64_t bytes, bool folds, bool both)
{
    int64_t p = x->members;
    for (int i = 0; i < s->n; i++) {
        int64_t k = s->rank[i].number, next = stages_member(s, i, (k + 1) % p);
        int64_t prev = stages_member(s, i, (k + p - 1) % p);
        for (int back = 0; back <= both; back++) {
            bool out = stages_host(s, back ? prev : next) != s->rank[i].host;
            bool in = stages_host(s, back ? next : prev) != s->rank[i].host;
            stages_out(s, i, out, stages_messages(s, bytes), bytes, folds);
            stages_in(s, i, in, stages_messages(s, bytes), bytes, folds);
        }
    }
    stages_end_ring(s, p);
}

static void rings(struct stages *s, const struct play *x, bool both)
{
    int64_t p = x->members, slice = x->bytes / p / (both ? 2 : 1);
    if (!is(x, "allgather")) {
        turn(s, x, slice, true, both);
        fold_all(s, 2 * slice * (both ? 2 : 1), both ? 2 : 1, p - 1);
    }
    if (!is(x, "reduce_scatter"))
        turn(s, x, slice, false, both);
    if (is(x, "allgather"))
        copy_own(s, x->bytes / p);
}

void play_ring(struct stages *s, const struct play *x)
{
    rings(s, x, false);
}

void play_ring_both(struct stages *s, const struct play *x)
{
    rings(s, x, true);
}

/* ---- halving and doubling ---- */

static void swap(struct stages *s, int64_t with, int64_t bytes, bool folds)
{
    for (int i = 0; i < s->n; i++) {
        bool far = stages_host(s, stages_member(s, i, s->rank[i].number ^ with)) != s->rank[i].host;
        stages_both(s, i, far, stages_messages(s, bytes), bytes, folds);
    }
    stages_end(s, 1, true);
}

void play_doubling(struct stages *s, const struct play *x)
{
    int64_t p = x->members, slice = x->bytes / p;
    bool joined = is(x, "allreduce") && x->bytes <= s->bucket;
    for (int64_t width = p / 2; width >= 1 && !is(x, "allgather"); width /= 2) {
        swap(s, width, width * slice, true);
        fold_all(s, 2 * width * slice, joined ? 1 : width, 1);
    }
    for (int64_t width = 1; width < p && !is(x, "reduce_scatter"); width *= 2)
        swap(s, width, width * slice, false);
    if (is(x, "allgather"))
        copy_own(s, slice);
}

/* ---- trees ---- */

/* A parent sends to all its children at once. */
static void tree_down(struct stages *s, const struct play *x)
{
    for (int depth = 0; (int64_t)1 << depth < x->members; depth++) {
        bool any = false;
        for (int i = 0; i < s->n; i++) {
            if (__builtin_popcount((unsigned)i) != depth)
                continue;
            for (int64_t bit = 1; i + bit < s->n; bit *= 2)
                if (bit > i) {
                    stages_send(s, i, i + bit, x->bytes, false);
                    any = true;
                }
        }
        if (!depth)
            stages_work(s, 0, x->bytes, 1);
        if (any)
            stages_end(s, 1, true);
    }
}

static void tree_up(struct stages *s, const struct play *x)
{
    int64_t bit = 1;
    while (2 * bit < x->members)
        bit *= 2;
    for (; bit; bit /= 2) {
        for (int64_t i = 0; i < bit && i + bit < s->n; i++)
            stages_send(s, i + bit, i, x->bytes, true);
        stages_end(s, 1, true);
        for (int64_t i = 0; i < bit && i + bit < s->n; i++)
            stages_work(s, (int)i, 2 * x->bytes, stages_messages(s, x->bytes));
        stages_end(s, 1, false);
    }
}

void play_tree(struct stages *s, const struct play *x)
{
    if (is(x, "broadcast"))
        tree_down(s, x);
    else
        tree_up(s, x);
}

/* ---- slabs ---- */

/* Of a reduce: each folds a part, and gives it to the root. */
void play_slabs(struct stages *s, const struct play *x)
{
    int64_t slice = x->bytes / x->members;
    everyone(s, x, slice, true);
    stages_end(s, 1, true);
    fold_all(s, x->bytes, stages_messages(s, slice), 1);
    to_root(s, x, slice, false);
    stages_work(s, 0, slice, 1);
    stages_end(s, 1, true);
}

/* ---- all to all ---- */

void play_bruck(struct stages *s, const struct play *x)
{
    int64_t p = x->members, slice = x->bytes / p;
    for (int64_t bit = 1; bit < p; bit *= 2) {
        int64_t slices = 0;
        for (int64_t d = 1; d < p && p <= STAGES_RANKS; d++)
            slices += (d & bit) != 0;
        int64_t bytes = (p <= STAGES_RANKS ? slices : p / 2) * slice;
        s->run_from = bit == 1 ? x->run_from : slice;
        s->run_to = slice;
        for (int i = 0; i < s->n; i++) {
            int64_t k = s->rank[i].number;
            bool out = stages_host(s, stages_member(s, i, (k + bit) % p)) != s->rank[i].host;
            bool in = stages_host(s, stages_member(s, i, (k + p - bit) % p)) != s->rank[i].host;
            stages_out(s, i, out, stages_messages(s, bytes), bytes, false);
            stages_in(s, i, in, stages_messages(s, bytes), bytes, false);
        }
        if (bit == 1)
            all_work(s, slice, 1);
        stages_end(s, 1, true);
    }
}

/* ---- two levels ---- */

static void two_level_scatter(struct stages *s, const struct play *x, bool allreduce)
{
    int64_t H = x->hosts, slice = x->bytes / x->members;
    for (int i = 0; i < s->n; i++) {
        int64_t n = s->rank[i].mates;
        stages_both(s, i, false, n - 1, x->bytes - x->bytes / n, true);
    }
    stages_end(s, 1, true);
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].mates > 1)
            stages_work(s, i, x->bytes - x->bytes / H,
                        allreduce ? H - 1 : (x->members - s->rank[i].mates) / s->rank[i].mates);
    stages_end(s, 1, false);
    for (int i = 0; i < s->n; i++) {
        int64_t n = s->rank[i].mates, mine = allreduce ? x->bytes / (n * H) : slice;
        stages_out(s, i, true, H - 1, allreduce ? (H - 1) * mine : (x->members - n) * slice / n, true);
        stages_in(s, i, true, H - 1, (H - 1) * mine, true);
    }
    stages_end(s, 1, true);
    for (int i = 0; i < s->n; i++) {
        int64_t n = s->rank[i].mates, mine = allreduce ? x->bytes / (n * H) : slice;
        stages_work(s, i, (n + H - 1) * mine, stages_messages(s, mine));
    }
    stages_end(s, 1, false);
}

static void two_level_spread(struct stages *s, const struct play *x)
{
    int64_t H = x->hosts;
    bool passes = false;
    for (int i = 0; i < s->n; i++) {
        int64_t n = s->rank[i].mates, mine = x->bytes / (n * H);
        stages_both(s, i, true, H - 1, (H - 1) * mine, false);
        stages_both(s, i, false, n - 1, (n - 1) * mine, false);
        passes |= n > 1;
    }
    stages_end(s, 1, true);
    for (int i = 0; i < s->n; i++) {
        int64_t n = s->rank[i].mates, mine = x->bytes / (n * H);
        stages_both(s, i, false, n - 1, (n - 1) * (H - 1) * mine, false);
    }
    if (passes)
        stages_end(s, 1, true);
}

static void two_level_reduce(struct stages *s, const struct play *x)
{
    int64_t bytes = x->bytes;
    bool folds = false;
    for (int i = 0; i < s->n; i++) {
        int64_t n = s->rank[i].here;
        if (s->rank[i].host == s->rank[0].host) {
            if (i)
                stages_send(s, i, 0, bytes, true);
        } else if (n > 1) {
            stages_both(s, i, false, (n - 1) * stages_messages(s, bytes / n), bytes - bytes / n, true);
            folds = true;
        }
    }
    if (folds || s->rank[0].here > 1)
        stages_end(s, 1, true);
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].host != s->rank[0].host && s->rank[i].here > 1)
            stages_work(s, i, bytes, stages_messages(s, bytes / s->rank[i].here));
    if (folds)
        stages_end(s, 1, false);
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].host != s->rank[0].host)
            stages_send(s, i, 0, bytes / s->rank[i].here, true);
    stages_end(s, 1, true);
    stages_work(s, 0, (s->rank[0].here + x->hosts - 1) * bytes, stages_messages(s, bytes));
    stages_end(s, 1, false);
}

void play_two_level(struct stages *s, const struct play *x)
{
    if (is(x, "reduce")) {
        two_level_reduce(s, x);
        return;
    }
    two_level_scatter(s, x, is(x, "allreduce"));
    if (is(x, "allreduce"))
        two_level_spread(s, x);
}
