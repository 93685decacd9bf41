#include "foresee/scene.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/plan.h"
#include "tool/progress_line.h"

#define SAMPLE 16 /* ranks by which the rounds are chosen */

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory for the tensors");
}

void scene_free(struct scene *s)
{
    for (size_t i = 0; i < s->moves.n; i++) {
        weft_layout_free((weft_layout *)s->moves.v[i].src);
        weft_layout_free((weft_layout *)s->moves.v[i].dst);
        free(s->texts.v[i]);
    }
    free(s->moves.v);
    free(s->times.v);
    free(s->texts.v);
    free(s->table);
    *s = (struct scene){0};
}

/* ---- tensors ---- */

static size_t slot_of(const struct scene *s, const char *text)
{
    size_t i = (size_t)hash_bytes(0, text, strlen(text)) & (s->table_size - 1);
    while (s->table[i] != UINT32_MAX && strcmp(s->texts.v[s->table[i]], text))
        i = (i + 1) & (s->table_size - 1);
    return i;
}

static bool grow(struct scene *s)
{
    size_t size = s->table_size ? 2 * s->table_size : 256;
    uint32_t *table = malloc(size * sizeof *table);
    if (!table)
        return false;
    free(s->table);
    s->table = table;
    s->table_size = size;
    memset(table, 0xff, size * sizeof *table);
    for (size_t i = 0; i < s->texts.n; i++)
        table[slot_of(s, s->texts.v[i])] = (uint32_t)i;
    return true;
}

static int parse(const char *which, const char *text, weft_layout **out, struct failure *why)
{
    int err = weft_layout_parse(text, out);
    return err ? failure_set(why, err == WEFT_ENOMEM ? CLI_WRONG : CLI_BAD, "%s: %s", which, weft_errmsg()) : CLI_OK;
}

static int add_new(struct scene *s, char *text, const char *src, const char *dst, struct failure *why)
{
    weft_layout *a = NULL, *b = NULL;
    int code = parse("SRC", src, &a, why);
    if (!code)
        code = parse("DST", dst, &b, why);
    if (!code && !(vec_room(&s->moves, 1) && vec_room(&s->times, 1) && vec_room(&s->texts, 1)))
        code = no_memory(why);
    if (code) {
        weft_layout_free(a);
        weft_layout_free(b);
        free(text);
        return code;
    }
    s->table[slot_of(s, text)] = (uint32_t)s->moves.n;
    s->moves.v[s->moves.n++] = (weft_move){"", a, b};
    s->times.v[s->times.n++] = 1;
    s->texts.v[s->texts.n++] = text;
    int n = weft_layout_ranks(a), m = weft_layout_ranks(b);
    n = n > m ? n : m;
    s->world = n > s->world ? n : s->world;
    return CLI_OK;
}

int scene_add(struct scene *s, const char *src, const char *dst, struct failure *why)
{
    size_t cap = strlen(src) + strlen(dst) + 5;
    char *text = malloc(cap);
    if (!text || (2 * s->texts.n >= s->table_size && !grow(s))) {
        free(text);
        return no_memory(why);
    }
    snprintf(text, cap, "%s -> %s", src, dst);
    s->tensors++;
    uint32_t known = s->table[slot_of(s, text)];
    if (known == UINT32_MAX || s->apart)
        return add_new(s, text, src, dst, why);
    s->times.v[known]++;
    free(text);
    return CLI_OK;
}

/* ---- tables ---- */

static char *trim(char *text)
{
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1]))
        text[--n] = 0;
    return text + strspn(text, " \t");
}

static int add_line(struct scene *s, const char *path, int number, char *line, struct failure *why)
{
    char *text = trim(line), *arrow = strstr(text, "->"), *at = strchr(text, '@'), *colon = NULL;
    if (!*text || *text == '#')
        return CLI_OK;
    if (!arrow)
        return failure_set(why, CLI_BAD, "%s:%d: no 'SRC -> DST' in it", path, number);
    *arrow = 0;
    /* A name ends with the last ": " before the layout; blocks have a colon without a blank. */
    for (char *c = text; (c = strstr(c, ": ")) && c < (at ? at : arrow); c++)
        colon = c;
    char *src = trim(colon ? colon + 1 : text), *dst = trim(arrow + 2);
    struct failure inner;
    int code = scene_add(s, src, dst, &inner);
    return code ? failure_set(why, code, "%s:%d: %s", path, number, inner.text) : CLI_OK;
}

