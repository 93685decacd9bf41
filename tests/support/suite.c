#define _GNU_SOURCE
#include "suite.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "values.h"

enum { MOST_NAMES = 64, MOST_TESTS = 256 };

static struct {
    char program[PATH_MAX]; /* as the line that runs a test again has it */
    char variables[2000];   /* of the environment, for the same line: each with a space behind it */
    const char *names[MOST_NAMES], *on[MOST_NAMES];
    int nnames, non;
    bool list;
    /* What runs now. */
    char place[100]; /* empty: the tests run once */
    const struct CMUnitTest *tests[MOST_TESTS];
    size_t next;                      /* that will be set up */
    const struct CMUnitTest *current; /* NULL: none */
    bool ended, skipped;
    int told; /* how many lines to run a test again were printed */
    bool seeding;
    int64_t seed;
} suite;

/* ---- the line that runs a test again ---- */

/* A word as a shell takes it. */
static void suite_word(FILE *out, const char *word)
{
    if (*word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+-%@")]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, out);
    fputc('\'', out);
}

/* name: NULL for all tests. */
static void suite_again(const char *name)
{
    fflush(stdout);
    fprintf(stderr, "again: %s", suite.variables);
    if (suite.seeding)
        fprintf(stderr, "WEFT_TEST_SEED=%lld ", (long long)suite.seed);
    suite_word(stderr, suite.program);
    if (name) {
        fputc(' ', stderr);
        suite_word(stderr, name);
    }
    if (suite.place[0]) {
        fputs(" --on ", stderr);
        suite_word(stderr, suite.place);
    }
    fputc('\n', stderr);
    fflush(stderr);
    suite.told++;
}

/* The variables of the environment that steer tests, as they were when the program began. Those that only say where
 * things are get their values from the program's path if they are not set, and those that --on stands for are left out.
 */
static void suite_remember(const char *path)
{
    static const char *const left_out[] = {
        "WEFT_SOURCE_DIR=", "WEFT_BUILD_DIR=", "WEFT_BIN=",           "WEFT_PYTHON=",
        "WEFT_TEST_HOSTS=", "WEFT_TEST_MPI=",  "WEFT_TEST_LAUNCHED=", "WEFT_TEST_SEED="};
    char real_path[PATH_MAX], *real = realpath(path, real_path), command[PATH_MAX + 20], modules[PATH_MAX + 20];
    size_t root = strlen(WEFT_SOURCE_DIR);
    snprintf(suite.program, sizeof suite.program, "%s", real ? real : path);
    if (real && !strncmp(real, WEFT_SOURCE_DIR, root) && real[root] == '/')
        snprintf(suite.program, sizeof suite.program, "%s", real + root + 1); /* from the root of the tree */
    for (int up = 0; real && up < 2; up++)
        if (strrchr(real, '/'))
            *strrchr(real, '/') = 0;
    const char *build = real ? real : ".";
    snprintf(command, sizeof command, "%s/weft", build);
    snprintf(modules, sizeof modules, "WEFT_MODULES=%s", build);
    setenv("WEFT_SOURCE_DIR", WEFT_SOURCE_DIR, 0);
    setenv("WEFT_BUILD_DIR", build, 0);
    setenv("WEFT_BIN", command, 0);
    setenv("WEFT_MODULES", build, 0);
    FILE *out = fmemopen(suite.variables, sizeof suite.variables, "w");
    for (char **v = environ; *v && out; v++) {
        bool named = !strncmp(*v, "WEFT_", 5) && strcmp(*v, modules);
        for (size_t i = 0; i < sizeof left_out / sizeof *left_out && named; i++)
            named = strncmp(*v, left_out[i], strlen(left_out[i]));
        named = named && (strncmp(*v, "WEFT_WIRE=", 10) || !getenv("WEFT_TEST_HOSTS"));
        if (named) {
            size_t n = strcspn(*v, "=") + 1;
            fprintf(out, "%.*s", (int)n, *v);
            suite_word(out, *v + n);
            fputc(' ', out);
        }
    }
    if (out)
        fclose(out);
}

bool suite_seed(int64_t *number, int64_t from, int64_t n)
{
    const char *text = getenv("WEFT_TEST_SEED");
    bool begins = !suite.seeding;
    if (text && begins)
        *number = strtoll(text, NULL, 10);
    suite.seeding = text ? begins : *number < from + n;
    suite.seed = *number;
    return suite.seeding;
}

/* ---- one test ---- */

/* The test before has left without its teardown, or its end. */
static void suite_judge(void)
{
    if (suite.current && !suite.skipped && !suite.ended) {
        if (values_wrong())
            print_error("%s\n", values_text());
        suite_again(suite.current->name);
    }
    values_begin();
    suite.current = NULL;
    suite.seeding = false;
}

static int suite_setup(void **state)
{
    suite_judge(); /* its setup has failed: it has no teardown */
    suite.current = suite.tests[suite.next++];
    suite.ended = suite.skipped = false;
    return suite.current->setup_func ? suite.current->setup_func(state) : 0;
}

static void suite_test(void **state)
{
    suite.current->test_func(state);
    suite.ended = true;
}

static int suite_teardown(void **state)
{
    int err = 0;
    if (suite.current->teardown_func)
        err = suite.current->teardown_func(state);
    if (err)
        suite.ended = false;
    suite_judge();
    return err;
}

void suite_skip(const char *file, int line)
{
    suite.skipped = true;
    _skip(file, line);
    abort();
}

/* ---- which tests, and where ---- */

static bool suite_named(const struct CMUnitTest *t)
{
    for (int i = 0; i < suite.nnames; i++)
        if (!fnmatch(suite.names[i], t->name, 0))
            return true;
    return suite.nnames == 0;
}

/* A place, or all whose names go on with a colon. */
static bool suite_asked(const char *on, const char *place)
{
    size_t n = strlen(on);
    return !strncmp(on, place, n) && (!place[n] || place[n] == ':');
}

static bool suite_runs_at(const struct suite_places *p, size_t i)
{
    for (int k = 0; k < suite.non; k++)
        if (suite_asked(suite.on[k], p->name(i)))
            return true;
    return suite.non == 0 && (!p->usual || p->usual(i));
}

static void suite_print(FILE *out, const struct suite_group *groups, size_t n)
{
    for (size_t g = 0; g < n; g++) {
        for (size_t t = 0; t < groups[g].n; t++)
            fprintf(out, "%s\n", groups[g].tests[t].name);
        for (size_t i = 0; groups[g].places && groups[g].places->name(i); i++)
            fprintf(out, "%s%s", i ? "|" : "    these run --on ", groups[g].places->name(i));
        if (groups[g].places)
            fputc('\n', out);
    }
}

/* Do a name and a place of the arguments mean any test? */
static bool suite_has(const struct suite_group *groups, size_t n, const char *name, const char *on)
{
    for (size_t g = 0; g < n; g++) {
        bool here = !on;
        for (size_t i = 0; on && groups[g].places && groups[g].places->name(i); i++)
            here = here || suite_asked(on, groups[g].places->name(i));
        for (size_t t = 0; t < groups[g].n && here; t++)
            if (!name || !fnmatch(name, groups[g].tests[t].name, 0))
                return true;
    }
    return false;
}

static int suite_arguments(int argc, char **argv, const struct suite_group *groups, size_t n)
{
    for (int i = 1; i < argc; i++) {
        bool on = !strcmp(argv[i], "--on");
        if (!strcmp(argv[i], "--list"))
            suite.list = true;
        else if ((argv[i][0] == '-' && !on) || (on && i + 1 == argc) || suite.nnames == MOST_NAMES ||
                 suite.non == MOST_NAMES) {
            fprintf(stderr, "usage: %s [TEST]... [--on PLACE]... [--list]\n", argv[0]);
            return 2;
        } else if (on)
            suite.on[suite.non++] = argv[++i];
        else
            suite.names[suite.nnames++] = argv[i];
    }
    for (int i = 0; i < suite.nnames + suite.non; i++) {
        bool is_name = i < suite.nnames;
        const char *what = is_name ? suite.names[i] : suite.on[i - suite.nnames];
        if (suite_has(groups, n, is_name ? what : NULL, is_name ? NULL : what))
            continue;
        fprintf(stderr, "%s: there is no %s '%s'; there are:\n", argv[0], is_name ? "test" : "place", what);
        suite_print(stderr, groups, n);
        return 2;
    }
    return 0;
}

/* The exit status; -1: none of its tests is named. */
static int suite_run(const struct suite_group *g, const char *program)
{
    struct CMUnitTest wrapped[MOST_TESTS];
    size_t n = 0;
    for (size_t i = 0; i < g->n && n < MOST_TESTS; i++)
        if (suite_named(&g->tests[i])) {
            suite.tests[n] = &g->tests[i];
            wrapped[n] = g->tests[i];
            wrapped[n].setup_func = suite_setup;
            wrapped[n].test_func = suite_test;
            wrapped[n++].teardown_func = suite_teardown;
        }
    if (n == 0)
        return -1;
    int told = suite.told;
    suite.next = 0;
    int failed = _cmocka_run_group_tests(program, wrapped, n, g->setup, g->teardown);
    suite_judge();
    if (failed && suite.told == told) /* the setup of all of them */
        suite_again(NULL);
    return failed ? 1 : 0;
}

static int suite_run_at(const struct suite_group *g, size_t i, const char *program)
{
    const struct suite_places *p = g->places;
    struct CMUnitTest named[MOST_TESTS];
    size_t n = 0;
    for (size_t t = 0; t < g->n && n < MOST_TESTS; t++)
        if (suite_named(&g->tests[t]))
            named[n++] = g->tests[t];
    if (n == 0)
        return -1;
    int status = p->elsewhere ? p->elsewhere(i, program, named, n) : -1;
    if (status >= 0)
        return status;
    status = p->enter(i);
    if (status)
        return status;
    snprintf(suite.place, sizeof suite.place, "%s", p->name(i));
    printf("%s on %s\n", program, suite.place);
    fflush(stdout);
    status = suite_run(g, program);
    suite.place[0] = 0;
    if (p->leave)
        p->leave(i, status != 0);
    return status;
}

int suite_main(int argc, char **argv, const struct suite_group *groups, size_t n)
{
    const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    int status = suite_arguments(argc, argv, groups, n), failed = 0, skipped = 0, ran = 0;
    if (status)
        return status;
    if (suite.list) {
        suite_print(stdout, groups, n);
        return 0;
    }
    suite_remember(argv[0]);
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; groups[g].places ? groups[g].places->name(i) != NULL : i == 0; i++) {
            if (groups[g].places ? !suite_runs_at(groups[g].places, i) : suite.non > 0)
                continue;
            status = groups[g].places ? suite_run_at(&groups[g], i, program) : suite_run(&groups[g], program);
            failed += status > 0 && status != SUITE_SKIP;
            skipped += status == SUITE_SKIP;
            ran += !status;
        }
    if (failed + skipped + ran == 0) {
        fprintf(stderr, "%s: no test of that name runs at that place; there are:\n", argv[0]);
        suite_print(stderr, groups, n);
        return 2;
    }
    return failed ? 1 : skipped && !ran ? SUITE_SKIP : 0;
}
