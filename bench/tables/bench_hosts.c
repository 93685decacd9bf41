/* weft bench hosts: moves between hosts that are played on this machine (network namespaces and virtual cables), beside
 * ucx_perftest and MPI on the same link, in rounds that take turns; and what crosses the link, by the interface's
 * counters. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/measure.h"
#include "bench/harness/report.h"
#include "bench/harness/turns.h"
#include "bench/tables/bench.h"
#include "bench/work/median.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/signals.h"

enum { LINES = 24, HOSTS = 2 };

/* The result of one comparison. Ratios above 1 are in weft's favour: the other's time over weft's, or the bytes that
 * must cross over the bytes that did. */
struct outcome {
    char what[64], other[64];
    int ranks;
    int64_t bytes;
    double time, rival; /* s; or bytes that crossed, and that must */
    bool crossing;
    double ratio, aim; /* aim 0: none */
    int64_t wrong;
};

struct hosts_bench {
    struct bench_link link;
    struct measure measure;
    int64_t bytes;
    bool peers, json;
    const char *only, *save, *rate;
    struct outcome line[LINES];
    int n;
    char left_out[2048];
    const char *incomplete; /* why not all was measured; NULL: it was */
};

static void leave_out(struct hosts_bench *b, const char *what, const char *why)
{
    size_t n = strlen(b->left_out);
    snprintf(b->left_out + n, sizeof b->left_out - n, "%s: %s\n", what, why);
}

static bool wants(const struct hosts_bench *b, const char *name)
{
    return bench_options_wants(&(struct bench_options){.only = b->only}, name);
}

static void print_outcome(const struct hosts_bench *b, const struct outcome *o)
{
    char size[32], aim[32] = "-";
    if (b->json)
        return;
    progress_line_end();
    if (b->n == 1)
        printf("%5s  %-34s %6s %12s %9s %12s %7s %6s  %s\n", "ranks", "between hosts", "size", "weft us", "GB/s",
               "other us", "ratio", "aim", "beside");
    if (o->aim > 0)
        snprintf(aim, sizeof aim, "%.2f", o->aim);
    printf("%5d  %-34s %6s ", o->ranks, o->what, report_line_size(o->bytes, size, sizeof size));
    if (o->crossing)
        printf("%9.2f MiB %9s %8.2f MiB", o->time / 1048576, "-", o->rival / 1048576);
    else
        printf("%12.2f %9.3f %12.2f", o->time * 1e6, (double)o->bytes / o->time / 1e9, o->rival * 1e6);
    printf(" %7.2f %6s  %s%s\n", o->ratio, aim, o->other, o->wrong ? "  WRONG" : "");
    fflush(stdout);
}

static void add(struct hosts_bench *b, struct outcome o)
{
    o.ratio = o.time > 0 ? o.rival / o.time : 0;
    if (b->n < LINES) {
        b->line[b->n++] = o;
        print_outcome(b, &o);
    }
}

/* ---- weft alone, driven from here ---- */

static struct contender *add_weft(const struct hosts_bench *b, struct contenders *f, int ranks)
{
    struct weft_setup how = {.on = "auto:", .link = &b->link};
    contenders_add_weft(f, &how, ranks);
    return &f->c[f->n - 1];
}

/* ---- beside ucx_perftest ---- */

struct duel {
    const char *name, *what;
    struct work_cell cell;
    const char *test;
    int runs;
    double aim;
    const char *rate; /* of the link; NULL: as it is */
};

/* One rank on either host. Each round measures weft, then ucx_perftest with written memory, then ucx_perftest with
 * fresh memory. */
