#define _GNU_SOURCE
#include "foresee/scene.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "foresee/together.h"
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

/* Do plans have another tensor behind that of the move, with its scales? */
static bool has_scales(const weft_move *m)
{
    weft_layout_desc a = WEFT_LAYOUT_DESC_INIT, b = WEFT_LAYOUT_DESC_INIT;
    return !weft_layout_describe(m->src, &a) && !weft_layout_describe(m->dst, &b) && (a.scale || b.scale);
}

static int add_plan(struct scene *s, const weft_plan *p, struct failure *why)
{
    int code = CLI_OK;
    for (size_t i = 0; i < weft_plan_tensors(p) && !code; i++) {
        weft_move m;
        char *src = NULL, *dst = NULL;
        weft_plan_tensor(p, i, &m);
        i += has_scales(&m); /* the scales come by themselves */
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

/* How often each tensor of a plan counts in each round, round by round, and then in all of them. */
static int cut_rounds(const struct scene *s, int rounds, int **out, struct failure *why)
{
    size_t n = s->times.n, tensors = n;
    for (size_t i = 0; i < n; i++)
        tensors += has_scales(&s->moves.v[i]);
    double *pace = malloc((n + 1) * sizeof *pace);
    int *part = *out = malloc(((size_t)(rounds + 1) * tensors + 1) * sizeof *part);
    int code = pace && part ? paces(s, pace, why) : no_memory(why);
    for (int k = 0; k <= rounds && !code; k++)
        for (size_t i = 0; i < n; i++) {
            int t = s->times.v[i], from = k < rounds ? before_round(t, pace[i], k, rounds) : 0;
            *part = (k < rounds ? before_round(t, pace[i], k + 1, rounds) : t) - from;
            part++;
            if (has_scales(&s->moves.v[i])) {
                *part = part[-1];
                part++;
            }
        }
    free(pace);
    return code;
}

/* How many rounds: as many as the busiest channel would have messages that others wait for, by a sample of the ranks;
 * SCENE_ROUNDS at most. */
static int rounds_of(const struct scene *s, struct links *l, const weft_lower_opts *opts, int *rounds,
                     struct failure *why)
{
    struct graph g;
    int *times = NULL, code = graph_open(&g, l, why), step = s->world > SAMPLE ? s->world / SAMPLE : 1;
    double most = 0, bucket = 1;
    *rounds = 1;
    if (!code)
        code = cut_rounds(s, 1, &times, why);
    for (int r = 0; r < s->world && !code; r += step) {
        weft_plan *p = NULL;
        code = lower_one(s, r, opts, &p, why);
        if (!code) {
            bucket = (double)p->bucket;
            code = graph_add(&g, p, times, 1, why);
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
    free(times);
    graph_free(&g);
    return code;
}

/* ---- plans, by threads that lower ahead of what is added ---- */

#define AHEAD 16 /* plans */

struct lowered {
    weft_plan *plan;
    struct failure why;
    int code;
    bool there;
};

struct lowering {
    const struct scene *s;
    const weft_lower_opts *opts;
    const int *order; /* of the ranks */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int next, taken; /* numbers in `order`: the next one to lower, the next one to take */
    bool stops;
    struct lowered ring[AHEAD];
};

static void *lower_ahead(void *arg)
{
    struct lowering *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stops && l->next < l->s->world) {
        int i = l->next++;
        while (!l->stops && i >= l->taken + AHEAD)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->stops)
            break;
        pthread_mutex_unlock(&l->lock);
        struct lowered one = {.there = true};
        one.code = lower_one(l->s, l->order[i], l->opts, &one.plan, &one.why);
        pthread_mutex_lock(&l->lock);
        l->ring[i % AHEAD] = one;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* The plan of number i, which the caller frees. Numbers are taken in order. */
static struct lowered take_lowered(struct lowering *l, int i)
{
    pthread_mutex_lock(&l->lock);
    while (!l->ring[i % AHEAD].there)
        pthread_cond_wait(&l->changed, &l->lock);
    struct lowered one = l->ring[i % AHEAD];
    l->ring[i % AHEAD] = (struct lowered){.there = false};
    l->taken = i + 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return one;
}

/* Adds the plans of all ranks, in this order. */
static int add_all(struct lowering *l, bool quiet, const int *times, int rounds, struct graph *g, struct failure *why)
{
    pthread_t threads[TOGETHER_MOST];
    int n = 0, code = CLI_OK, most = together_here();
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    while (n < most && !pthread_create(&threads[n], NULL, lower_ahead, l))
        n++;
    if (!n)
        code = failure_set(why, CLI_WRONG, "no thread can be made to lower the plans");
    for (int i = 0; i < l->s->world && !code; i++) {
        if (!quiet)
            progress_line("lowering rank", i, l->s->world);
        struct lowered one = take_lowered(l, i);
        code = one.code;
        if (code)
            *why = one.why;
        else
            code = graph_add(g, one.plan, times, rounds, why);
        weft_plan_free(one.plan);
    }
    if (!quiet)
        progress_line_end();
    pthread_mutex_lock(&l->lock);
    l->stops = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < AHEAD; i++)
        weft_plan_free(l->ring[i].plan);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    return code;
}

/* ---- ranks that only send, whose messages are joined as they are added (graph.h) ---- */

static int find_senders(const struct scene *s, bool *only_sends, struct failure *why)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    for (int r = 0; r < s->world; r++)
        only_sends[r] = true;
    for (size_t i = 0; i < s->moves.n; i++) {
        if (weft_layout_describe(s->moves.v[i].dst, &d))
            return no_memory(why);
        size_t n = d.boxes ? 0 : mesh_of(&d);
        for (size_t k = 0; k < n; k++)
            only_sends[d.ranks[k]] = false;
        for (int r = 0; r < s->world && d.boxes; r++) /* boxes are seldom: nobody is counted out by them */
            only_sends[r] = false;
    }
    return CLI_OK;
}

/* Ranks that receive come first, then those that only send. */
static void order_ranks(const struct scene *s, const bool *only_sends, int *order)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < s->world; r++)
            if (only_sends[r] == (pass == 1))
                order[n++] = r;
}

