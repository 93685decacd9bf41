/* A rank that sends what only the first rank of its host may send: the others do not listen. Ranks 2 and 3 are on one
 * host, and rank 3, which is not the first rank there, forges ballots, results and lists of missing ranks. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/mail.h"
#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/suite.h"

#define RANKS 4

/* As comm/relay.c has it: a kind, a meeting, and a ballot, a result or a list. */
struct packet {
    uint32_t kind;
    uint64_t meeting;
    unsigned char body[1000];
};

static void forge(weft_comm *c, uint64_t meeting, struct random *rng)
{
    for (uint32_t kind = 1; kind <= 4; kind++)
        for (int to = 0; to < 2; to++) {
            struct packet p = {.kind = MAIL_KIND(MAIL_RELAY, kind), .meeting = meeting};
            bool plain = random_once_in(rng, 2); /* otherwise random bytes */
            for (size_t i = 0; i < sizeof p.body; i++)
                p.body[i] = plain ? 0 : (unsigned char)random_next(rng);
            p.body[plain ? 0 : sizeof p.body - 1] = 0;
            size_t n = offsetof(struct packet, body) + (size_t)random_in(rng, 0, sizeof p.body);
            (void)mail_send(c, to, &p, random_once_in(rng, 3) ? n : sizeof p);
        }
}

static int meet(weft_comm *c)
{
    struct random rng = {7};
    int err = 0;
    for (int i = 0; i < 20 && !err; i++) {
        if (c->rank == 3)
            for (uint64_t k = 0; k < 3; k++)
                forge(c, c->group->ranks[c->rank].meetings + k, &rng);
        err = weft_comm_barrier(c, WEFT_DEADLINE);
    }
    return err;
}

static void forged_mail_is_thrown_away(void **state)
{
    (void)state;
    static const char hosts[] = "aabb";
    struct ranks_rank *out = ranks_shared(RANKS * sizeof *out);
    pid_t pids[RANKS];
    char url[64];
    snprintf(url, sizeof url, "auto:forged-%ld", (long)getpid());
    setenv("WEFT_WIRE", "tcp", 1);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = process_fork(100);
        if (pids[r])
            continue;
        weft_comm *c = NULL;
        hosts_live_on(hosts[r]);
        out[r].code = process_open(url, r, RANKS, 60 * SECOND, &c);
        if (!out[r].code)
            out[r].code = meet(c);
        snprintf(out[r].text, sizeof out[r].text, "%s", weft_errmsg());
        if (!out[r].code)
            weft_comm_close(c);
        _exit(0);
    }
    for (int r = 0; r < RANKS; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        if (status || out[r].code)
            fail_msg("rank %d: status %d, code %d: %s", r, status, out[r].code, out[r].text);
    }
    munmap(out, RANKS * sizeof *out);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(forged_mail_is_thrown_away, hosts_setup, hosts_teardown),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