static int run_duel(struct hosts_bench *b, const struct duel *d, struct failure *why)
{
    enum { WEFT, WRITTEN, PLAIN, ALL };
    static struct contenders f;
    double v[ALL][MEASURE_ROUNDS];
    char no[200] = "";
    int64_t wrong = 0;
    int rounds = d->rate && b->measure.rounds > 3 ? 3 : b->measure.rounds;
    bool rival = true, ping = d->cell.op == WORK_PING;
    if (d->rate && !link_limit(&b->link, d->rate, no, sizeof no)) {
        leave_out(b, d->what, no);
        return CLI_OK;
    }
    struct contender *weft = add_weft(b, &f, 2);
    int code = turns_open(weft, &d->cell, &wrong, why);
    for (int r = 0; r < rounds && !code; r++) {
        progress_line_text(d->what);
        code = turns_time(weft, d->runs, &v[WEFT][r], why);
        for (int k = WRITTEN; k < ALL && rival && !code; k++) {
            struct perftest p = {d->test, d->cell.bytes, d->runs, k == WRITTEN};
            v[k][r] = link_perftest(&b->link, &p, no, sizeof no);
            rival = v[k][r] > 0;
        }
        if (signals_caught())
            code = failure_set(why, CLI_WRONG, "interrupted");
    }
    contenders_close(&f);
    if (d->rate)
        link_limit(&b->link, NULL, no, sizeof no);
    if (code)
        return code;
    if (!rival) {
        leave_out(b, d->what, no);
        return CLI_OK;
    }
    struct outcome o = {.ranks = 2, .bytes = d->cell.bytes, .wrong = wrong, .aim = d->aim};
    snprintf(o.what, sizeof o.what, "%s", d->what);
    o.time = median(v[WEFT], rounds) / (ping ? 2 : 1);
    o.rival = median(v[WRITTEN], rounds);
    snprintf(o.other, sizeof o.other, "ucx_perftest %s", d->test);
    add(b, o);
    if (!ping) {
        o.rival = median(v[PLAIN], rounds);
        o.aim = 0;
        snprintf(o.other, sizeof o.other, "ucx_perftest %s, memory never written", d->test);
        add(b, o);
    }
    return CLI_OK;
}

static struct work_cell one_to_one(int64_t bytes, int tensors)
{
    struct work_cell c = {.op = WORK_RESHARD, .bytes = bytes, .tensors = tensors};
    long long each = bytes / 4 / (tensors ? tensors : 1);
    snprintf(c.src, sizeof c.src, "f32[%lld] @x1=0", each);
    snprintf(c.dst, sizeof c.dst, "f32[%lld] @x1=1", each);
    return c;
}

static int run_duels(struct hosts_bench *b, struct failure *why)
{
    const struct duel all[] = {
        {"move", "a contiguous tensor", one_to_one(b->bytes, 0), "tag_bw", 10, 0.90, NULL},
        {"ping", "one way of there and back", {.op = WORK_PING, .bytes = 8}, "tag_lat", 2000, 1 / 1.2, NULL},
        {"slow", "a contiguous tensor, slow link", one_to_one(b->bytes, 0), "tag_bw", 2, 0.95, b->rate},
    };
    int code = CLI_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !code; i++)
        if (wants(b, all[i].name))
            code = run_duel(b, &all[i], why);
    return code;
}

/* ---- many tensors, against one as large ---- */

static int run_many(struct hosts_bench *b, struct failure *why)
{
    static struct contenders f;
    enum { TENSORS = 2000, EACH = 65536 };
    struct work_cell cell[2] = {one_to_one(b->bytes / EACH * EACH, (int)(b->bytes / EACH)), one_to_one(b->bytes, 0)};
    double v[2][MEASURE_ROUNDS];
    int64_t wrong = 0;
    if (b->bytes >= (int64_t)64 << 20) {
        cell[0] = one_to_one((int64_t)TENSORS * EACH, TENSORS);
        cell[1] = one_to_one((int64_t)TENSORS * EACH, 0);
    }
    struct contender *weft[2] = {add_weft(b, &f, 2), add_weft(b, &f, 2)};
    int code = CLI_OK;
    for (int k = 0; k < 2 && !code; k++) {
        int64_t w = 0;
        code = turns_open(weft[k], &cell[k], &w, why);
        wrong += w;
    }
    for (int r = 0; r < b->measure.rounds && !code; r++)
        for (int k = 0; k < 2 && !code; k++) {
            progress_line_text("many tensors");
            code = turns_time(weft[k], 5, &v[k][r], why);
        }
    contenders_close(&f);
    if (code)
        return code;
    struct outcome o = {.ranks = 2, .bytes = cell[0].bytes, .wrong = wrong, .aim = 0.80};
    snprintf(o.what, sizeof o.what, "%d tensors of %d KiB", cell[0].tensors, EACH / 1024);
    snprintf(o.other, sizeof o.other, "one tensor of as many bytes");
    o.time = median(v[0], b->measure.rounds);
    o.rival = median(v[1], b->measure.rounds);
    add(b, o);
    return CLI_OK;
}

