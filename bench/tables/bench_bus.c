/* weft bench bus: a set of tensors from two ranks that publish it, by rows in f32, to two ranks that read it, by
 * columns in bf16. The ranks are processes; each is one rank of either side, so that both cores copy at once. Rates are
 * shares of memcpy's, which takes turns with the bus: 1 means that as many bytes were read and written in the same
 * time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/ranks/rank_bus.h"
#include "bench/tables/bench.h"
#include "bench/tables/bench_bus_device.h"
#include "bench/tables/bench_bus_train.h"
#include "bench/work/median.h"
#include "bench/work/work.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/readable.h"
#include "tool/signals.h"
#include "tool/temp_folder.h"
#include "tool/worker_processes.h"

enum { ROUNDS = 25, PEERS = 16 };

static const struct rank_bus_way ways[] = {{false, false}, {false, true}, {true, false}, {true, true}};
#define WAYS (int)(sizeof ways / sizeof *ways)

/* ---- figures ---- */

struct line {
    struct rank_bus_way way;
    double put, fetch, both; /* seconds */
    double of_put, of_fetch; /* shares of memcpy's rate */
};
struct peer {
    char name[64], why[200]; /* why: it was skipped */
    double seconds;
};
struct result {
    struct line lines[WAYS];
    int n, npeers;
    double memcpy, gather, fused; /* memcpy: bytes a second, by all ranks */
    struct peer peers[PEERS];
};
struct options {
    int64_t bytes, tensors, rounds, device;
    bool cpu, json, trainer;
    int64_t ms;
    const char *peers;
};

static int timed(struct worker_processes *w, struct rank_bus_job *j, worker_work *work, double *seconds,
                 struct failure *why)
{
    double begin = 0, end = 0, used = 0;
    if (worker_processes_do(w, work, j, why))
        return CLI_WRONG;
    for (int r = 0; r < RANK_BUS_RANKS; r++) {
        begin = r && begin < j->begin[r] ? begin : j->begin[r];
        end = r && end > j->end[r] ? end : j->end[r];
        used += j->used[r];
    }
    *seconds = j->cpu ? used / RANK_BUS_RANKS : end - begin;
    return CLI_OK;
}

/* Bytes that are read and written, halved as memcpy counts them. f32 has 4 bytes, bf16 2. */
static double moved(const struct rank_bus_job *j, bool fetch)
{
    double n = (double)rank_bus_elements(j) * RANK_BUS_RANKS;
    int in = fetch && !j->way.cast_at_fetch ? 2 : 4, out = fetch || !j->way.cast_at_fetch ? 2 : 4;
    return n * (in + out) / 2;
}

static int measure_way(struct worker_processes *w, struct rank_bus_job *j, struct line *out, double *rate,
                       struct failure *why)
{
    double copy[ROUNDS], put[ROUNDS], fetch[ROUNDS], both[ROUNDS], of_put[ROUNDS], of_fetch[ROUNDS];
    int code = worker_processes_do(w, rank_bus_begin, j, why) ? CLI_WRONG : CLI_OK;
    for (int i = -2; i < j->rounds && !code; i++) { /* two rounds touch all memory, and are not counted */
        double c = 0, p = 0, f = 0, b = 0;
        code = timed(w, j, rank_bus_memcpy, &c, why);
        j->step++;
        if (!code)
            code = timed(w, j, rank_bus_put, &p, why);
        if (!code)
            code = timed(w, j, rank_bus_fetch, &f, why);
        j->step++;
        if (!code)
            code = timed(w, j, rank_bus_both, &b, why);
        if (i < 0 || code)
            continue;
        copy[i] = (double)rank_bus_elements(j) * RANK_BUS_RANKS * sizeof(float) / c;
        put[i] = p;
        fetch[i] = f;
        both[i] = b;
        of_put[i] = moved(j, false) / p / copy[i];
        of_fetch[i] = moved(j, true) / f / copy[i];
    }
    if (!code && worker_processes_do(w, rank_bus_check, j, why))
        code = CLI_WRONG;
    struct failure ignored;
    if (worker_processes_do(w, rank_bus_end, j, code ? &ignored : why))
        code = CLI_WRONG;
    if (!code)
        *out = (struct line){j->way,
                             median(put, j->rounds),
                             median(fetch, j->rounds),
                             median(both, j->rounds),
                             median(of_put, j->rounds),
                             median(of_fetch, j->rounds)};
    *rate = code ? 0 : median(copy, j->rounds);
    return code;
}

