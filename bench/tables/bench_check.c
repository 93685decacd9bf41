/* weft bench check: what the check of messages costs. weft with it and weft without it do the same work in rounds that
 * take turns: in window memory, in private memory, and between hosts that are played on this machine. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "bench/harness/bench_options.h"
#include "bench/harness/report.h"
#include "bench/harness/turns.h"
#include "bench/tables/bench.h"
#include "bench/work/median.h"
#include "tool/args.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/signals.h"

enum { LINES = 128, PLACES = 3, RUNS_MOST = 20000 };

/* Where the ranks are and what their memory is. */
static const struct place {
    const char *name, *words;
    bool private_, hosts;
    double limit; /* how many times the time of weft without the check is allowed, from LIMIT_FROM bytes on */
} places[PLACES] = {{"window", "shm, window memory", false, false, 3},
                    {"private", "shm, private memory", true, false, 3},
                    {"hosts", "two played hosts", false, true, 1.4}};
#define LIMIT_FROM 65536

static const enum work_op ops[] = {WORK_PING,      WORK_BROADCAST,  WORK_ALLGATHER, WORK_REDUCE_SCATTER,
                                   WORK_ALLREDUCE, WORK_ALL_TO_ALL, WORK_HALO};
#define OPS ((int)(sizeof ops / sizeof *ops))

struct outcome {
    const struct place *place;
    enum work_op op;
    int ranks;
    int64_t bytes, wrong;
    double off, on; /* s */
};

struct check_bench {
    int ranks;
    int64_t sizes[3];
    double seconds;
    int rounds;
    bool json;
    const char *only;
    struct bench_link link;
    struct outcome line[LINES];
    int n;
    char left_out[320];
};

static bool names(const struct check_bench *b, const char *name)
{
    return bench_options_wants(&(struct bench_options){.only = b->only}, name);
}

/* --only may name places, operations, or both. If it names no place, all are measured, and so with operations. */
static bool wants_place(const struct check_bench *b, const struct place *p)
{
    bool named = false;
    for (int i = 0; i < PLACES; i++)
        named |= names(b, places[i].name);
    return !named || names(b, p->name);
}

static bool wants_op(const struct check_bench *b, enum work_op op)
{
    bool named = false;
    for (int i = 0; i < OPS; i++)
        named |= names(b, work_name(ops[i]));
    return !named || names(b, work_name(op));
}

static void print_line(const struct check_bench *b, const struct outcome *l)
{
    char size[32];
    if (b->json)
        return;
    progress_line_end();
    if (b->n == 1)
        printf("%5s  %-20s %-15s %6s %12s %12s %7s %6s\n", "ranks", "place", "what", "size", "plain us", "checked us",
               "ratio", "limit");
    printf("%5d  %-20s %-15s %6s %12.2f %12.2f %7.2f", l->ranks, l->place->words, work_name(l->op),
           report_line_size(l->bytes, size, sizeof size), l->off * 1e6, l->on * 1e6, l->on / l->off);
    if (l->bytes >= LIMIT_FROM)
        printf(" %6.2f", l->place->limit);
    printf("%s\n", l->wrong ? "  WRONG" : "");
    fflush(stdout);
}

/* How many calls fill a round. */
static int count_runs(const struct check_bench *b, struct contender *c, int *runs, struct failure *why)
{
    double each = 0;
    int code = turns_time(c, 3, &each, why);
    double wanted = each > 0 ? b->seconds / b->rounds / each : 1;
    *runs = wanted < 3 ? 3 : wanted > RUNS_MOST ? RUNS_MOST : (int)wanted;
    return code;
}

static int run_cell(struct check_bench *b, struct contenders *f, struct outcome l, struct failure *why)
{
    struct work_cell cell = {.op = l.op, .bytes = l.bytes};
    double v[2][MEASURE_ROUNDS];
    int64_t wrong[2] = {0, 0};
    int runs = 1, code = CLI_OK;
    for (int k = 0; k < 2 && !code; k++)
        code = turns_open(&f->c[k], &cell, &wrong[k], why);
    if (!code)
        code = count_runs(b, &f->c[0], &runs, why);
    for (int r = 0; r < b->rounds && !code; r++) {
        progress_line_text(l.place->words);
        for (int k = 0; k < 2 && !code; k++)
            code = turns_time(&f->c[k ^ r % 2], runs, &v[k ^ r % 2][r], why);
        if (signals_caught())
            code = failure_set(why, CLI_WRONG, "interrupted");
    }
    if (code || b->n == LINES)
        return code;
    l.off = median(v[0], b->rounds);
    l.on = median(v[1], b->rounds);
    l.wrong = wrong[0] + wrong[1];
    b->line[b->n++] = l;
    print_line(b, &l);
    return CLI_OK;
}

