/* The bus with arrays on a device, the simulated one unless WEFT_DEVICE says otherwise: random layouts and casts, put
 * from and fetched into host memory, the device, or some of each; cut into small chunks; with and without strides,
 * digests and a host between. What is wrong is told as in host memory, and nothing is left on the device. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"
#include "support/share.h"
#include "version/bus.h"
#include "version/bus_device.h"
#include "version/device_kit.h"
#include "version/random_sides.h"
#include "version/schema.h"
#include "version/snapshot.h"
#include "version/subscribe.h"

static const weft_want latest = {WEFT_WANT_LATEST, 0};

static weft_bus *open_bus(const char *job, const char *listen)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.token = PUBLISH_TOKEN;
    o.job = job;
    o.listen = listen;
    fine(weft_bus_open(directories_url(), &o, &b));
    return b;
}

static void says(const char *what)
{
    if (!strstr(weft_errmsg(), what))
        fail_msg("the text does not say '%s': %s", what, weft_errmsg());
}

/* ---- random layouts ---- */

static int dtype_of(const weft_layout *l)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    fine(weft_layout_describe(l, &d));
    return (int)d.dtype;
}

/* A dense array becomes one whose last dim has `pad` more elements, which are no part of it. *strides: its strides. */
static unsigned char *spread(unsigned char *dense, const weft_local *local, size_t size, int64_t pad, int64_t *strides,
                             size_t *bytes)
{
    int64_t step = (int64_t)size, rows = 1, row = local->shape[local->ndim - 1];
    for (int d = local->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        step *= local->shape[d] + (d == local->ndim - 1 ? pad : 0);
        rows *= d == local->ndim - 1 ? 1 : local->shape[d];
    }
    *bytes = (size_t)step;
    unsigned char *to = malloc(*bytes + 1);
    memset(to, 0x5a, *bytes);
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * (row + pad) * (int64_t)size, dense + i * row * (int64_t)size, (size_t)row * size);
    free(dense);
    return to;
}

/* Puts and commits on all ranks, each tensor from host memory or from the device. */
static void commit_all(struct random *g, struct side *s, int64_t step)
{
    for (int r = 0; r < s->ranks; r++) {
        weft_view views[TENSORS];
        int64_t strides[TENSORS][WEFT_MAX_DIMS];
        bool there[TENSORS];
        for (int i = 0; i < TENSORS; i++) {
            weft_local local;
            fine(weft_layout_local(s->layouts[i], r, &local));
            struct filler f = {.dtype = s->tensors[i].dtype ? s->tensors[i].dtype : dtype_of(s->layouts[i]),
                               .seed = step + i};
            size_t size = weft_dtype_size(f.dtype), bytes = (size_t)local.count * size;
            f.data = malloc(bytes + 1);
            if (local.bytes)
                tensors_visit(s->layouts[i], r, fill, &f);
            bool apart = local.bytes && local.ndim && random_once_in(g, 3);
            if (apart)
                f.data = spread(f.data, &local, size, random_in(g, 1, 3), strides[i], &bytes);
            views[i] = (weft_view){.data = f.data, .bytes = bytes, .strides = apart ? strides[i] : NULL};
            there[i] = !random_once_in(g, 4);
            if (there[i]) {
                views[i].data = device_kit_new(f.data, bytes);
                views[i].memory = random_once_in(g, 2) ? WEFT_MEMORY_CUDA : WEFT_MEMORY_ANY;
                free(f.data);
            }
        }
        fine(weft_put(s->pub[r], step, views));
        for (int i = 0; i < TENSORS; i++)
            if (there[i])
                device_kit_free(views[i].data);
            else
                free(views[i].data);
        fine(weft_commit(s->pub[r], step, NULL, NULL));
    }
}

