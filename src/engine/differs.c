/* What differs between the plans of ranks that bind: a meeting says only that some rank has another digest. All ranks
 * then meet again, a few times, and each learns the first tensor that differs, and both texts.
 *
 * A plan is seen as a list of texts: the name, the source and the destination of each tensor, and an end. Each rank has
 * the hash of every beginning of its list. By halving, 40 meetings find the first text that some rank has
 * different from rank 0's. Then rank 0 tells its text, and every rank that has another one refuses, which is what all
 * ranks are told. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/ballot.h"
#include "engine/exec.h"

#define SHOWN 200 /* characters of a text that are shown at most: two fit into a vote */
#define TELLS ": ="
#define NONE (UINT64_C(1) << 40) /* more texts than any plan has */

static const char *const parts[] = {"name", "source", "destination"};

struct texts {
    const weft_plan *plan;
    size_t n;       /* texts, without the end */
    uint64_t *upto; /* the hash of texts 0 .. i; after the end it is that of all and of the end */
};

static char *copy_of(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

/* Text i, to be freed. After the last one it is empty. NULL: no memory. */
static char *text_at(const struct texts *t, size_t i)
{
    weft_move m;
    size_t n;
    if (i >= t->n)
        return calloc(1, 1);
    weft_plan_tensor(t->plan, i / 3, &m);
    if (i % 3 == 0)
        return copy_of(m.name);
    const weft_layout *l = i % 3 == 1 ? m.src : m.dst;
    if (weft_layout_format(l, NULL, 0, &n))
        return NULL;
    char *text = malloc(n + 1);
    if (text && weft_layout_format(l, text, n + 1, &n)) {
        free(text);
        return NULL;
    }
    return text;
}

static uint64_t hash_at(const struct texts *t, uint64_t i)
{
    return t->upto[i < t->n ? i : t->n];
}

static int texts_make(struct texts *t, const weft_plan *p)
{
    uint64_t h = 0;
    *t = (struct texts){p, 3 * weft_plan_tensors(p), NULL};
    t->upto = malloc((t->n + 1) * sizeof *t->upto);
    for (size_t i = 0; t->upto && i <= t->n; i++) {
        char *text = text_at(t, i);
        if (!text)
            return error_nomem();
        h = hash_bytes(hash_u64(h, i == t->n), text, strlen(text));
        t->upto[i] = h;
        free(text);
    }
    return t->upto ? 0 : error_nomem();
}

static int meet(weft_comm *c, int64_t deadline_ns, uint64_t digest, int code)
{
    struct core_vote vote = {.call = COMM_BIND, .digest = digest, .code = code};
    uint64_t meeting;
    return meeting_agree(c, &vote, deadline_ns, &meeting);
}

static bool other_plan(int err)
{
    return err == WEFT_EMISMATCH && strstr(weft_errmsg(), BALLOT_OTHER_PLAN);
}

/* The first text that some rank has different from rank 0's; NONE if there is none. Ranks do not know how many texts
 * the others have: beyond its own end a rank has the hash of its whole list. */
static int first_other(weft_comm *c, int64_t deadline_ns, const struct texts *t, uint64_t *at)
{
    uint64_t low = 0, high = NONE;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int err = meet(c, deadline_ns, hash_at(t, middle), 0);
        if (err && !other_plan(err))
            return err;
        if (err)
            high = middle;
        else
            low = middle + 1;
    }
    *at = low;
    return 0;
}

static const char *cut(const char *text)
{
    return strlen(text) > SHOWN ? "..." : "";
}

/* This rank has another text than rank 0. */
static int refuse(const struct texts *t, size_t i, const char *mine, const char *first, const char *cut_first)
{
    weft_move m;
    const char *all = "all ranks must give the same layouts, names and options";
    if (i >= t->n)
        return error_set(WEFT_EMISMATCH, BALLOT_OTHER_PLAN ": it has no tensor %zu, which is '%.*s%s' on rank 0: %s",
                         i / 3, SHOWN, first, cut_first, all);
    if (i % 3 == 0 && !*first)
        return error_set(WEFT_EMISMATCH, BALLOT_OTHER_PLAN ": tensor %zu is '%.*s%s', which rank 0 does not have: %s",
                         i / 3, SHOWN, mine, cut(mine), all);
    if (i % 3 == 0)
        return error_set(WEFT_EMISMATCH, BALLOT_OTHER_PLAN ": tensor %zu is '%.*s%s', and on rank 0 '%.*s%s': %s",
                         i / 3, SHOWN, mine, cut(mine), SHOWN, first, cut_first, all);
    weft_plan_tensor(t->plan, i / 3, &m);
    return error_set(WEFT_EMISMATCH,
                     BALLOT_OTHER_PLAN ": the %s of tensor %zu '%.40s%s' is %.*s%s, and on rank 0 %.*s%s: %s",
                     parts[i % 3], i / 3, m.name, strlen(m.name) > 40 ? "..." : "", SHOWN, mine, cut(mine), SHOWN,
                     first, cut_first, all);
}

/* Rank 0 tells its text `i`, and the others compare. */
static int compare(weft_comm *c, int64_t deadline_ns, const struct texts *t, size_t i)
{
    char first[CORE_TEXT] = "", *mine = text_at(t, i);
    int code = c->rank ? 0 : WEFT_EMISMATCH;
    if (!mine)
        code = error_nomem();
    else if (!c->rank)
        error_set(code, "=%016" PRIx64 ".%d%.*s", hash_at(t, i), strlen(mine) > SHOWN, SHOWN, mine);
    int err = meet(c, deadline_ns, 0, code);
    const char *told = err == WEFT_EMISMATCH ? strstr(weft_errmsg(), TELLS) : NULL;
    if (told && strlen(told) > strlen(TELLS) + 17) {
        snprintf(first, sizeof first, "%s", told + strlen(TELLS) + 18);
        bool shortened = told[strlen(TELLS) + 17] == '1';
        bool same = strtoull(told + strlen(TELLS), &(char *){NULL}, 16) == hash_at(t, i);
        err = same ? 0 : refuse(t, i, mine, first, shortened ? "..." : "");
        err = meet(c, deadline_ns, 0, err);
    }
    free(mine);
    return err;
}

int differs_tell(weft_comm *c, const weft_plan *p, int64_t deadline_ns, int refused)
{
    if (!other_plan(refused))
        return refused;
    char text[CORE_TEXT];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    struct texts t;
    uint64_t at = NONE;
    int err = meet(c, deadline_ns, 0, texts_make(&t, p));
    if (!err)
        err = first_other(c, deadline_ns, &t, &at);
    if (!err && at < NONE)
        err = compare(c, deadline_ns, &t, (size_t)at);
    else if (!err)
        err = error_set(WEFT_EMISMATCH, "%s; here the tensors are the same, and an option of weft_lower differs", text);
    free(t.upto);
    return err;
}
