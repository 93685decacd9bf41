/* A rank of a test with a device, a stream, and an exec whose buffers are on the device: each of four ranks gives the
 * next one its part of a vector. */
#ifndef WEFT_TESTS_DEVICE_SIDE_H
#define WEFT_TESTS_DEVICE_SIDE_H
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "support/json_syntax.h"
#include "support/ranks.h"
#include "weft.h"

enum { COUNT = 1024 }; /* elements of a rank */
#define ROWS "f32[4096/x] @x4"
#define SHIFT "f32[4096/x] @x4=1,2,3,0"

/* A rank with a device, a stream, and an exec on it. */
struct side {
    struct device *device;
    void *stream;
    float *src, *dst; /* on the device */
    weft_layout *from, *to;
    weft_plan *plan;
    weft_exec *exec;
};

static inline int device_memory_on(weft_comm *c, int device, size_t bytes, float **out)
{
    void *memory = NULL;
    int err = weft_comm_alloc(c, bytes, WEFT_MEMORY_CUDA, device, &memory);
    *out = memory;
    return err;
}

static inline int device_memory(weft_comm *c, size_t bytes, float **out)
{
    return device_memory_on(c, 0, bytes, out);
}

static inline weft_view view_of(float *data, size_t count)
{
    weft_view v = WEFT_VIEW(data, count * sizeof *data);
    v.memory = WEFT_MEMORY_CUDA;
    return v;
}

static inline int lower(struct side *s, weft_comm *c, const char *from, const char *to)
{
    int err = weft_layout_parse(from, &s->from);
    err = err ? err : weft_layout_parse(to, &s->to);
    weft_move move = {.src = s->from, .dst = s->to};
    return err ? err : weft_lower(&move, 1, weft_comm_rank(c), NULL, &s->plan);
}

/* On the device of this number. */
static inline int open_side_on(struct side *s, weft_comm *c, int device, const char *from, const char *to,
                               const char *ways)
{
    weft_local in, out;
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    opts.ways = ways;
    *s = (struct side){.device = NULL};
    int err = device_open("test", WEFT_MEMORY_CUDA, device, getenv("WEFT_MODULES"), &s->device);
    err = err ? err : s->device->ops->stream_open(s->device, &s->stream);
    err = err ? err : lower(s, c, from, to);
    err = err ? err : weft_layout_local(s->from, weft_comm_rank(c), &in);
    err = err ? err : weft_layout_local(s->to, weft_comm_rank(c), &out);
    err = err ? err : device_memory_on(c, device, (size_t)in.bytes, &s->src);
    err = err ? err : device_memory_on(c, device, (size_t)out.bytes, &s->dst);
    weft_view src = view_of(s->src, (size_t)in.count), dst = view_of(s->dst, (size_t)out.count);
    src.device = dst.device = device;
    return err ? err : weft_bind(s->plan, c, &src, &dst, &opts, &s->exec);
}

static inline int open_side(struct side *s, weft_comm *c, const char *from, const char *to, const char *ways)
{
    return open_side_on(s, c, 0, from, to, ways);
}

static inline void close_side(struct side *s, weft_comm *c)
{
    weft_exec_close(s->exec);
    weft_plan_free(s->plan);
    weft_layout_free(s->from);
    weft_layout_free(s->to);
    weft_comm_free(c, s->src);
    weft_comm_free(c, s->dst);
    if (s->stream)
        s->device->ops->stream_close(s->device, s->stream);
    if (s->device)
        s->device->ops->close(s->device);
}

static inline int copy(struct side *s, void *dst, const void *src, size_t bytes)
{
    return s->device->ops->copy(s->device, s->stream, dst, src, bytes);
}

static inline int sync_side(struct side *s)
{
    return s->device->ops->sync(s->device, s->stream);
}

/* ---- what an exec says ---- */

