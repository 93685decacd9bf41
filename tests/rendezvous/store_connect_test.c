/* How ranks come to the place of a tcp: store, where addresses answer nothing, signals come, and the only port to call
 * from is the one that is called. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/deadline.h"
#include "rendezvous/store_tcp.h"
#include "stores.h"
#include "support/suite.h"

#define CALLS 4

/* Somebody who listens and takes nobody. */
struct deaf {
    struct address at;
    int listener, calls[CALLS];
};

/* Full: whoever calls now hears nothing at all, as where packets are lost. */
static void deafen(struct deaf *d, bool full)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *d = (struct deaf){.at.host = "127.0.0.1"};
    d->listener = stores_reserve(&d->at.port);
    assert_int_equal(listen(d->listener, full ? 0 : CALLS), 0);
    to.sin_port = htons((uint16_t)d->at.port);
    for (int i = 0; i < CALLS; i++) {
        d->calls[i] = full ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
        if (full && connect(d->calls[i], (struct sockaddr *)&to, sizeof to))
            assert_int_equal(errno, EINPROGRESS);
    }
}

static void deaf_end(struct deaf *d)
{
    for (int i = 0; i < CALLS; i++)
        if (d->calls[i] >= 0)
            close(d->calls[i]);
    close(d->listener);
}

/* ---- places that do not answer ---- */

/* Of several places one is the store's: the others must not take its time. */
static void silent_addresses_do_not_take_the_stores_time(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    for (int full = 0; full < 2; full++) {
        struct stores_place p;
        struct deaf deaf;
        struct address at[2];
        struct store *s;
        struct store_opts o = {.rank = 0, .size = 1, .token = TOKEN};
        stores_begin(&p, STORES_SERVED);
        deafen(&deaf, full);
        at[0] = deaf.at;
        assert_int_equal(address_parse(p.url + 4, &at[1]), 0);
        int64_t until = deadline_now() + 100 * SECOND; /* with time to lose on a busy machine */
        int err = store_tcp_open_at(&store_tcp, "two", at, 2, STORE_TCP_CONNECT, &o, until, &s);
        if (err || deadline_now() >= until)
            fail_msg("%s: %s", full ? "lost" : "silent", err ? weft_errmsg() : "all time was spent there");
        store_close(s, 0);
        deaf_end(&deaf);
        stores_end(&p);
    }
}

/* ---- signals ---- */

static void nothing(int number)
{
    (void)number;
}

/* A program that is profiled gets signals all the time: none of them ends a call that is under way. */
static void signals_do_not_end_a_call(void **state)
{
    (void)state;
    struct deaf deaf;
    struct sigaction quiet = {.sa_handler = nothing}, before;
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    int64_t until = deadline_now() + 300 * MS;
    int fd = -1;
    deafen(&deaf, true);
    assert_int_equal(sigaction(SIGALRM, &quiet, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    int why = address_connect(&deaf.at, until, &fd);
    bool early = deadline_now() < until;
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    deaf_end(&deaf);
    assert_int_equal(why, ETIMEDOUT);
    assert_false(early);
}

/* ---- oneself ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

/* In a network of its own, where the system has one port to give. */
static int call_oneself(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET))
        return 77;
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), fd = -1;
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &lo) || !write_text("/proc/sys/net/ipv4/ip_local_port_range", "30000 30000"))
        return 77;
    struct address nobody = {.host = "127.0.0.1", .port = 30000};
    for (int i = 0; i < 3; i++)
        if (address_connect(&nobody, deadline_now() + LONG, &fd) != ECONNREFUSED)
            return 1;
    return address_listen(&nobody, &fd) ? 2 : 0; /* and the port is free for who is to serve there */
}

/* TCP lets a socket connect itself: who calls again and again until somebody listens would do so one day, and then
 * nobody could listen there. */
static void socket_that_connects_itself_is_given_up(void **state)
{
    (void)state;
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(call_oneself());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 77) {
        print_message("skip: no right to make a network of its own\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_addresses_do_not_take_the_stores_time),
        cmocka_unit_test(signals_do_not_end_a_call),
        cmocka_unit_test(socket_that_connects_itself_is_given_up),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