/* What is in memory of the device, or in host memory. */
static void check_array(const struct side *s, int i, int rank, int64_t step, const void *data, size_t bytes, bool there)
{
    unsigned char *copy = malloc(bytes + 1);
    if (there)
        device_kit_copy(copy, data, bytes);
    else
        memcpy(copy, data, bytes);
    struct filler f = {.data = copy, .dtype = dtype_of(s->layouts[i]), .seed = step + i};
    tensors_visit(s->layouts[i], rank, check, &f);
    free(copy);
    if (f.wrong)
        fail_msg("tensor %d on rank %d: %lld elements are wrong", i, rank, (long long)f.wrong);
}

struct arrivals {
    const struct side *side;
    int rank;
    size_t next;
    bool there[TENSORS];
};

/* Tensors arrive in order, staged. */
static int arrived(void *arg, const weft_epoch_step *v, size_t i, const void *data, int64_t bytes)
{
    struct arrivals *a = arg;
    assert_true(i >= a->next);
    a->next = i + 1;
    check_array(a->side, (int)i, a->rank, v->step, data, (size_t)bytes, a->there[i]);
    return 0;
}

enum where { HOST, DEVICE, INTO, DIRECT };

/* Reads two versions, of which this call commits the second one. */
static void read_rank(struct random *g, weft_bus *b, struct side *from, const struct side *to, int rank, int64_t *step)
{
    enum where where = (enum where)random_in(g, HOST, DIRECT);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct arrivals a = {.side = to, .rank = rank};
    weft_view views[TENSORS];
    weft_subscriber *sub;
    weft_epoch_step v;
    for (int i = 0; i < TENSORS; i++) {
        weft_local local;
        fine(weft_layout_local(to->layouts[i], rank, &local));
        a.there[i] = where == DEVICE || (where >= INTO && !random_once_in(g, 4));
        views[i] = (weft_view)WEFT_VIEW(a.there[i] ? device_kit_new(NULL, (size_t)local.bytes)
                                                   : malloc((size_t)local.bytes + 1),
                                        (size_t)local.bytes);
        views[i].memory = a.there[i] ? WEFT_MEMORY_CUDA : WEFT_MEMORY_HOST;
    }
    o.rank = rank;
    o.into = where >= INTO ? views : NULL;
    o.direct = where == DIRECT;
    o.memory = where == DEVICE ? WEFT_MEMORY_CUDA : WEFT_MEMORY_HOST;
    o.no_check = random_once_in(g, 4);
    o.alone = random_once_in(g, 3);
    o.arrived = random_once_in(g, 2) ? arrived : NULL;
    o.arg = &a;
    fine(weft_subscribe(b, "random", to->tensors, TENSORS, &o, &sub));
    for (int k = 0; k < 2; k++) {
        weft_pin *pin;
        if (k)
            commit_all(g, from, ++*step);
        a.next = 0;
        fine(weft_fetch(sub, &latest, LONG, &v));
        assert_int_equal(v.step, *step);
        fine(weft_swap(sub, &v, LONG));
        fine(weft_use(sub, &pin));
        for (int i = 0; i < TENSORS; i++) {
            const void *data;
            int64_t bytes;
            fine(weft_pin_data(pin, (size_t)i, &data, &bytes));
            if (where >= INTO && bytes)
                assert_ptr_equal(data, views[i].data);
            if (bytes)
                check_array(to, i, rank, *step, data, (size_t)bytes, a.there[i]);
        }
        weft_unuse(pin);
    }
    weft_subscriber_close(sub);
    for (int i = 0; i < TENSORS; i++)
        if (a.there[i])
            device_kit_free(views[i].data);
        else
            free(views[i].data);
}

/* Arrays of up to 100 KB, so that some have two blocks and some chunks several tensors. */
static void random_shapes(struct random *g, struct shape *shapes)
{
    for (int t = 0; t < TENSORS; t++) {
        shapes[t].ndim = (int)random_in(g, 0, 3);
        for (int d = 0; d < shapes[t].ndim; d++)
            shapes[t].extent[d] =
                random_in(g, random_once_in(g, 20) ? 0 : 1, d == 0 && !random_once_in(g, 3) ? 40 : 20);
    }
}

