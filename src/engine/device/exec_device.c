#include "engine/device/exec_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/environment.h"
#include "engine/device/joining.h"
#include "engine/device/mirror.h"
#include "engine/device/objects.h"
#include "engine/device/published.h"
#include "engine/device/symbol.h"
#include "engine/way.h"
#include "transport/hosts/hosts.h"

/* ---- the choice ---- */

/* The note of the vote: a hash of the device's id, the same bits inverted, whether this rank can share its memory, and
 * whether its messages may go through pinned slots.
 * What all notes have in common has both forms of the hash only if all ranks with device memory have the same device.
 */
#define LEAVE_NS INT64_C(100000000) /* on one host nothing is on its way any more; others may leave later */
#define HASH_BITS 24
#define HASH_MASK ((UINT64_C(1) << HASH_BITS) - 1)
#define SHARES (UINT64_C(1) << (2 * HASH_BITS))
#define CARRIES (SHARES << 1)           /* its messages may go through pinned slots */
#define NEUTRAL (SHARES | (SHARES - 1)) /* of a rank that has host memory only */

static uint64_t id_hash(const struct device *d)
{
    return hash_bytes(0, d->id, sizeof d->id) & HASH_MASK;
}

/* Can other processes map all of the view? */
static bool can_share(struct objects *known, struct device *d, const weft_view *v)
{
    struct error_text kept;
    uint32_t i;
    error_keep(&kept);
    bool can = !objects_take(known, d, v->data, &i) &&
               (uint64_t)(uintptr_t)v->data + v->bytes <= known->v[i].base + known->v[i].bytes;
    error_restore(&kept);
    return can;
}

/* If not, `why` names the first buffer that cannot be shared. */
static bool all_shared(const weft_exec *x, struct objects *known, struct device *d, const weft_view *src,
                       const weft_view *dst, char *why, size_t cap)
{
    char who[VIEW_NAME];
    for (uint32_t t = 0; t < x->plan->ntensors; t++)
        for (int side = 0; side < 2; side++) {
            const weft_view *v = sites_view(x->plan, t, side ? dst : src, side);
            if (!v || !sites_on_device(v) || can_share(known, d, v))
                continue;
            snprintf(why, cap, "the %s of %s cannot be shared with other processes", side ? "destination" : "source",
                     view_tensor(x->plan, t, who));
            return false;
        }
    return true;
}

/* Can the launcher do the work, as far as this rank is concerned? If not, `why` says so. */
static bool can_launch(const weft_exec *x, struct objects *known, struct device *d, const weft_view *src,
                       const weft_view *dst, char *why, size_t cap)
{
    const char *text = x->comm->link->hosts                      ? "the ranks are on several hosts"
                       : x->comm->size > SYMBOL_RANKS            ? "there are too many ranks"
                       : x->checks                               ? "messages are checked"
                       : x->off & driver_id_bit(DRIVER_LAUNCHER) ? "the driver launcher is switched off"
                                                                 : NULL;
    if (text)
        snprintf(why, cap, "%s", text);
    return !text && all_shared(x, known, d, src, dst, why, cap);
}

static uint64_t note_of(const struct device *d, bool shares)
{
    uint64_t hash = id_hash(d);
    return hash | (~hash & HASH_MASK) << HASH_BITS | (shares ? SHARES : 0);
}

static bool one_device(uint64_t note)
{
    return ((note | note >> HASH_BITS) & HASH_MASK) == HASH_MASK;
}

static bool agree(uint64_t note)
{
    return note & SHARES && one_device(note);
}

/* Has another rank memory on the device of this rank? It would be on this host, where all votes can be seen. */
static bool has_company(const weft_exec *x, const struct device *d, uint64_t meeting)
{
    const weft_comm *c = x->comm;
    uint64_t own = d ? note_of(d, false) : 0;
    for (int r = 0; d && r < c->size; r++)
        if (r != c->rank && !transport_elsewhere(c->link, r) &&
            (core_vote_of(c->group, r, meeting)->note & (SHARES - 1)) == own)
            return true;
    return false;
}

/* The device of the other ranks, for a rank that has host memory only. */
static int find_device(uint64_t hash, struct device **out)
{
    const struct device_ops *ops;
    int err = device_find("weft_bind", WEFT_MEMORY_CUDA, environment_modules(), &ops);
    if (err)
        return err;
    const char *why;
    for (int i = 0, n = ops->count(&why); i < n; i++) {
        err = device_open("weft_bind", WEFT_MEMORY_CUDA, i, environment_modules(), out);
        if (err)
            return err;
        if (id_hash(*out) == hash)
            return 0;
        ops->close(*out);
        *out = NULL;
    }
    return error_set(WEFT_EUNSUPPORTED,
                     "weft_bind: this rank does not see the device on which other ranks have memory: "
                     "make it visible to this rank, too");
}

