/* Collectives in one call. Small data is copied through memory that a kept plan is bound to; for large data the kept
 * plan is bound to the caller's buffers. Which of the two it is depends on the call alone, so it is the same on all
 * ranks, and only the second meets the others before it runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "collective/kept.h"
#include "weft/collective.h"

#define ALIGN 128 /* bytes: a destination begins on a cache line of its own */

/* Traits of a collective. */
enum {
    IN_PARTS = 1, /* one side of a rank has a part for each rank */
    IN_PLACE = 2  /* large data may have its source and its destination at one address, and is not copied then */
};

struct call {
    const char *name; /* the function of weft/collective.h */
    struct kept_key key;
    const void *src;
    void *dst;
    bool in_parts, in_place;
};

/* This thread's error, with the call's name before it and, for ranks that do not agree, what they must agree on. */
static int explain(const struct call *a, int err)
{
    char text[800];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    bool differ = err == WEFT_EMISMATCH || err == WEFT_ETIMEOUT;
    return error_set(err, "%s of %lld %s: %s%s", a->name, (long long)a->key.count, weft_dtype_name(a->key.dtype), text,
                     differ ? ". All ranks must make the same calls in the same order, with the same count, dtype, op "
                              "and root"
                            : "");
}

static int check(const weft_comm *c, const struct call *a)
{
    if (!c)
        return error_set(WEFT_EINVAL, "%s: the comm is NULL", a->name);
    if (a->key.count < 0)
        return error_set(WEFT_EINVAL, "%s: a count of %lld: it must not be negative", a->name, (long long)a->key.count);
    if (!weft_dtype_size(a->key.dtype))
        return error_set(WEFT_EINVAL, "%s: there is no dtype %d", a->name, a->key.dtype);
    if (a->key.op && !weft_op_name(a->key.op))
        return error_set(WEFT_EINVAL, "%s: there is no operation %d", a->name, a->key.op);
    if (a->key.root < 0 || a->key.root >= c->size)
        return error_set(WEFT_EINVAL, "%s: there is no rank %d to be the root, the comm has %d", a->name, a->key.root,
                         c->size);
    return 0;
}

static int check_buffers(const struct call *a, const struct kept *k)
{
    bool no_src = k->src_bytes && !a->src;
    if (no_src || (k->dst_bytes && !a->dst))
        return error_set(WEFT_EINVAL, "%s: %s is NULL; this rank %s %lld bytes", a->name, no_src ? "src" : "dst",
                         no_src ? "gives" : "gets", (long long)(no_src ? k->src_bytes : k->dst_bytes));
    return 0;
}

/* The plan, and the bytes of either side on this rank. */
static int lower(weft_comm *c, const struct call *a, struct kept *k)
{
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_collective what = {.size = sizeof what,
                            .kind = a->key.kind,
                            .dtype = (enum weft_dtype)a->key.dtype,
                            .op = (enum weft_op)a->key.op,
                            .count = a->key.count,
                            .n = (size_t)c->size,
                            .root = a->key.root};
    weft_lower_opts opts = {.size = sizeof opts, .world = c->size, .machine = &machine};
    weft_layout *src, *dst;
    weft_local from, to;
    int err = weft_collective_layouts(&what, &src, &dst);
    if (err)
        return err;
    err = weft_layout_local(src, c->rank, &from);
    if (!err)
        err = weft_layout_local(dst, c->rank, &to);
    weft_layout_free(src);
    weft_layout_free(dst);
    if (!err)
        err = weft_comm_machine(c, &machine);
    if (err)
        return err;
    int64_t most = a->key.count * (int64_t)weft_dtype_size(a->key.dtype) * (a->in_parts ? c->size : 1);
    k->small = most <= WEFT_COLLECTIVE_SMALL;
    k->src_bytes = from.bytes;
    k->dst_bytes = to.bytes;
    opts.in_place = !k->small && a->in_place;
    return weft_lower_collective(&what, c->rank, &opts, &k->plan);
}

static int take_memory(weft_comm *c, struct kept *k)
{
    size_t before = ((size_t)k->src_bytes + ALIGN - 1) / ALIGN * ALIGN, bytes = before + (size_t)k->dst_bytes;
    void *memory = NULL;
    int err = bytes ? weft_comm_alloc(c, bytes, WEFT_MEMORY_HOST, 0, &memory) : 0;
    if (err)
        return err;
    k->memory = memory;
    k->src = k->src_bytes ? k->memory : NULL;
    k->dst = k->dst_bytes ? k->memory + before : NULL;
    return 0;
}

/* What one rank does alone for a plan that is not kept yet. */
static int prepare(weft_comm *c, const struct call *a, struct kept **out)
{
    struct kept *k = calloc(1, sizeof *k);
    if (!k)
        return error_nomem();
    k->key = a->key;
    int err = lower(c, a, k);
    if (!err)
        err = check_buffers(a, k);
    if (!err && k->small)
        err = take_memory(c, k);
    if (err)
        kept_free(c, k);
    else
        *out = k;
    return err;
}

/* This rank cannot take part in the bind that the others are in: no rank binds. Keeps the error and its text. */
static int refuse(weft_comm *c, int err)
{
    char text[800];
    weft_exec *none;
    snprintf(text, sizeof text, "%s", weft_errmsg());
    (void)weft_bind(NULL, c, NULL, NULL, NULL, &none);
    return error_set(err, "%s", text);
}