/* ---- what crosses the link ---- */

/* Bytes that the hosts receive in one call, both together or the last one alone. */
static int count_crossing(struct hosts_bench *b, struct contender *c, bool both, double *bytes, struct failure *why)
{
    enum { RUNS = 4 };
    int64_t got = 0;
    for (int h = both ? 0 : HOSTS - 1; h < HOSTS; h++)
        got -= link_received(&b->link, h);
    struct order run = {.verb = ORDER_TIME, .runs = RUNS};
    if (contenders_do(c, &run))
        return failure_set(why, CLI_WRONG, "%s", c->why);
    for (int h = both ? 0 : HOSTS - 1; h < HOSTS; h++)
        got += link_received(&b->link, h);
    *bytes = (double)got / RUNS;
    return CLI_OK;
}

static int run_crossing(struct hosts_bench *b, const char *what, const struct work_cell *cell, int ranks, bool both,
                        double must, struct failure *why)
{
    static struct contenders f;
    struct outcome o = {.ranks = ranks, .bytes = cell->bytes, .rival = must, .crossing = true, .aim = 0.97};
    struct contender *weft = add_weft(b, &f, ranks);
    int code = turns_open(weft, cell, &o.wrong, why);
    if (!code)
        code = count_crossing(b, weft, both, &o.time, why);
    contenders_close(&f);
    snprintf(o.what, sizeof o.what, "%s", what);
    snprintf(o.other, sizeof o.other, "bytes that must cross");
    if (!code)
        add(b, o);
    return code;
}

static int run_crossings(struct hosts_bench *b, struct failure *why)
{
    struct work_cell fan = {.op = WORK_RESHARD, .bytes = b->bytes}, sum = {.op = WORK_ALLREDUCE, .bytes = b->bytes};
    int code = CLI_OK;
    snprintf(fan.src, sizeof fan.src, "f32[%lld] @x1=0", (long long)b->bytes / 4);
    snprintf(fan.dst, sizeof fan.dst, "f32[%lld] @x4=4..7", (long long)b->bytes / 4);
    if (wants(b, "fanout"))
        code = run_crossing(b, "crossing: 4 replicas on one host", &fan, 8, false, (double)b->bytes, why);
    if (!code && wants(b, "allreduce"))
        code = run_crossing(b, "crossing: allreduce, 2 hosts of 2", &sum, 4, true, 2.0 * (double)b->bytes, why);
    return code;
}

/* ---- beside MPI ---- */

struct match {
    const char *name, *what;
    struct work_cell cell;
    int ranks;
    double aim;
};

static struct work_cell rows_to_columns(int64_t bytes, int k, bool apart)
{
    struct work_cell c = {.op = WORK_RESHARD, .apart = apart};
    long long side = 256;
    while ((side + 256) * (side + 256) <= bytes / 4)
        side += 256;
    c.rows = c.columns = side;
    c.bytes = side * side * 4;
    snprintf(c.src, sizeof c.src, "f32[%lld/x,%lld] @x%d", side, side, k);
    snprintf(c.dst, sizeof c.dst, apart ? "f32[%lld,%lld/x] @x%d=%d..%d" : "f32[%lld,%lld/x] @x%d", side, side, k, k,
             2 * k - 1);
    return c;
}

