/* One rank's plan of a whole model into an engine whose parameters are fused: DeepSeek-V3 from the training job of
 * bench/work/model.h, 128 ranks, to 64 others that have its parameters as vLLM has them.
 *
 *   build/bench/fused [tp|ep] [fsdp] [own] [scales] [rank]
 *
 * tp (the default): tensor parallelism of 64. Each rank has a part of every expert.
 * ep: 8 groups with tensor parallelism of 8, and whole experts on each of the 64 ranks.
 * fsdp: the trainer's 128 ranks have 1/128 of the rows of each tensor, so that with scales they share blocks.
 * own: each tensor has two layouts of its own, as if each were learnt by itself. Otherwise tensors alike share them.
 * scales: the engine has f8 with scales of 128 x 128 where a tensor is a matrix.
 * rank: whose plan; the default is one of each side. Ranks of the engine are 128 to 191.
 *
 * The engine's layouts are boxes with their places: gate and up in one array, all experts in two arrays, q_a and kv_a
 * in one. Time is of the processor, and memory what the process had at its peak, with all layouts and the plan. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/work/cost.h"
#include "bench/work/model.h"
#include "weft.h"

enum { FIRST = 128, RANKS = 64, GROUP = 8, EXPERTS = 256, Q_A = 1536, HIDDEN = 7168 };

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "build/bench/fused: %s\n", weft_errmsg());
        exit(1);
    }
}

static void *some(void *p)
{
    if (!p)
        exit(1);
    return p;
}

/* Where a tensor is in its fused parameter. */
struct place {
    int64_t rows, cols; /* of the tensor; cols 0: it has one dim */
    int split;          /* the dim that is split over tp; -1: none */
    int expert;         /* -1: it is no expert */
    int half;           /* of gate_up and w13: 0 gate, 1 up; -1: neither */
    int64_t before;     /* rows of the parameter in front of it, of those that are not split */
};

static struct place place_of(const char *name, const char *dst)
{
    struct place p = {.split = -1, .expert = -1, .half = -1};
    const char *open = strchr(dst, '['), *comma = strchr(dst, ','), *expert = strstr(name, "experts."),
               *tp = strstr(dst, "/tp");
    p.rows = atoll(open + 1);
    p.cols = comma && comma < strchr(dst, ']') ? atoll(comma + 1) : 0;
    if (tp)
        p.split = p.cols && tp > comma;
    if (expert && !strstr(name, "shared_experts"))
        p.expert = atoi(expert + strlen("experts."));
    if (strstr(name, "gate_proj") || strstr(name, "up_proj"))
        p.half = strstr(name, "up_proj") != NULL;
    p.before = strstr(name, "kv_a_proj_with_mqa") ? Q_A : 0;
    return p;
}

struct engine {
    bool experts, fsdp, scales, own;
    double making; /* seconds in which layouts were made */
    struct kept {
        char *text;
        weft_layout *l;
    } * kept; /* a hash table of those that are shared */
    size_t room;
    weft_move *moves;
    size_t n, layouts;
};

static weft_layout *make_boxes(const struct engine *e, const struct place *p)
{
    int rank[RANKS], n = 0;
    int64_t at[2 * RANKS], len[2 * RANKS], offset[RANKS], stride[2 * RANKS];
    int ndim = p->cols ? 2 : 1;
    int parts = e->experts ? GROUP : RANKS;
    bool whole = e->experts && p->expert >= 0; /* experts are not cut */
    for (int r = 0; r < RANKS; r++) {
        if (whole && p->expert / (EXPERTS / RANKS) != r)
            continue;
        int64_t rows = p->rows, cols = p->cols ? p->cols : 1, k = r % parts;
        int split = whole ? -1 : p->split;
        rows /= split == 0 ? parts : 1;
        cols /= split == 1 ? parts : 1;
        int64_t nth = p->expert < 0 ? 0 : whole ? p->expert % (EXPERTS / RANKS) : p->expert;
        rank[n] = FIRST + r;
        for (int d = 0; d < ndim; d++) {
            len[n * ndim + d] = d ? cols : rows;
            at[n * ndim + d] = split == d ? k * len[n * ndim + d] : 0;
            stride[n * ndim + d] = d ? 1 : cols;
        }
        offset[n] = (nth * rows * (p->half >= 0 ? 2 : 1) + (p->half > 0 ? rows : 0) + p->before) * cols;
        n++;
    }
    weft_dim dims[2] = {{.extent = p->rows}, {.extent = p->cols}};
    weft_boxes boxes = {.n = (size_t)n, .rank = rank, .at = at, .len = len, .offset = offset, .stride = stride};
    weft_scale scale = {.dtype = WEFT_F32, .block = {128, 128}};
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    desc.dtype = WEFT_BF16;
    desc.ndim = ndim;
    desc.dims = dims;
    desc.boxes = &boxes;
    desc.flags = WEFT_LAYOUT_OVERLAPS; /* what is not split, all ranks have */
    if (e->scales && ndim == 2) {
        desc.dtype = WEFT_F8E4M3;
        desc.scale = &scale;
    }
    weft_layout *l;
    must(weft_layout_create(&desc, &l));
    return l;
}

