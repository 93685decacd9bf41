/* A mixture-of-experts layer: each token goes to its TOP experts, which live on other ranks, and their answers come
 * back to be summed. Which rank gets how many tokens is known when the gate has spoken, so no plan can be made
 * beforehand: tokens travel as messages whose sizes their senders know. One exchange serves both ways of all layers: an
 * odd round for each dispatch, an even one for each combine.
 *
 *   weft run -n 4 build/examples/08_moe_dispatch */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#define TOKENS 300 /* of a rank */
#define WIDTH 64   /* floats of a token */
#define TOP 2      /* experts of a token */
#define LOCAL 2    /* experts of a rank */
#define LAYERS 6

/* One token for one expert: what the metadata of a message lists, one for each row of its payload. */
struct route {
    int token, expert, choice;
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

static unsigned scramble(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ x >> 16;
}

/* The gate: two different experts, some of them more popular than others, so that counts are uneven. */
static void gate(int layer, int rank, int token, int experts, int expert[TOP], float weight[TOP])
{
    unsigned h = scramble((unsigned)(layer * 1000003 + rank * 1009 + token));
    expert[0] = (int)(h % (unsigned)experts) * (int)(h >> 8 & 1);
    expert[1] = (expert[0] + 1 + (int)(h >> 9) % (experts - 1)) % experts;
    weight[0] = 0.5f + (float)(h >> 20 & 255) / 512;
    weight[1] = 1 - weight[0];
}

static void expert_answer(int expert, const float *in, float *out)
{
    for (int i = 0; i < WIDTH; i++)
        out[i] = in[i] * (float)(expert + 1) + in[(i + expert) % WIDTH] * 0.25f;
}

/* What comes of one token of a rank without any exchange. */
static void serial(int layer, int rank, int token, int experts, const float *in, float *out)
{
    int expert[TOP];
    float weight[TOP], answer[TOP][WIDTH];
    gate(layer, rank, token, experts, expert, weight);
    for (int k = 0; k < TOP; k++)
        expert_answer(expert[k], in, answer[k]);
    for (int i = 0; i < WIDTH; i++)
        out[i] = weight[0] * answer[0][i] + weight[1] * answer[1][i];
}

struct layer {
    int rank, ranks;
    weft_exchange *x;
    struct route *routes; /* for each rank up to TOKENS * TOP of them */
    float *rows;          /* for each rank as many */
    int *counts;          /* of each rank */
    float *answers;       /* [TOKENS][TOP][WIDTH] */
};

static void answer_here(const struct route *routes, const float *rows, int n, float *out)
{
    for (int i = 0; i < n; i++)
        expert_answer(routes[i].expert, rows + i * WIDTH, out + i * WIDTH);
}

static void place(struct layer *l, const struct route *routes, const float *rows, int n)
{
    for (int i = 0; i < n; i++)
        memcpy(l->answers + (routes[i].token * TOP + routes[i].choice) * WIDTH, rows + i * WIDTH, WIDTH * sizeof *rows);
}

/* Tokens to their experts; the answers of experts on this rank to its own tokens are placed at once. */
static void dispatch(struct layer *l, int number, const float *tokens)
{
    size_t most = (size_t)TOKENS * TOP;
    memset(l->counts, 0, (size_t)l->ranks * sizeof *l->counts);
    for (int t = 0; t < TOKENS; t++) {
        int expert[TOP];
        float weight[TOP];
        gate(number, l->rank, t, l->ranks * LOCAL, expert, weight);
        for (int k = 0; k < TOP; k++) {
            int to = expert[k] / LOCAL;
            size_t at = (size_t)to * most + (size_t)l->counts[to]++;
            l->routes[at] = (struct route){t, expert[k], k};
            memcpy(l->rows + at * WIDTH, tokens + t * WIDTH, WIDTH * sizeof *tokens);
        }
    }
    for (int to = 0; to < l->ranks; to++) {
        const struct route *routes = l->routes + (size_t)to * most;
        float *rows = l->rows + (size_t)to * most * WIDTH;
        int n = l->counts[to];
        if (to == l->rank) {
            float *out = need((size_t)n * WIDTH * sizeof *out);
            answer_here(routes, rows, n, out);
            place(l, routes, out, n);
            free(out);
        } else if (n) { /* who gets no tokens gets no message */
            must(weft_exchange_put(l->x, to, routes, (size_t)n * sizeof *routes, rows,
                                   (size_t)n * WIDTH * sizeof *rows));
        }
    }
    must(weft_exchange_finish(l->x, false));
    must(weft_exchange_wait(l->x, WEFT_FOREVER));
}

/* Answers back to where the tokens came from; the routes travel with them. Returns how many tokens were answered. */
static int combine(struct layer *l)
{
    weft_message *m;
    int answered = 0, nout = 0;
    float **out = need((size_t)l->ranks * sizeof *out); /* at most one a rank; they stay until the round is complete */
    for (must(weft_exchange_take(l->x, -1, &m)); m; must(weft_exchange_take(l->x, -1, &m))) {
        int n = (int)(m->meta_bytes / sizeof(struct route));
        out[nout] = need(m->bytes);
        answer_here(m->meta, m->payload, n, out[nout]);
        must(weft_exchange_put(l->x, m->from, m->meta, m->meta_bytes, out[nout++], m->bytes));
        weft_message_free(m);
        answered += n;
    }
    must(weft_exchange_finish(l->x, false));
    must(weft_exchange_wait(l->x, WEFT_FOREVER));
    for (must(weft_exchange_take(l->x, -1, &m)); m; must(weft_exchange_take(l->x, -1, &m))) {
        place(l, m->meta, m->payload, (int)(m->meta_bytes / sizeof(struct route)));
        weft_message_free(m);
    }
    while (nout)
        free(out[--nout]);
    free(out);
    return answered;
}

int main(void)
{
    weft_comm *comm;
    must(weft_comm_open(NULL, NULL, &comm));
    struct layer l = {.rank = weft_comm_rank(comm), .ranks = weft_comm_size(comm)};
    size_t all = (size_t)l.ranks * TOKENS * TOP;
    int *others = need((size_t)l.ranks * sizeof *others), n = 0, answered = 0;
    for (int r = 0; r < l.ranks; r++)
        if (r != l.rank)
            others[n++] = r;
    must(weft_exchange_open(comm, others, (size_t)n, others, (size_t)n, NULL, &l.x));
    l.routes = need(all * sizeof *l.routes);
    l.rows = need(all * WIDTH * sizeof *l.rows);
    l.counts = need((size_t)l.ranks * sizeof *l.counts);
    l.answers = need((size_t)TOKENS * TOP * WIDTH * sizeof *l.answers);
    float *tokens = need((size_t)TOKENS * WIDTH * sizeof *tokens), *want = need(WIDTH * sizeof *want);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        tokens[i] = (float)(scramble((unsigned)(l.rank * TOKENS * WIDTH + i)) % 1000) / 1000;

    for (int layer = 0; layer < LAYERS; layer++) {
        dispatch(&l, layer, tokens);
        answered += combine(&l);
        for (int t = 0; t < TOKENS; t++) {
            int expert[TOP];
            float weight[TOP], *token = tokens + t * WIDTH, *a = l.answers + t * TOP * WIDTH;
            serial(layer, l.rank, t, l.ranks * LOCAL, token, want);
            gate(layer, l.rank, t, l.ranks * LOCAL, expert, weight);
            for (int i = 0; i < WIDTH; i++)
                token[i] = weight[0] * a[i] + weight[1] * a[WIDTH + i];
            if (memcmp(token, want, WIDTH * sizeof *want)) {
                fprintf(stderr, "rank %d, layer %d: token %d is not what its experts say\n", l.rank, layer, t);
                exit(1);
            }
            for (int i = 0; i < WIDTH; i++)
                token[i] /= 8; /* so that many layers do not overflow */
        }
    }
    weft_exchange_close(l.x);
    must(weft_comm_barrier(comm, WEFT_DEADLINE)); /* all are right */
    if (l.rank == 0)
        printf("%d layers of %d tokens a rank, %d of %d experts each, on %d ranks: equal to the serial ones (rank 0 "
               "answered "
               "%d)\n",
               LAYERS, TOKENS, TOP, l.ranks * LOCAL, l.ranks, answered);
    weft_comm_close(comm);
    free(want);
    free(tokens);
    free(l.answers);
    free(l.counts);
    free(l.rows);
    free(l.routes);
    free(others);
    return 0;
}
