#define _GNU_SOURCE
#include "property_case.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"

int spec_mesh(const struct side_spec *s)
{
    int n = 1;
    for (int a = 0; a < s->naxes; a++)
        n *= s->size[a];
    return n;
}

int spec_world(const struct side_spec *s)
{
    int most = 0;
    for (int i = 0; i < spec_mesh(s); i++)
        most = s->ranks[i] > most ? s->ranks[i] : most;
    return most + 1;
}

int case_world(const struct property_case *c)
{
    int most = 1;
    for (int m = 0; m < c->moves; m++)
        for (int k = 0; k < 2; k++)
            most = spec_world(&c->side[m][k]) > most ? spec_world(&c->side[m][k]) : most;
    return most;
}

bool spec_has_ghosts(const struct side_spec *s)
{
    for (int d = 0; d < s->ndim; d++)
        if (s->dim[d].lo || s->dim[d].hi)
            return true;
    return false;
}

void spec_free_axis(struct side_spec *s, int axis)
{
    for (int d = 0; d < s->ndim; d++)
        for (int k = 0; k < s->dim[d].nsplits; k++)
            if (s->dim[d].split[k].axis == axis) {
                s->dim[d].nsplits--;
                memmove(&s->dim[d].split[k], &s->dim[d].split[k + 1],
                        (size_t)(s->dim[d].nsplits - k) * sizeof s->dim[d].split[k]);
                k--;
            }
    for (int f = 0; f < s->nfolds; f++)
        for (int k = 0; k < s->fold[f].nover; k++)
            if (s->fold[f].over[k] == axis) {
                s->fold[f].nover--;
                memmove(&s->fold[f].over[k], &s->fold[f].over[k + 1],
                        (size_t)(s->fold[f].nover - k) * sizeof s->fold[f].over[k]);
                k--;
            }
}

void spec_mend(struct side_spec *s, bool destination)
{
    for (int d = 0; d < s->ndim; d++) {
        for (int k = 0; k < s->dim[d].nsplits; k++)
            if (s->dim[d].split[k].block)
                s->dim[d].lo = s->dim[d].hi = 0;
        if (!s->dim[d].lo && !s->dim[d].hi)
            s->dim[d].wrap = false;
    }
    int ghosted = 0;
    for (int d = 0; d < s->ndim; d++)
        ghosted += s->dim[d].lo || s->dim[d].hi;
    s->faces = s->faces && ghosted > 1;
    if (!ghosted)
        spec_free_axis(s, CASE_GHOSTS);
    int n = 0;
    for (int f = 0; f < s->nfolds; f++) {
        if (!s->fold[f].nover)
            continue;
        s->fold[n] = s->fold[f];
        if (s->fold[n].op == WEFT_AVG && destination)
            s->fold[n].op = WEFT_SUM;
        if (!dtype_foldable(s->fold[n].op, s->dtype))
            s->fold[n].op = s->dtype == WEFT_BOOL ? WEFT_BXOR : s->dtype == WEFT_F8E8M0 ? WEFT_MAX : WEFT_SUM;
        n++;
    }
    s->nfolds = n;
}

/* ---- text ---- */

static void spec_text_ranks(const struct side_spec *s, struct text *t)
{
    int n = spec_mesh(s);
    bool plain = true;
    for (int i = 0; i < n; i++)
        plain = plain && s->ranks[i] == i;
    for (int i = 0, k; i < n && !plain; i = k) {
        for (k = i + 1; k < n && s->ranks[k] == s->ranks[k - 1] + 1; k++)
            ;
        text_printf(t, "%c%d", i ? ',' : '=', s->ranks[i]);
        if (k - i > 2)
            text_printf(t, "..%d", s->ranks[k - 1]);
        else
            k = i + 1;
    }
}

void spec_text(const struct side_spec *s, struct text *t)
{
    text_printf(t, "%s[", weft_dtype_name(s->dtype));
    for (int d = 0; d < s->ndim; d++) {
        text_printf(t, "%s%lld", d ? "," : "", (long long)s->dim[d].extent);
        for (int k = 0; k < s->dim[d].nsplits; k++) {
            text_printf(t, "/%c", 'a' + s->dim[d].split[k].axis);
            if (s->dim[d].split[k].block)
                text_printf(t, ":%lld", (long long)s->dim[d].split[k].block);
        }
        if (s->dim[d].lo || s->dim[d].hi)
            text_printf(t, "~%lld", (long long)s->dim[d].lo);
        if (s->dim[d].lo != s->dim[d].hi)
            text_printf(t, ":%lld", (long long)s->dim[d].hi);
        if (s->dim[d].wrap)
            text_put(t, "o");
    }
    text_put(t, s->faces ? "]+ @" : "] @");
    for (int a = 0; a < s->naxes; a++)
        text_printf(t, "%s%c%d", a ? "." : "", 'a' + a, s->size[a]);
    spec_text_ranks(s, t);
    for (int f = 0; f < s->nfolds; f++) {
        text_printf(t, " +%s(", weft_op_name(s->fold[f].op));
        for (int k = 0; k < s->fold[f].nover; k++) {
            int a = s->fold[f].over[k];
            text_printf(t, "%s%c", k ? "," : "", a == CASE_GHOSTS ? '~' : 'a' + a);
        }
        text_put(t, ")");
    }
}

void case_text_options(const struct property_case *c, struct text *t)
{
    text_printf(t, " --seed %llu --values %s", (unsigned long long)c->seed, c->wild ? "wild" : "exact");
    if (c->bucket)
        text_printf(t, " --bucket %lld", (long long)c->bucket);
    if (c->algorithm)
        text_printf(t, " --algorithm %s", c->algorithm);
    if (c->ranks_per_host)
        text_printf(t, " --per-host %d", c->ranks_per_host);
    text_put(t, c->in_place ? " --in-place" : "");
    text_put(t, c->staged ? " --staged" : "");
    if (c->processes)
        text_put(t, c->private ? " --on shm: --private" : " --on shm:");
    else if (c->on)
        text_printf(t, " --on threads:%d", c->on);
    for (int r = 0; r < case_world(c) && c->hosts; r++)
        text_printf(t, "%s%d", r ? "," : " # with ranks on hosts ", c->host[r]);
}

void case_text_command(const struct property_case *c, struct text *t)
{
    if (c->processes && c->on)
        text_printf(t, "weft run -n %d -- ", c->on);
    text_put(t, "weft check '");
}

void case_text(const struct property_case *c, struct text *t)
{
    for (int m = 0; m < c->moves; m++) {
        text_put(t, m ? "\n         " : "");
        case_text_command(c, t);
        spec_text(&c->side[m][0], t);
        text_put(t, "' '");
        spec_text(&c->side[m][1], t);
        text_put(t, "'");
        case_text_options(c, t);
    }
}
