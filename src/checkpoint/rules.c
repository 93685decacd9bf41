/* Parsing rules; see rules.h. */
#include "checkpoint/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "layout/mesh.h"

struct parser {
    const char *path, *at;
    int line;
    struct arena *arena;
    VEC(struct rules_rule) rules;
    VEC(struct rules_fuse) fuses;
};

static int wrong(const struct parser *p, const char *why)
{
    return error_set(WEFT_EINVAL, "%s:%d: %s", p->path, p->line, why);
}

static void skip_space(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
}

static bool take(struct parser *p, const char *token)
{
    skip_space(p);
    size_t n = strlen(token);
    if (strncmp(p->at, token, n))
        return false;
    p->at += n;
    return true;
}

static const char *keep(struct parser *p, const char *from, size_t n)
{
    char *s = arena_alloc(p->arena, n + 1);
    if (!s)
        return NULL;
    memcpy(s, from, n);
    s[n] = 0;
    return s;
}

/* Reads the text up to white space, or up to one of `ends`. */
static int word(struct parser *p, const char *ends, const char **out)
{
    skip_space(p);
    const char *from = p->at;
    while (*p->at && *p->at != ' ' && *p->at != '\t' && !strchr(ends, *p->at))
        p->at++;
    *out = keep(p, from, (size_t)(p->at - from));
    return *out ? 0 : error_nomem();
}

static int axis_name(struct parser *p, const char **out)
{
    skip_space(p);
    size_t n = mesh_axis_name_length(p->at);
    if (!n || n > WEFT_MAX_NAME)
        return wrong(p, "an axis name is missing, or longer than 31 letters");
    *out = keep(p, p->at, n);
    p->at += n;
    return *out ? 0 : error_nomem();
}

static int number(struct parser *p, int64_t *out)
{
    skip_space(p);
    const char *from = p->at;
    *out = 0;
    while (*p->at >= '0' && *p->at <= '9') {
        *out = *out * 10 + (*p->at++ - '0');
        if (*out > RULES_NUMBER_MAX)
            return wrong(p, "a number is larger than 999999999");
    }
    return p->at > from ? 0 : wrong(p, "a number is missing");
}

/* A number above 0, or $name. */
static int value(struct parser *p, struct rules_value *out)
{
    *out = (struct rules_value){0};
    if (take(p, "$")) {
        const char *from = p->at;
        while ((*p->at >= 'a' && *p->at <= 'z') || (*p->at >= 'A' && *p->at <= 'Z') || *p->at == '_' ||
               (p->at > from && *p->at >= '0' && *p->at <= '9'))
            p->at++;
        if (p->at == from)
            return wrong(p, "a name is missing after $");
        out->variable = keep(p, from, (size_t)(p->at - from));
        return out->variable ? 0 : error_nomem();
    }
    int rc = number(p, &out->number);
    return rc ? rc : out->number ? 0 : wrong(p, "0 is neither a proportion nor a number of pieces");
}

/* Does the rule use the axis already? It may use an axis only once. */
static bool used(const struct rules_rule *r, const char *axis)
{
    for (int d = 0; d < r->ndim; d++)
        for (int s = 0; s < r->dim[d].n; s++)
            if (!strcmp(r->dim[d].split[s].axis, axis))
                return true;
    for (int i = 0; i < r->npins; i++)
        if (!strcmp(r->pin[i].axis, axis))
            return true;
    return false;
}

static int split(struct parser *p, struct rules_rule *r, struct rules_dim *d)
{
    struct rules_split s = {0};
    int rc = axis_name(p, &s.axis);
    if (rc)
        return rc;
    if (used(r, s.axis))
        return wrong(p, "an axis is used in two places");
    if (d->n == WEFT_MAX_AXES)
        return wrong(p, "a dim has more than 8 splits");
    if (take(p, ":")) {
        rc = number(p, &s.block);
        if (!rc && !s.block)
            rc = wrong(p, "a block of 0");
    } else if (take(p, "<=")) {
        rc = value(p, &s.most);
    }
    if (!rc)
        d->split[d->n++] = s;
    return rc;
}

/* Called after the opening bracket. "[]" has no dims: a scalar. */
static int dims(struct parser *p, struct rules_rule *r)
{
    r->more = -1;
    if (take(p, "]"))
        return 0;
    for (;;) {
        if (take(p, "...")) {
            if (r->more >= 0)
                return wrong(p, "'...' is there twice");
            r->more = r->ndim;
        } else {
            if (r->ndim == WEFT_MAX_DIMS)
                return wrong(p, "more than 8 dims");
            struct rules_dim *d = &r->dim[r->ndim++];
            int rc = 0;
            while (!rc && take(p, "/"))
                rc = split(p, r, d);
            if (rc)
                return rc;
        }
        if (take(p, "]"))
            return 0;
        if (!take(p, ","))
            return wrong(p, "expected '/' and an axis, '...', ',' or ']'");
    }
}

static int pins(struct parser *p, struct rules_rule *r)
{
    for (skip_space(p); *p->at; skip_space(p)) {
        struct rules_pin pin;
        int rc = axis_name(p, &pin.axis);
        if (rc)
            return rc;
        if (!take(p, "="))
            return wrong(p, "expected '=' and a coordinate after the axis");
        if (used(r, pin.axis))
            return wrong(p, "an axis is used in two places");
        if (r->npins == WEFT_MAX_AXES)
            return wrong(p, "more than 8 coordinates");
        if (take(p, "first"))
            pin.at = 0;
        else if (take(p, "last"))
            pin.at = RULES_LAST;
        else if ((rc = number(p, &pin.at)))
            return rc;
        if (*p->at && *p->at != ' ' && *p->at != '\t')
            return wrong(p, "expected first, last or a number");
        r->pin[r->npins++] = pin;
    }
    return 0;
}

