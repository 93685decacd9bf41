/* How many messages a rank sends while the processes of one machine find each other: no rank sends one to each of the
 * others. Calls that send are counted where they leave the library. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/suite.h"

#define MOST 128
#define HANGS 60
#define MOST_SENT 18 /* 10, and 8 more for each two seconds that it takes on a machine that is very busy */

struct told {
    int code[MOST], sent[MOST];
    char text[MOST][200];
};

static atomic_int sends;

ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    atomic_fetch_add(&sends, 1);
    return __real_send(fd, bytes, n, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    atomic_fetch_add(&sends, 1);
    return __real_sendmsg(fd, m, flags);
}

static void live(const char *url, int rank, int ranks, struct told *told)
{
    weft_comm *c = NULL;
    told->code[rank] = process_open(url, rank, ranks, 40 * SECOND, &c);
    told->sent[rank] = atomic_load(&sends);
    if (!told->code[rank])
        told->code[rank] = weft_comm_barrier(c, WEFT_DEADLINE);
    snprintf(told->text[rank], sizeof told->text[rank], "%s", weft_errmsg());
    weft_comm_close(c);
}

/* The most messages that a rank has sent until its comm was open. */
static int most_sent(int ranks)
{
    struct told *told = ranks_shared(sizeof *told);
    pid_t pids[MOST];
    char url[64], end[PROCESS_END];
    int most = 0;
    snprintf(url, sizeof url, "shm:count-%ld-%d", (long)getpid(), ranks);
    for (int r = 0; r < ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0) {
            live(url, r, ranks, told);
            _exit(0);
        }
    }
    for (int r = 0; r < ranks; r++) {
        process_end(pids[r], end);
        if (*end || told->code[r])
            fail_msg("rank %d of %d: %d, %s %s", r, ranks, told->code[r], told->text[r], end);
        most = told->sent[r] > most ? told->sent[r] : most;
    }
    print_message("%d ranks: a rank sends %d messages at most\n", ranks, most);
    process_nothing_left(url + 4);
    munmap(told, sizeof *told);
    return most;
}

static void messages_of_a_rank_do_not_grow_with_the_ranks(void **state)
{
    (void)state;
    int few = most_sent(16), many = most_sent(MOST);
    if (few > MOST_SENT || many > MOST_SENT)
        fail_msg("a rank of 16 sends up to %d messages until all have opened, and one of %d up to %d", few, MOST, many);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_of_a_rank_do_not_grow_with_the_ranks)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