/* Compares with the best peer in one of its ways; the aim is for the first way. */
static void add_match(struct hosts_bench *b, const struct match *m, const struct row *row, int way)
{
    const struct figure *weft = &row->f[0], *peer = NULL;
    for (int i = 0; i < row->n; i++) {
        const struct figure *f = &row->f[i];
        if (f->kind == WORK_PEER && f->variant == way && !f->wrong &&
            (!peer || measure_time(row, f) < measure_time(row, peer)))
            peer = f;
    }
    struct outcome o = {
        .ranks = m->ranks, .bytes = m->cell.bytes, .time = measure_time(row, weft), .wrong = weft->wrong};
    snprintf(o.what, sizeof o.what, "%s", m->what);
    snprintf(o.other, sizeof o.other, "%s", peer ? peer->who : "-");
    o.rival = peer ? measure_time(row, peer) : 0;
    o.aim = peer && !way ? m->aim : 0;
    add(b, o);
}

static int run_match(struct hosts_bench *b, const struct match *m, struct failure *why)
{
    static struct contenders f;
    struct row row = {.ranks = m->ranks, .workers = 1, .cell = m->cell};
    snprintf(row.label, sizeof row.label, "%s", m->what);
    add_weft(b, &f, m->ranks);
    if (b->peers)
        contenders_peers_add(&f, m->ranks, &b->link);
    int code = measure_row(&f, &b->measure, &row, why);
    if (!code && *row.refused)
        code = failure_set(why, CLI_WRONG, "%s", row.refused);
    for (int i = 0; i < f.n; i++)
        if (f.c[i].out)
            leave_out(b, f.c[i].name, f.c[i].why);
    contenders_close(&f);
    if (code)
        return code;
    add_match(b, m, &row, 0);
    if (work_variant(WORK_PEER, &m->cell, 1) && b->peers)
        add_match(b, m, &row, 1);
    return CLI_OK;
}

static int run_matches(struct hosts_bench *b, struct failure *why)
{
    const struct match all[] = {
        {"reshard", "rows to columns, 4 to 4 others", rows_to_columns(b->bytes, 4, true), 8, 1.5},
        {"reshard", "rows to columns, 2 hosts of 2", rows_to_columns(b->bytes, 4, false), 4, 1.5},
        {"allreduce", "allreduce, 2 hosts of 2", {.op = WORK_ALLREDUCE, .bytes = b->bytes}, 4, 0},
    };
    int code = CLI_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !code; i++)
        if (wants(b, all[i].name))
            code = run_match(b, &all[i], why);
    return code;
}

/* ---- the verb ---- */

static void put_json(const struct hosts_bench *b, FILE *to)
{
    struct json j = {.to = to};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", "hosts");
    json_write_int(&j, "hosts", HOSTS);
    json_write_int(&j, "cores", work_cores());
    json_write_int(&j, "rounds", b->measure.rounds);
    json_write_text(&j, "slow_link", b->rate);
    json_write_open(&j, "lines", '[', false);
    for (int i = 0; i < b->n; i++) {
        const struct outcome *o = &b->line[i];
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "what", o->what);
        json_write_int(&j, "ranks", o->ranks);
        json_write_int(&j, "bytes", o->bytes);
        if (o->crossing) {
            json_write_int(&j, "crossed", (int64_t)o->time);
            json_write_int(&j, "must", (int64_t)o->rival);
        } else {
            json_write_real(&j, "time_us", o->time * 1e6);
            json_write_real(&j, "other_us", o->rival * 1e6);
        }
        json_write_text(&j, "other", o->other);
        json_write_real(&j, "ratio", o->ratio);
        if (o->aim > 0)
            json_write_real(&j, "aim", o->aim);
        json_write_int(&j, "wrong", o->wrong);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "left_out", b->left_out);
    json_write_text(&j, "incomplete", b->incomplete);
    json_write_close(&j, '}');
}