static int measure_gather(struct worker_processes *w, struct rank_bus_job *j, bool fused, double *out,
                          struct failure *why)
{
    double took[ROUNDS];
    j->fused = fused;
    int code = worker_processes_do(w, rank_bus_gather_open, j, why) ? CLI_WRONG : CLI_OK;
    for (int i = -1; i < j->rounds && !code; i++)
        code = timed(w, j, rank_bus_gather, &took[i < 0 ? 0 : i], why);
    *out = code ? 0 : median(took, j->rounds);
    struct failure ignored;
    worker_processes_do(w, rank_bus_gather_close, j, code ? &ignored : why);
    return code;
}

/* ---- peers ---- */

/* The script prints a line for each peer: NAME, a tab, and its seconds or the word skipped with a reason. */
static int measure_peers(const struct options *o, struct result *out, struct failure *why)
{
    char command[1024], line[512];
    const char *python = getenv("WEFT_PYTHON");
    if (strchr(o->peers, '\'') || access(o->peers, R_OK))
        return failure_set(why, CLI_BAD, "--peers %s: there is no such script", o->peers);
    snprintf(command, sizeof command, "exec '%s' '%s' --bytes %lld --tensors %lld --rounds %lld%s",
             python ? python : "python3", o->peers, (long long)o->bytes, (long long)o->tensors, (long long)o->rounds,
             o->cpu ? " --cpu" : "");
    FILE *f = popen(command, "r");
    if (!f)
        return failure_set(why, CLI_WRONG, "--peers %s: it cannot be started", o->peers);
    while (out->npeers < PEERS && fgets(line, sizeof line, f)) {
        struct peer *p = &out->peers[out->npeers];
        char *tab = strchr(line, '\t'), *end = strchr(line, '\n');
        if (!tab || !end)
            continue;
        *tab = *end = 0;
        snprintf(p->name, sizeof p->name, "%.60s", line);
        p->seconds = strtod(tab + 1, &end);
        if (end == tab + 1 || p->seconds <= 0)
            snprintf(p->why, sizeof p->why, "%.190s", tab + 1);
        out->npeers++;
    }
    int status = pclose(f);
    return status ? failure_set(why, CLI_WRONG, "--peers %s: it ended with %d", o->peers, WEXITSTATUS(status)) : CLI_OK;
}

/* ---- all of it ---- */

static const char *where(const struct line *l)
{
    return l->way.cast_at_fetch ? "fetch" : "put";
}

/* The time that the other ways are compared with: with digests, cast as they are put. */
static double ours(const struct result *r)
{
    return r->n > 1 ? r->lines[1].both : 0;
}

static void print_text(const struct options *o, const struct result *r, const char *incomplete)
{
    char size[32];
    printf("%s of f32 in %lld tensors, two ranks by rows to two ranks by columns in bf16; %d cores; medians of %lld\n"
           "rounds%s. memcpy: %.1f GB/s. of memcpy: 1 is its rate. whole: from the beginning of put to fetched%s.\n\n",
           readable_bytes(o->bytes, size, sizeof size), (long long)o->tensors, work_cores(), (long long)o->rounds,
           o->cpu ? ", processor time" : "", r->memcpy * 1e-9, " and checked");
    printf("%-7s %-6s %9s %9s %9s %9s %9s %9s\n", "cast at", "digest", "put ms", "of memcpy", "fetch ms", "of memcpy",
           "whole ms", "of sum");
    for (int i = 0; i < r->n; i++) {
        const struct line *l = &r->lines[i];
        printf("%-7s %-6s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", where(l), l->way.digest ? "yes" : "no", l->put * 1e3,
               l->of_put, l->fetch * 1e3, l->of_fetch, l->both * 1e3, l->both / (l->put + l->fetch));
    }
    if (r->gather > 0 || r->npeers)
        printf("\n%-44s %9s  %s\n", "other ways", "ms", "times the bus (cast at put, digests)");
    if (r->gather > 0)
        printf("%-44s %9.2f  %.2f\n", "weft: gather, cast, broadcast, slice", r->gather * 1e3, r->gather / ours(r));
    if (r->fused > 0)
        printf("%-44s %9.2f  %.2f\n", "weft: gather and cast in one plan, the rest so", r->fused * 1e3,
               r->fused / ours(r));
    for (int i = 0; i < r->npeers; i++)
        if (*r->peers[i].why)
            printf("%-44s %9s  %s\n", r->peers[i].name, "-", r->peers[i].why);
        else
            printf("%-44s %9.2f  %.2f\n", r->peers[i].name, r->peers[i].seconds * 1e3, r->peers[i].seconds / ours(r));
    if (incomplete)
        printf("\nincomplete: %s\n", incomplete);
}

