/* weft_lower: the list of passes. It is pure: all decisions are made with integers, and ties are broken by rank. */
#include <string.h>

#include "base/defaults.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/sized.h"
#include "base/text.h"
#include "lower/expand.h"
#include "lower/job.h"
#include "lower/recognise.h"
#include "lower/rows/rows.h"
#include "plan/scaled.h"

#define WHO 160 /* bytes of a tensor's number and name in an error */

static const char *who(const weft_move *m, size_t i, char *buf)
{
    struct text t = text_start(buf, WHO);
    text_printf(&t, "tensor %zu", i);
    if (m->name && *m->name)
        text_printf(&t, " '%s'", m->name);
    return buf;
}

/* One side has scales, or both have. */
static int check_scales(const weft_move *m, size_t i)
{
    char name[WHO];
    bool back = m->src->scale.dtype;
    const weft_layout *plain = back ? m->dst : m->src;
    bool ghosts = false;
    for (int d = 0; d < plain->ndim; d++)
        ghosts = ghosts || plain->dim[d].lo || plain->dim[d].hi;
    if (m->src->allows & WEFT_LAYOUT_GAPS)
        return error_set(WEFT_EUNSUPPORTED,
                         "lower: %s has scales, and the source is boxes +gaps: scales are those of whole blocks",
                         who(m, i, name));
    if (back && m->dst->scale.dtype) {
        if (!layout_same_scale(m->src, m->dst) || m->src->dtype != m->dst->dtype)
            return error_set(WEFT_EUNSUPPORTED,
                             "lower: %s has other scales or another dtype in the destination than in the source: move "
                             "it to f32 or bf16 in between",
                             who(m, i, name));
        return 0;
    }
    if (!dtype_unscaled(plain->dtype))
        return error_set(WEFT_EUNSUPPORTED,
                         "lower: %s has scales on one side, and is %s on the other: f32, bf16 or f16", who(m, i, name),
                         weft_dtype_name(plain->dtype));
    if (plain->nfolds || ghosts)
        return error_set(WEFT_EUNSUPPORTED,
                         "lower: %s has scales, and the %s has %s: move it to a layout without first", who(m, i, name),
                         back ? "destination" : "source", plain->nfolds ? "folds" : "ghosts");
    return 0;
}

static int check_move(const weft_move *m, size_t i)
{
    char name[WHO];
    if (!m->src || !m->dst)
        return error_set(WEFT_EINVAL, "lower: %s has no %s layout", who(m, i, name), m->src ? "destination" : "source");
    bool same = m->src->ndim == m->dst->ndim;
    for (int d = 0; d < m->src->ndim && same; d++)
        same = m->src->dim[d].extent == m->dst->dim[d].extent;
    if (!same) {
        char a[200], b[200];
        weft_layout_format(m->src, a, sizeof a, NULL);
        weft_layout_format(m->dst, b, sizeof b, NULL);
        return error_set(WEFT_EINVAL,
                         "lower: %s has two different shapes: %s -> %s (a move cannot reshape or transpose)",
                         who(m, i, name), a, b);
    }
    if (m->src->boxes || m->dst->boxes)
        for (int side = 0; side < 2; side++) {
            const weft_layout *l = side ? m->dst : m->src;
            bool ghosts = false;
            for (int d = 0; d < l->ndim; d++)
                ghosts = ghosts || l->dim[d].lo || l->dim[d].hi;
            if (l->nfolds || ghosts)
                return error_set(WEFT_EUNSUPPORTED,
                                 "lower: %s: one side is boxes, and the %s has %s: move it to a layout without first",
                                 who(m, i, name), side ? "destination" : "source", l->nfolds ? "folds" : "ghosts");
        }
    if (!dtype_castable(m->src->dtype, m->dst->dtype))
        return error_set(WEFT_EINVAL,
                         "lower: %s: there is no cast from %s to %s, because a real number has no imaginary "
                         "part (move the parts as a last dim of 2)",
                         who(m, i, name), weft_dtype_name(m->src->dtype), weft_dtype_name(m->dst->dtype));
    if (m->src->scale.dtype || m->dst->scale.dtype)
        return check_scales(m, i);
    for (int f = 0; f < m->dst->nfolds; f++)
        if (m->dst->fold[f].op == WEFT_AVG)
            return error_set(WEFT_EINVAL, "lower: %s: a destination cannot have +avg, because avg has no identity",
                             who(m, i, name));
    return 0;
}

