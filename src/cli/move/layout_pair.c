/* Parsing and lowering both sides; see layout_pair.h. */
#include "cli/move/layout_pair.h"

#include <stdlib.h>

static int parse_side(const char *which, const char *text, weft_layout **out, struct failure *why)
{
    int err = weft_layout_parse(text, out);
    if (err)
        return failure_set(why, err == WEFT_ENOMEM ? CLI_WRONG : CLI_BAD, "%s: %s", which, weft_errmsg());
    return CLI_OK;
}

int layout_pair_parse(struct layout_pair *p, const char *src, const char *dst, struct failure *why)
{
    *p = (struct layout_pair){0};
    int code = parse_side("SRC", src, &p->src, why);
    if (!code)
        code = parse_side("DST", dst, &p->dst, why);
    if (code) {
        layout_pair_free(p);
        return code;
    }
    int a = weft_layout_ranks(p->src), b = weft_layout_ranks(p->dst);
    p->world = a > b ? a : b;
    return CLI_OK;
}

int layout_pair_unscaled(const struct layout_pair *p, const char *command, struct failure *why)
{
    const weft_layout *sides[] = {p->src, p->dst};
    for (int i = 0; i < 2; i++) {
        weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
        if (!weft_layout_describe(sides[i], &desc) && desc.scale)
            return failure_set(why, CLI_BAD,
                               "%s has no scales: weft plan lowers and verifies them, and programs move them", command);
    }
    return CLI_OK;
}

int layout_pair_lower_one(const struct layout_pair *p, int rank, const weft_lower_opts *opts, weft_plan **out,
                          struct failure *why)
{
    weft_move move = {.name = "tensor", .src = p->src, .dst = p->dst};
    int err = weft_lower(&move, 1, rank, opts, out);
    if (err)
        return failure_set(why, err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED ? CLI_BAD : CLI_WRONG, "%s",
                           weft_errmsg());
    return CLI_OK;
}

int layout_pair_lower(struct layout_pair *p, const weft_lower_opts *opts, struct failure *why)
{
    p->plans = calloc((size_t)p->world, sizeof *p->plans);
    if (!p->plans)
        return failure_set(why, CLI_WRONG, "no memory for the plans of %d ranks", p->world);
    int code = CLI_OK;
    for (int r = 0; r < p->world && !code; r++)
        code = layout_pair_lower_one(p, r, opts, &p->plans[r], why);
    return code;
}

void layout_pair_free(struct layout_pair *p)
{
    for (int r = 0; p->plans && r < p->world; r++)
        weft_plan_free(p->plans[r]);
    free(p->plans);
    weft_layout_free(p->src);
    weft_layout_free(p->dst);
    *p = (struct layout_pair){0};
}

void layout_pair_totals_start(struct layout_pair_totals *t)
{
    *t = (struct layout_pair_totals){.kind = "", .algorithm = "", .busiest_sent = -1, .busiest_received = -1};
}

int layout_pair_totals_add(struct layout_pair_totals *t, const struct layout_pair *p, const weft_plan *plan,
                           struct failure *why)
{
    weft_stats s = {.size = sizeof s};
    weft_local src, dst;
    int rank = weft_plan_rank(plan);
    if (weft_plan_stats(plan, &s) || weft_layout_local(p->src, rank, &src) || weft_layout_local(p->dst, rank, &dst))
        return failure_set(why, CLI_WRONG, "rank %d: %s", rank, weft_errmsg());
    t->kind = s.kind;
    t->algorithm = s.algorithm;
    t->sent += s.sent;
    t->received += s.received;
    t->copied += s.copied;
    t->folded += s.folded;
    t->bound += s.bound;
    t->stated += s.stated;
    t->steps += s.steps;
    t->buckets += s.sends;
    t->chunks += s.chunks;
    t->scratch += s.scratch;
    t->holders += src.bytes > 0;
    t->receivers += dst.bytes > 0;
    if (s.sent > t->busiest_sent) {
        t->busiest_sent = s.sent;
        t->busiest_sender = rank;
    }
    if (s.received > t->busiest_received) {
        t->busiest_received = s.received;
        t->busiest_receiver = rank;
    }
    return CLI_OK;
}
