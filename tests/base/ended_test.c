/* The file by which a launcher tells its ranks that one has ended: what is no such file is not taken for one. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ended.h"
#include "support/suite.h"

static void name_of(int fd, char path[64])
{
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), fd);
}

static void first_rank_that_ended_is_named(void **state)
{
    (void)state;
    char path[64], text[80] = "";
    struct ended_record r = {.magic = ENDED_MAGIC, .rank = -1, .size = 4};
    int fd = memfd_create("ended", MFD_CLOEXEC);
    assert_true(fd >= 0);
    name_of(fd, path);
    assert_int_equal(ended_open(path, 4), -1); /* it is empty */
    assert_int_equal(pwrite(fd, &r, sizeof r, 0), sizeof r);
    assert_int_equal(ended_open(path, 5), -1); /* of another job */
    int file = ended_open(path, 4);
    assert_true(file >= 0);
    assert_int_equal(ended_look(file, text, sizeof text), -1);
    r.rank = 2;
    assert_int_equal(pwrite(fd, &r, sizeof r, 0), sizeof r);
    assert_int_equal(ended_look(file, text, sizeof text), 2);
    assert_string_equal(text, "rank 2 ended with code 0");
    r.code = -9;
    assert_int_equal(pwrite(fd, &r, sizeof r, 0), sizeof r);
    assert_int_equal(ended_look(file, text, sizeof text), 2);
    assert_string_equal(text, "rank 2 was ended by signal 9");
    assert_int_equal(ftruncate(fd, 3), 0);
    assert_int_equal(ended_look(file, text, sizeof text), -1);
    close(file);
    close(fd);
}

static void other_files_are_not_used(void **state)
{
    (void)state;
    char path[64], text[80];
    int pair[2];
    assert_int_equal(ended_open(NULL, 1), -1);
    assert_int_equal(ended_open("", 1), -1);
    assert_int_equal(ended_open("/no/such/file", 1), -1);
    assert_int_equal(ended_open("/dev/zero", 1), -1);
    assert_int_equal(ended_open("/", 1), -1);
    assert_int_equal(pipe(pair), 0); /* nobody waits for a pipe */
    name_of(pair[0], path);
    assert_int_equal(ended_open(path, 1), -1);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(ended_look(-1, text, sizeof text), -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_rank_that_ended_is_named),
        cmocka_unit_test(other_files_are_not_used),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
