/* A server of a tcp: store that may have few files open: it takes what it can get, and ranks that it cannot serve are
 * told why. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crowd.h"
#include "rendezvous/store.h"
#include "stores.h"
#include "support/share.h"
#include "support/suite.h"

struct served {
    struct stores_place place;
    pid_t pid;
};

/* A server in a process of its own, which may have `soft` files open, and could have `hard`. */
static struct served *serve(rlim_t soft, rlim_t hard)
{
    struct served *s = ranks_shared(sizeof *s);
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){soft, hard}))
            _exit(1);
        stores_begin(&s->place, STORES_SERVED);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    s->pid = pid;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return s;
}

static void serve_no_more(struct served *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    munmap(s, sizeof *s);
}

static void soft_limit_is_raised_for_the_ranks(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    struct served *s = serve(20, 400);
    struct address at;
    struct crowd c;
    assert_int_equal(address_parse(s->place.url + 4, &at), 0);
    bool fine = crowd_connect(&c, 200, &at, TOKEN) && crowd_join(&c, "") && crowd_offer(&c, "k", 8);
    if (!fine)
        print_message("%s\n", c.text);
    assert_true(fine);
    crowd_leave(&c);
    serve_no_more(s);
}

/* Nobody waits for ranks that cannot come. */
static void more_ranks_than_files_are_refused_at_once(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    for (int i = (int)test_share(1, 10); i > 0; i--) {
        struct served *s = serve(20, 40);
        struct stores_rank *r = stores_crew(&s->place, 64, NULL);
        int64_t began = clock_now();
        assert_int_equal(stores_open(&r[5]), WEFT_ETRANSPORT);
        assert_true(clock_now() - began < LONG / 2);
        assert_non_null(strstr(r[5].text, "the process that serves the store may have 40 files open, and needs "));
        assert_non_null(strstr(r[5].text, " for 64 ranks"));
        stores_free(r, 64);
        serve_no_more(s);
    }
}

/* Each rank alone would fit. The one that finds no file left says whose files they are, and gets in later. */
static void rank_without_a_file_of_the_server_says_so(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    enum { MOST = 40 };
    struct served *s = serve(MOST, MOST);
    struct stores_rank *r = stores_crew(&s->place, MOST, NULL);
    int n = 0;
    for (int i = 0; i < MOST; i++) {
        r[i].rank = 0;
        r[i].size = 1;
        r[i].timeout_ns = SECOND;
    }
    while (n < MOST && !stores_open(&r[n]))
        n++;
    assert_true(n > 10 && n < MOST);
    assert_int_equal(r[n].code, WEFT_ETRANSPORT);
    if (!strstr(r[n].text, "may have 40 files open"))
        fail_msg("%s", r[n].text);
    store_close(r[0].s, 0);
    r[n].timeout_ns = LONG;
    assert_int_equal(stores_open(&r[n]), 0);
    for (int i = 1; i <= n; i++)
        store_close(r[i].s, 0);
    stores_free(r, MOST);
    serve_no_more(s);
}

/* A rank that waits for one that found no file is told so, too: it is not the fault of the rank that is missing. */
static void rank_that_waits_for_one_without_a_file_is_told(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    enum { MOST = 40 };
    struct served *s = serve(MOST, MOST);
    struct stores_rank *r = stores_crew(&s->place, MOST, NULL);
    struct address at;
    struct crowd c;
    struct frame_reply reply = {.code = 0};
    char text[400] = "";
    int n = 0;
    assert_int_equal(address_parse(s->place.url + 4, &at), 0);
    assert_true(crowd_connect(&c, 1, &at, TOKEN));
    assert_true(crowd_ask(&c, 0, FRAME_JOIN, "pair", (int64_t)2 << 32, 2000)); /* rank 0 of 2 */
    for (int i = 0; i < MOST; i++) {
        r[i].rank = 0;
        r[i].size = 1;
        r[i].timeout_ns = 100 * MS;
    }
    while (n < MOST && !stores_open(&r[n]))
        n++;
    assert_true(n < MOST);
    assert_false(crowd_reply(&c, 0, &reply));
    assert_int_equal(reply.code, WEFT_ETIMEOUT);
    snprintf(text, sizeof text, "%.*s", (int)reply.bytes, (const char *)reply.value);
    assert_non_null(strstr(text, "rank 1 did not come in time"));
    assert_non_null(strstr(text, "may have 40 files open, and had none for some of the ranks"));
    crowd_leave(&c);
    for (int i = 0; i < n; i++)
        store_close(r[i].s, 0);
    stores_free(r, MOST);
    serve_no_more(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(soft_limit_is_raised_for_the_ranks),
        cmocka_unit_test(more_ranks_than_files_are_refused_at_once),
        cmocka_unit_test(rank_without_a_file_of_the_server_says_so),
        cmocka_unit_test(rank_that_waits_for_one_without_a_file_is_told),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