/* *o points to *m. */
static int check_options(const weft_lower_opts *in, weft_lower_opts *o, weft_machine *m)
{
    int err = sized_read("weft_lower", "weft_lower_opts", o, sizeof *o, in);
    if (!err)
        err = sized_read("weft_lower", "weft_machine", m, sizeof *m, o->machine);
    if (err)
        return err;
    o->machine = m;
    if (o->bucket < 0 || o->world < 0 || m->ranks_per_host < 0 || m->latency_ns < 0 || m->bytes_per_us < 0 ||
        m->inside_latency_ns < 0 || m->inside_bytes_per_us < 0 || m->copy_bytes_per_us < 0 ||
        m->host_copy_bytes_per_us < 0 || m->core_bytes_per_us < 0 || m->message_ns < 0 || m->launch_ns < 0 ||
        m->links < 0 || m->cores < 0)
        return error_set(WEFT_EINVAL, "lower: an option is negative");
    if (m->host && m->ranks < 1)
        return error_set(WEFT_EINVAL, "lower: machine.host has %d entries", m->ranks);
    if (m->host && m->ranks_per_host)
        return error_set(WEFT_EINVAL, "lower: machine.host and machine.ranks_per_host are both set");
    for (int r = 0; m->host && r < m->ranks; r++)
        if (m->host[r] < 0 || m->host[r] >= m->ranks)
            return error_set(WEFT_EINVAL, "lower: machine.host[%d] is %d, among %d ranks", r, m->host[r], m->ranks);
    if (!m->host)
        m->ranks = 0;
    if (!o->bucket)
        o->bucket = DEFAULTS_BUCKET;
    if (!m->latency_ns)
        m->latency_ns = 2000;
    if (!m->bytes_per_us)
        m->bytes_per_us = 12500;
    if (!m->inside_latency_ns)
        m->inside_latency_ns = 2000;
    if (!m->copy_bytes_per_us)
        m->copy_bytes_per_us = 20000;
    if (!m->message_ns)
        m->message_ns = 200;
    if (!m->links)
        m->links = 1;
    return 0;
}

/* A digest of the whole problem: it is the same on every rank, and differs if plans could differ. */
static uint64_t digest(const weft_move *m, size_t n, const weft_lower_opts *o, int world)
{
    uint64_t h = hash_u64(WEFT_VERSION, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = m[i].name ? m[i].name : "";
        h = hash_u64(hash_u64(hash_bytes(h, name, strlen(name)), m[i].src->hash), m[i].dst->hash);
    }
    h = hash_u64(hash_u64(h, (uint64_t)o->bucket), (uint64_t)world << 1 | o->in_place);
    h = hash_u64(hash_u64(h, (uint64_t)o->machine->ranks_per_host), (uint64_t)o->machine->latency_ns);
    h = hash_u64(h, (uint64_t)o->machine->bytes_per_us);
    const int64_t more[] = {o->machine->inside_latency_ns,
                            o->machine->inside_bytes_per_us,
                            o->machine->copy_bytes_per_us,
                            o->machine->host_copy_bytes_per_us,
                            o->machine->core_bytes_per_us,
                            o->machine->message_ns,
                            o->machine->launch_ns,
                            o->machine->links,
                            o->machine->cores};
    h = hash_bytes(h, more, sizeof more);
    for (int r = 0; o->machine->host && r < world; r++)
        h = hash_u64(h, (uint64_t)o->machine->host[r]);
    return o->algorithm ? hash_bytes(h, o->algorithm, strlen(o->algorithm)) : h;
}

struct tally {
    const char *kind, *algorithm;
    int64_t bound, stated;
};

/* "mixed" for tensors that differ. */
static void note(const char **of, const char *what)
{
    if (!*of)
        *of = what;
    else if (strcmp(*of, what))
        *of = "mixed";
}

