/* Groups of ranks that share their copies: which have begun, which rank has which job, what is over. */
#define _GNU_SOURCE
#include "engine/drivers/jobs.h"

#include <sched.h>

uint64_t jobs_bytes(uint32_t ranks, uint32_t n)
{
    return sizeof(struct jobs_words) + (ranks > n ? ranks : n) * sizeof(struct jobs_word);
}

void jobs_reset(const weft_exec *x, struct jobs *j)
{
    /* The same numbers as after the last run, if this driver drove it. Relaxed: the meeting publishes them. */
    atomic_store_explicit(&j->words->begun, x->run * j->ranks, memory_order_relaxed);
    atomic_store_explicit(&j->words->over, x->run * j->n, memory_order_relaxed);
}

static bool member(const struct jobs *j, int rank)
{
    return !j->pair || rank == j->low || rank == j->high;
}

static struct jobs_word *word_of(const struct jobs *j, int rank)
{
    return &j->words->word[j->pair ? rank == j->high : rank];
}

static bool mine(const weft_exec *x, const struct jobs *j)
{
    return member(j, x->comm->rank);
}

bool jobs_ready(const weft_exec *x, const struct jobs *j)
{
    return atomic_load_explicit(&j->words->begun, memory_order_seq_cst) >= x->run * j->ranks;
}

bool jobs_over(const weft_exec *x, const struct jobs *j)
{
    return atomic_load_explicit(&j->words->over, memory_order_seq_cst) >= x->run * j->n;
}

bool jobs_all_over(const weft_exec *x)
{
    const struct jobs_state *s = driver_state(x);
    for (uint32_t i = 0; i < s->n; i++)
        if (mine(x, &s->groups[i]) && !jobs_over(x, &s->groups[i]))
            return false;
    return true;
}

bool jobs_claim(weft_exec *x, const struct jobs *j, uint32_t i)
{
    _Atomic uint64_t *word = &j->words->word[i].taken;
    uint64_t own = x->run << JOBS_WHO_BITS | (uint64_t)(x->comm->rank + 1);
    uint64_t was = atomic_load_explicit(word, memory_order_relaxed);
    return was >> JOBS_WHO_BITS < x->run && !core_failed(x->comm->group) &&
           atomic_compare_exchange_strong_explicit(word, &was, own, memory_order_acq_rel, memory_order_relaxed);
}

void jobs_finish(weft_exec *x, const struct jobs *j, uint32_t i)
{
    struct jobs_state *s = driver_state(x);
    atomic_fetch_add_explicit(&j->words->over, 1, memory_order_seq_cst);
    atomic_store_explicit(&j->words->word[i].taken, x->run << JOBS_WHO_BITS | JOBS_DONE, memory_order_relaxed);
    s->calls = true;
}

void jobs_end(weft_exec *x)
{
    struct program *p = x->program;
    for (uint32_t s = 0; s < p->nsteps && x->arrivals; s++)
        arrivals_step(x, s);
    p->left = 0;
}

void jobs_start(weft_exec *x)
{
    struct jobs_state *s = driver_state(x);
    x->program->left = 1;
    s->calls = true;
    for (uint32_t i = 0; i < s->n; i++) {
        struct jobs *j = &s->groups[i];
        if (!mine(x, j))
            continue;
        struct jobs_word *own = word_of(j, x->comm->rank);
        atomic_fetch_add_explicit(&j->words->begun, 1, memory_order_seq_cst);
        atomic_store_explicit(&own->core, sched_getcpu(), memory_order_relaxed);
        atomic_store_explicit(&own->here, x->run, memory_order_relaxed);
    }
}

void jobs_call(weft_exec *x)
{
    struct jobs_state *s = driver_state(x);
    if (!s->calls)
        return;
    s->calls = false;
    core_fence_all(); /* between the stores and the looks at which ranks sleep, as in core_signal */
    for (int i = 1; i < x->comm->size && s->all; i++)
        core_call_fenced(x->comm->group, (x->comm->rank + i) % x->comm->size);
    for (uint32_t i = 0; i < x->program->nouts && !s->all; i++)
        core_call_fenced(x->comm->group, x->program->outs[i].peer);
}

/* ---- waiting ---- */

static bool has_job(const weft_exec *x, const struct jobs *j, int rank)
{
    for (uint32_t i = 0; i < j->n; i++)
        if (atomic_load_explicit(&j->words->word[i].taken, memory_order_seq_cst) ==
            (x->run << JOBS_WHO_BITS | (uint64_t)(rank + 1)))
            return true;
    return false;
}

/* Does this rank wait for `rank` to begin, or to do a job that it has claimed? */
bool jobs_rank_waits(const weft_exec *x, int rank)
{
    const struct jobs_state *s = driver_state(x);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct jobs *j = &s->groups[i];
        if (!mine(x, j) || jobs_over(x, j))
            continue;
        if (member(j, rank) && atomic_load_explicit(&word_of(j, rank)->here, memory_order_seq_cst) < x->run)
            return true;
        if (has_job(x, j, rank))
            return true;
    }
    return false;
}

bool jobs_in_waits(const weft_exec *x, const struct exec_in *in)
{
    return jobs_rank_waits(x, in->peer);
}

bool jobs_out_waits(const weft_exec *x, const struct exec_out *out)
{
    return jobs_rank_waits(x, out->peer);
}

int jobs_lacking(const weft_exec *x)
{
    const struct jobs_state *s = driver_state(x);
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct jobs *j = &s->groups[i];
        uint64_t begun = atomic_load_explicit(&j->words->begun, memory_order_seq_cst), all = x->run * j->ranks;
        n += mine(x, j) && begun < all ? all - begun : 0;
    }
    return n ? (int)n : 1;
}

/* Of the messages between this rank and the peer either all are done or none is. */
static struct driver_count count(const weft_exec *x, int peer, uint32_t messages)
{
    const struct jobs_state *s = driver_state(x);
    for (uint32_t i = 0; i < s->n; i++)
        if (mine(x, &s->groups[i]) && member(&s->groups[i], peer) && !jobs_over(x, &s->groups[i]))
            messages = 0;
    return (struct driver_count){messages, messages, messages};
}

struct driver_count jobs_in_count(const weft_exec *x, const struct exec_in *in)
{
    return count(x, in->peer, in->n);
}

struct driver_count jobs_out_count(const weft_exec *x, const struct exec_out *out)
{
    return count(x, out->peer, out->n);
}