static void random_pairs(void **state)
{
    (void)state;
    struct sim_use before = {0}, after = {0};
    if (device_kit_simulated())
        simulated_calls()->use(device, &before);
    for (int64_t i = 0; suite_seed(&i, 0, test_share(12, 400)); i++) {
        struct random g = random_of(1931, i);
        struct shape shapes[TENSORS];
        struct side from, to;
        int64_t step = 1;
        weft_bus *a = open_bus("publisher", "127.0.0.1:0"), *b = open_bus("subscriber", NULL);
        if (random_once_in(&g, 4))
            b->host[0] = 'x'; /* it believes to be on another host */
        bus_device_chunks(random_once_in(&g, 3) ? 0 : SCHEMA_BLOCK * random_in(&g, 1, 3));
        random_shapes(&g, shapes);
        random_side(&g, shapes, &from);
        random_side(&g, shapes, &to);
        for (int t = 0; t < TENSORS; t++)
            from.tensors[t].dtype = random_once_in(&g, 2) ? WEFT_F64 : 0;
        publish_all(a, "random", &from, i);
        commit_all(&g, &from, step);
        for (int r = 0; r<to.ranks; r += to.ranks> 3 ? 3 : 1)
            read_rank(&g, b, &from, &to, r, &step);
        for (int r = 0; r < from.ranks; r++)
            weft_publisher_close(from.pub[r]);
        drop_side(&from);
        drop_side(&to);
        fine(weft_bus_close(a));
        fine(weft_bus_close(b));
    }
    bus_device_chunks(0);
    if (device_kit_simulated())
        simulated_calls()->use(device, &after);
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.pins, before.pins);
    assert_int_equal(after.streams, before.streams);
}

/* ---- one tensor ---- */

#define COUNT 50000 /* of f32: four blocks, of which the last one is short */

struct one {
    weft_bus *bus;
    weft_layout *layout;
    weft_publisher *pub;
    float *host, *there;
    weft_view view;
};

static void open_one(struct one *x, const weft_publish_opts *o)
{
    x->bus = open_bus("one", NULL);
    fine(weft_layout_parse("f32[50000] @x1", &x->layout));
    fine(weft_publish(x->bus, "one", &(weft_bus_tensor){.name = "w", .layout = x->layout}, 1, o, &x->pub));
    x->host = malloc(COUNT * sizeof(float));
    x->there = device_kit_new(NULL, COUNT * sizeof(float));
    x->view = (weft_view){.data = x->there, .bytes = COUNT * sizeof(float), .memory = WEFT_MEMORY_CUDA};
}

static const float *values(struct one *x, int64_t step)
{
    for (int i = 0; i < COUNT; i++)
        x->host[i] = (float)(i + step * 100000);
    return x->host;
}

static void commit_one(struct one *x, int64_t step)
{
    device_kit_copy(x->there, values(x, step), COUNT * sizeof(float));
    fine(weft_put(x->pub, step, &x->view));
    fine(weft_commit(x->pub, step, NULL, NULL));
}

static weft_subscriber *subscribe_one(struct one *x, const weft_subscribe_opts *o)
{
    weft_subscriber *s;
    fine(weft_subscribe(x->bus, "one", &(weft_bus_tensor){.name = "w", .layout = x->layout}, 1, o, &s));
    return s;
}

static void fetch_one(weft_subscriber *s, int64_t step)
{
    weft_epoch_step v;
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_int_equal(v.step, step);
    fine(weft_swap(s, &v, LONG));
}

static void compare_one(struct one *x, weft_subscriber *s, int64_t step, bool there)
{
    static float back[COUNT];
    weft_pin *pin;
    const void *data;
    fine(weft_use(s, &pin));
    assert_int_equal(weft_pin_version(pin).step, step);
    fine(weft_pin_data(pin, 0, &data, NULL));
    if (there)
        device_kit_copy(back, data, sizeof back);
    assert_memory_equal(there ? back : data, values(x, step), sizeof back);
    weft_unuse(pin);
}

