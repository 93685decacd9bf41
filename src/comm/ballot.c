#include "comm/ballot.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"

void ballot_begin(struct ballot *b)
{
    *b = (struct ballot){
        .lowest = {.rank = -1}, .call = {.rank = -1}, .digest = {.rank = -1}, .note = UINT64_MAX, .refuser = -1};
}

static bool other_call(const struct ballot_vote *a, const struct ballot_vote *b)
{
    return a->call != b->call || a->object != b->object;
}

static void lower(struct ballot_vote *a, const struct ballot_vote *b)
{
    if (b->rank >= 0 && (a->rank < 0 || b->rank < a->rank))
        *a = *b;
}

/* The ballot with the lower lowest rank stays, the other one is added. If its lowest vote differs from this one's, that
 * is the lowest of its ranks that differs. Otherwise what differed there differs here. */
void ballot_merge(struct ballot *b, const struct ballot *other)
{
    struct ballot keep;
    if (other->lowest.rank < 0)
        return;
    if (b->lowest.rank < 0 || other->lowest.rank < b->lowest.rank) {
        keep = *b;
        *b = *other;
        other = &keep;
    }
    if (other->lowest.rank < 0)
        return;
    lower(&b->call, other_call(&b->lowest, &other->lowest) ? &other->lowest : &other->call);
    lower(&b->digest, b->lowest.digest != other->lowest.digest ? &other->lowest : &other->digest);
    b->note &= other->note;
    if (other->refuser >= 0 && (b->refuser < 0 || other->refuser < b->refuser)) {
        b->refuser = other->refuser;
        b->code = other->code;
        snprintf(b->text, sizeof b->text, "%s", other->text);
    }
}

void ballot_add(struct ballot *b, int rank, const struct core_vote *v)
{
    struct ballot one;
    ballot_begin(&one);
    one.lowest = (struct ballot_vote){rank, v->call, v->object, v->digest};
    one.note = one.first = v->note;
    if (v->code) {
        one.refuser = rank;
        one.code = v->code;
        snprintf(one.text, sizeof one.text, "%s", v->text);
    }
    ballot_merge(b, &one);
}

int ballot_judge(const weft_comm *c, const struct ballot *b)
{
    char who[NAMES_RANK];
    const struct ballot_vote *zero = &b->lowest, *v = &b->call;
    if (v->rank >= 0 && v->call != zero->call)
        return error_set(WEFT_EMISMATCH, "rank 0 is in %s, %s in %s: all ranks must make the same calls in one order",
                         names_call(zero->call), names_rank(c, v->rank, who), names_call(v->call));
    if (v->rank >= 0)
        return error_set(WEFT_EMISMATCH, "%s: rank 0 means exec %" PRIu64 ", %s exec %" PRIu64, names_call(zero->call),
                         zero->object, names_rank(c, v->rank, who), v->object);
    if (b->refuser >= 0)
        return error_set(b->code, "%s: %s", names_rank(c, b->refuser, who), b->text);
    v = &b->digest;
    if (v->rank >= 0 && v->call == COMM_WINDOW)
        return error_set(WEFT_EMISMATCH, "%s: its window has other buffers or signals than rank 0's",
                         names_rank(c, v->rank, who));
    if (v->rank >= 0)
        return error_set(WEFT_EMISMATCH,
                         "%s: " BALLOT_OTHER_PLAN " (digests %016" PRIx64 " and %016" PRIx64
                         "): all ranks must give the same layouts, names and options",
                         names_rank(c, v->rank, who), v->digest, zero->digest);
    return 0;
}
