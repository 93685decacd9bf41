#include "engine/device/replay.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "engine/device/exec_device.h"
#include "engine/device/mirror.h"

#define LAUNCHER 0 /* the rank */
#define RELEASED 2 /* what the host writes into a word to let a stream go on */

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

/* The words of n ranks from rank `first` on. `host`: the same word of that rank in host memory. */
static struct device_words words_at(const struct replay *r, const weft_exec *x, enum near_word near,
                                    const _Atomic uint32_t *host, int first, int n, uint32_t value)
{
    bool own = first == x->comm->rank && n == 1;
    return (struct device_words){.list = own ? 0 : r->near + 8 * (uint64_t)first,
                                 .near = (own ? (uint64_t)(uintptr_t)x->device->near : 0) + near,
                                 .at = r->at + (uint64_t)((uintptr_t)host - (uintptr_t)r->words),
                                 .n = (uint32_t)n,
                                 .hosts = near == NEAR_COME ? (uint32_t)n : 0,
                                 .stride = sizeof *r->words,
                                 .stamped = near == NEAR_COME,
                                 .value = value,
                                 .host_value = RELEASED};
}

/* The launcher is rank 0: the others are behind it. */
static int record_launcher(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue)
{
    const int n = x->comm->size;
    struct device_gate g = {.come = words_at(r, x, NEAR_COME, &r->words[0].come, 0, 1, 1),
                            .awaited = words_at(r, x, NEAR_COME, &r->words[1].come, 1, n - 1, 1),
                            .reset = words_at(r, x, NEAR_COME, &r->words[0].come, 0, n, 0),
                            .told = words_at(r, x, NEAR_GONE, &r->words[1].gone, 1, n - 1, 1)};
    return device_queue_run(queue, stream, &g);
}

static int record_other(struct replay *r, weft_exec *x, void *stream)
{
    struct device *d = x->device->device;
    const int rank = x->comm->rank;
    const struct replay_words *own = &r->words[rank];
    struct device_gate g = {.come = words_at(r, x, NEAR_COME, &own->come, rank, 1, 1),
                            .awaited = words_at(r, x, NEAR_GONE, &own->gone, rank, 1, 1),
                            .reset = words_at(r, x, NEAR_GONE, &own->gone, rank, 1, 0)};
    return d->ops->meet(d, stream, &g, NULL);
}

int replay_record(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue)
{
    struct mirror *m = x->program->device->mirror;
    int err = m ? mirror_in(m, stream) : 0;
    if (!err)
        err = x->comm->rank == LAUNCHER ? record_launcher(r, x, stream, queue) : record_other(r, x, stream);
    return err || !m ? err : mirror_out(m, stream);
}

static bool has_come(const struct replay *r, int rank)
{
    return atomic_load_explicit(&r->words[rank].come, memory_order_acquire);
}

bool replay_waits(const struct replay *r, const weft_exec *x, int rank)
{
    return has_come(r, x->comm->rank) && (rank == LAUNCHER || !has_come(r, rank));
}

bool replay_lacks(const struct replay *r, const weft_exec *x, int *missing, uint32_t *stamp)
{
    const struct replay_words *own = &r->words[x->comm->rank];
    /* Relaxed: a stamp that belongs to the next run is another one than that of the last look. */
    *stamp = atomic_load_explicit(&own->stamp, memory_order_relaxed);
    for (int k = 0; k < x->comm->size && has_come(r, x->comm->rank); k++)
        if (!has_come(r, k)) {
            *missing = k;
            return true;
        }
    return false;
}

bool replay_release(struct replay *r, const weft_exec *x)
{
    bool waits = has_come(r, x->comm->rank);
    if (!waits)
        return false;
    /* Release: what is behind the waits sees no more than it would have seen. */
    for (int k = 0; k < x->comm->size && x->comm->rank == LAUNCHER; k++)
        if (k != LAUNCHER)
            atomic_store_explicit(&r->words[k].come, RELEASED, memory_order_release);
    if (x->comm->rank != LAUNCHER) {
        atomic_store_explicit(&r->words[x->comm->rank].come, 0, memory_order_release);
        atomic_store_explicit(&r->words[x->comm->rank].gone, RELEASED, memory_order_release);
    }
    return true;
}