static int lower_one(struct draft *d, const weft_move *m, const weft_lower_opts *o, struct tally *t)
{
    struct job j;
    struct recognised r;
    arena_reset(&d->arena);
    int rc = draft_tensor(d, m);
    if (!rc)
        rc = job_open(&j, d, m, o->machine);
    if (rc)
        return rc;
    bool boxes = m->src->boxes || m->dst->boxes;
    if (boxes)
        r = (struct recognised){.kind = "reshard"};
    else
        recognise(m->src, m->dst, &r);
    note(&t->kind, r.kind);
    const struct row *row = NULL;
    rc = boxes && !o->algorithm ? 0 : rows_choose(&j, &r, o, &row);
    if (rc)
        return rc;
    note(&t->algorithm, row ? row->name : "direct");
    int64_t before = d->received;
    rc = row ? row->lower(&j, &r) : boxes ? lower_boxed(&j) : j.fold ? lower_fold(&j) : lower_direct(&j);
    if (rc)
        return rc;
    /* The general lowering meets the bound: what it receives is this rank's share. */
    int64_t bound = row ? rows_bound(&j, &r) : d->received - before;
    int64_t stated = row ? row->stated(&j, &r) : d->received - before;
    if (bound < 0 || stated < 0)
        return (int)(bound < 0 ? bound : stated);
    t->bound += bound;
    t->stated += stated;
    return emit_identity(&j);
}

/* The plan of moves without scales, whose options and world are right. */
static int lower_all(const weft_move *moves, size_t n, int rank, int world, const weft_lower_opts *o, weft_plan **out)
{
    struct draft d = {.rank = rank, .world = world, .bucket = o->bucket, .in_place = o->in_place};
    struct tally t = {0};
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = lower_one(&d, &moves[i], o, &t);
    weft_plan *p;
    if (!rc)
        rc = bucket_pack(&d, &p);
    draft_drop(&d);
    if (rc)
        return rc;
    p->digest = digest(moves, n, o, world);
    p->kind = t.kind ? t.kind : "copy";
    p->algorithm = t.algorithm ? t.algorithm : "direct";
    p->bound = t.bound;
    p->stated = t.stated;
    p->in_place = o->in_place;
    p->machine = *o->machine;
    p->machine.host = NULL;
    *out = p;
    return 0;
}

/* The same for moves some of which have scales. */
static int lower_scaled(const weft_move *moves, size_t n, int rank, int world, const weft_lower_opts *o,
                        weft_plan **out)
{
    struct expand e;
    weft_plan *p = NULL;
    int rc = expand_moves(moves, n, &e);
    if (!rc && e.moves.n >= PLAN_NONE)
        rc = error_set(WEFT_EUNSUPPORTED, "lower: more than 2^32 tensors");
    if (!rc)
        rc = lower_all(e.moves.v, e.moves.n, rank, world, o, &p);
    if (!rc && e.folds.n) {
        weft_lower_opts any = *o; /* a forced algorithm is that of the tensors */
        any.algorithm = NULL;
        rc = lower_all(e.folds.v, e.folds.n, rank, world, &any, &e.scales->fold);
    }
    if (!rc) {
        p->digest = digest(moves, n, o, world);
        p->scales = e.scales;
        e.scales = NULL;
        rc = p->scales ? scaled_make(p) : 0;
    }
    expand_free(&e);
    if (rc)
        weft_plan_free(p);
    else
        *out = p;
    return rc;
}

int weft_lower(const weft_move *moves, size_t n, int rank, const weft_lower_opts *opts, weft_plan **out)
{
    weft_lower_opts o;
    weft_machine machine;
    if (!out || (n && !moves))
        return error_set(WEFT_EINVAL, "lower: a NULL argument");
    int rc = check_options(opts, &o, &machine), world = o.world;
    if (!rc && n >= PLAN_NONE)
        rc = error_set(WEFT_EUNSUPPORTED, "lower: more than 2^32 tensors");
    for (size_t i = 0; i < n && !rc; i++) {
        rc = check_move(&moves[i], i);
        if (rc)
            break;
        char name[WHO];
        int need = moves[i].src->nranks > moves[i].dst->nranks ? moves[i].src->nranks : moves[i].dst->nranks;
        if (o.world && need > o.world)
            rc = error_set(WEFT_EINVAL, "lower: %s uses rank %d, and the world has %d ranks", who(&moves[i], i, name),
                           need - 1, o.world);
        world = need > world ? need : world;
    }
    if (!rc && machine.host && machine.ranks < world)
        rc = error_set(WEFT_EINVAL, "lower: machine.host has %d entries, the world %d ranks", machine.ranks, world);
    if (!rc && (rank < 0 || rank >= world))
        rc = error_set(WEFT_EINVAL, "lower: rank %d is not in a world of %d", rank, world);
    if (rc)
        return rc;
    return expand_needed(moves, n) ? lower_scaled(moves, n, rank, world, &o, out)
                                   : lower_all(moves, n, rank, world, &o, out);
}