static void print_json(const struct options *o, const struct result *r, const char *incomplete)
{
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", "bus");
    json_write_int(&j, "bytes", o->bytes);
    json_write_int(&j, "tensors", o->tensors);
    json_write_int(&j, "cores", work_cores());
    json_write_text(&j, "time", o->cpu ? "processor" : "elapsed");
    json_write_real(&j, "memcpy_GBps", r->memcpy * 1e-9);
    json_write_open(&j, "lines", '[', false);
    for (int i = 0; i < r->n; i++) {
        const struct line *l = &r->lines[i];
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "cast_at", where(l));
        json_write_bool(&j, "digest", l->way.digest);
        json_write_real(&j, "put_ms", l->put * 1e3);
        json_write_real(&j, "put_of_memcpy", l->of_put);
        json_write_real(&j, "fetch_ms", l->fetch * 1e3);
        json_write_real(&j, "fetch_of_memcpy", l->of_fetch);
        json_write_real(&j, "whole_ms", l->both * 1e3);
        json_write_real(&j, "whole_of_sum", l->both / (l->put + l->fetch));
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    if (r->gather > 0)
        json_write_real(&j, "gather_ms", r->gather * 1e3);
    if (r->fused > 0)
        json_write_real(&j, "gather_cast_ms", r->fused * 1e3);
    json_write_open(&j, "peers", '[', false);
    for (int i = 0; i < r->npeers; i++) {
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "peer", r->peers[i].name);
        if (*r->peers[i].why)
            json_write_text(&j, "skipped", r->peers[i].why);
        else
            json_write_real(&j, "ms", r->peers[i].seconds * 1e3);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "incomplete", incomplete);
    json_write_close(&j, '}');
    putchar('\n');
}

/* A matrix of about this many bytes, nearly square, whose rows and columns can be halved. */
static void choose_shape(int64_t bytes, struct rank_bus_job *j)
{
    int64_t n = bytes / (int64_t)sizeof(float);
    for (j->columns = 2; j->columns * j->columns * 4 <= n;)
        j->columns *= 2;
    j->rows = n / j->columns / RANK_BUS_RANKS * RANK_BUS_RANKS;
    j->rows = j->rows ? j->rows : RANK_BUS_RANKS;
}

static int run(const struct options *o, const char *folder, struct result *out, struct failure *why)
{
    struct worker_processes *w;
    struct rank_bus_job *j = worker_processes_alloc(sizeof *j);
    if (!j)
        return failure_set(why, CLI_WRONG, "out of memory");
    *j = (struct rank_bus_job){.tensors = (int)o->tensors, .rounds = (int)o->rounds, .cpu = o->cpu};
    snprintf(j->url, sizeof j->url, "file:%s/bus", folder);
    snprintf(j->comm, sizeof j->comm, "shm:bench-bus-%ld", (long)getpid());
    choose_shape(o->bytes / o->tensors, j);
    int code = worker_processes_open(RANK_BUS_RANKS, &w, why);
    if (!code) {
        code = worker_processes_do(w, rank_bus_input, j, why) ? CLI_WRONG : CLI_OK;
        for (int i = 0; i < WAYS && !code; i++) {
            double rate;
            j->way = ways[i];
            code = measure_way(w, j, &out->lines[i], &rate, why);
            out->memcpy = out->n ? out->memcpy : rate;
            out->n += !code;
        }
        if (!code)
            code = measure_gather(w, j, false, &out->gather, why);
        if (!code)
            code = measure_gather(w, j, true, &out->fused, why);
        if (!code && j->wrong)
            code = failure_set(why, CLI_WRONG, "%lld tensors were wrong", (long long)j->wrong);
        worker_processes_close(w);
    }
    worker_processes_free(j, sizeof *j);
    return code ? code : o->peers ? measure_peers(o, out, why) : CLI_OK;
}