static int put_out(const struct hosts_bench *b, struct failure *why)
{
    if (b->json)
        put_json(b, stdout);
    else if (*b->left_out)
        printf("\nleft out: %s", b->left_out);
    if (b->incomplete && !b->json)
        printf("\nincomplete: %s\n", b->incomplete);
    if (!b->save)
        return CLI_OK;
    FILE *to = fopen(b->save, "w");
    if (!to)
        return failure_set(why, CLI_WRONG, "%s: %s", b->save, strerror(errno));
    put_json(b, to);
    return fclose(to) ? failure_set(why, CLI_WRONG, "%s could not be written", b->save) : CLI_OK;
}

static int measure_all(struct hosts_bench *b, struct failure *why)
{
    char no[256];
    if (!link_make(HOSTS, &b->link, no, sizeof no))
        return failure_set(why, CLI_WRONG, "hosts cannot be played here: %s", no);
    int code = run_duels(b, why);
    if (!code && wants(b, "many"))
        code = run_many(b, why);
    if (!code)
        code = run_crossings(b, why);
    if (!code)
        code = run_matches(b, why);
    link_remove(&b->link);
    return code;
}

int bench_hosts(int argc, char **argv)
{
    static struct hosts_bench b;
    int64_t ms = 2000, rounds = 7;
    b = (struct hosts_bench){.bytes = (int64_t)64 << 20, .rate = "1gbit"};
    const struct args_option rows[] = {
        {"size", ARGS_BYTES, "BYTES", "bytes of a tensor (64M)", &b.bytes, 262144, (int64_t)1 << 30},
        {"only", ARGS_TEXT, "NAMES", "only some of move, ping, slow, many, fanout, allreduce and reshard", &b.only, 0,
         0},
        {"peers", ARGS_FLAG, NULL, "measure reshard and allreduce with the installed MPI libraries, too", &b.peers, 0,
         0},
        {"rate", ARGS_TEXT, "RATE", "rate of the slow link, as tc takes it (1gbit)", &b.rate, 0, 0},
        {"ms", ARGS_INT, "N", "milliseconds for each contender in each line beside MPI (2000)", &ms, 1, 60000},
        {"rounds", ARGS_INT, "N",
         "rounds in which the contenders take turns (7); repeated beside MPI if they differ much", &rounds, 1,
         MEASURE_ROUNDS},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &b.json, 0, 0},
        {"save", ARGS_TEXT, "FILE", "also save the result as JSON", &b.save, 0, 0},
        {0}};
    const struct args_verb verb = {
        "bench hosts", "[--peers] [--only NAMES] [--json]",
        "Measures moves between two played hosts: network namespaces on a bridge, which need root and the ip command.\n"
        "Beside ucx_perftest on the same link: a contiguous tensor, 8 bytes there and back, and the tensor on a link "
        "that tc\n"
        "limits. Beside MPI: rows to columns, and an allreduce. Beside one large tensor: 2,000 tensors of 64 KiB. It "
        "also counts\n"
        "the bytes that cross the link. All take turns in rounds; medians are shown. ratio is the time of the other "
        "over the\n"
        "time of weft.",
        rows, 0};
    const char *words[1];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    code = bench_options_check_only(&verb, b.only, "move,ping,slow,many,fanout,allreduce,reshard");
    if (!code)
        code = bench_options_check_file(&verb, "--save", b.save);
    if (code)
        return code;
    struct failure why = {0};
    b.bytes -= b.bytes % 65536;
    b.measure = (struct measure){.seconds = (double)ms * 1e-3, .rounds = (int)rounds};
    signals_watch();
    code = measure_all(&b, &why);
    progress_line_end();
    b.incomplete = code ? why.text : NULL;
    struct failure other;
    if ((b.n || !code) && put_out(&b, &other))
        code = failure_print(&other, "bench hosts");
    if (b.incomplete)
        failure_print(&why, "bench hosts");
    for (int i = 0; i < b.n && !code; i++)
        if (b.line[i].wrong) {
            failure_set(&other, CLI_WRONG, "%s: wrong elements", b.line[i].what);
            code = failure_print(&other, "bench hosts");
        }
    signals_obey();
    return code;
}