static inline bool explains(weft_exec *x, const char *text)
{
    char buf[8192];
    size_t len;
    return !weft_exec_explain(x, false, buf, sizeof buf, &len) && strstr(buf, text);
}

static inline bool explains_json(weft_exec *x, const char *text)
{
    char buf[8192];
    size_t len;
    return !weft_exec_explain(x, true, buf, sizeof buf, &len) && json_is_valid(buf) && strstr(buf, text);
}

/* ---- one side of a tensor, in host memory and perhaps on a device ---- */

struct where {
    weft_local local;
    char *host;
    void *device;
    weft_view view;
};

/* device: its number; negative: the side stays in host memory. */
static inline int place_side(struct where *w, const struct ranks_rank *r, const weft_layout *layout, int device)
{
    int err = weft_layout_local(layout, r->rank, &w->local);
    size_t bytes = (size_t)w->local.bytes;
    w->host = calloc(bytes + 1, 1);
    for (size_t i = 0; i < bytes; i++) /* small numbers in every dtype */
        w->host[i] = (char)(i % 4 == 3 ? 0x3f : (i * 7 + (size_t)r->rank) % 64);
    w->view = (weft_view)WEFT_VIEW(w->host, bytes);
    if (err || device < 0 || !bytes)
        return err;
    err = weft_comm_alloc(r->comm, bytes, WEFT_MEMORY_CUDA, device, &w->device);
    w->view.data = w->device;
    w->view.memory = WEFT_MEMORY_CUDA;
    w->view.device = device;
    return err;
}

static inline int move_side(struct side *s, const struct where *w, bool up)
{
    if (!w->device)
        return 0;
    int err =
        up ? copy(s, w->device, w->host, (size_t)w->local.bytes) : copy(s, w->host, w->device, (size_t)w->local.bytes);
    return err ? err : sync_side(s);
}

/* Host memory that streams copy from and to while the caller goes on. */
static inline void *pinned(struct side *s, size_t bytes)
{
    uint64_t at;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, whole);
    return memory && !s->device->ops->pin(s->device, memory, whole, &at) ? memory : NULL;
}

static inline void unpinned(struct side *s, void *memory)
{
    s->device->ops->unpin(s->device, memory);
    free(memory);
}

/* What is in the stream before a run is in its data, and what is behind sees its result, without a wait of the host. A
 * run that begins too early, or ends too late, gives a value of another run. Closes the side, which moves ROWS to
 * SHIFT. */
static inline void keep_stream_order(struct ranks_rank *r, struct side *s, int runs)
{
    int ranks = weft_comm_size(r->comm), from = (r->rank + ranks - 1) % ranks;
    float(*in)[COUNT] = pinned(s, (size_t)runs * sizeof *in), (*out)[COUNT] = pinned(s, (size_t)runs * sizeof *out);
    RANKS_CHECK(r, in && out);
    for (int run = 0; run < runs; run++)
        for (int i = 0; i < COUNT; i++)
            in[run][i] = (float)(10000 * run + 1000 * r->rank + i);
    for (int run = 0; run < runs; run++) {
        RANKS_OK(r, copy(s, s->src, in[run], sizeof in[run]));
        RANKS_OK(r, weft_exec_start_on(s->exec, s->stream));
        RANKS_OK(r, copy(s, out[run], s->dst, sizeof out[run]));
    }
    RANKS_OK(r, sync_side(s));
    RANKS_OK(r, weft_exec_wait(s->exec, WEFT_DEADLINE));
    for (int run = 0; run < runs; run++)
        for (int i = 0; i < COUNT; i++)
            RANKS_CHECK(r, out[run][i] == (float)(10000 * run + 1000 * from + i));
    weft_exec_info info = WEFT_EXEC_INFO_INIT;
    RANKS_OK(r, weft_exec_stats(s->exec, &info));
    RANKS_CHECK(r, info.runs == runs);
    unpinned(s, in);
    unpinned(s, out);
    close_side(s, r->comm);
}
#endif