int scene_table(struct scene *s, const char *path, struct failure *why)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "r") : stdin;
    if (!f)
        return failure_set(why, CLI_BAD, "%s: cannot be opened", path);
    enum { LINE = 1 << 16 };
    char *line = malloc(LINE);
    int code = line ? CLI_OK : no_memory(why);
    for (int number = 1; !code && fgets(line, LINE, f); number++) {
        if (strlen(line) == LINE - 1 && line[LINE - 2] != '\n')
            code = failure_set(why, CLI_BAD, "%s:%d: the line is too long", path, number);
        else
            code = add_line(s, path, number, line, why);
    }
    if (!code && ferror(f))
        code = failure_set(why, CLI_BAD, "%s: cannot be read to its end", path);
    if (!code && !s->tensors)
        code = failure_set(why, CLI_BAD, "%s: there are no tensors in it", path);
    free(line);
    if (f != stdin)
        fclose(f);
    return code;
}

/* ---- saved plans ---- */

static int text_of(const weft_layout *l, char **out, struct failure *why)
{
    size_t n = 0;
    if (weft_layout_format(l, NULL, 0, &n) || !(*out = malloc(n + 1)) || weft_layout_format(l, *out, n + 1, &n))
        return no_memory(why);
    return CLI_OK;
}

static int add_plan(struct scene *s, const weft_plan *p, struct failure *why)
{
    int code = CLI_OK;
    for (size_t i = 0; i < weft_plan_tensors(p) && !code; i++) {
        weft_move m;
        char *src = NULL, *dst = NULL;
        weft_plan_tensor(p, i, &m);
        weft_layout_desc a = WEFT_LAYOUT_DESC_INIT, b = WEFT_LAYOUT_DESC_INIT;
        if (!weft_layout_describe(m.src, &a) && !weft_layout_describe(m.dst, &b) && (a.scale || b.scale))
            i++; /* the next tensor has its scales, which come by themselves */
        code = text_of(m.src, &src, why);
        if (!code)
            code = text_of(m.dst, &dst, why);
        if (!code)
            code = scene_add(s, src, dst, why);
        free(src);
        free(dst);
    }
    s->bucket = p->bucket;
    s->world = p->world > s->world ? p->world : s->world;
    return code;
}

int scene_plan(struct scene *s, const char *path, struct failure *why)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return failure_set(why, CLI_BAD, "%s: cannot be opened", path);
    VEC(char) all = {0};
    int code = CLI_OK;
    while (!code && !feof(f) && !ferror(f)) {
        if (vec_room(&all, 1 << 16))
            all.n += fread(all.v + all.n, 1, 1 << 16, f);
        else
            code = no_memory(why);
    }
    weft_plan *p = NULL;
    if (!code && ferror(f))
        code = failure_set(why, CLI_BAD, "%s: cannot be read", path);
    else if (!code && weft_plan_load(all.v, all.n, &p))
        code = failure_set(why, CLI_BAD, "%s: %s", path, weft_errmsg());
    if (!code)
        code = add_plan(s, p, why);
    weft_plan_free(p);
    free(all.v);
    fclose(f);
    return code;
}

/* ---- simulating ---- */

static double bytes_of(const weft_layout_desc *d)
{
    double bytes = (double)weft_dtype_size((int)d->dtype);
    for (int i = 0; i < d->ndim; i++)
        bytes *= (double)d->dims[i].extent;
    return bytes;
}

static size_t mesh_of(const weft_layout_desc *d)
{
    size_t n = 1;
    for (int a = 0; a < d->naxes; a++)
        n *= (size_t)d->axes[a].size;
    return n;
}

/* Which part of the time the source of each tensor is busy, if all send from the start at the same rate: ranks that
 * have less to send are done earlier. */
static int paces(const struct scene *s, double *pace, struct failure *why)
{
    double *load = calloc((size_t)s->world + 1, sizeof *load), most = 0;
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    if (!load)
        return no_memory(why);
    for (int second = 0; second < 2; second++)
        for (size_t i = 0; i < s->moves.n; i++) {
            size_t n = weft_layout_describe(s->moves.v[i].src, &d) || d.boxes ? 0 : mesh_of(&d);
            pace[i] = n && second ? 0 : 1;
            for (size_t k = 0; k < n && !second; k++)
                load[d.ranks[k]] += bytes_of(&d) * s->times.v[i] / (double)n;
            for (size_t k = 0; k < n && second; k++)
                pace[i] = fmax(pace[i], load[d.ranks[k]] / most);
            for (size_t k = 0; k < n && !second; k++)
                most = fmax(most, load[d.ranks[k]]);
        }
    free(load);
    return CLI_OK;
}

