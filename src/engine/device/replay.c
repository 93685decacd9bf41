#include "engine/device/replay.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "engine/device/exec_device.h"
#include "engine/device/mirror.h"

#define LAUNCHER 0 /* the rank */

static uint32_t process_hash(void)
{
    struct process_id self;
    process_self(&self);
    return (uint32_t)hash_u64(hash_u64(self.space, self.start), (uint64_t)self.pid);
}

int replay_make(struct replay *r, const weft_exec *x, struct program *p, void *words, uint64_t at)
{
    const weft_comm *c = x->comm;
    struct device_facts facts;
    *r = (struct replay){.words = words, .at = at};
    if (c->rank == LAUNCHER && !(r->list = program_take(p, 2 * (size_t)c->size, sizeof *r->list)))
        return error_nomem();
    struct device *d = x->device->device;
    bool known = d->ops->facts(d->number, &facts);
    /* Relaxed: the ranks meet before bind returns. */
    atomic_store_explicit(&r->words[c->rank].process, process_hash(), memory_order_relaxed);
    atomic_store_explicit(&r->words[c->rank].mps, known && facts.mps, memory_order_relaxed);
    return 0;
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

static struct device_word word_at(const struct replay *r, const _Atomic uint32_t *word, uint32_t value)
{
    return (struct device_word){r->at + (uint64_t)((uintptr_t)word - (uintptr_t)r->words), value};
}

static int write_one(const struct replay *r, struct device *d, void *stream, const _Atomic uint32_t *word,
                     uint32_t value)
{
    struct device_word w = word_at(r, word, value);
    return d->ops->signal(d, stream, &w, 1);
}

static int record_launcher(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue)
{
    struct device *d = x->device->device;
    size_t n = 0;
    for (int k = 0; k < x->comm->size; k++)
        if (k != LAUNCHER)
            r->list[n++] = word_at(r, &r->words[k].come, 1);
    int err = n ? d->ops->await(d, stream, r->list, n) : 0;
    if (!err)
        err = device_queue_run(queue, stream);
    n = 0;
    for (int k = 0; k < x->comm->size; k++)
        r->list[n++] = word_at(r, &r->words[k].come, 0);
    for (int k = 0; k < x->comm->size; k++)
        if (k != LAUNCHER)
            r->list[n++] = word_at(r, &r->words[k].gone, 1);
    return err ? err : d->ops->signal(d, stream, r->list, n);
}

static int record_other(struct replay *r, weft_exec *x, void *stream)
{
    struct device *d = x->device->device;
    struct device_word gone = word_at(r, &r->words[x->comm->rank].gone, 1);
    int err = d->ops->await(d, stream, &gone, 1);
    return err ? err : write_one(r, d, stream, &r->words[x->comm->rank].gone, 0);
}

int replay_record(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue)
{
    struct mirror *m = x->program->device->mirror;
    int err = m ? mirror_in(m, stream) : 0;
    if (!err)
        err = write_one(r, x->device->device, stream, &r->words[x->comm->rank].come, 1);
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

bool replay_release(struct replay *r, const weft_exec *x)
{
    bool waits = has_come(r, x->comm->rank);
    if (!waits)
        return false;
    /* Release: what is behind the waits sees no more than it would have seen. */
    for (int k = 0; k < x->comm->size && x->comm->rank == LAUNCHER; k++)
        if (k != LAUNCHER)
            atomic_store_explicit(&r->words[k].come, 1, memory_order_release);
    if (x->comm->rank != LAUNCHER) {
        atomic_store_explicit(&r->words[x->comm->rank].come, 0, memory_order_release);
        atomic_store_explicit(&r->words[x->comm->rank].gone, 1, memory_order_release);
    }
    return true;
}
