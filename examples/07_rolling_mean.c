/* A rolling mean over a time series that is sorted over all ranks: each value's mean with those of the last WINDOW
 * seconds before it. How many ranks back that reaches depends on the data: samples are dense here and sparse there, and
 * some ranks have none. So each rank passes on to the right what came from the left, one hop a round, until all have
 * voted that they have enough; nobody knows the number of rounds beforehand.
 *
 *   weft run -n 5 build/examples/07_rolling_mean */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/halo.h>

#define SAMPLES 20000
#define WINDOW 40.0

struct sample {
    double time, value;
};

static void must(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        exit(1);
    }
}

static void *need(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        exit(1);
    return p;
}

static weft_message **more(weft_message **list, int n)
{
    list = realloc(list, (size_t)n * sizeof *list);
    if (!list)
        exit(1);
    return list;
}

/* The whole series; each rank keeps its part of it and uses the rest only to check its result. */
static struct sample *series(void)
{
    struct sample *s = need(SAMPLES * sizeof *s);
    uint64_t state = 7;
    double time = 0;
    for (int i = 0; i < SAMPLES; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double random = (double)(state >> 40) / (1 << 24);
        time += random * (i / 500 % 3 == 0 ? 0.001 : 0.2); /* bursts */
        s[i] = (struct sample){time, random - 0.5};
    }
    return s;
}

/* Where the part of a rank begins: parts grow and shrink, and every fourth rank has none. */
static int begin_of(int rank, int ranks)
{
    int shares = 0, before = 0;
    for (int r = 0; r < ranks; r++) {
        int share = r % 4 == 3 ? 0 : 1 + r % 3;
        before += r < rank ? share : 0;
        shares += share;
    }
    return (int)((long long)SAMPLES * before / shares);
}

/* Means of s[from .. n): each sums its window from the oldest sample on, so that serial and parallel sums are the same.
 */
static void means(const struct sample *s, int from, int n, double *out)
{
    int oldest = 0;
    for (int i = from; i < n; i++) {
        double sum = 0;
        while (s[oldest].time <= s[i].time - WINDOW)
            oldest++;
        for (int k = oldest; k <= i; k++)
            sum += s[k].value;
        out[i - from] = sum / (i - oldest + 1);
    }
}

int main(void)
{
    weft_comm *comm;
    weft_halo *halo;
    weft_exchange_opts opts = {.size = sizeof opts, .vote = true};
    must(weft_comm_open(NULL, NULL, &comm));
    must(weft_halo_open(comm, false, &opts, &halo));
    int rank = weft_comm_rank(comm), ranks = weft_comm_size(comm), rounds = 0, pieces = 0;
    struct sample *all = series();
    int begin = begin_of(rank, ranks), mine = begin_of(rank + 1, ranks) - begin;
    double since = mine ? all[begin].time - WINDOW : 0; /* older ones are of no use */
    weft_message own = {.payload = all + begin, .bytes = (size_t)mine * sizeof *all};
    weft_message **came = NULL; /* from the left, the nearest first */
    size_t back = 0;            /* samples in them */
    bool enough = rank == 0 || mine == 0;

    do {
        weft_message *left, *right;
        const weft_message *on = rounds == 0 ? &own : pieces ? came[pieces - 1] : NULL;
        must(weft_halo_start(halo, NULL, on, enough));
        must(weft_exchange_wait(weft_halo_rounds(halo), WEFT_FOREVER));
        must(weft_halo_take(halo, &left, &right));
        weft_message_free(right);
        rounds++;
        if (!left) /* there is nobody to the left */
            continue;
        const struct sample *s = left->payload;
        came = more(came, ++pieces);
        came[pieces - 1] = left;
        back += left->bytes / sizeof *s;
        enough = enough || rounds >= rank || (left->bytes && s[0].time <= since);
    } while (!weft_exchange_over(weft_halo_rounds(halo)));

    struct sample *line = need((back + (size_t)mine) * sizeof *line);
    char *end = (char *)line;
    for (int i = pieces - 1; i >= 0; i--) { /* the oldest first */
        if (came[i]->bytes)
            memcpy(end, came[i]->payload, came[i]->bytes);
        end += came[i]->bytes;
        weft_message_free(came[i]);
    }
    memcpy(end, own.payload, own.bytes);

    double *got = need((size_t)mine * sizeof *got), *want = need((size_t)mine * sizeof *want);
    means(line, (int)back, (int)back + mine, got);
    means(all, begin, begin + mine, want);
    if (memcmp(got, want, (size_t)mine * sizeof *got)) {
        fprintf(stderr, "rank %d: its means are not those of the whole series\n", rank);
        exit(1);
    }
    weft_halo_close(halo);
    must(weft_comm_barrier(comm, WEFT_DEADLINE)); /* all are right */
    if (rank == 0)
        printf("rolling mean of %d samples on %d ranks, look-back in %d rounds: equal to the serial one\n", SAMPLES,
               ranks, rounds);
    weft_comm_close(comm);
    free(want);
    free(got);
    free(line);
    free(came);
    free(all);
    return 0;
}