/* How many copies of a tensor that counts t times are in the rounds before the k-th. */
static int before_round(int t, double pace, int k, int rounds)
{
    return (int)fmin(t, floor((double)t * k / (rounds * pace) + 1e-9));
}

static int lower_one(const struct scene *s, int rank, const weft_lower_opts *opts, weft_plan **out, struct failure *why)
{
    int err = weft_lower(s->moves.v, s->moves.n, rank, opts, out);
    return err ? failure_set(why, err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED ? CLI_BAD : CLI_WRONG, "%s",
                             weft_errmsg())
               : CLI_OK;
}

/* How many rounds: as many as the busiest channel would have messages that others wait for, by a sample of the ranks;
 * SCENE_ROUNDS at most. */
static int rounds_of(const struct scene *s, const struct links *l, const weft_lower_opts *opts, int *rounds,
                     struct failure *why)
{
    struct graph g;
    int code = graph_open(&g, l, why), step = s->world > SAMPLE ? s->world / SAMPLE : 1;
    double most = 0, bucket = 1;
    *rounds = 1;
    for (int r = 0; r < s->world && !code; r += step) {
        weft_plan *p = NULL;
        code = lower_one(s, r, opts, &p, why);
        if (!code) {
            bucket = (double)p->bucket;
            code = graph_add(&g, p, s->times.v, why);
        }
        weft_plan_free(p);
    }
    for (size_t i = 0; i < g.channels.n && !code; i++) {
        double bytes = 0;
        for (uint32_t n = g.channels.v[i].head; n != GRAPH_NONE; n = g.nodes.v[n].next)
            bytes += g.nodes.v[n].feeds ? g.nodes.v[n].load.bytes : 0;
        most = bytes > most ? bytes : most;
    }
    while (*rounds < SCENE_ROUNDS && (double)*rounds * bucket < most)
        ++*rounds;
    graph_free(&g);
    return code;
}

static int lower_all(const struct scene *s, const weft_lower_opts *opts, bool quiet, struct graph *g,
                     struct failure *why)
{
    int rounds = 1, *part = malloc((s->times.n + 1) * sizeof *part);
    double *pace = malloc((s->times.n + 1) * sizeof *pace);
    bool alike = s->tensors > s->moves.n;
    int code = part && pace ? CLI_OK : no_memory(why);
    if (!code && alike)
        code = paces(s, pace, why);
    if (!code && alike)
        code = rounds_of(s, g->links, opts, &rounds, why);
    for (int r = 0; r < s->world && !code; r++) {
        weft_plan *p = NULL;
        if (!quiet)
            progress_line("lowering rank", r, s->world);
        code = lower_one(s, r, opts, &p, why);
        for (int k = 0; k < rounds && !code; k++) {
            for (size_t i = 0; i < s->times.n && alike; i++)
                part[i] = before_round(s->times.v[i], pace[i], k + 1, rounds) -
                          before_round(s->times.v[i], pace[i], k, rounds);
            code = graph_add(g, p, alike ? part : NULL, why);
        }
        weft_plan_free(p);
    }
    if (!quiet)
        progress_line_end();
    free(part);
    free(pace);
    return code;
}

int scene_lower(const struct scene *s, const struct scene_how *how, struct scene_run *out, struct failure *why)
{
    *out = (struct scene_run){0};
    weft_machine machine = machine_file_lower(&how->machine);
    if (how->host) {
        machine.ranks_per_host = 0;
        machine.ranks = s->world;
        machine.host = how->host;
    }
    weft_lower_opts opts = {.size = sizeof opts,
                            .bucket = how->bucket ? how->bucket : s->bucket,
                            .algorithm = how->algorithm,
                            .world = s->world,
                            .machine = &machine};
    int code = links_open(&out->links, &how->machine, s->world, how->host, why);
    if (!code)
        code = graph_open(&out->graph, &out->links, why);
    if (!code)
        code = lower_all(s, &opts, how->quiet, &out->graph, why);
    if (!code)
        code = graph_close(&out->graph, why);
    if (code)
        scene_run_free(out);
    return code;
}

int scene_simulate(const struct scene *s, const struct scene_how *how, struct scene_run *out, struct failure *why)
{
    int code = scene_lower(s, how, out, why);
    if (!code)
        code = events_run(&out->events, &out->graph, why);
    if (code)
        scene_run_free(out);
    return code;
}

void scene_run_free(struct scene_run *r)
{
    events_free(&r->events);
    graph_free(&r->graph);
    links_free(&r->links);
}