static void close_one(struct one *x)
{
    weft_publisher_close(x->pub);
    weft_layout_free(x->layout);
    fine(weft_bus_close(x->bus));
    free(x->host);
    device_kit_free(x->there);
}

/* A version lives on the device beside the one before it, also while that is pinned; memory of the bus is reused. */
static void two_versions(void **state)
{
    (void)state;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct one x;
    weft_epoch_step v;
    weft_pin *pin;
    const void *before, *now;
    static float back[COUNT];
    char text[512];
    size_t len;
    open_one(&x, NULL);
    o.memory = WEFT_MEMORY_CUDA;
    weft_subscriber *s = subscribe_one(&x, &o), *hosted = subscribe_one(&x, NULL);
    for (int64_t step = 1; step <= 5; step++) {
        commit_one(&x, step);
        fetch_one(s, step);
        fetch_one(hosted, step);
        compare_one(&x, s, step, true);
        compare_one(&x, hosted, step, false);
    }
    fine(weft_subscriber_explain(s, false, text, sizeof text, &len));
    if (device_kit_simulated())
        assert_non_null(strstr(text, "(pinned)"));
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &before, NULL));
    commit_one(&x, 6);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    device_kit_copy(back, before, sizeof back);
    assert_memory_equal(back, values(&x, 5), sizeof back);
    weft_unuse(pin);
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &now, NULL));
    assert_ptr_not_equal(now, before);
    weft_unuse(pin);
    compare_one(&x, s, 6, true);
    weft_subscriber_close(s);
    weft_subscriber_close(hosted);
    close_one(&x);
}

/* Flips a bit of the data in every snapshot that this process has mapped for writing. */
static int flip(size_t at)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strstr(line, "memfd:weft-bus") &&
            rights[1] == 'w') {
            ((unsigned char *)from)[SNAPSHOT_DATA + at] ^= 4;
            n++;
        }
    }
    fclose(maps);
    return n;
}

/* What the device has summed on both sides finds a changed bit, and the version before stays. */
static void wrong_digest(void **state)
{
    (void)state;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct one x;
    weft_epoch_step v;
    bus_device_chunks(SCHEMA_BLOCK);
    open_one(&x, NULL);
    o.memory = WEFT_MEMORY_CUDA;
    weft_subscriber *s = subscribe_one(&x, &o), *hosted = subscribe_one(&x, NULL);
    commit_one(&x, 1);
    fetch_one(s, 1);
    fetch_one(hosted, 1);
    commit_one(&x, 2);
    assert_true(flip(2 * SCHEMA_BLOCK + 5) > 0);
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
    says("tensor 'w', block 2 of");
    assert_int_equal(weft_fetch(hosted, &latest, LONG, &v), WEFT_EMISMATCH);
    compare_one(&x, s, 1, true);
    flip(2 * SCHEMA_BLOCK + 5);
    fetch_one(s, 2);
    compare_one(&x, s, 2, true);
    weft_subscriber_close(s);
    weft_subscriber_close(hosted);
    close_one(&x);
    bus_device_chunks(0);
}

/* A put on a stream has what the stream has written, also if that is late. */
static void on_a_stream(void **state)
{
    (void)state;
    struct one x;
    void *stream;
    uint64_t at;
    open_one(&x, NULL);
    weft_subscriber *s = subscribe_one(&x, NULL);
    fine(device->ops->stream_open(device, &stream));
    float *host = aligned_alloc(4096, (COUNT * sizeof(float) / 4096 + 1) * 4096);
    fine(device->ops->pin(device, host, COUNT * sizeof(float), &at));
    for (int64_t step = 1; step <= 10; step++) {
        memcpy(host, values(&x, step), COUNT * sizeof(float));
        fine(device->ops->copy(device, stream, x.there, host, COUNT * sizeof(float)));
        fine(weft_put_on(x.pub, step, &x.view, stream));
        fine(weft_commit(x.pub, step, NULL, NULL));
        fetch_one(s, step);
        compare_one(&x, s, step, false);
    }
    device->ops->unpin(device, host);
    device->ops->stream_close(device, stream);
    free(host);
    weft_subscriber_close(s);
    close_one(&x);
}