static weft_layout *get(struct engine *e, const char *text, const struct place *p)
{
    double from = seconds();
    weft_layout *l = NULL;
    struct kept *k = NULL;
    if (!e->own) {
        size_t h = 5381;
        for (const char *c = text; *c; c++)
            h = h * 33 + (unsigned char)*c;
        for (h %= e->room; e->kept[h].text && strcmp(e->kept[h].text, text); h = (h + 1) % e->room)
            ;
        k = &e->kept[h];
        l = k->l;
    }
    if (!l) {
        if (p)
            l = make_boxes(e, p);
        else
            must(weft_layout_parse(text, &l));
        e->layouts++;
        if (k)
            *k = (struct kept){some(strdup(text)), l};
    }
    e->making += seconds() - from;
    return l;
}

static int put(void *arg, const char *name, const char *src, const char *dst)
{
    struct engine *e = arg;
    struct place p = place_of(name, dst);
    char key[200], rows[200];
    if (e->fsdp) {
        if (p.cols)
            snprintf(rows, sizeof rows, "f32[%lld/x,%lld] @x%d", (long long)p.rows, (long long)p.cols, FIRST);
        else
            snprintf(rows, sizeof rows, "f32[%lld/x] @x%d", (long long)p.rows, FIRST);
        src = rows;
    }
    snprintf(key, sizeof key, "%s %d %d %lld", dst, p.expert, p.half, (long long)p.before);
    e->moves[e->n++] = (weft_move){some(strdup(name)), get(e, src, NULL), get(e, key, &p)};
    return 0;
}

static void lower(const struct engine *e, int rank)
{
    weft_plan *p;
    weft_stats s = WEFT_STATS_INIT;
    double from = seconds();
    must(weft_lower(e->moves, e->n, rank, NULL, &p));
    double took = seconds() - from;
    must(weft_plan_stats(p, &s));
    printf("  rank %d: lowered in %.3f s, plan of %.1f MiB, peak memory %.0f MiB; %d + %d peers, %lld parts, %.3f GB "
           "sent, "
           "%.3f GB received\n",
           rank, took, (double)s.memory / 1048576, peak(), s.send_peers, s.recv_peers, (long long)s.chunks,
           (double)s.sent / 1e9, (double)s.received / 1e9);
    weft_plan_free(p);
}

int main(int argc, char **argv)
{
    struct engine e = {.room = 1 << 17};
    int rank = -1;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "ep"))
            e.experts = true;
        else if (!strcmp(argv[i], "fsdp"))
            e.fsdp = true;
        else if (!strcmp(argv[i], "own"))
            e.own = true;
        else if (!strcmp(argv[i], "scales"))
            e.scales = true;
        else if (strcmp(argv[i], "tp"))
            rank = atoi(argv[i]);
    e.kept = some(calloc(e.room, sizeof *e.kept));
    e.moves = some(calloc(50000, sizeof *e.moves));
    model_moves(MODEL_LAYERS, put, &e);
    printf("%zu tensors, %s%s%s: %zu layouts made in %.3f s, peak memory %.0f MiB\n", e.n, e.experts ? "ep" : "tp",
           e.fsdp ? ", fsdp" : "", e.scales ? ", with scales" : "", e.layouts, e.making, peak());
    if (rank >= 0) {
        lower(&e, rank);
    } else {
        lower(&e, FIRST + 5);
        lower(&e, 5);
    }
    for (size_t i = 0; i < e.n; i++) {
        free((char *)e.moves[i].name);
        if (e.own) {
            weft_layout_free((weft_layout *)e.moves[i].src);
            weft_layout_free((weft_layout *)e.moves[i].dst);
        }
    }
    for (size_t i = 0; i < e.room; i++) {
        free(e.kept[i].text);
        weft_layout_free(e.kept[i].l);
    }
    free(e.kept);
    free(e.moves);
    return 0;
}
