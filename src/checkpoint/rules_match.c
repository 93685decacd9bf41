/* Which rule applies to a name; see rules.h. */
#include <string.h>

#include "checkpoint/rules.h"
#include "layout/mesh.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Matches the pattern up to its next `*` or its end with the name at `at`; *end is behind the match. A number takes all
 * digits that follow, so there is at most one match at each position, and a match that begins later never ends
 * earlier. */
static bool match_stretch(const char *pattern, const char *name, const char *at, const char **end,
                          struct rules_match *m)
{
    for (; *pattern && *pattern != '*'; pattern++) {
        if (*pattern != '{') {
            if (*at++ != *pattern)
                return false;
            continue;
        }
        struct rules_pin *number = &m->number[m->n];
        number->axis = ++pattern; /* up to the brace: the axis is compared by its length */
        number->at = 0;
        if (!is_digit(*at) || (at > name && is_digit(at[-1])))
            return false;
        while (is_digit(*at)) {
            number->at = number->at * 10 + (*at++ - '0');
            if (number->at > RULES_NUMBER_MAX)
                return false;
        }
        m->n++;
        pattern += mesh_axis_name_length(pattern);
    }
    *end = at;
    return true;
}

/* Looks for the stretches between stars from left to right, each as early as possible. The last one must be at the
 * end. */
static bool match(const char *pattern, const char *name, struct rules_match *m)
{
    const char *at = name, *end, *limit = name + strlen(name);
    m->n = 0;
    if (!match_stretch(pattern, name, at, &at, m))
        return false;
    for (pattern += strcspn(pattern, "*"); *pattern; pattern += strcspn(pattern, "*")) {
        int n = m->n;
        pattern++;
        bool last = !strchr(pattern, '*'), found = false;
        for (; at <= limit && !found; at++) {
            m->n = n;
            found = match_stretch(pattern, name, at, &end, m) && (!last || end == limit);
        }
        if (!found)
            return false;
        at = end;
    }
    return at == limit;
}

bool rules_match_find(const struct rules *r, const char *name, struct rules_match *out)
{
    for (size_t i = 0; i < r->nrules; i++)
        if (match(r->rule[i].pattern, name, out)) {
            out->rule = &r->rule[i];
            return true;
        }
    return false;
}

/* ---- fused tensors ---- */

/* Finds `words` in a name, with a dot or an end on either side. */
static const char *find_words(const char *name, const char *words)
{
    size_t n = strlen(words);
    for (const char *at = strstr(name, words); at; at = strstr(at + 1, words))
        if ((at == name || at[-1] == '.') && (!at[n] || at[n] == '.'))
            return at;
    return NULL;
}

const struct rules_fuse *rules_match_fused(const struct rules *r, const char *name)
{
    for (size_t i = 0; i < r->nfuses; i++)
        if (find_words(name, r->fuse[i].fused))
            return &r->fuse[i];
    return NULL;
}

const struct rules_fuse *rules_match_part(const struct rules *r, const char *name, int *part)
{
    for (size_t i = 0; i < r->nfuses; i++)
        for (int k = 0; k < r->fuse[i].nparts; k++)
            if (find_words(name, r->fuse[i].part[k])) {
                *part = k;
                return &r->fuse[i];
            }
    return NULL;
}

char *rules_match_renamed(const char *name, const char *from, const char *to, struct arena *arena)
{
    const char *at = find_words(name, from);
    size_t before = (size_t)(at - name), n = strlen(to), after = strlen(at + strlen(from));
    char *s = arena_alloc(arena, before + n + after + 1);
    if (!s)
        return NULL;
    memcpy(s, name, before);
    memcpy(s + before, to, n);
    memcpy(s + before + n, at + strlen(from), after + 1);
    return s;
}

bool rules_match_mention(const struct rules *r, const char *axis)
{
    size_t n = strlen(axis);
    for (size_t i = 0; i < r->nrules; i++) {
        const struct rules_rule *rule = &r->rule[i];
        for (const char *s = strchr(rule->pattern, '{'); s; s = strchr(s + 1, '{'))
            if (!strncmp(s + 1, axis, n) && s[1 + n] == '}')
                return true;
        for (int d = 0; d < rule->ndim; d++)
            for (int k = 0; k < rule->dim[d].n; k++)
                if (!strcmp(rule->dim[d].split[k].axis, axis))
                    return true;
        for (int k = 0; k < rule->npins; k++)
            if (!strcmp(rule->pin[k].axis, axis))
                return true;
    }
    return false;
}

static bool asks(const struct rules_value *v, const char *name, size_t len)
{
    return v->variable && strlen(v->variable) == len && !memcmp(v->variable, name, len);
}

bool rules_match_ask(const struct rules *r, const char *name, size_t len)
{
    for (size_t i = 0; i < r->nrules; i++)
        for (int d = 0; d < r->rule[i].ndim; d++)
            for (int k = 0; k < r->rule[i].dim[d].n; k++)
                if (asks(&r->rule[i].dim[d].split[k].most, name, len))
                    return true;
    for (size_t i = 0; i < r->nfuses; i++)
        for (int k = 0; k < r->fuse[i].nparts; k++)
            if (asks(&r->fuse[i].share[k], name, len))
                return true;
    return false;
}
