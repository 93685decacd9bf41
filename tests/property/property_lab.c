#define _GNU_SOURCE
#include "property_lab.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/scalar.h"
#include "plan/plan.h"

__attribute__((format(printf, 2, 3))) bool lab_broken(struct why *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->text, sizeof w->text, fmt, args);
    va_end(args);
    return false;
}

static void lab_plans_free(struct lab *l)
{
    for (int r = 0; r < l->world; r++) {
        weft_plan_free(l->plans[r]);
        l->plans[r] = NULL;
    }
}

void lab_close(struct lab *l)
{
    lab_plans_free(l);
    for (int m = 0; m < l->c->moves; m++) {
        for (int r = 0; r < l->world; r++) {
            free(l->src[m * l->world + r]);
            free(l->dst[m * l->world + r]);
            free(l->want[m * l->world + r]);
        }
        oracle_free(l->oracle[m]);
        weft_layout_free(l->layout[m][0]);
        weft_layout_free(l->layout[m][1]);
    }
}

bool lab_layouts(struct lab *l, const struct property_case *c, int world, struct why *why)
{
    static const char *const names[CASE_MOVES] = {"wq", "wk", "wv", "wo", ""};
    char buf[1024];
    memset(l, 0, sizeof *l);
    l->c = c;
    l->world = world;
    for (int m = 0; m < c->moves; m++) {
        for (int k = 0; k < 2; k++) {
            struct text t = text_start(buf, sizeof buf);
            spec_text(&c->side[m][k], &t);
            if (weft_layout_parse(buf, &l->layout[m][k]))
                return lab_broken(why, "a layout is refused: %s", weft_errmsg());
        }
        l->moves[m] = (weft_move){c->moves > 1 ? names[m] : NULL, l->layout[m][0], l->layout[m][1]};
    }
    l->opts = (weft_lower_opts){.size = sizeof l->opts,
                                .bucket = c->bucket,
                                .algorithm = c->algorithm,
                                .in_place = c->in_place,
                                .world = world,
                                .machine = &l->machine};
    l->machine = (weft_machine){.size = sizeof l->machine, .ranks_per_host = c->ranks_per_host};
    if (c->hosts)
        l->machine = (weft_machine){.size = sizeof l->machine, .ranks = CASE_RANKS, .host = c->host};
    return true;
}

void lab_again(const struct property_case *c, const weft_layout *src, const weft_layout *dst, struct text *t)
{
    char a[1024], b[1024];
    size_t n;
    case_text_command(c, t);
    if (!weft_layout_format(src, a, sizeof a, &n) && !weft_layout_format(dst, b, sizeof b, &n))
        text_printf(t, "%s' '%s'", a, b);
    case_text_options(c, t);
}

void *lab_buffer(int64_t bytes)
{
    void *p = malloc(bytes > 0 ? (size_t)bytes : 1); /* exactly that many, so that sanitizers see what goes beyond */
    if (!p)
        abort();
    return p;
}

bool lab_data(struct lab *l, bool wild, struct why *why)
{
    for (int m = 0; m < l->c->moves; m++) {
        if (!l->oracle[m] && oracle_open(l->layout[m][0], l->layout[m][1], &l->oracle[m]))
            return lab_broken(why, "the oracle does not open");
        struct oracle *o = l->oracle[m];
        const void *sources[CASE_RANKS];
        for (int r = 0; r < l->world; r++) {
            int i = m * l->world + r;
            int64_t in = oracle_src_bytes(o, r), out = oracle_dst_bytes(o, r);
            l->src[i] = l->src[i] ? l->src[i] : lab_buffer(in);
            l->dst[i] = l->dst[i] ? l->dst[i] : lab_buffer(out);
            l->want[i] = l->want[i] ? l->want[i] : lab_buffer(out);
            oracle_fill(o, l->c->seed + (uint64_t)m, wild ? ORACLE_WILD : ORACLE_EXACT, r, l->src[i]);
            memset(l->dst[i], LAB_UNTOUCHED, (size_t)out);
            memset(l->want[i], LAB_UNTOUCHED, (size_t)out);
            sources[r] = l->src[i];
        }
        if (oracle_take(o, sources))
            return lab_broken(why, "the oracle has no memory");
        for (int r = 0; r < l->world; r++)
            oracle_expect(o, r, l->want[m * l->world + r]);
    }
    return true;
}

bool lab_lower(struct lab *l, struct why *why)
{
    lab_plans_free(l);
    for (int r = 0; r < l->world; r++)
        if (weft_lower(l->moves, (size_t)l->c->moves, r, &l->opts, &l->plans[r]))
            return lab_broken(why, "lowering on rank %d: %s", r, weft_errmsg());
    return true;
}

bool lab_fits(const struct lab *l, struct why *why)
{
    bool fits = true;
    for (int r = 0; r < l->world && l->opts.algorithm && strcmp(l->opts.algorithm, "direct"); r++) {
        weft_plan *p = NULL;
        int rc = weft_lower(l->moves, (size_t)l->c->moves, r, &l->opts, &p);
        weft_plan_free(p);
        if (rc && rc != WEFT_EINVAL)
            return lab_broken(why, "lowering on rank %d: %s", r, weft_errmsg());
        if (r && !rc != fits)
            return lab_broken(why, "rank %d %s the algorithm, rank 0 does not", r, rc ? "refuses" : "takes");
        fits = !rc;
        if (fits && !r)
            break; /* lab_lower does the others */
    }
    return fits;
}

bool lab_compare(const struct lab *l, struct why *why)
{
    for (int m = 0; m < l->c->moves; m++)
        for (int r = 0; r < l->world; r++) {
            int i = m * l->world + r;
            int64_t at = oracle_compare(l->oracle[m], r, l->dst[i], l->want[i]);
            if (at >= 0)
                return lab_broken(why, "value: tensor %d, rank %d, slot %lld is not what the oracle says", m, r,
                                  (long long)at);
        }
    return true;
}

int64_t *lab_slots(const struct oracle_side *s, int rank, int64_t *count)
{
    *count = oracle_side_count(s, rank);
    int64_t *out = lab_buffer((*count + 1) * (int64_t)sizeof *out), at[WEFT_MAX_DIMS] = {0}, shape[WEFT_MAX_DIMS];
    int64_t piece[WEFT_MAX_DIMS];
    int ndim = s->desc.ndim;
    for (int d = 0; d < ndim && *count; d++) {
        piece[d] = oracle_side_piece(s, s->index[rank], d);
        shape[d] = oracle_side_extent(&s->dim[d], piece[d]);
    }
    for (int64_t i = 0; i < *count; i++) {
        int64_t element = 0;
        bool nothing = false;
        int ghosts = 0;
        for (int d = 0; d < ndim; d++) {
            const struct oracle_side_dim *q = &s->dim[d];
            int64_t p = q->pos[q->first[piece[d]] + at[d]];
            nothing = nothing || p < 0;
            ghosts += oracle_side_ghost(q, piece[d], at[d]);
            element = element * q->extent + p;
        }
        out[i] = nothing || oracle_side_corner(s, ghosts) ? -1 : 2 * element + (ghosts > 0);
        oracle_step(ndim, shape, at);
    }
    return out;
}
