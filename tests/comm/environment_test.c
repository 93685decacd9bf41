/* A program that runs with more rights than its user (setuid, capabilities) takes neither where to meet nor a token
 * from the environment. The C library says so by secure_getenv, which is played here. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/environment.h"
#include "support/suite.h"
#include "weft.h"

static bool privileged;
char *__real_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name)
{
    return privileged ? NULL : __real_secure_getenv(name);
}

static int begin(void **state)
{
    (void)state;
    clearenv();
    return 0;
}

static void url_is_ignored_with_more_rights(void **state)
{
    (void)state;
    struct environment_job job;
    bool found;
    setenv("WEFT_RANK", "0", 1);
    setenv("WEFT_SIZE", "1", 1);
    setenv("WEFT_URL", "shm:theirs", 1);
    privileged = false;
    assert_int_equal(environment_job(&job, &found), 0);
    assert_true(found);
    assert_string_equal(job.url, "shm:theirs");
    privileged = true;
    assert_int_equal(environment_job(&job, &found), WEFT_EINVAL);
    setenv("WEFT_NAME", "ours", 1);
    assert_int_equal(environment_job(&job, &found), 0);
    assert_string_equal(job.url, "shm:ours");
}

static void place_and_token_are_ignored_with_more_rights(void **state)
{
    (void)state;
    struct environment_store store;
    char token[SERVER_TOKEN_MAX + 2];
    setenv("WEFT_AT", "file:/theirs", 1);
    setenv("WEFT_TOKEN", "0123456789abcdef", 1);
    privileged = false;
    assert_int_equal(environment_store(NULL, &store), 0);
    assert_string_equal(store.at, "file:/theirs");
    assert_string_equal(store.token, "0123456789abcdef");
    privileged = true;
    assert_int_equal(environment_store(NULL, &store), WEFT_EINVAL);
    assert_int_equal(environment_store("file:/ours", &store), 0);
    assert_string_equal(store.token, "");
    unsetenv("WEFT_TOKEN");
    setenv("WEFT_TOKEN_FILE", "/no/such/file", 1);
    assert_int_equal(environment_token(token), 0); /* it is not opened */
    assert_string_equal(token, "");
    privileged = false;
    assert_int_equal(environment_token(token), WEFT_EINVAL);
}

/* A place to meet that cannot be used is an error of its own, also where MPI could do without one. */
static void unreadable_token_is_named_by_every_transport(void **state)
{
    static const char *const urls[] = {"tcp:token", "auto:token"};
    (void)state;
    privileged = false;
    setenv("WEFT_AT", "file:/tmp", 1);
    setenv("WEFT_TOKEN_FILE", "/no/such/file", 1);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        weft_comm *c;
        weft_comm_opts o = {.size = sizeof o, .rank = 0, .ranks = 2};
        assert_int_equal(weft_comm_open(urls[i], &o, &c), WEFT_EINVAL);
        if (strncmp(weft_errmsg(), "WEFT_TOKEN_FILE=/no/such/file:", 30))
            fail_msg("%s: %s", urls[i], weft_errmsg());
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(url_is_ignored_with_more_rights, begin),
        cmocka_unit_test_setup(place_and_token_are_ignored_with_more_rights, begin),
        cmocka_unit_test_setup(unreadable_token_is_named_by_every_transport, begin),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