/* Checks that nothing else in the rule uses the axis of an `{axis}`. */
static int check_pattern(struct parser *p, const struct rules_rule *r)
{
    int n = 0;
    char seen[WEFT_MAX_AXES][WEFT_MAX_NAME + 1];
    for (const char *s = r->pattern; *s; s++) {
        if (*s == '}')
            return wrong(p, "a '}' without its '{'");
        if (*s != '{')
            continue;
        size_t len = mesh_axis_name_length(++s);
        if (!len || len > WEFT_MAX_NAME || s[len] != '}')
            return wrong(p, "'{' is not followed by an axis name and '}'");
        if (n == WEFT_MAX_AXES)
            return wrong(p, "more than 8 numbers in a pattern");
        memcpy(seen[n], s, len);
        seen[n][len] = 0;
        bool twice = used(r, seen[n]);
        for (int i = 0; i < n; i++)
            twice |= !strcmp(seen[i], seen[n]);
        if (twice)
            return wrong(p, "an axis is used in two places");
        n++;
        s += len;
    }
    return 0;
}

static int rule_line(struct parser *p)
{
    struct rules_rule *r = vec_push(&p->rules);
    if (!r)
        return error_nomem();
    *r = (struct rules_rule){.line = p->line};
    int rc = word(p, "[", &r->pattern);
    if (!rc && !*r->pattern)
        rc = wrong(p, "a pattern is missing before '['");
    if (!rc && !take(p, "["))
        rc = wrong(p, "expected '[' and the dims after the pattern");
    if (!rc)
        rc = dims(p, r);
    if (!rc)
        rc = pins(p, r);
    return rc ? rc : check_pattern(p, r);
}

static int fuse_line(struct parser *p)
{
    struct rules_fuse *f = vec_push(&p->fuses);
    if (!f)
        return error_nomem();
    *f = (struct rules_fuse){.line = p->line};
    int rc = word(p, "=+:", &f->fused);
    if (!rc && !take(p, "="))
        rc = wrong(p, "expected '=' and the parts");
    do {
        if (!rc && f->nparts == RULES_PARTS)
            rc = wrong(p, "more than 8 parts");
        if (!rc)
            rc = word(p, "=+:", &f->part[f->nparts]);
        if (!rc && (!*f->part[f->nparts] || !strcmp(f->part[f->nparts], f->fused)))
            rc = wrong(p, "a part has no name of its own");
        for (int i = 0; i < f->nparts && !rc; i++)
            if (!strcmp(f->part[i], f->part[f->nparts]))
                rc = wrong(p, "two parts have one name");
        if (!rc) {
            f->share[f->nparts].number = 1;
            if (take(p, ":"))
                rc = value(p, &f->share[f->nparts]);
            f->nparts++;
        }
    } while (!rc && take(p, "+"));
    int64_t dim = 0;
    if (!rc && take(p, "dim"))
        rc = number(p, &dim);
    if (!rc && dim >= WEFT_MAX_DIMS)
        rc = wrong(p, "dims are 0 to 7");
    skip_space(p);
    if (!rc && (*p->at || !*f->fused || f->nparts < 2))
        rc = wrong(p, "expected 'fuse NAME = PART:SHARE + PART:SHARE ...'");
    f->dim = (int)dim;
    return rc;
}

static int line(struct parser *p)
{
    skip_space(p);
    if (!*p->at)
        return 0;
    if (!strncmp(p->at, "fuse", 4) && (p->at[4] == ' ' || p->at[4] == '\t')) {
        p->at += 4;
        return fuse_line(p);
    }
    return rule_line(p);
}

int rules_parse(const char *path, const char *text, size_t len, struct arena *arena, struct rules *out)
{
    struct parser p = {.path = path, .arena = arena};
    int rc = 0;
    *out = (struct rules){.path = path};
    for (const char *at = text, *end = text + len; at < end && !rc;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        const char *comment = memchr(at, '#', n);
        size_t used_bytes = comment ? (size_t)(comment - at) : n;
        while (used_bytes && at[used_bytes - 1] == '\r')
            used_bytes--;
        p.line++;
        p.at = keep(&p, at, used_bytes);
        rc = !p.at ? error_nomem() : memchr(at, 0, used_bytes) ? wrong(&p, "a zero byte") : line(&p);
        at += n + 1;
    }
    if (!rc && p.rules.n)
        out->rule = arena_alloc(arena, p.rules.n * sizeof *out->rule);
    if (!rc && p.fuses.n)
        out->fuse = arena_alloc(arena, p.fuses.n * sizeof *out->fuse);
    if (!rc && ((p.rules.n && !out->rule) || (p.fuses.n && !out->fuse)))
        rc = error_nomem();
    if (!rc && p.rules.n)
        memcpy(out->rule, p.rules.v, p.rules.n * sizeof *out->rule);
    if (!rc && p.fuses.n)
        memcpy(out->fuse, p.fuses.v, p.fuses.n * sizeof *out->fuse);
    out->nrules = p.rules.n;
    out->nfuses = p.fuses.n;
    free(p.rules.v);
    free(p.fuses.v);
    return rc;
}
