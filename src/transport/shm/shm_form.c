/* Whether a group has formed, and what is said if it has not: which ranks did not come, and which have ended
 * (shm_meet.h). */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "transport/shm/shm_meet.h"

#define LOOKS 8                      /* of the ranks that did not come: how many are looked for elsewhere */
#define ENDING_NS INT64_C(200000000) /* from the end of a connection to the end of its process */

enum { FORMED = 1, BROKEN }; /* of struct shm_head */

bool shm_form(const struct shm_link *l, bool formed)
{
    uint32_t was = 0;
    if (atomic_compare_exchange_strong_explicit(&l->home->head->formed, &was, formed ? FORMED : BROKEN,
                                                memory_order_seq_cst, memory_order_seq_cst))
        return formed;
    return was == FORMED;
}

static bool all_have_come(const struct shm_link *l)
{
    for (int r = 0; r < l->base.size; r++)
        if (atomic_load_explicit(&l->base.group->ranks[r].state, memory_order_seq_cst) != CORE_HERE)
            return false;
    return true;
}

bool shm_form_known(const struct shm_link *l)
{
    uint32_t formed = atomic_load_explicit(&l->home->head->formed, memory_order_seq_cst);
    return formed ? formed == FORMED : shm_form(l, all_have_come(l));
}

void shm_form_enter(struct shm_link *l)
{
    bool zombie;
    l->home->head->process[l->base.rank] = (struct shm_process){
        .pid = getpid(), .start = process_start(getpid(), &zombie), .map = (uintptr_t)l->home->map};
    transport_link_enter(&l->base);
}

/* Whether this rank is a member of another group with the same name. A rank whose own time has just run out holds its
 * socket for another moment: so this looks twice. */
static bool elsewhere(const struct shm_link *l, int rank)
{
    if (!shm_where_claimed(l->name, rank))
        return false;
    poll(NULL, 0, (int)(SHM_CLAIM_NS / 1000000));
    return shm_where_claimed(l->name, rank);
}

int shm_form_missing(struct shm_link *l, int64_t wait_ns)
{
    char names[160], other[120] = "";
    struct text t = text_start(names, sizeof names);
    int n = 0;
    for (int r = 0; r < l->base.size; r++) {
        if (atomic_load_explicit(&l->base.group->ranks[r].state, memory_order_seq_cst) == CORE_HERE)
            continue;
        text_printf(&t, "%s%d", n++ ? ", " : "", r);
        if (n <= LOOKS && !other[0] && elsewhere(l, r))
            snprintf(other, sizeof other, "; rank %d is in another group with this name, perhaps of another size", r);
    }
    l->absent = true;
    return error_set(WEFT_ETIMEOUT, "shm:%s: %s %s did not come within %lld ms%s", l->name, n > 1 ? "ranks" : "rank",
                     names, (long long)(wait_ns / 1000000), other);
}

int shm_form_ended(const struct shm_link *l, const struct transport_ask *ask, int rank)
{
    int err = 0;
    for (int64_t limit = core_now() + ENDING_NS; ask->vain && !err && core_now() < limit;) {
        err = ask->vain(ask->vain_arg, -1);
        if (!err)
            poll(NULL, 0, 1);
    }
    if (err || rank >= 0)
        return err ? err : error_set(WEFT_EPEER, "shm:%s: rank %d ended while the ranks were joining", l->name, rank);
    return error_set(WEFT_EPEER, "shm:%s: a rank gave up while the ranks were joining", l->name);
}
