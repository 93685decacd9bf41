/* The command line of weft: finds the verb and hands over. It uses the public interface only, apart from cmd_bus.c. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "tool/failure.h"
#include "weft.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} verbs[] = {
    {"plan", cmd_plan, "show what moves between which ranks, beside the lower bound"},
    {"sim", cmd_sim, "foresee how long a move takes on a machine, and where it waits"},
    {"check", cmd_check, "run a move on real data and compare the result with brute force"},
    {"reshard", cmd_reshard, "move arrays in files from one layout to another"},
    {"checkpoint", cmd_checkpoint, "move safetensors files from one parallelism to another"},
    {"run", cmd_run, "start the ranks of a program on this machine"},
    {"bench", cmd_bench, "measure weft on this machine, with MPI beside it"},
    {"info", cmd_info, "show what this build and this machine can do"},
    {"diagnose", cmd_diagnose, "find the rank that holds up a job that hung or failed"},
    {"trace", cmd_trace, "put the traces of all ranks together, and show the longest waits"},
    {"bus", cmd_bus, "serve or show the directory in which separate jobs find each other"},
};
#define VERBS (sizeof verbs / sizeof *verbs)

static int print_help(void)
{
    puts("usage: weft VERB ...\n"
         "\n"
         "Moves sharded tensors between ranks by a plan that is made once and run many times.\n");
    for (size_t i = 0; i < VERBS; i++)
        printf("  %-10s %s\n", verbs[i].name, verbs[i].about);
    puts("\n"
         "A layout says which rank holds which elements, for instance\n"
         "  'f32[4096/x,512] @x4'          each of 4 ranks holds a quarter of the rows\n"
         "  'bf16[4096,512/x] @x4=4..7'    each of 4 other ranks holds columns, as bf16\n"
         "  'f32[4096,512] @x4 +sum(x)'    the value is the sum of the copies of 4 ranks\n"
         "\n"
         "weft VERB --help (or weft help VERB) describes a verb; weft --version prints the version. The manual is "
         "weft(1).");
    return CLI_OK;
}

static int print_version(void)
{
    uint32_t v = weft_version();
    printf("weft %u.%u.%u\n", v / 10000, v / 100 % 100, v % 100);
    return CLI_OK;
}

static int run_verb(const char *verb, int argc, char **argv)
{
    bool help = !strcmp(verb, "help");
    if (!strcmp(verb, "--help") || !strcmp(verb, "-h") || (help && !argc))
        return print_help();
    if (help) {
        char *words[] = {argc > 1 ? argv[1] : "--help", "--help"};
        return run_verb(argv[0], argc > 1 ? 2 : 1, words);
    }
    if (!strcmp(verb, "--version"))
        return print_version();
    for (size_t i = 0; i < VERBS; i++)
        if (!strcmp(verb, verbs[i].name))
            return verbs[i].run(argc, argv);
    fprintf(stderr, "weft: there is no %s '%s'; see weft --help\n", *verb == '-' ? "option" : "verb", verb);
    return CLI_BAD;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "weft: a verb is missing; see weft --help\n");
        return CLI_BAD;
    }
    int code = run_verb(argv[1], argc - 2, argv + 2);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "weft %s: the results could not be written\n", argv[1]);
        return code ? code : CLI_WRONG;
    }
    return code;
}
