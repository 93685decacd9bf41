#include "foresee/changes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/defaults.h"
#include "foresee/story.h"
#include "tool/readable.h"

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory for another simulation");
}

/* Simulates and notes the time under this text. What lowering refuses is left out. */
static int try_one(struct changes *c, const struct scene *s, const struct scene_how *how, struct failure *why,
                   const char *form, ...) __attribute__((format(printf, 5, 6)));
static int try_one(struct changes *c, const struct scene *s, const struct scene_how *how, struct failure *why,
                   const char *form, ...)
{
    struct scene_run run;
    int code = scene_simulate(s, how, &run, why);
    if (code)
        return code == CLI_BAD ? CLI_OK : code;
    struct change *x = vec_push(&c->all);
    if (!x)
        code = no_memory(why);
    else {
        va_list args;
        va_start(args, form);
        vsnprintf(x->what, sizeof x->what, form, args);
        va_end(args);
        x->total = run.events.total;
    }
    scene_run_free(&run);
    return code;
}

static int try_algorithms(struct changes *c, const struct scene *s, const struct scene_how *how,
                          const struct scene_run *was, struct failure *why)
{
    int code = CLI_OK;
    for (size_t i = 0; weft_algorithm_name(i) && !code && s->moves.n == 1; i++) {
        struct scene_how other = *how;
        other.algorithm = weft_algorithm_name(i);
        if (strcmp(other.algorithm, was->graph.algorithm))
            code = try_one(c, s, &other, why, "algorithm %s", other.algorithm);
    }
    return code;
}

static int try_buckets(struct changes *c, const struct scene *s, const struct scene_how *how, struct failure *why)
{
    int code = CLI_OK;
    int64_t bucket = how->bucket ? how->bucket : s->bucket ? s->bucket : DEFAULTS_BUCKET;
    for (int up = 0; up < 2 && !code; up++) {
        struct scene_how other = *how;
        char text[64];
        other.bucket = up ? bucket * 4 : bucket / 4;
        if (other.bucket > 0)
            code = try_one(c, s, &other, why, "buckets of %s", readable_bytes(other.bucket, text, sizeof text));
    }
    return code;
}

/* Ranks one after the other on different hosts. */
static int try_placement(struct changes *c, const struct scene *s, const struct scene_how *how,
                         const struct scene_run *was, struct failure *why)
{
    if (was->links.hosts < 2 || how->host)
        return CLI_OK;
    int *host = malloc((size_t)s->world * sizeof *host);
    if (!host)
        return no_memory(why);
    for (int r = 0; r < s->world; r++)
        host[r] = r % was->links.hosts;
    struct scene_how other = *how;
    other.host = host;
    int code = try_one(c, s, &other, why, "ranks in turn on the hosts");
    free(host);
    return code;
}

/* ---- one more replica of the source, on ranks of its own ---- */

static int add_replicated(struct scene *to, const weft_move *m, int world, struct failure *why)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    if (weft_layout_describe(m->src, &d) || d.boxes || d.naxes == WEFT_MAX_AXES) /* boxes have no axis to add to */
        return CLI_BAD;
    weft_axis axes[WEFT_MAX_AXES] = {{"replica_of_all", 2}};
    size_t n = 1;
    for (int a = 0; a < d.naxes; a++) {
        axes[a + 1] = d.axes[a];
        n *= (size_t)d.axes[a].size;
    }
    int *ranks = malloc(2 * n * sizeof *ranks);
    weft_layout *src = NULL;
    char *a = NULL, *b = NULL;
    size_t la = 0, lb = 0;
    int code = CLI_OK;
    for (size_t i = 0; ranks && i < n; i++) {
        ranks[i] = d.ranks[i];
        ranks[n + i] = world + d.ranks[i];
    }
    d.axes = axes;
    d.naxes++;
    d.ranks = ranks;
    if (!ranks || weft_layout_create(&d, &src) || weft_layout_format(src, NULL, 0, &la) ||
        weft_layout_format(m->dst, NULL, 0, &lb) || !(a = malloc(la + 1)) || !(b = malloc(lb + 1)) ||
        weft_layout_format(src, a, la + 1, &la) || weft_layout_format(m->dst, b, lb + 1, &lb))
        code = no_memory(why);
    else
        code = scene_add(to, a, b, why);
    weft_layout_free(src);
    free(ranks);
    free(a);
    free(b);
    return code;
}

static int try_replica(struct changes *c, const struct scene *s, const struct scene_how *how, struct failure *why)
{
    struct scene more = {0};
    int code = CLI_OK;
    for (size_t i = 0; i < s->moves.n && !code; i++) {
        code = add_replicated(&more, &s->moves.v[i], s->world, why);
        if (!code) {
            more.times.v[more.times.n - 1] = s->times.v[i];
            more.tensors += (size_t)s->times.v[i] - 1;
        }
    }
    if (!code && how->host == NULL)
        code = try_one(c, &more, how, why, "one more replica of the source, on further ranks");
    scene_free(&more);
    return code == CLI_BAD ? CLI_OK : code;
}

int changes_try(struct changes *c, const struct scene *s, const struct scene_how *how, const struct scene_run *was,
                struct failure *why)
{
    int code = how->algorithm ? CLI_OK : try_algorithms(c, s, how, was, why);
    if (!code)
        code = try_buckets(c, s, how, why);
    if (!code)
        code = try_placement(c, s, how, was, why);
    return code ? code : try_replica(c, s, how, why);
}

void changes_print(FILE *to, const struct changes *c, double was)
{
    char text[32];
    if (c->all.n)
        fprintf(to, "\nwhat if\n");
    for (size_t i = 0; i < c->all.n; i++)
        fprintf(to, "  %10s, %5.2f times  %s\n", story_time(c->all.v[i].total, text, sizeof text),
                was > 0 ? c->all.v[i].total / was : 1, c->all.v[i].what);
}

void changes_json(struct json *j, const struct changes *c)
{
    json_write_open(j, "what_if", '[', false);
    for (size_t i = 0; i < c->all.n; i++) {
        json_write_open(j, NULL, '{', true);
        json_write_text(j, "change", c->all.v[i].what);
        json_write_int(j, "time_ns", (int64_t)(c->all.v[i].total + 0.5));
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
}

void changes_free(struct changes *c)
{
    free(c->all.v);
    c->all.v = NULL;
}
