/* One rank of a job, as a launcher starts it: finds the store by the environment, meets the others there, ROUNDS times
 * (once by default), and prints "RANK of SIZE by KIND: sum". For rendezvous_test.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/environment.h"

#define SECOND INT64_C(1000000000)

static int meet(const struct environment_store *e, const struct environment_job *job, int round)
{
    struct store_opts o = {.name = e->name,
                           .rank = job->rank,
                           .size = job->size,
                           .token = e->token[0] ? e->token : NULL,
                           .timeout_ns = 20 * SECOND};
    const char *limit = getenv("WEFT_DEADLINE_MS");
    struct store *s;
    struct store_parts all;
    int mine = 10 * job->rank + round, got, sum = 0;
    if (limit)
        o.timeout_ns = strtoll(limit, NULL, 10) * 1000000;
    int err = store_open(e->at, &o, &s);
    if (err)
        return err;
    err = store_gather(s, "mine", &mine, sizeof mine, 20 * SECOND, &all);
    for (int r = 0; r < job->size && !err; r++) {
        memcpy(&got, all.bytes + all.at[r], sizeof got);
        sum += got;
    }
    for (int r = 0; r < job->size && !err; r++) { /* the same again, one by one */
        size_t n = 0;
        err = store_part(s, "mine", r, &got, sizeof got, &n, 20 * SECOND);
        sum -= err ? 0 : got;
    }
    for (int r = 0; r < job->size && !err; r++)
        sum += 10 * r + round; /* what it should be */
    if (!err) {
        store_parts_free(&all);
        printf("%d of %d by %.*s: %d\n", job->rank, job->size, (int)strcspn(e->at, ":"), e->at, sum);
    }
    store_close(s, 20 * SECOND);
    return err;
}

int main(int argc, char **argv)
{
    struct environment_store e;
    struct environment_job job;
    bool found = false;
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    int err = environment_job(&job, &found);
    if (!err && !found)
        err = environment_no_job();
    if (!err)
        err = environment_store(NULL, &e);
    for (int i = 0; i < rounds && !err; i++)
        err = meet(&e, &job, i);
    if (err)
        fprintf(stderr, "%s: %s\n", weft_strerror(err), weft_errmsg());
    return err ? 1 : 0;
}