/* When all ranks have decided to swap, none can fail for lack of memory. */
static void swap_takes_no_memory(void **state)
{
    (void)state;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct sim_use before, after;
    struct one x;
    weft_epoch_step v;
    if (!device_kit_simulated())
        skip();
    open_one(&x, NULL);
    weft_view into = x.view;
    into.data = device_kit_new(NULL, into.bytes);
    o.into = &into;
    weft_subscriber *s = subscribe_one(&x, &o);
    commit_one(&x, 1);
    fine(weft_fetch(s, &latest, LONG, &v));
    simulated_calls()->use(device, &before);
    fine(weft_swap(s, &v, LONG));
    simulated_calls()->use(device, &after);
    assert_int_equal(after.allocations, before.allocations);
    compare_one(&x, s, 1, true);
    weft_subscriber_close(s);
    device_kit_free(into.data);
    close_one(&x);
}

/* A fetch that is cancelled begins no further piece, also while the device is at work on the one before. */
static void cancelled(void **state)
{
    (void)state;
    float values[2] = {1, 2}, into = 0;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_bus *b = open_bus("cancelled", NULL);
    weft_layout *l;
    weft_publisher *p;
    weft_subscriber *s;
    weft_epoch_step v;
    fine(weft_layout_parse("f32[1] @x1", &l));
    const weft_bus_tensor tensors[2] = {{.name = "a", .layout = l}, {.name = "b", .layout = l}};
    const weft_view from[2] = {WEFT_VIEW(&values[0], sizeof *values), WEFT_VIEW(&values[1], sizeof *values)};
    weft_view to[2] = {WEFT_VIEW(device_kit_new(NULL, sizeof into), sizeof into), WEFT_VIEW(&into, sizeof into)};
    to[0].memory = WEFT_MEMORY_CUDA;
    o.into = to;
    o.direct = true;
    fine(weft_publish(b, "cancelled", tensors, 2, NULL, &p));
    fine(weft_put(p, 1, from));
    fine(weft_commit(p, 1, NULL, NULL));
    fine(weft_subscribe(b, "cancelled", tensors, 2, &o, &s));
    s->cancelled = true; /* as another thread does it, at the worst time */
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EINVAL);
    says("stopped by the caller");
    assert_true(into == 0);
    s->cancelled = false;
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_true(into == 2);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    weft_layout_free(l);
    fine(weft_bus_close(b));
    device_kit_free(to[0].data);
}

static void refused(void **state)
{
    (void)state;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_subscriber *s = NULL;
    struct one x;
    open_one(&x, NULL);
    weft_view view = x.view;
    view.memory = 9;
    assert_int_equal(weft_put(x.pub, 1, &view), WEFT_EUNSUPPORTED);
    says("tensor 'w': there is no memory of kind 9");
    view = x.view;
    view.device = 77;
    assert_int_equal(weft_put(x.pub, 1, &view), WEFT_EINVAL);
    says("there is no device 77");
    assert_int_equal(weft_lend(x.pub, 1, &x.view), WEFT_EUNSUPPORTED);
    says("is not in host memory");
    const weft_bus_tensor t = {.name = "w", .layout = x.layout};
    o.memory = WEFT_MEMORY_ANY;
    assert_int_equal(weft_subscribe(x.bus, "one", &t, 1, &o, &s), WEFT_EINVAL);
    says("say where versions are to live");
    o.memory = WEFT_MEMORY_CUDA;
    o.device = 77;
    assert_int_equal(weft_subscribe(x.bus, "one", &t, 1, &o, &s), WEFT_EINVAL);
    says("there is no device 77");
    o.device = 0;
    o.into = &x.view;
    assert_int_equal(weft_subscribe(x.bus, "one", &t, 1, &o, &s), WEFT_EINVAL);
    says("the views of into say where memory is");
    commit_one(&x, 1); /* it works nevertheless */
    close_one(&x);
}