static int run_place(struct check_bench *b, const struct place *p, struct failure *why)
{
    static struct contenders f;
    struct weft_setup how = {
        .on = p->hosts ? "auto:" : "shm:", .link = p->hosts ? &b->link : NULL, .private_ = p->private_};
    int code = CLI_OK;
    contenders_add_weft(&f, &how, b->ranks);
    how.check = true;
    contenders_add_weft(&f, &how, b->ranks);
    for (int i = 0; i < OPS; i++)
        for (int s = 0; s < 3 && !code && wants_op(b, ops[i]); s++)
            code = run_cell(b, &f, (struct outcome){.place = p, .op = ops[i], .ranks = b->ranks, .bytes = b->sizes[s]},
                            why);
    contenders_close(&f);
    return code;
}

static int run_all(struct check_bench *b, struct failure *why)
{
    int code = CLI_OK;
    for (int i = 0; i < PLACES && !code; i++) {
        char no[256];
        if (!wants_place(b, &places[i]))
            continue;
        if (places[i].hosts && !link_make(2, &b->link, no, sizeof no)) {
            snprintf(b->left_out, sizeof b->left_out, "%s: %s", places[i].words, no);
            continue;
        }
        code = run_place(b, &places[i], why);
        if (places[i].hosts)
            link_remove(&b->link);
    }
    return code;
}

static void put_json(const struct check_bench *b)
{
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", "check");
    json_write_int(&j, "cores", work_cores());
    json_write_int(&j, "rounds", b->rounds);
    json_write_open(&j, "lines", '[', false);
    for (int i = 0; i < b->n; i++) {
        const struct outcome *l = &b->line[i];
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "place", l->place->name);
        json_write_text(&j, "what", work_name(l->op));
        json_write_int(&j, "ranks", l->ranks);
        json_write_int(&j, "bytes", l->bytes);
        json_write_real(&j, "plain_us", l->off * 1e6);
        json_write_real(&j, "checked_us", l->on * 1e6);
        json_write_real(&j, "ratio", l->on / l->off);
        json_write_int(&j, "wrong", l->wrong);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "left_out", b->left_out);
    json_write_close(&j, '}');
}

int bench_check(int argc, char **argv)
{
    static struct check_bench b;
    int64_t ms = 600, rounds = 7, ranks = 2;
    b = (struct check_bench){.sizes = {65536, 1 << 20, 16 << 20}};
    const struct args_option rows[] = {
        {"n", ARGS_INT, "N", "ranks (2)", &ranks, 2, 16},
        {"only", ARGS_TEXT, "NAMES",
         "only some of window, private and hosts; ping, broadcast, allgather, reduce_scatter, allreduce, all_to_all "
         "and halo",
         &b.only, 0, 0},
        {"ms", ARGS_INT, "N", "milliseconds for each contender in each line (600)", &ms, 1, 60000},
        {"rounds", ARGS_INT, "N", "rounds in which the two take turns (7)", &rounds, 1, MEASURE_ROUNDS},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &b.json, 0, 0},
        {0}};
    const struct args_verb verb = {
        "bench check", "[-n N] [--only NAMES] [--json]",
        "Measures what the check of messages (WEFT_CHECK=1) costs: collectives of 64 KiB, 1 MiB and 16 MiB with it "
        "and\n"
        "without it, in rounds that take turns; medians are shown. In window memory and in private memory of this\n"
        "machine, and between two played hosts, which need root and the ip command. ratio is the time with the check\n"
        "over the time without it.",
        rows, 0};
    const char *words[1];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    code = bench_options_check_only(&verb, b.only,
                                    "window,private,hosts,ping,broadcast,allgather,reduce_scatter,allreduce,all_to_all,"
                                    "halo");
    if (code)
        return code;
    struct failure why = {0};
    b.ranks = (int)ranks;
    b.rounds = (int)rounds;
    b.seconds = (double)ms * 1e-3;
    unsetenv("WEFT_CHECK"); /* the contenders decide */
    signals_watch();
    code = run_all(&b, &why);
    progress_line_end();
    if (b.json)
        put_json(&b);
    else if (*b.left_out)
        printf("\nleft out: %s\n", b.left_out);
    for (int i = 0; i < b.n && !code; i++)
        if (b.line[i].wrong)
            code =
                failure_set(&why, CLI_WRONG, "%s, %s: wrong elements", b.line[i].place->words, work_name(b.line[i].op));
    if (code)
        code = failure_print(&why, "bench check");
    signals_obey();
    return code;
}
