/* Survivor agreement: which ranks are left of a comm that has failed. Each rank that asks tells all others: on its host
 * by a word in the core, on other hosts by mail. The lowest rank that is not gone answers. It waits until all ranks
 * that are not gone have asked, or until the deadline runs out for the rest. Then it answers with the list of
 * survivors. The others wait for its answer. If it goes, or if it has not asked when the deadline runs out, the next
 * rank takes its place. So all get the same list, with one exception: the rank that should answer goes, or asks at
 * last, while the next one answers. If a rank on the list is gone, the survivors miss it when they open their comm, and
 * can ask again.
 *
 * Words: `survives` and `answers` count how often a rank has asked and answered, so that an old answer is not taken for
 * a new one. The list is stored in the answering rank's vote, which no meeting uses after a failure; the store of
 * `answers` releases it. */
#define _GNU_SOURCE
#include "comm/survive.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/lock.h"
#include "comm/mail.h"

#define NAP_NS 200000
#define MOST (8 * (CORE_TEXT - 1)) /* ranks that a list has room for, in the core and by mail */

enum { ASKS = MAIL_KIND(MAIL_SURVIVE, 1), ANSWERS = MAIL_KIND(MAIL_SURVIVE, 2) };

struct survive_mail {
    uint32_t kind;
    uint32_t times;                /* how often its sender has asked, or answered */
    unsigned char list[CORE_TEXT]; /* ANSWERS: a bit for each rank; the packet ends with the last byte */
};

/* The newest answer that came from another host. */
struct survivors {
    uint32_t times;
    unsigned char list[CORE_TEXT];
};

static bool listed(const unsigned char *list, int rank)
{
    return list[rank / 8] >> rank % 8 & 1;
}

static bool has_asked(const weft_comm *c, int rank, uint32_t times)
{
    return atomic_load_explicit(&c->group->ranks[rank].survives, memory_order_seq_cst) >= times;
}

static void take_answer(weft_comm *c, uint32_t times, const unsigned char *list, size_t bytes)
{
    if (!c->survivors && !(c->survivors = calloc(1, sizeof *c->survivors)))
        return; /* the caller's deadline will run out */
    if (times <= c->survivors->times)
        return;
    c->survivors->times = times;
    memset(c->survivors->list, 0, sizeof c->survivors->list);
    memcpy(c->survivors->list, list, bytes);
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct survive_mail m;
    if (n < offsetof(struct survive_mail, list) || n > sizeof m)
        return;
    memcpy(&m, packet, n);
    if (m.kind == ASKS)
        atomic_store_explicit(&c->group->ranks[peer].survives, m.times, memory_order_seq_cst);
    else
        take_answer(c, m.times, m.list, n - offsetof(struct survive_mail, list));
}

void survive_open(weft_comm *c)
{
    mail_handle(c, MAIL_SURVIVE, take);
}

static void mail_all(weft_comm *c, uint32_t kind, uint32_t times, const unsigned char *list, size_t bytes)
{
    struct survive_mail m = {.kind = kind, .times = times};
    if (bytes)
        memcpy(m.list, list, bytes);
    mail_send_all(c, &m, offsetof(struct survive_mail, list) + bytes);
}

/* The lowest rank that may still answer. `late`: only ranks that have asked count. */
static int answering(const weft_comm *c, uint32_t times, bool late)
{
    int r = 0;
    while (r < c->rank && (c->transport->gone(c->link, r) || (late && !has_asked(c, r, times))))
        r++;
    return r;
}

/* Answers once all ranks that are not gone have asked, or if `late`. */
static bool answer(weft_comm *c, uint32_t times, bool late, unsigned char *list)
{
    memset(list, 0, CORE_TEXT);
    for (int r = 0; r < c->size; r++) {
        bool asked = has_asked(c, r, times), gone = c->transport->gone(c->link, r) != TRANSPORT_HERE;
        if (!asked && !gone && !late)
            return false;
        if (asked && !gone)
            list[r / 8] |= (unsigned char)(1 << r % 8);
    }
    struct core_rank *me = &c->group->ranks[c->rank];
    memcpy(me->votes[0].text, list, CORE_TEXT);
    atomic_store_explicit(&me->answers, times, memory_order_seq_cst);
    mail_all(c, ANSWERS, times, list, ((size_t)c->size + 7) / 8);
    /* If late, mail to silent ranks may stay unsent: the others must not wait for it. */
    mail_flush(c, late ? c->deadline_ns / 8 : c->deadline_ns);
    return true;
}

/* Has a rank answered? It may be gone since then, or its list may lack this rank because this rank asked too late. */
static bool heard(const weft_comm *c, uint32_t times, unsigned char *list)
{
    if (c->survivors && c->survivors->times >= times) {
        memcpy(list, c->survivors->list, CORE_TEXT);
        return true;
    }
    for (int r = 0; r < c->size; r++) {
        if (atomic_load_explicit(&c->group->ranks[r].answers, memory_order_seq_cst) < times)
            continue;
        memcpy(list, c->group->ranks[r].votes[0].text, CORE_TEXT);
        return true;
    }
    return false;
}

static int agree(weft_comm *c, uint32_t times, unsigned char *list)
{
    int64_t until = core_now() + c->deadline_ns;
    char who[NAMES_RANK];
    for (;;) {
        int64_t now = core_now();
        bool late = now >= until;
        int from = answering(c, times, late);
        mail_receive(c);
        if (heard(c, times, list) || (from == c->rank && answer(c, times, late, list)))
            return 0;
        if (now >= until + c->deadline_ns)
            return error_set(WEFT_ETIMEOUT, "weft_comm_survivors: %s has not sent the list of survivors within %lld ms",
                             names_rank(c, from, who), (long long)(2 * c->deadline_ns / 1000000));
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

int weft_comm_survivors(weft_comm *c, int *ranks, size_t cap, size_t *n)
{
    if (!c || !n || (cap && !ranks))
        return error_set(WEFT_EINVAL, "weft_comm_survivors: arguments must not be NULL");
    if (lock_in_callback(c))
        return error_set(WEFT_EBUSY, "weft_comm_survivors: not inside a callback");
    if (!core_failed(c->group))
        return error_set(WEFT_EINVAL, "weft_comm_survivors: the comm has not failed");
    if (c->size > MOST)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_survivors: at most %d ranks, not %d", MOST, c->size);
    unsigned char list[CORE_TEXT];
    struct comm_family *f = comm_enter(c);
    struct core_rank *me = &c->group->ranks[c->rank];
    uint32_t times = atomic_load_explicit(&me->survives, memory_order_relaxed) + 1;
    atomic_store_explicit(&me->survives, times, memory_order_seq_cst);
    mail_all(c, ASKS, times, NULL, 0);
    int err = agree(c, times, list);
    comm_leave(f);
    if (err)
        return err;
    if (!listed(list, c->rank))
        return error_set(WEFT_EPEER, "weft_comm_survivors: the others did not wait for rank %d and go on without it",
                         c->rank);
    *n = 0;
    for (int r = 0; r < c->size; r++)
        if (listed(list, r)) {
            if (*n < cap)
                ranks[*n] = r;
            ++*n;
        }
    return 0;
}