/* Partial sums are folded on the host. */
static void partial_sums(void **state)
{
    (void)state;
    weft_comm *comm;
    weft_publisher *p;
    weft_layout *l;
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_bus *b = open_bus("partial", NULL);
    fine(weft_comm_open("self:", NULL, &comm));
    fine(weft_layout_parse("f32[8] @x1 +sum(x)", &l));
    o.comm = comm;
    fine(weft_publish(b, "partial", &(weft_bus_tensor){.name = "w", .layout = l}, 1, &o, &p));
    weft_view view = {.data = device_kit_new(NULL, 32), .bytes = 32, .memory = WEFT_MEMORY_CUDA};
    assert_int_equal(weft_put(p, 1, &view), WEFT_EUNSUPPORTED);
    says("tensor 'w': it has partial sums, which are folded in host memory, and it is on device 0");
    device_kit_free(view.data);
    weft_publisher_close(p);
    weft_layout_free(l);
    weft_comm_close(comm);
    fine(weft_bus_close(b));
}

/* A device that fails takes no committed version with it. */
static void device_fails(void **state)
{
    (void)state;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct one x;
    weft_epoch_step v;
    if (!device_kit_simulated())
        skip();
    open_one(&x, NULL);
    o.memory = WEFT_MEMORY_CUDA;
    weft_subscriber *s = subscribe_one(&x, &o), *hosted = subscribe_one(&x, NULL);
    weft_view into = x.view;
    weft_pin *pin;
    into.data = device_kit_new(NULL, into.bytes);
    o.memory = WEFT_MEMORY_HOST;
    o.into = &into;
    weft_subscriber *given = subscribe_one(&x, &o);
    commit_one(&x, 1);
    fetch_one(s, 1);
    fine(weft_fetch(given, &latest, LONG, &v));
    simulated_calls()->crash(device, "it burns");
    assert_int_equal(weft_put(x.pub, 2, &x.view), WEFT_ETRANSPORT);
    says("it burns");
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_ETRANSPORT);
    says("it burns");
    assert_int_equal(weft_put(x.pub, 2, &into), WEFT_ETRANSPORT); /* an array that was not put before */
    says("it burns");
    assert_int_equal(weft_swap(given, &v, LONG), WEFT_ETRANSPORT);
    says("it burns");
    assert_int_equal(weft_use(given, &pin), WEFT_EBUSY); /* nobody takes what is in the array for the version */
    fetch_one(hosted, 1);
    compare_one(&x, hosted, 1, false);
    x.view.data = x.host;
    x.view.memory = WEFT_MEMORY_HOST;
    values(&x, 2);
    fine(weft_put_on(x.pub, 2, &x.view, NULL)); /* from host memory it goes on, and then no stream is awaited */
    fine(weft_commit(x.pub, 2, NULL, NULL));
    fetch_one(hosted, 2);
    compare_one(&x, hosted, 2, false);
    weft_subscriber_close(s);
    weft_subscriber_close(hosted);
    weft_subscriber_close(given);
    device_kit_free(into.data);
    close_one(&x);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, device_kit_open, device_kit_close)
    const struct CMUnitTest tests[] = {TEST(random_pairs), TEST(two_versions),         TEST(wrong_digest),
                                       TEST(on_a_stream),  TEST(swap_takes_no_memory), TEST(cancelled),
                                       TEST(refused),      TEST(partial_sums),         TEST(device_fails)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