/* The source of large data for bind: a copy if the two buffers share memory in a way that bind does not permit. NULL,
 * which all ranks are refused for, if there is no memory for it. */
static const void *untangled(struct kept_list *l, const struct kept *k, const struct call *a)
{
    uintptr_t src = (uintptr_t)a->src, dst = (uintptr_t)a->dst;
    bool shared =
        k->src_bytes && k->dst_bytes && src < dst + (uintptr_t)k->dst_bytes && dst < src + (uintptr_t)k->src_bytes;
    if (!shared || (src == dst && a->in_place))
        return a->src;
    l->copy = malloc((size_t)k->src_bytes);
    if (l->copy)
        memcpy(l->copy, a->src, (size_t)k->src_bytes);
    return l->copy;
}

static void drop_copy(struct kept_list *l)
{
    free(l->copy);
    l->copy = NULL;
}

static int bind(weft_comm *c, struct kept_list *l, const struct call *a, struct kept *k)
{
    const void *source = k->small ? k->src : untangled(l, k, a);
    weft_view src = WEFT_VIEW((void *)(uintptr_t)source, (size_t)k->src_bytes);
    weft_view dst = WEFT_VIEW(k->small ? k->dst : a->dst, (size_t)k->dst_bytes);
    int err = k->exec ? weft_exec_rebind(k->exec, &src, &dst) : weft_bind(k->plan, c, &src, &dst, NULL, &k->exec);
    if (err)
        drop_copy(l);
    return err;
}

/* Waits for the run of the call, which is in flight, and hands its data over. */
static int finish(struct kept_list *l, struct kept *k, const struct call *a)
{
    int err = weft_exec_wait(k->exec, WEFT_DEADLINE);
    l->open = err == WEFT_ETIMEOUT ? k : NULL;
    l->open_src = a->src;
    l->open_dst = a->dst;
    if (l->open)
        return err;
    drop_copy(l);
    if (!err && k->dst)
        memcpy(a->dst, k->dst, (size_t)k->dst_bytes);
    return err;
}

static int run(weft_comm *c, struct kept_list *l, const struct call *a)
{
    struct kept *k = kept_find(l, &a->key);
    bool fresh = !k;
    int err = fresh ? prepare(c, a, &k) : k->small ? check_buffers(a, k) : 0;
    if (err)
        return fresh ? refuse(c, err) : err;
    if (fresh || !k->small)
        err = bind(c, l, a, k);
    if (fresh && err)
        kept_free(c, k);
    if (err)
        return err;
    if (fresh)
        kept_add(c, l, k);
    if (k->src)
        memcpy(k->src, a->src, (size_t)k->src_bytes);
    err = weft_exec_start(k->exec);
    if (err)
        drop_copy(l);
    return err ? err : finish(l, k, a);
}

static int call(weft_comm *c, const char *name, struct kept_key key, const void *src, void *dst, int traits)
{
    const struct call *a = &(struct call){name, key, src, dst, traits & IN_PARTS, traits & IN_PLACE};
    int err = check(c, a);
    if (err || !a->key.count)
        return err;
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "%s: not inside a callback", a->name);
    struct kept_list *l = kept_of(c);
    if (!l)
        return error_nomem();
    struct kept *open = l->open;
    if (open) {
        bool again = kept_same(&open->key, &a->key) && l->open_src == a->src && l->open_dst == a->dst;
        if (!again)
            return error_set(WEFT_EBUSY,
                             "%s: a collective (%s of %lld %s) that ran out of time is still open: make "
                             "that call again first",
                             a->name, open->key.kind, (long long)open->key.count, weft_dtype_name(open->key.dtype));
        err = finish(l, open, a);
    } else {
        err = run(c, l, a);
    }
    return err ? explain(a, err) : 0;
}

int weft_allreduce(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, enum weft_op op)
{
    return call(c, "weft_allreduce", (struct kept_key){"allreduce", count, (int)dtype, (int)op, 0}, src, dst, IN_PLACE);
}

int weft_reduce(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, enum weft_op op,
                int root)
{
    return call(c, "weft_reduce", (struct kept_key){"reduce", count, (int)dtype, (int)op, root}, src, dst, 0);
}

int weft_reduce_scatter(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, enum weft_op op)
{
    return call(c, "weft_reduce_scatter", (struct kept_key){"reduce_scatter", count, (int)dtype, (int)op, 0}, src, dst,
                IN_PARTS);
}

int weft_allgather(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype)
{
    return call(c, "weft_allgather", (struct kept_key){"allgather", count, (int)dtype, 0, 0}, src, dst, IN_PARTS);
}

int weft_gather(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, int root)
{
    return call(c, "weft_gather", (struct kept_key){"gather", count, (int)dtype, 0, root}, src, dst, IN_PARTS);
}

int weft_scatter(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, int root)
{
    return call(c, "weft_scatter", (struct kept_key){"scatter", count, (int)dtype, 0, root}, src, dst, IN_PARTS);
}

int weft_broadcast(weft_comm *c, void *data, int64_t count, enum weft_dtype dtype, int root)
{
    return call(c, "weft_broadcast", (struct kept_key){"broadcast", count, (int)dtype, 0, root}, data, data, IN_PLACE);
}

int weft_all_to_all(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype)
{
    return call(c, "weft_all_to_all", (struct kept_key){"all_to_all", count, (int)dtype, 0, 0}, src, dst, IN_PARTS);
}
