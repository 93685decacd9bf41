/* What a tcp: store costs when it has many clients: seconds, CPU time and bytes of the server, and the steps that it
 * makes for a request, which must not grow with the number of clients. Prints the table of docs/scale.md; with
 * WEFT_TEST_SHARE=full up to 10,000 clients. The clients are in a process of their own: either side has a file for each
 * of them. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crowd.h"
#include "rendezvous/server.h"
#include "stores.h"
#include "support/share.h"
#include "support/suite.h"

#define CARD 336 /* bytes of the address that a rank of tcp: gives to the others */
#define SMALL 8

enum phase { BEGIN, JOINED, DONE, OFFERED, GATHERED, LEFT, PHASES };

struct measured {
    int64_t ns[PHASES];
    struct server_counts counts[PHASES];
};

static bool allow_files(rlim_t want)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return false;
    if (limit.rlim_cur >= want)
        return true;
    limit.rlim_max = limit.rlim_max < want ? want : limit.rlim_max; /* root may */
    limit.rlim_cur = want;
    return !setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- the clients ---- */

/* Tells the server's process that a phase is over, and waits until it has looked at its counts. */
static bool over(int fd, enum phase phase)
{
    unsigned char byte = (unsigned char)phase;
    return write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1;
}

static bool work(struct crowd *c, int n, const struct address *at, int fd)
{
    return over(fd, BEGIN) && crowd_connect(c, n, at, TOKEN) && crowd_join(c, "crowd") && over(fd, JOINED) &&
           crowd_offer(c, "card", CARD) && crowd_part(c, "card", 1, CARD) && crowd_part(c, "card", n - 1, CARD) &&
           crowd_await(c, "go") && over(fd, DONE) && crowd_offer(c, "small", SMALL) && over(fd, OFFERED) &&
           crowd_gather(c, "small", SMALL) && over(fd, GATHERED);
}

static void be_the_clients(int n, const struct address *at, int fd)
{
    struct crowd c;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool fine = work(&c, n, at, fd);
    if (!fine)
        fprintf(stderr, "%d clients: %s\n", n, c.text);
    crowd_leave(&c);
    _exit(fine && over(fd, LEFT) ? 0 : 1);
}

/* ---- the server ---- */

static void measure(int n, struct measured *m)
{
    struct stores_place place;
    struct address at;
    int pair[2], status;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    stores_begin(&place, STORES_SERVED);
    assert_int_equal(address_parse(place.url + 4, &at), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        be_the_clients(n, &at, pair[1]);
    }
    close(pair[1]);
    for (unsigned char phase; read(pair[0], &phase, 1) == 1 && phase < PHASES;) {
        server_counts(place.server, &m->counts[phase]);
        m->ns[phase] = clock_now();
        assert_int_equal(write(pair[0], &phase, 1), 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(pair[0]);
    stores_end(&place); /* when all have left */
    assert_int_equal(status, 0);
}

static double seconds(const struct measured *m, enum phase from, enum phase to)
{
    return (double)(m->ns[to] - m->ns[from]) / 1e9;
}

static double cpu(const struct measured *m, enum phase from, enum phase to)
{
    return (double)(m->counts[to].cpu_ns - m->counts[from].cpu_ns);
}

static double bytes(const struct measured *m, enum phase from, enum phase to)
{
    return (double)(m->counts[to].sent - m->counts[from].sent + m->counts[to].received - m->counts[from].received);
}

static double steps(const struct measured *m, enum phase from, enum phase to)
{
    return (double)(m->counts[to].steps - m->counts[from].steps) /
           (double)(m->counts[to].requests - m->counts[from].requests);
}

static void print(int n, const struct measured *m)
{
    printf("| %d | %.2f | %.0f | %.0f | %.2f | %.2f | %.2f | %.0f | %.0f |\n", n, seconds(m, BEGIN, DONE),
           cpu(m, BEGIN, DONE) / n / 1e3, bytes(m, BEGIN, DONE) / n, steps(m, BEGIN, JOINED), steps(m, JOINED, DONE),
           seconds(m, OFFERED, GATHERED), cpu(m, OFFERED, GATHERED) / n / 1e3, bytes(m, OFFERED, GATHERED) / n);
    fflush(stdout);
}

static void cost_of_a_request_does_not_grow_with_the_clients(void **state)
{
    (void)state;
    static const int sizes[] = {64, 256, 1024, 2048, 4096, 10000};
    struct measured m[sizeof sizes / sizeof *sizes] = {{.ns = {0}}};
    bool full = test_share(1, 2) == 2;
    if (!stores_sodium())
        skip();
    if (!allow_files(full ? 10100 : 2200)) {
        printf("skip: this process may not have %d files open\n", full ? 10100 : 2200);
        skip();
    }
    printf("| ranks | join, set, 3 gets: s | server, us a rank | bytes a rank | steps a join | steps a request | "
           "gather: s "
           "| server, us a rank | bytes a rank |\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!full && sizes[i] != 256 && sizes[i] != 2048)
            continue;
        measure(sizes[i], &m[i]);
        print(sizes[i], &m[i]);
    }
    /* 256 against 2,048, and in full 256 against 10,000. */
    for (size_t i = full ? 5 : 3; i >= 3; i -= 2) {
        assert_true(steps(&m[i], BEGIN, JOINED) <= 1.2 * steps(&m[1], BEGIN, JOINED));
        assert_true(steps(&m[i], JOINED, DONE) <= 1.2 * steps(&m[1], JOINED, DONE));
        assert_true(steps(&m[i], DONE, OFFERED) <= 1.2 * steps(&m[1], DONE, OFFERED));
        assert_true(steps(&m[i], OFFERED, GATHERED) <= 1.2 * steps(&m[1], OFFERED, GATHERED));
    }
    if (full) /* "roughly constant": caches and the system's own work may cost a factor */
        assert_true(cpu(&m[5], BEGIN, DONE) / 10000 <= 2 * cpu(&m[2], BEGIN, DONE) / 1024);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cost_of_a_request_does_not_grow_with_the_clients)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