static int run_device(const struct options *o, const char *folder, struct failure *why)
{
    struct rank_bus_job shape;
    choose_shape(o->bytes / o->tensors, &shape);
    const struct bench_bus_device_options d = {shape.rows, shape.columns, o->tensors, o->rounds, o->device, o->json};
    return bench_bus_device(&d, folder, why);
}

static int run_trainer(const struct options *o, const char *folder, struct failure *why)
{
    const struct bench_bus_train_options t = {o->bytes, o->tensors, o->rounds, (double)o->ms * 1e-3, o->json};
    return bench_bus_train(&t, folder, why);
}

int bench_bus(int argc, char **argv)
{
    struct options o = {.bytes = INT64_C(256) << 20, .tensors = 500, .rounds = 5, .device = -1, .ms = 1000};
    const struct args_option options[] = {
        {"bytes", ARGS_BYTES, "B", "of the set, in f32 (256M); memory is about four times as much", &o.bytes, 4096,
         INT64_C(1) << 40},
        {"tensors", ARGS_INT, "N", "in the set (500)", &o.tensors, 1, RANK_BUS_TENSORS},
        {"rounds", ARGS_INT, "N", "rounds in which memcpy, put and fetch take turns (5)", &o.rounds, 1, ROUNDS},
        {"peers", ARGS_TEXT, "SCRIPT", "also run the peers of this script: bench/bus_peers.py of the source tree",
         &o.peers, 0, 0},
        {"device", ARGS_INT, "N", "instead: one rank that puts from and fetches into memory of CUDA device N, in GB/s",
         &o.device, 0, 1023},
        {"trainer", ARGS_FLAG, NULL, "instead: by how much readers slow down a trainer that computes", &o.trainer, 0,
         0},
        {"ms", ARGS_INT, "N", "milliseconds of a turn of --trainer (1000)", &o.ms, 1, 60000},
        {"cpu", ARGS_FLAG, NULL, "processor time of both ranks, for a machine with other work", &o.cpu, 0, 0},
        {"json", ARGS_FLAG, NULL, "print the table as JSON", &o.json, 0, 0},
        {0},
    };
    const struct args_verb verb = {
        "bench bus", "[options]",
        "Measures put and fetch of a set of tensors over the bus, as shares of memcpy's rate: from two ranks by rows "
        "in f32 to\n"
        "two ranks by columns in bf16, cast by either side, with and without digests. Beside it: gather, cast, "
        "broadcast and slice\n"
        "on weft's own engine, and peers.",
        options, 0};
    int words, code = args_parse(&verb, argc, argv, NULL, &words);
    if (code)
        return code < 0 ? CLI_OK : code;
    if (o.bytes / o.tensors < 64)
        return args_complain(&verb, "a tensor has 64 bytes at least");
    if (o.device >= 0 && (o.trainer || o.cpu || o.peers))
        return args_complain(&verb, "--device measures one rank beside nothing else: leave out --%s",
                             o.trainer ? "trainer"
                             : o.cpu   ? "cpu"
                                       : "peers");
    if (o.trainer && (o.cpu || o.peers))
        return args_complain(&verb, "--trainer measures steps by elapsed time beside nothing else: leave out --%s",
                             o.cpu ? "cpu" : "peers");
    struct failure why = {0};
    struct temp_folder folder;
    struct result result = {0};
    signals_watch();
    char text[256];
    if (!temp_folder_make(NULL, "bench-bus", &folder, text, sizeof text))
        code = failure_set(&why, CLI_WRONG, "%s", text);
    else
        code = o.device >= 0 ? run_device(&o, folder.path, &why)
               : o.trainer   ? run_trainer(&o, folder.path, &why)
                             : run(&o, folder.path, &result, &why);
    temp_folder_remove(&folder);
    if (result.n)
        (o.json ? print_json : print_text)(&o, &result, code ? why.text : NULL);
    if (code)
        failure_print(&why, "bench bus");
    signals_obey();
    return code;
}
