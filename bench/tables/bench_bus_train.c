#include "bench/tables/bench_bus_train.h"

#include <stdio.h>

#include "bench/ranks/rank_bus_train.h"
#include "bench/work/median.h"
#include "bench/work/work.h"
#include "tool/json_write.h"
#include "tool/readable.h"
#include "tool/worker_processes.h"

enum { ROUNDS = 25 };

/* Medians. */
struct line {
    bool lent;
    double alone, read; /* seconds of a step: without a reader, and with one */
    double slower;      /* the share by which the second is longer */
    double rate, idle;  /* bytes a second of the reader: beside steps, and beside a trainer that sleeps */
};

static int turn(struct worker_processes *w, struct rank_bus_train_job *j, bool trains, bool reads, struct failure *why)
{
    j->trains = trains;
    j->reads = reads;
    j->over = 0;
    return worker_processes_do(w, rank_bus_train_turn, j, why) ? CLI_WRONG : CLI_OK;
}

static int measure(struct worker_processes *w, struct rank_bus_train_job *j, int rounds, struct line *out,
                   struct failure *why)
{
    double alone[ROUNDS], read[ROUNDS], slower[ROUNDS], rate[ROUNDS], idle[ROUNDS];
    struct failure ignored;
    int code = worker_processes_do(w, rank_bus_train_begin, j, why) ? CLI_WRONG : turn(w, j, false, true, why);
    for (int i = 0; i < rounds && !code; i++) {
        code = turn(w, j, true, false, why);
        alone[i] = j->step;
        if (!code)
            code = turn(w, j, true, true, why);
        read[i] = j->step;
        rate[i] = j->rate;
        slower[i] = read[i] / alone[i] - 1;
        if (!code)
            code = turn(w, j, false, true, why);
        idle[i] = j->rate;
    }
    if (!code)
        *out = (struct line){j->lent,
                             median(alone, rounds),
                             median(read, rounds),
                             median(slower, rounds),
                             median(rate, rounds),
                             median(idle, rounds)};
    if (worker_processes_do(w, rank_bus_train_end, j, code ? &ignored : why))
        code = CLI_WRONG;
    return code;
}

static const char *how(const struct line *l)
{
    return l->lent ? "lent" : "put";
}

static void print(const struct bench_bus_train_options *o, const struct line *lines, int n)
{
    char size[32];
    printf("A trainer that computes on a core of its own and has published %s in %lld tensors, and a process that "
           "fetches and\nchecks them again and again; %d cores; medians of %lld rounds. put: the reader maps the "
           "snapshot. lent: threads of the\ntrainer copy for the reader. idle: the trainer sleeps.\n\n",
           readable_bytes(o->bytes, size, sizeof size), (long long)o->tensors, work_cores(), (long long)o->rounds);
    printf("%-6s %14s %14s %9s %12s %12s\n", "how", "step alone us", "while read us", "slower %", "fetch GB/s",
           "idle GB/s");
    for (int i = 0; i < n; i++)
        printf("%-6s %14.1f %14.1f %9.2f %12.2f %12.2f\n", how(&lines[i]), lines[i].alone * 1e6, lines[i].read * 1e6,
               lines[i].slower * 1e2, lines[i].rate * 1e-9, lines[i].idle * 1e-9);
}

static void print_json(const struct bench_bus_train_options *o, const struct line *lines, int n)
{
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", "bus");
    json_write_int(&j, "bytes", o->bytes);
    json_write_int(&j, "tensors", o->tensors);
    json_write_int(&j, "cores", work_cores());
    json_write_open(&j, "trainer", '[', false);
    for (int i = 0; i < n; i++) {
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "how", how(&lines[i]));
        json_write_real(&j, "step_alone_us", lines[i].alone * 1e6);
        json_write_real(&j, "step_read_us", lines[i].read * 1e6);
        json_write_real(&j, "slower", lines[i].slower);
        json_write_real(&j, "fetch_GBps", lines[i].rate * 1e-9);
        json_write_real(&j, "fetch_idle_GBps", lines[i].idle * 1e-9);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_close(&j, '}');
    putchar('\n');
}

int bench_bus_train(const struct bench_bus_train_options *o, const char *folder, struct failure *why)
{
    struct worker_processes *w;
    struct line lines[2];
    int n = 0;
    struct rank_bus_train_job *j = worker_processes_alloc(sizeof *j);
    if (!j)
        return failure_set(why, CLI_WRONG, "out of memory");
    j->bytes = o->bytes;
    j->tensors = o->tensors;
    j->seconds = o->seconds;
    snprintf(j->url, sizeof j->url, "file:%s/bus", folder);
    int code = worker_processes_open(RANK_BUS_TRAIN_RANKS, &w, why);
    if (!code) {
        for (; n < 2 && !code; n += !code) {
            j->lent = n;
            code = measure(w, j, (int)o->rounds, &lines[n], why);
        }
        worker_processes_close(w);
    }
    worker_processes_free(j, sizeof *j);
    if (n)
        (o->json ? print_json : print)(o, lines, n);
    return code;
}