static int set_up(weft_exec *x, struct device *d, bool shared, struct device_group *group, const char *why,
                  const char *joining)
{
    x->device = calloc(1, sizeof *x->device);
    if (!x->device) {
        if (group) {
            d->ops->group_abort(group);
            d->ops->group_leave(group, 0);
        }
        d->ops->close(d);
        return error_nomem();
    }
    *x->device = (struct exec_device){.device = d, .shared = shared, .group = group};
    snprintf(x->device->why, sizeof x->device->why, "%s", shared ? "" : why);
    snprintf(x->device->joining, sizeof x->device->joining, "%s", joining);
    int err = 0;
    if (shared || group || x->carried) {
        size_t scratch = ((size_t)x->plan->scratch + 255) / 256 * 256;
        x->device->scratch = d->ops->alloc(d, scratch + NEAR_BYTES);
        x->device->near = (char *)x->device->scratch + scratch;
        if (!x->device->scratch)
            err = error_set(WEFT_ENOMEM, "no memory on device %d for %lld bytes of scratch", d->number,
                            (long long)x->plan->scratch);
    }
    return err;
}

/* Is each view that the caller says is on the device there? */
static int check_owner(const weft_plan *p, const struct device *d, const weft_view *src, const weft_view *dst)
{
    for (uint32_t t = 0; t < p->ntensors; t++)
        for (int side = 0; side < 2; side++) {
            const weft_view *v = sites_view(p, t, side ? dst : src, side);
            int owner = v && sites_on_device(v) ? d->ops->owner(v->data) : d->number;
            char who[VIEW_NAME];
            if (owner == d->number)
                continue;
            view_tensor(p, t, who);
            if (owner < 0)
                return error_set(WEFT_EINVAL, "%s: %s: the buffer is not in memory of device %d, but in host memory",
                                 who, side ? "destination" : "source", d->number);
            return error_set(WEFT_EINVAL, "%s: %s: the buffer is not in memory of device %d, but of device %d", who,
                             side ? "destination" : "source", d->number, owner);
        }
    return 0;
}

/* Proofs of messages are made by the host. */
static bool carries(const weft_exec *x)
{
    return !x->checks && !(x->off & way_table_bit(&way_pinned));
}

int exec_device_choose(weft_exec *x, const struct sites *s, const weft_view *src, const weft_view *dst,
                       int64_t deadline_ns, bool *chosen)
{
    struct device *d = NULL;
    int err = s->placed ? device_open("weft_bind", s->memory, s->device, environment_modules(), &d) : 0;
    if (!err && d)
        err = check_owner(x->plan, d, src, dst);
    struct objects known = {0}; /* allocations of this rank */
    char why[sizeof x->device->why] = "";
    char joining[sizeof x->device->joining] = "";
    bool can = !err && d && can_launch(x, &known, d, src, dst, why, sizeof why);
    struct core_vote vote = {.call = COMM_BIND,
                             .digest = x->plan->digest,
                             .note = (err ? 0
                                      : d ? note_of(d, can)
                                          : NEUTRAL) |
                                     (carries(x) ? CARRIES : 0),
                             .code = err};
    uint64_t meeting;
    err = meeting_agree(x->comm, &vote, deadline_ns, &meeting);
    if (err) {
        objects_free(&known);
        if (d)
            d->ops->close(d);
        return err;
    }
    *chosen = true;
    uint64_t note = core_tally(x->comm->group, meeting).note;
    bool shared = agree(note);
    struct device_group *group = NULL;
    if (!shared)
        err = joining_all(x, d, has_company(x, d, meeting), deadline_ns, &group, joining, sizeof joining);
    x->carried = !shared && !group && note & CARRIES;
    if (!*why)
        snprintf(why, sizeof why, "%s",
                 note & SHARES ? "the ranks have memory on several devices" : "another rank cannot share its memory");
    if (!err && shared && !d)
        err = find_device(note & HASH_MASK, &d);
    if (!err && d)
        err = set_up(x, d, shared, group, why, joining);
    else if (d)
        d->ops->close(d);
    if (!err && shared)
        x->device->known = known;
    else
        objects_free(&known);
    return err;
}

void exec_device_close(weft_exec *x)
{
    struct exec_device *e = x->device;
    if (!e)
        return;
    const struct device_ops *ops = e->device->ops;
    if (e->stream)
        ops->stream_close(e->device, e->stream);
    for (int i = 0; i < CARRY_LANES; i++)
        if (e->lanes[i])
            ops->stream_close(e->device, e->lanes[i]);
    if (e->group)
        ops->group_leave(e->group, x->comm->link->hosts ? x->comm->deadline_ns : LEAVE_NS);
    if (e->scratch)
        ops->free(e->device, e->scratch);
    objects_free(&e->known);
    ops->close(e->device);
    free(e);
    x->device = NULL;
}

/* ---- programs ---- */

static void *device_alloc(void *arg, size_t bytes)
{
    struct device *d = arg;
    return d->ops->alloc(d, bytes);
}

static void device_free(void *arg, void *memory)
{
    struct device *d = arg;
    d->ops->free(d, memory);
}

