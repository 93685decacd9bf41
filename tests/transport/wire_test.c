/* Wires: what they carry arrives, unchanged, in order, from all peers, by sockets and on UCX between processes of this
 * test, and on both MPIs under their launchers (which start this program once more). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/leaks.h"
#include "support/share.h"
#include "support/suite.h"
#include "wire_bodies.h"
#include "wire_calls.h"
#include "wire_strangers.h"

/* On the wire of this place. */
static void on(void (*body)(struct wire_rank *))
{
    static const int sizes[] = {2, 3, 5};
    wire_need(wire_url);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *failed = wire_run(wire_url, sizes[i], -1, body, NULL);
        if (failed)
            fail_msg("%s", failed);
    }
}

static void mail_arrives_in_order(void **state)
{
    (void)state;
    on(wire_mail_body);
}

static void messages_of_all_sizes_arrive(void **state)
{
    (void)state;
    on(wire_sizes_body);
}

static void many_messages_between_all_pairs_arrive(void **state)
{
    (void)state;
    wire_leaks = true;
    on(wire_crowd_body);
    wire_leaks = false;
}

static void sender_runs_ahead_but_not_far(void **state)
{
    (void)state;
    on(wire_ahead_body);
}

static void tag_can_be_used_again(void **state)
{
    (void)state;
    on(wire_remake_body);
}

static void sizes_that_differ_are_told(void **state)
{
    (void)state;
    wire_leaks = true;
    on(wire_mismatch_body);
    wire_leaks = false;
}

static void mail_wakes_a_sleeping_rank(void **state)
{
    (void)state;
    on(wire_sleep_body);
}

static bool full(void)
{
    return test_share(1, 1000000) == 1000000;
}

static void message_beyond_2_gib_arrives(void **state)
{
    (void)state;
    if (!full()) {
        print_message("more than 2^31 bytes: with WEFT_TEST_SHARE=full only\n");
        return;
    }
    wire_need(wire_url);
    const char *failed = wire_run(wire_url, 2, -1, wire_huge_body, NULL);
    if (failed)
        fail_msg("%s", failed);
}

/* ---- opening ---- */

