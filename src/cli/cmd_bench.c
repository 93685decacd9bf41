/* weft bench: how long things take, measured on this machine. */
#include <stdio.h>
#include <string.h>

#include "bench/tables/bench.h"
#include "cli/cli.h"
#include "tool/args.h"
#include "tool/failure.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} whats[] = {
    {"coll", bench_coll, "collectives by size and ranks, beside the floor and MPI"},
    {"reshard", bench_reshard, "large tensors from one layout to another, beside the floor and MPI"},
    {"halo", bench_halo, "ghosts of grids in one, two and three dims, beside MPI"},
    {"many", bench_many, "small tensors in one plan, against one plan each"},
    {"latency", bench_coll_latency, "a barrier, and a small move between two ranks"},
    {"memory", bench_memory, "speed of memory, with plain loops and with weft's copies"},
    {"lower", bench_lower, "the lowering of one rank: worlds of 64 to 65,536 ranks, and a whole model"},
    {"overlap", bench_overlap, "how much of an exchange hides behind computation"},
    {"pairs", bench_pairs, "random pairs of large tensors, each beside memcpy of the same bytes"},
    {"hosts", bench_hosts, "moves between two played hosts, beside ucx_perftest and MPI"},
    {"bus", bench_bus, "put and fetch of a set over the bus, beside memcpy, a gather and peers"},
    {"check", bench_check, "what the check of messages costs, on this machine and between played hosts"},
};
#define WHATS (sizeof whats / sizeof *whats)

int cmd_bench(int argc, char **argv)
{
    const char *what = argc > 0 ? argv[0] : "";
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        puts("usage: weft bench WHAT [options]\n");
        for (size_t i = 0; i < WHATS; i++)
            printf("  %-9s %s\n", whats[i].name, whats[i].about);
        puts("\nweft bench WHAT --help tells more about each. --without measures weft without some of its drivers and\n"
             "ways; --explain prints how it runs each line. In the source tree, make ablation measures what each\n"
             "driver and way is worth, and bench/compare.py measures two builds of weft in turns.");
        return CLI_OK;
    }
    for (size_t i = 0; i < WHATS; i++)
        if (!strcmp(what, whats[i].name))
            return whats[i].run(argc - 1, argv + 1);
    if (*what)
        fprintf(stderr, "weft bench: there is no benchmark '%s'; see weft bench --help\n", what);
    else
        fprintf(stderr, "weft bench: say what to measure; see weft bench --help\n");
    return CLI_BAD;
}