static void *host_alloc(void *arg, size_t bytes)
{
    weft_comm *c = arg;
    uint64_t place;
    return transport_afford(bytes) ? c->transport->alloc(c->link, bytes, &place) : NULL;
}

static void host_free(void *arg, void *memory)
{
    weft_comm *c = arg;
    const char *text;
    if (!core_failure(c->group, &text)) /* otherwise peers may still read it: the group frees it in the end */
        c->transport->release(c->link, memory);
}

int exec_device_outline(weft_exec *x, struct program *p, const weft_view **src, const weft_view **dst)
{
    struct exec_device *e = x->device;
    if (!e)
        return 0;
    p->device = program_take(p, 1, sizeof *p->device);
    if (!p->device)
        return error_nomem();
    p->carries = x->carried;
    if (p->carries)
        return 0;
    bool hosted = exec_device_form(x) != FORM_HOST;
    struct mirror_memory memory = hosted ? (struct mirror_memory){device_alloc, device_free, e->device}
                                         : (struct mirror_memory){host_alloc, host_free, x->comm};
    int err = mirror_make(x->plan, e->device, hosted, *src, *dst, &memory, &p->device->mirror);
    if (!err && p->device->mirror)
        mirror_views(p->device->mirror, src, dst);
    return err;
}

void exec_device_outline_free(weft_exec *x, struct program *p)
{
    carry_free(p->carry);
    if (!p->device)
        return;
    mirror_free(p->device->mirror);
    objects_free(&p->device->objects);
    published_free(x, p);
}

/* ---- shared ---- */

/* The symbol of an address in device memory of this rank. */
static int make_symbol(const weft_exec *x, struct program_device *d, const void *address, int64_t bytes, uint64_t *out)
{
    uint64_t at = (uint64_t)(uintptr_t)address;
    uint32_t i;
    int err = objects_take(&d->objects, x->device->device, address, &i);
    if (err)
        return err;
    if (i >= SYMBOL_OBJECTS)
        return error_set(WEFT_EUNSUPPORTED, "the buffers of this rank are in more than %u allocations", SYMBOL_OBJECTS);
    const struct device_share *o = &d->objects.v[i];
    uint64_t offset = at - o->base;
    if (offset + (uint64_t)bytes > o->bytes || offset + (uint64_t)bytes >= UINT64_C(1) << SYMBOL_OFFSET_BITS)
        return error_set(WEFT_EUNSUPPORTED, "a buffer of %lld bytes ends beyond the allocation in which it begins",
                         (long long)bytes);
    *out = symbol_make(x->comm->rank, i, offset);
    return 0;
}

char *exec_device_scratch(const weft_exec *x)
{
    return x->device && x->device->scratch ? x->device->scratch : x->scratch;
}

int exec_device_places(const weft_exec *x, struct program *p)
{
    p->device->objects = x->device->known; /* when the exec is bound again, there are none */
    x->device->known = (struct objects){0};
    int err = make_symbol(x, p->device, x->device->near, NEAR_BYTES, &p->device->near);
    for (size_t i = 0; i < x->plan->nbufs && !err; i++) {
        struct exec_place *at = &p->places[i];
        if (!at->base)
            continue;
        err = make_symbol(x, p->device, at->base, at->bytes, &at->at);
        at->base = (char *)(uintptr_t)at->at;
        at->reached = true;
    }
    return err;
}

/* ---- mirrored and carried ---- */

int exec_device_fill(weft_exec *x, struct program *p, const weft_view *src, const weft_view *dst)
{
    if (p->carries)
        return carry_make(x, p, src, dst);
    return p->device && p->device->mirror ? mirror_fill(p->device->mirror, x, p) : 0;
}

static struct mirror *staged_mirror(const weft_exec *x)
{
    return x->device && exec_device_form(x) == FORM_HOST ? x->program->device->mirror : NULL;
}

int exec_device_stream(weft_exec *x, void **out)
{
    struct exec_device *e = x->device;
    int err = e->stream ? 0 : e->device->ops->stream_open(e->device, &e->stream);
    if (err)
        e->stream = NULL;
    *out = e->stream;
    return err;
}

/* Copies into the mirror or out of it, and waits for them. */
static int reflect(weft_exec *x, int (*copy)(struct mirror *m, void *stream))
{
    struct mirror *m = staged_mirror(x);
    void *stream;
    int err = m ? exec_device_stream(x, &stream) : 0;
    if (err || !m)
        return err;
    err = copy(m, stream);
    return err ? err : x->device->device->ops->sync(x->device->device, stream);
}

int exec_device_begin(weft_exec *x)
{
    return reflect(x, mirror_in);
}

int exec_device_end(weft_exec *x)
{
    return reflect(x, mirror_out);
}

void exec_device_rest(weft_exec *x)
{
    struct error_text kept;
    if (!x->device)
        return;
    carry_rest(x);
    carry_unpin(x->program->carry);
    error_keep(&kept);
    if (x->device->stream)
        x->device->device->ops->sync(x->device->device, x->device->stream);
    error_restore(&kept);
}
