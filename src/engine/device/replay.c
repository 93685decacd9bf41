#include "engine/device/replay.h"

#include <stddef.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "engine/device/exec_device.h"
#include "engine/device/mirror.h"

#define LAUNCHER 0 /* the rank */

_Static_assert(offsetof(struct replay_words, left) == offsetof(struct replay_words, late) + 4, "device_gate's `late`");

static uint32_t process_hash(void)
{
    struct process_id self;
    process_self(&self);
    return (uint32_t)hash_u64(hash_u64(self.space, self.start), (uint64_t)self.pid);
}

void replay_make(struct replay *r, const weft_exec *x, void *words, uint64_t at)
{
    const weft_comm *c = x->comm;
    struct device_facts facts;
    *r = (struct replay){.words = words, .at = at};
    struct device *d = x->device->device;
    bool known = d->ops->facts(d->number, &facts);
    /* Relaxed: the ranks meet before bind returns. */
    atomic_store_explicit(&r->words[c->rank].process, process_hash(), memory_order_relaxed);
    atomic_store_explicit(&r->words[c->rank].mps, known && facts.mps, memory_order_relaxed);
}

const char *replay_refusal(const struct replay *r, const weft_exec *x)
{
    bool one_process = true, mps = true;
    uint32_t own = atomic_load_explicit(&r->words[x->comm->rank].process, memory_order_relaxed);
    for (int k = 0; k < x->comm->size; k++) {
        one_process = one_process && atomic_load_explicit(&r->words[k].process, memory_order_relaxed) == own;
        mps = mps && atomic_load_explicit(&r->words[k].mps, memory_order_relaxed);
    }
    return one_process || mps ? NULL
                              : "the ranks are processes that share the device without MPS. There a graph of one "
                                "process keeps the others from running while it waits for them: start "
                                "nvidia-cuda-mps-control, or make the ranks threads of one process";
}

static uint64_t host_at(const struct replay *r, const _Atomic uint32_t *word)
{
    return r->at + (uint64_t)((uintptr_t)word - (uintptr_t)r->words);
}

/* The words of n ranks from rank `first` on; in host memory all of them are this rank's `released`. */
static struct device_words words_at(const struct replay *r, const weft_exec *x, enum near_word near, int first, int n)
{
    bool own = first == x->comm->rank && n == 1;
    return (struct device_words){.list = own ? 0 : r->near + 8 * (uint64_t)first,
                                 .near = (own ? (uint64_t)(uintptr_t)x->device->near : 0) + near,
                                 .at = host_at(r, &r->words[x->comm->rank].released),
                                 .n = (uint32_t)n,
                                 .value = 1,
                                 .host_value = 1};
}

/* The launcher is rank 0: the others are behind it. */
static int record(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue)
{
    struct device *d = x->device->device;
    const int rank = x->comm->rank, others = x->comm->size - 1;
    struct device_gate g = {.counter = (uint64_t)(uintptr_t)x->device->near + NEAR_REPLAYS,
                            .late = host_at(r, &r->words[rank].late),
                            .come = words_at(r, x, NEAR_COME, rank, 1),
                            .counts = true};
    if (rank != LAUNCHER) {
        g.awaited = words_at(r, x, NEAR_GONE, rank, 1);
        return d->ops->meet(d, stream, &g, NULL);
    }
    g.awaited = words_at(r, x, NEAR_COME, 1, others);
    g.told = words_at(r, x, NEAR_GONE, 1, others);
    return device_queue_run(queue, stream, &g);
}

int replay_record(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue)
{
    struct mirror *m = x->program->device->mirror;
    int err = m ? mirror_in(m, stream) : 0;
    if (!err)
        err = record(r, x, stream, queue);
    return err || !m ? err : mirror_out(m, stream);
}

static uint32_t look(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* The last replay in which this rank has waited for long; *waits: it does so still. */
static uint32_t last_replay(const struct replay *r, const weft_exec *x, bool *waits)
{
    const struct replay_words *own = &r->words[x->comm->rank];
    uint32_t left = look(&own->left), late = look(&own->late);
    *waits = late != left;
    return late;
}

/* Has the rank, as far as the host knows, not come to this replay, in which this rank waits? No rank can be in a later
 * one. */
static bool lacks(const struct replay *r, int rank, uint32_t replay)
{
    return look(&r->words[rank].late) != replay;
}

bool replay_waits(const struct replay *r, const weft_exec *x, int rank)
{
    bool waits;
    uint32_t replay = last_replay(r, x, &waits);
    return waits && (rank == LAUNCHER || lacks(r, rank, replay));
}

bool replay_lacks(const struct replay *r, const weft_exec *x, int *missing, uint32_t *replay)
{
    bool waits;
    *replay = last_replay(r, x, &waits);
    for (int k = 0; k < x->comm->size && waits; k++)
        if (lacks(r, k, *replay)) {
            *missing = k;
            return true;
        }
    return false;
}

void replay_release(struct replay *r, const weft_exec *x)
{
    /* Release: what is behind the waits sees no more than it would have seen. */
    atomic_store_explicit(&r->words[x->comm->rank].released, 1, memory_order_release);
}
