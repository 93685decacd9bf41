/* What every test program does with its arguments: it runs all its tests or those that are named, at all places where
 * they run or at one, or lists them. A test that fails prints the one line that runs it again. */
#ifndef WEFT_TESTS_SUITE_H
#define WEFT_TESTS_SUITE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Where tests run: transports, levels of instructions. Place i is the argument of --on, whole or up to a colon. */
struct suite_places {
    const char *(*name)(size_t i); /* NULL: there are no more */
    bool (*usual)(size_t i);       /* do tests run there without being asked to? NULL: everywhere */
    int (*enter)(size_t i);        /* 0; SUITE_SKIP: it cannot be entered, and has said why; otherwise it failed */
    void (*leave)(size_t i, bool failed); /* NULL: nothing to do */
    /* Has other processes run these tests of the program there, instead of enter. The exit status; -1: enter it. NULL:
     * -1. */
    int (*elsewhere)(size_t i, const char *program, const struct CMUnitTest *tests, size_t n);
};
enum { SUITE_SKIP = 77 };

struct suite_group {
    const struct CMUnitTest *tests;
    size_t n;
    const struct suite_places *places; /* NULL: the tests run once */
    CMFixtureFunction setup, teardown;
};
#define SUITE_AT(places, tests)                                        \
    {                                                                  \
        (tests), sizeof(tests) / sizeof *(tests), (places), NULL, NULL \
    }
#define SUITE_ONCE(tests) SUITE_AT(NULL, tests)
#define SUITE_FIXTURE(tests, setup, teardown)                               \
    {                                                                       \
        (tests), sizeof(tests) / sizeof *(tests), NULL, (setup), (teardown) \
    }

/* PROGRAM [TEST]... [--on PLACE]... [--list]; TEST may be a pattern. The exit status: 0, 1 when a test has failed, 2
 * for arguments that are wrong, 77 when all had to be left out. */
int suite_main(int argc, char **argv, const struct suite_group *groups, size_t n);
#define SUITE_MAIN(argc, argv, ...)                                       \
    suite_main((argc), (argv), (const struct suite_group[]){__VA_ARGS__}, \
               sizeof((const struct suite_group[]){__VA_ARGS__}) / sizeof(struct suite_group))

/* The numbers of a campaign: for (int64_t i = from; suite_seed(&i, from, n); i++). Those from `from` on, n of them, or
 * the one that WEFT_TEST_SEED says. The number that is under way when a test fails is part of the line that runs it
 * again. */
bool suite_seed(int64_t *number, int64_t from, int64_t n);

/* cmocka's, noted: a test that is skipped has not failed. */
void suite_skip(const char *file, int line) __attribute__((noreturn));
#undef skip
#define skip() suite_skip(__FILE__, __LINE__)
#endif
