/* weft bench lower: the cost of one rank's lowering as the world grows while the number of its peers stays the same,
 * and as the number of tensors grows. Worlds are interleaved, and figures are medians. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/tables/bench.h"
#include "bench/work/median.h"
#include "bench/work/model.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/signals.h"
#include "weft.h"

static const int worlds[] = {64, 256, 1024, 4096, 16384, 65536};
enum { WORLDS = sizeof worlds / sizeof *worlds, BASE = 2, ROUNDS = 51, BATCH = 8 };

/* Pairs whose ranks have the same number of peers in a world of any size. */
struct shape {
    const char *name, *src, *dst;
    int per;    /* the texts' argument is world / per */
    bool apart; /* half of the world sends to the other half: dst gets "=first..last" */
};
static const struct shape shapes[] = {
    {"halo, 2-d, periodic", "f32[65536/y,65536/x] @y8.x%d", "f32[65536/y~1o,65536/x~1o] @y8.x%d", 8, false},
    {"rows to columns in groups of 64", "f32[1048576/g/x,4096] @g%d.x64", "f32[1048576/g,4096/x] @g%d.x64", 64, false},
    {"rows to columns, replicas on the same mesh", "f32[4096/tp,14336] @dp%d.tp8", "f32[4096,14336/tp] @dp%d.tp8", 8,
     false},
    {"trainer to inference, replicas, a cast", "f32[4096/tp,14336] @dp%d.tp8", "bf16[4096,14336/tp] @dp%d.tp8", 16,
     true},
    {"block-cyclic, other blocks", "f64[1048576/p:64,8192/q:64] @p%d.q8", "f64[1048576/p:64,8192/q:32] @p%d.q8", 8,
     false},
    {"reduce-scatter in groups of 8", "f32[1048576/dp] @dp%d.tp8 +sum(tp)", "f32[1048576/dp/tp] @dp%d.tp8", 8, false},
    {"allreduce in groups of 8", "f32[1048576/dp] @dp%d.tp8 +sum(tp)", "f32[1048576/dp] @dp%d.tp8", 8, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct figure {
    double us;    /* median of one lowering */
    int64_t peak; /* bytes a lowering took from the system at its peak */
    int peers;
    int64_t plan; /* bytes of the plan */
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Bytes by which `work` makes the process larger at its peak, measured in a child of its own; -1 if that fails. */
static int64_t peak_of(int (*work)(void *), void *arg)
{
    int pipe_[2];
    int64_t grown = -1;
    fflush(NULL);
    if (pipe(pipe_))
        return -1;
    pid_t pid = fork();
    if (!pid) {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        int64_t kib = work(arg) ? -1 : (getrusage(RUSAGE_SELF, &after), after.ru_maxrss - before.ru_maxrss);
        int64_t bytes = kib < 0 ? -1 : kib * 1024;
        _exit(write(pipe_[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
    }
    close(pipe_[1]);
    if (pid > 0 && read(pipe_[0], &grown, sizeof grown) != sizeof grown)
        grown = -1;
    close(pipe_[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return grown;
}

struct task {
    weft_layout *src, *dst;
    weft_move *moves;
    size_t nmoves;
    int rank;
};

static int lower_task(void *arg)
{
    const struct task *t = arg;
    weft_plan *p;
    int rc = weft_lower(t->moves, t->nmoves, t->rank, NULL, &p);
    if (!rc)
        weft_plan_free(p);
    return rc;
}

static int open_shape(const struct shape *s, int world, struct task *t, struct failure *why)
{
    char src[128], dst[160], tail[32] = "";
    if (s->apart)
        snprintf(tail, sizeof tail, "=%d..%d", world / 2, world - 1);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(src, sizeof src, s->src, world / s->per);
    int n = snprintf(dst, sizeof dst, s->dst, world / s->per);
#pragma GCC diagnostic pop
    snprintf(dst + n, sizeof dst - (size_t)n, "%s", tail);
    *t = (struct task){.rank = world / 2 + 3, .nmoves = 1};
    t->moves = calloc(1, sizeof *t->moves);
    if (!t->moves || weft_layout_parse(src, &t->src) || weft_layout_parse(dst, &t->dst))
        return failure_set(why, CLI_WRONG, "%s", t->moves ? weft_errmsg() : "out of memory");
    t->moves[0] = (weft_move){"w", t->src, t->dst};
    return 0;
}

static void close_task(struct task *t)
{
    weft_layout_free(t->src);
    weft_layout_free(t->dst);
    free(t->moves);
}

static int measure_shape(const struct shape *s, struct figure *out, struct failure *why)
{
    struct task task[WORLDS] = {{0}};
    double(*times)[ROUNDS] = calloc(WORLDS, sizeof *times);
    int code = times ? 0 : failure_set(why, CLI_WRONG, "out of memory");
    for (int w = 0; w < WORLDS && !code; w++) {
        code = open_shape(s, worlds[w], &task[w], why);
        weft_plan *p;
        if (!code && weft_lower(task[w].moves, 1, task[w].rank, NULL, &p))
            code = failure_set(why, CLI_WRONG, "%s", weft_errmsg());
        if (code)
            break;
        weft_stats st = {.size = sizeof st};
        size_t peers = 0;
        weft_plan_stats(p, &st);
        weft_plan_peers(p, NULL, 0, &peers);
        out[w] = (struct figure){.peers = (int)peers, .plan = st.memory, .peak = peak_of(lower_task, &task[w])};
        weft_plan_free(p);
    }
    for (int r = 0; r < ROUNDS && !code; r++)
        for (int w = 0; w < WORLDS && !code; w++) {
            double from = now_us();
            for (int k = 0; k < BATCH && !code; k++)
                code = lower_task(&task[w]) ? failure_set(why, CLI_WRONG, "%s", weft_errmsg()) : 0;
            times[w][r] = (now_us() - from) / BATCH;
        }
    for (int w = 0; w < WORLDS; w++) {
        if (!code)
            out[w].us = median(times[w], ROUNDS);
        close_task(&task[w]);
    }
    free(times);
    return code;
}

/* ---- the model ---- */

/* Layouts by their text, so that tensors of one shape share them. */
struct pool {
    struct entry {
        char *text;
        weft_layout *layout;
    } * v;
    size_t n, cap;
    weft_move *moves;
    size_t nmoves, cmoves;
};

/* The entry of a text, or the free entry for it. */
static struct entry *pool_find(struct entry *v, size_t cap, const char *text)
{
    size_t h = 5381;
    for (const char *c = text; *c; c++)
        h = h * 33 + (unsigned char)*c;
    for (h %= cap; v[h].text && strcmp(v[h].text, text); h = (h + 1) % cap)
        ;
    return &v[h];
}

static int pool_grow(struct pool *p)
{
    size_t cap = p->cap ? 2 * p->cap : 1024;
    struct entry *v = calloc(cap, sizeof *v);
    if (!v)
        return 1;
    for (size_t i = 0; i < p->cap; i++)
        if (p->v[i].text)
            *pool_find(v, cap, p->v[i].text) = p->v[i];
    free(p->v);
    p->v = v;
    p->cap = cap;
    return 0;
}

static weft_layout *pool_get(struct pool *p, const char *text)
{
    if (2 * (p->n + 1) > p->cap && pool_grow(p))
        return NULL;
    struct entry *e = pool_find(p->v, p->cap, text);
    if (e->text)
        return e->layout;
    weft_layout *l;
    char *copy = strdup(text);
    if (!copy || weft_layout_parse(text, &l)) {
        free(copy);
        return NULL;
    }
    *e = (struct entry){copy, l};
    p->n++;
    return l;
}

static int pool_put(void *arg, const char *name, const char *src, const char *dst)
{
    struct pool *p = arg;
    if (p->nmoves == p->cmoves) {
        size_t cap = p->cmoves ? 2 * p->cmoves : 1024;
        weft_move *m = realloc(p->moves, cap * sizeof *m);
        if (!m)
            return 1;
        p->moves = m;
        p->cmoves = cap;
    }
    weft_move *m = &p->moves[p->nmoves];
    *m = (weft_move){.name = strdup(name), .src = pool_get(p, src), .dst = pool_get(p, dst)};
    if (!m->name || !m->src || !m->dst) {
        free((char *)m->name);
        return 1;
    }
    p->nmoves++;
    return 0;
}

static void pool_free(struct pool *p)
{
    for (size_t i = 0; i < p->nmoves; i++)
        free((char *)p->moves[i].name);
    for (size_t i = 0; i < p->cap; i++)
        if (p->v[i].text) {
            free(p->v[i].text);
            weft_layout_free(p->v[i].layout);
        }
    free(p->moves);
    free(p->v);
}

struct model {
    int layers;
    size_t tensors;
    struct figure sender, receiver; /* a rank of the training job, one of the inference job */
    int64_t received;
};

static int measure_rank(struct pool *p, int rank, struct figure *out, int64_t *received, struct failure *why)
{
    struct task t = {.moves = p->moves, .nmoves = p->nmoves, .rank = rank};
    double times[5];
    for (int r = 0; r < 5; r++) {
        weft_plan *plan;
        double from = now_us();
        if (weft_lower(p->moves, p->nmoves, rank, NULL, &plan))
            return failure_set(why, CLI_WRONG, "%s", weft_errmsg());
        times[r] = now_us() - from;
        weft_stats st = {.size = sizeof st};
        size_t peers = 0;
        weft_plan_stats(plan, &st);
        weft_plan_peers(plan, NULL, 0, &peers);
        *out = (struct figure){.peers = (int)peers, .plan = st.memory};
        if (received)
            *received = st.received;
        weft_plan_free(plan);
    }
    out->us = median(times, 5);
    out->peak = peak_of(lower_task, &t);
    return 0;
}

static int measure_model(int layers, struct model *m, struct failure *why)
{
    struct pool p = {0};
    *m = (struct model){.layers = layers};
    int code = model_moves(layers, pool_put, &p) ? failure_set(why, CLI_WRONG, "the model: %s", weft_errmsg()) : 0;
    m->tensors = p.nmoves;
    if (!code)
        code = measure_rank(&p, MODEL_RANKS / 2 + 3, &m->receiver, &m->received, why);
    if (!code)
        code = measure_rank(&p, 5, &m->sender, NULL, why);
    pool_free(&p);
    return code;
}

/* ---- printing ---- */

static void print_models(const struct model *models, int nmodels)
{
    puts(
        "\nA model of DeepSeek-V3's size, 128 ranks (pp4 dp2 ep16) to 128 others (dp16 tp8), one rank's whole plan.\n");
    printf("%6s %8s  %14s %8s %9s %9s  %14s %8s %9s %9s\n", "layers", "tensors", "inference rank", "us each", "plan",
           "peak", "training rank", "us each", "plan", "peak");
    for (int i = 0; i < nmodels; i++) {
        const struct model *m = &models[i];
        printf("%6d %8zu  %11.1f ms %8.2f %8.1fM %8.1fM  %11.1f ms %8.2f %8.1fM %8.1fM\n", m->layers, m->tensors,
               m->receiver.us / 1e3, m->receiver.us / (double)m->tensors, (double)m->receiver.plan / 1048576,
               (double)m->receiver.peak / 1048576, m->sender.us / 1e3, m->sender.us / (double)m->tensors,
               (double)m->sender.plan / 1048576, (double)m->sender.peak / 1048576);
    }
}

struct results {
    struct figure figures[SHAPES][WORLDS];
    struct model models[3];
    int nshapes, nmodels;
    const char *incomplete; /* why not all was measured; NULL: it was */
};

static void print_text(const struct results *r)
{
    puts("One rank's lowering in microseconds (median), by ranks in the world; its peers stay as many.\n");
    printf("%-44s %6s", "", "peers");
    for (int w = 0; w < WORLDS; w++)
        printf(" %8d", worlds[w]);
    printf("  65536/1024   plan      peak\n");
    for (int s = 0; s < r->nshapes; s++) {
        const struct figure *f = r->figures[s], *last = &f[WORLDS - 1];
        printf("%-44s %6d", shapes[s].name, last->peers);
        for (int w = 0; w < WORLDS; w++)
            printf(" %8.2f", f[w].us);
        printf("  %9.2f %7.1fK %8.1fK\n", last->us / f[BASE].us, (double)last->plan / 1024, (double)last->peak / 1024);
    }
    if (r->nmodels)
        print_models(r->models, r->nmodels);
    if (r->incomplete)
        printf("\nincomplete: %s\n", r->incomplete);
}

static void print_figure(struct json *j, const char *key, const struct figure *f)
{
    json_write_open(j, key, '{', true);
    json_write_real(j, "us", f->us);
    json_write_int(j, "peers", f->peers);
    json_write_int(j, "plan_bytes", f->plan);
    json_write_int(j, "peak_bytes", f->peak);
    json_write_close(j, '}');
}

static void print_json(const struct results *r)
{
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_open(&j, "worlds", '[', false);
    for (int s = 0; s < r->nshapes; s++)
        for (int w = 0; w < WORLDS; w++) {
            json_write_open(&j, NULL, '{', true);
            json_write_text(&j, "name", shapes[s].name);
            json_write_int(&j, "world", worlds[w]);
            json_write_real(&j, "us", r->figures[s][w].us);
            json_write_int(&j, "peers", r->figures[s][w].peers);
            json_write_int(&j, "plan_bytes", r->figures[s][w].plan);
            json_write_int(&j, "peak_bytes", r->figures[s][w].peak);
            json_write_close(&j, '}');
        }
    json_write_close(&j, ']');
    json_write_open(&j, "model", '[', false);
    for (int i = 0; i < r->nmodels; i++) {
        const struct model *m = &r->models[i];
        json_write_open(&j, NULL, '{', false);
        json_write_int(&j, "layers", m->layers);
        json_write_int(&j, "tensors", (int64_t)m->tensors);
        print_figure(&j, "inference_rank", &m->receiver);
        print_figure(&j, "training_rank", &m->sender);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "incomplete", r->incomplete);
    json_write_close(&j, '}');
}

static int measure_all(int layers, struct results *r, struct failure *why)
{
    int steps[3] = {layers / 4, layers / 2, layers}, code = 0;
    for (int s = 0; s < SHAPES && !code; s++) {
        progress_line("worlds", s, SHAPES);
        code = measure_shape(&shapes[s], r->figures[s], why);
        if (!code && signals_caught())
            code = failure_set(why, CLI_WRONG, "interrupted");
        r->nshapes += !code;
    }
    for (int i = 0; i < 3 && !code; i++) {
        progress_line("model", i, 3);
        if (steps[i] <= 0)
            continue;
        code = measure_model(steps[i], &r->models[r->nmodels], why);
        if (!code && signals_caught())
            code = failure_set(why, CLI_WRONG, "interrupted");
        r->nmodels += !code;
    }
    return code;
}

int bench_lower(int argc, char **argv)
{
    bool json = false;
    int64_t layers = MODEL_LAYERS;
    const struct args_option rows[] = {
        {"layers", ARGS_INT, "N", "number of layers of the model (61)", &layers, 1, MODEL_LAYERS},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &json, 0, 0},
        {0}};
    const struct args_verb verb = {"bench lower", "[--layers N] [--json]",
                                   "Measures the lowering of one rank while the world grows and the number of its "
                                   "peers stays the same, and the lowering\n"
                                   "of a whole model. Peak is the memory by which a child process grew.",
                                   rows, 0};
    const char *words[1];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    static struct results r;
    struct failure why;
    signals_watch();
    code = measure_all((int)layers, &r, &why);
    progress_line_end();
    r.incomplete = code ? why.text : NULL;
    if (r.nshapes)
        (json ? print_json : print_text)(&r);
    if (code)
        failure_print(&why, "bench lower");
    signals_obey();
    return code;
}
