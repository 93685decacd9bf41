/* What leaks.c decides: a program that gives all back is not searched for leaks, and what another one loses is found.
 * This program starts itself once more for each of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

int __lsan_is_turned_off(void);

static void *early; /* allocated before main, and before leaks.c notes what is */
static void *volatile lost;

__attribute__((constructor(101))) static void allocate_early(void)
{
    early = malloc(100);
}

static void *allocate(void *arg)
{
    free(malloc(100));
    return arg;
}

static void make_once(void)
{
    static void *made;
    made = malloc(100);
    (void)made;
}

/* Everything that C programs do and that leaves blocks behind which are not lost. */
static void give_all_back(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_t threads[8];
    pthread_once(&once, make_once);
    setenv("WEFT_TEST_NONE", "such", 1);
    printf("all is given back\n");
    if (!dlopen("libresolv.so.2", RTLD_NOW)) /* of the C library, and no program's own */
        abort();
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, allocate, NULL))
            abort();
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

/* One block, while the number of blocks stays what it was. */
static void lose_one(void)
{
    free(early);
    early = NULL;
    lost = malloc(100);
    lost = NULL;
}

/* The status of this program with that argument; said: what it printed. */
static int run_with(const char *argument, char *said, size_t room)
{
    char self[512], command[600];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    snprintf(command, sizeof command, "exec '%s' %s 2>&1", self, argument);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    said[fread(said, 1, room - 1, f)] = 0;
    while (fgetc(f) != EOF)
        ;
    return pclose(f);
}

static void program_that_gives_all_back_is_not_searched(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(run_with("--give-back", said, sizeof said), 0);
    assert_string_equal(said, "all is given back\n");
}

static void lost_block_is_found(void **state)
{
    char said[4096];
    (void)state;
    assert_int_not_equal(run_with("--lose", said, sizeof said), 0);
    assert_non_null(strstr(said, "100 byte(s) leaked in 1 allocation(s)"));
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--give-back")) {
        give_all_back();
        return __lsan_is_turned_off() ? 0 : 3;
    }
    if (argc == 2 && !strcmp(argv[1], "--lose")) {
        lose_one();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_that_gives_all_back_is_not_searched),
        cmocka_unit_test(lost_block_is_found),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