static int files(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Rank 0 of one rank, again and again: nothing is left open. */
static void reopen_body(struct wire_rank *r)
{
    int before = 0;
    for (int i = 0; i < 6; i++) {
        struct wire_rank again = {.rank = r->rank, .size = r->size, .job = r->job};
        WIRE_OK(r, wire_rank_open(&again, r->url));
        wire_barrier(&again);
        again.w->ops->close(again.w);
        memcpy(r->failed, again.failed, sizeof r->failed);
        if (r->failed[0])
            return;
        if (i == 1)
            before = files();
    }
    WIRE_CHECK(r, files() <= before);
}

static void reopened_wires_leave_nothing_open(void **state)
{
    (void)state;
    on(reopen_body);
}

static void bad_wires_are_refused(void **state)
{
    (void)state;
    struct wire_boot boot = {.rank = 0, .size = 1, .wait_ns = SECOND, .modules = getenv("WEFT_MODULES")};
    struct wire *w;
    assert_int_equal(wire_open("nowhere:", &boot, &w), WEFT_EINVAL);
    assert_int_equal(wire_open("mpi:", &boot, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "mpirun"));
    assert_int_equal(wire_open("mpi:other", &boot, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "mpi:mpich"));
    boot.size = 0;
    assert_int_equal(wire_open("tcp:", &boot, &w), WEFT_EINVAL);
    if (wire_have("ucx:")) {
        assert_int_equal(wire_open("ucx:", &boot, &w), WEFT_EINVAL);
        boot.size = 2, boot.rank = 2;
        assert_int_equal(wire_open("ucx:", &boot, &w), WEFT_EINVAL);
    }
    boot = (struct wire_boot){.size = 1, .modules = "/nowhere/at/all"};
    int found = 0;
    while (wire_module(boot.modules, (size_t)found))
        found++;
    if (!found) { /* the program is not beside the modules */
        assert_int_equal(wire_open("ucx:", &boot, &w), WEFT_EUNSUPPORTED);
        assert_non_null(strstr(weft_errmsg(), "/nowhere/at/all"));
        assert_non_null(strstr(weft_errmsg(), "libucx-dev"));
    }
}

/* ---- sockets ---- */

static void strangers_lose_their_connection_and_harm_nobody(void **state)
{
    (void)state;
    on(strangers_body);
}

/* As few bytes at a time as can be: all that is written or read stops somewhere in between. */
static void messages_arrive_through_small_buffers(void **state)
{
    (void)state;
    setenv("WEFT_TCP_BUFFER", "16384", 1);
    on(wire_sizes_body);
    on(wire_crowd_body);
    unsetenv("WEFT_TCP_BUFFER");
}

static void between(int n, void (*body)(struct wire_rank *), void *arg)
{
    const char *failed = wire_run("tcp:", n, -1, body, arg);
    if (failed)
        fail_msg("%s", failed);
}

static void busy_caller_counts_what_has_come(void **state)
{
    (void)state;
    between(2, calls_busy_body, NULL);
}

static void busy_peer_that_is_called_again_is_reached(void **state)
{
    (void)state;
    between(2, calls_again_body, &(struct calls_case){.nobody = false});
    between(2, calls_again_body, &(struct calls_case){.nobody = true});
    between(2, calls_again_body, &(struct calls_case){.child = true});
}

static void call_taken_as_it_is_given_up_connects_again(void **state)
{
    (void)state;
    between(2, calls_crossed_body, NULL);
    between(2, calls_taken_and_left_body, NULL);
}

static void caller_that_left_before_the_welcome_is_heard(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        between(2, calls_farewell_body, &rank);
}

static void peer_without_file_descriptors_is_waited_for(void **state)
{
    (void)state;
    between(2, calls_files_body, NULL);
}

static void call_of_the_peer_replaces_one_without_an_answer(void **state)
{
    (void)state;
    between(2, calls_reserve_body, NULL);
}

static void peer_among_strangers_is_found(void **state)
{
    (void)state;
    between(2, calls_crowd_body, NULL);
}

static void peer_that_is_called_while_leaving_has_left(void **state)
{
    (void)state;
    between(3, calls_leave_body, NULL);
}

static void bad_settings_of_the_environment_are_refused(void **state)
{
    struct wire_boot boot = {.rank = 0, .size = 1, .wait_ns = SECOND};
    struct wire *w;
    (void)state;
    setenv("WEFT_TCP_BUFFER", "17", 1);
    assert_int_equal(wire_open("tcp:", &boot, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "WEFT_TCP_BUFFER=17"));
    unsetenv("WEFT_TCP_BUFFER");
    setenv("WEFT_TCP_INTERFACE", "none-such0", 1);
    assert_int_equal(wire_open("tcp:", &boot, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "none-such0"));
    unsetenv("WEFT_TCP_INTERFACE");
}

/* What all ranks know of each other decides, the same on all. */
static void all_ranks_choose_the_same_wire(void **state)
{
    struct wire_wish w[3];
    const char *url = NULL;
    (void)state;
    assert_int_equal(wire_choose_wish("mpi", NULL, &w[0]), WEFT_EINVAL);
    assert_int_equal(wire_choose_wish("tc", NULL, &w[0]), WEFT_EINVAL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wire_choose_wish(i == 1 ? "tcp" : NULL, NULL, &w[i]), 0);
        w[i].able |= 2, w[i].rdma = 0;
    }
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), 0);
    assert_string_equal(url, "tcp:"); /* one asked for it */
    w[2].asked = 2;
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), WEFT_EMISMATCH);
    assert_non_null(strstr(weft_errmsg(), "tcp on rank 1 and ucx on rank 2"));
    w[1].asked = 0;
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), 0);
    assert_string_equal(url, "ucx:");
    w[0].able = 1; /* no module there */
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), WEFT_EUNSUPPORTED);
    assert_non_null(strstr(weft_errmsg(), "rank 0"));
    w[2].asked = 0;
    w[1].rdma = 1;
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), 0);
    assert_string_equal(url, "tcp:");
    w[0].able = 3;
    w[1].rdma = 0;
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), 0);
    assert_string_equal(url, "tcp:"); /* no device that UCX would be faster with */
    w[1].rdma = 1;
    assert_int_equal(wire_choose(w, sizeof *w, 3, &url), 0);
    assert_string_equal(url, "ucx:");
}

/* ---- under the launchers of MPI ---- */

struct row {
    const char *name;
    void (*body)(struct wire_rank *);
};

static const struct row rows[] = {{"mail", wire_mail_body},     {"sizes", wire_sizes_body},
                                  {"crowd", wire_crowd_body},   {"ahead", wire_ahead_body},
                                  {"remake", wire_remake_body}, {"mismatch", wire_mismatch_body},
                                  {"huge", wire_huge_body}};

/* Opens more communicators than MPI has room for. */
static void many_opens(struct wire_rank *r)
{
    for (int i = 0; i < (int)test_share(100, 3000) && !r->failed[0]; i++) {
        struct wire_rank again = {.rank = r->rank, .size = r->size};
        WIRE_OK(r, wire_rank_open(&again, "mpi:"));
        wire_barrier(&again);
        again.w->ops->close(again.w);
        memcpy(r->failed, again.failed, sizeof r->failed);
    }
}

