/* What ranks that meet in a folder do there. What one rank does must not grow with the number of ranks, except for
 * rank 0, which collects. The linker sends the library's calls through here, and they are counted for each rank. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "rendezvous/store.h"
#include "stores.h"
#include "support/suite.h"

enum { FEW = 16, MANY = 64 };

/* Of this thread's rank. */
static _Thread_local struct looks {
    int writes;  /* files that it made or renamed */
    int values;  /* values, and files of collected values, that it has read */
    int looks;   /* calls in all */
    int64_t ran; /* ns */
} mine;

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __real_renameat(int from, const char *name, int to, const char *as);
int __wrap_renameat(int from, const char *name, int to, const char *as);
int __real_fstatat(int folder, const char *name, struct stat *out, int flags);
int __wrap_fstatat(int folder, const char *name, struct stat *out, int flags);

int __wrap_openat(int folder, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int fd = __real_openat(folder, name, flags, flags & O_CREAT ? va_arg(args, mode_t) : 0);
    va_end(args);
    mine.looks++;
    mine.writes += (flags & O_CREAT) != 0;
    mine.values += fd >= 0 && (!strncmp(name, "v-", 2) || !strncmp(name, "g-", 2));
    return fd;
}

int __wrap_renameat(int from, const char *name, int to, const char *as)
{
    mine.looks++;
    mine.writes += strncmp(name, "t-", 2) != 0; /* a file that was just made is counted already */
    return __real_renameat(from, name, to, as);
}

int __wrap_fstatat(int folder, const char *name, struct stat *out, int flags)
{
    mine.looks++;
    return __real_fstatat(folder, name, out, flags);
}

static void meet(struct stores_rank *r)
{
    struct looks *all = r->arg;
    struct store_parts parts;
    int64_t began = clock_now();
    mine = (struct looks){0};
    STORES_CHECK(r, !stores_open(r));
    STORES_CHECK(r, !store_gather(r->s, "card", &r->rank, sizeof r->rank, LONG, &parts));
    for (int i = 0; i < r->size && !r->broken; i++)
        STORES_CHECK(r, !memcmp(parts.bytes + parts.at[i], &i, sizeof i));
    store_parts_free(&parts);
    store_close(r->s, 0);
    mine.ran = clock_now() - began;
    all[r->rank] = mine;
}

static void count(int n, struct looks *most, struct looks *first)
{
    struct stores_place p;
    struct looks *all = ranks_shared((size_t)n * sizeof *all);
    stores_begin(&p, STORES_FILE);
    struct stores_rank *r = stores_crew(&p, n, meet);
    for (int i = 0; i < n; i++)
        r[i].arg = all;
    stores_run(r, n, false);
    *most = (struct looks){0};
    *first = all[0];
    for (int i = 1; i < n; i++) {
        /* A look is up to 8 calls. Pauses begin with 0.2 ms and double up to 20 ms and more. */
        int64_t looks = 40 + all[i].ran / (20 * MS);
        if (all[i].looks > 8 * looks)
            fail_msg("rank %d of %d made %d calls in %lld ms", i, n, all[i].looks, (long long)(all[i].ran / MS));
        most->writes = all[i].writes > most->writes ? all[i].writes : most->writes;
        most->values = all[i].values > most->values ? all[i].values : most->values;
    }
    stores_free(r, n);
    stores_end(&p);
    munmap(all, (size_t)n * sizeof *all);
}

static void rank_does_as_much_among_many_as_among_few(void **state)
{
    (void)state;
    struct looks few, many, first_few, first_many;
    count(FEW, &few, &first_few);
    count(MANY, &many, &first_many);
    print_message("a rank of %d and of %d: files written %d and %d, values read %d and %d; rank 0: %d and %d, %d and "
                  "%d\n",
                  FEW, MANY, few.writes, many.writes, few.values, many.values, first_few.writes, first_many.writes,
                  first_few.values, first_many.values);
    assert_int_equal(many.writes, few.writes);
    assert_int_equal(many.values, few.values);
    assert_true(many.writes <= 4); /* hello, here, its value, bye */
    assert_int_equal(many.values, 1);
    assert_true(first_many.values <= 2 * MANY);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_does_as_much_among_many_as_among_few),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
