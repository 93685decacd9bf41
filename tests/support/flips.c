#define _GNU_SOURCE
#include "flips.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "engine/proof.h"
#include "engine/shape.h"

/* One rank alone changes it while ranks run. */
static struct flips {
    int rank; /* -1: nothing is planted */
    int64_t left;
    uint64_t seed;
    bool struck;
    char sender[40], tensor[160], box[400];
} * planted;

void flips_open(void)
{
    if (planted)
        return;
    planted = mmap(NULL, sizeof *planted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (planted == MAP_FAILED)
        abort();
    planted->rank = -1;
}

void flips_plant(int rank, int64_t nth, uint64_t seed)
{
    *planted = (struct flips){.rank = rank, .left = nth, .seed = seed};
}

void flips_clear(void)
{
    planted->rank = -1;
    planted->struck = false;
}

bool flips_struck(void)
{
    return planted->struck;
}

bool flips_named(const char *text)
{
    return strstr(text, planted->sender) && strstr(text, planted->tensor) && strstr(text, planted->box);
}

const char *flips_expected(void)
{
    static char text[700];
    snprintf(text, sizeof text, "%s ... %s ... %s", planted->sender, planted->tensor, planted->box);
    return text;
}

static void note(const weft_exec *x, int peer, const struct plan_part *part)
{
    const weft_plan *p = x->plan;
    const struct plan_tensor *t = &p->tensors[p->bufs[part->buf].tensor];
    const char *name = p->names + t->name;
    size_t at = 0;
    snprintf(planted->sender, sizeof planted->sender, "got a message of rank %d", peer);
    if (*name)
        snprintf(planted->tensor, sizeof planted->tensor, "tensor '%s'", name);
    else
        snprintf(planted->tensor, sizeof planted->tensor, "tensor %u", p->bufs[part->buf].tensor);
    at += (size_t)snprintf(planted->box, sizeof planted->box, "box [");
    for (int d = 0; d < t->ndim && at < sizeof planted->box; d++) { /* the first position of each dim is enough */
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        at += (size_t)snprintf(planted->box + at, sizeof planted->box - at, "%s%lld:%lld", d ? ", " : "",
                               (long long)r->at, (long long)(r->at + r->len));
        if (r->n > 1)
            at += (size_t)snprintf(planted->box + at, sizeof planted->box - at, "+%lld*%lld", (long long)r->step,
                                   (long long)r->n);
    }
    planted->struck = true;
}

static void strike(const weft_exec *x, int peer, const struct plan_step *st)
{
    const weft_plan *p = x->plan;
    int64_t elements = 0, n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
    if (!planted || planted->rank != x->comm->rank || planted->struck)
        return;
    for (uint32_t q = 0; q < st->nparts; q++)
        elements += p->parts[st->part + q].count;
    if (!elements || planted->left--)
        return;
    int64_t at = (int64_t)(hash_u64(planted->seed, 1) % (uint64_t)elements);
    const struct plan_part *part = &p->parts[st->part];
    for (; at >= part->count; part++)
        at -= part->count;
    const struct exec_place *place = &x->program->places[part->buf];
    uint64_t bits = 8 * weft_dtype_size(p->bufs[part->buf].dtype), bit = hash_u64(planted->seed, 2) % bits;
    int loops = shape_loops(p, part, place->stride, n, stride, &first);
    char *element = place->base + first;
    for (int i = loops - 1; i >= 0; i--) {
        element += at % n[i] * stride[i];
        at /= n[i];
    }
    element[bit / 8] = (char)(element[bit / 8] ^ 1 << bit % 8);
    note(x, peer, part);
}

void __wrap_proof_came_sum(weft_exec *x, const struct exec_in *in);
bool __wrap_proof_wire_came(weft_exec *x, struct wire_channel *ch);
void __real_proof_came_sum(weft_exec *x, const struct exec_in *in);
bool __real_proof_wire_came(weft_exec *x, struct wire_channel *ch);

void __wrap_proof_came_sum(weft_exec *x, const struct exec_in *in)
{
    strike(x, in->peer, &x->plan->steps[in->steps[in->taken]]);
    __real_proof_came_sum(x, in);
}

bool __wrap_proof_wire_came(weft_exec *x, struct wire_channel *ch)
{
    strike(x, ch->peer, &x->plan->steps[ch->messages[ch->ended].step]);
    return __real_proof_wire_came(x, ch);
}