/* All ranks choose the same algorithm. So it is chosen once, if it is one algorithm for all tensors. */
static int choose_once(const struct scene *s, weft_lower_opts *opts, struct failure *why)
{
    weft_plan *p = NULL;
    int code = lower_one(s, 0, opts, &p, why);
    if (!code && strcmp(p->algorithm, "mixed"))
        opts->algorithm = p->algorithm;
    weft_plan_free(p);
    return code;
}

static int lower_all(const struct scene *s, weft_lower_opts *opts, const struct scene_how *how, struct graph *g,
                     struct failure *why)
{
    int rounds = 1, *times = NULL, *order = malloc(((size_t)s->world + 1) * sizeof *order);
    bool alike = s->tensors > s->moves.n;
    int code = order ? CLI_OK : no_memory(why);
    if (!code && !opts->algorithm)
        code = choose_once(s, opts, why);
    if (!code && alike)
        code = rounds_of(s, g->links, opts, &rounds, why);
    if (!code && alike)
        code = cut_rounds(s, rounds, &times, why);
    if (!code && alike && !how->each)
        code = find_senders(s, g->only_sends, why);
    if (!code)
        order_ranks(s, g->only_sends, order);
    if (!code) {
        struct lowering l = {.s = s, .opts = opts, .order = order};
        code = add_all(&l, how->quiet, times, rounds, g, why);
    }
    free(times);
    free(order);
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
        code = lower_all(s, &opts, how, &out->graph, why);
    if (!code && out->graph.clash) { /* a rank that only sends waits for work of its own first */
        struct scene_how each = *how;
        each.each = true;
        scene_run_free(out);
        return scene_lower(s, &each, out, why);
    }
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
        code = events_run(&out->events, &out->graph, NULL, why);
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