/* All rows, or the one that is named. */
static int mpi_rank(const char *library, const char *only)
{
    struct wire_rank r = {.size = 0};
    if (wire_rank_open(&r, "mpi:")) {
        printf("failed: open: %s\n", weft_errmsg());
        return 1;
    }
    if (!strstr(r.w->ops->name, library))
        wire_note(&r, __FILE__, __LINE__, "%s is not %s", r.w->ops->name, library);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !r.failed[0]; i++)
        if (only ? !strcmp(only, rows[i].name) : rows[i].body != wire_huge_body || full())
            rows[i].body(&r);
    if (!only)
        many_opens(&r);
    /* The search takes seconds, and ranks are alike. Open MPI leaves blocks of its own on x86-64. */
    if (r.rank > 0 || r.size > 2 || strstr(library, "Open MPI"))
        leaks_unsearched();
    wire_barrier(&r);
    if (r.failed[0])
        printf("failed: %s\n", r.failed);
    else
        r.w->ops->close(r.w);
    fflush(stdout);
    if (r.failed[0])
        _exit(1); /* ends the job: the others wait */
    return 0;
}

static void on_mpi(const char *url, const char *launcher, const char *library)
{
    char command[1200], line[600], self[512], failed[600] = "";
    wire_need(url);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    for (int ranks = 2; ranks <= 3; ranks++) {
        snprintf(command, sizeof command, "command -v %s >/dev/null || exit 127; exec %s -n %d '%s' --mpi '%s' 2>&1",
                 launcher, launcher, ranks, self, library);
        FILE *f = popen(command, "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
            if (!failed[0] || !strncmp(line, "failed: ", 8))
                snprintf(failed, sizeof failed, "%s", line);
        int status = pclose(f);
        if (status == 127 << 8) {
            print_message("skip: there is no launcher of %s\n", library);
            skip();
        }
        if (status)
            fail_msg("%d ranks: status %#x: %s", ranks, (unsigned)status, failed);
    }
}

static void wire_suite_passes_on_open_mpi(void **state)
{
    (void)state;
    on_mpi("mpi:openmpi", "mpirun.openmpi", "Open MPI");
}

static void wire_suite_passes_on_mpich(void **state)
{
    (void)state;
    on_mpi("mpi:mpich", "mpiexec.hydra", "MPICH");
}

int main(int argc, char **argv)
{
    if (argc >= 3 && !strcmp(argv[1], "--mpi"))
        return mpi_rank(argv[2], argv[3]);
    const struct CMUnitTest calls[] = {
        cmocka_unit_test(bad_wires_are_refused),
        cmocka_unit_test(bad_settings_of_the_environment_are_refused),
        cmocka_unit_test(all_ranks_choose_the_same_wire),
    };
    const struct CMUnitTest on_all[] = {
        cmocka_unit_test(mail_arrives_in_order),
        cmocka_unit_test(messages_of_all_sizes_arrive),
        cmocka_unit_test(many_messages_between_all_pairs_arrive),
        cmocka_unit_test(sender_runs_ahead_but_not_far),
        cmocka_unit_test(tag_can_be_used_again),
        cmocka_unit_test(sizes_that_differ_are_told),
        cmocka_unit_test(mail_wakes_a_sleeping_rank),
        cmocka_unit_test(message_beyond_2_gib_arrives),
        cmocka_unit_test(reopened_wires_leave_nothing_open),
    };
    const struct CMUnitTest on_tcp[] = {
        cmocka_unit_test(strangers_lose_their_connection_and_harm_nobody),
        cmocka_unit_test(messages_arrive_through_small_buffers),
        cmocka_unit_test(busy_caller_counts_what_has_come),
        cmocka_unit_test(busy_peer_that_is_called_again_is_reached),
        cmocka_unit_test(call_taken_as_it_is_given_up_connects_again),
        cmocka_unit_test(caller_that_left_before_the_welcome_is_heard),
        cmocka_unit_test(peer_without_file_descriptors_is_waited_for),
        cmocka_unit_test(call_of_the_peer_replaces_one_without_an_answer),
        cmocka_unit_test(peer_among_strangers_is_found),
        cmocka_unit_test(peer_that_is_called_while_leaving_has_left),
    };
    const struct CMUnitTest on_launchers[] = {
        cmocka_unit_test(wire_suite_passes_on_open_mpi),
        cmocka_unit_test(wire_suite_passes_on_mpich),
    };
    /* Open MPI wants to be asked before it runs as root, and more ranks than cores. */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    return SUITE_MAIN(argc, argv, SUITE_ONCE(calls), SUITE_AT(&wire_places, on_all), SUITE_ONCE(on_tcp),
                      SUITE_ONCE(on_launchers));
}
