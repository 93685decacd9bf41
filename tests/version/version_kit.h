/* A set of three tensors, its publisher and its subscriber, for tests of versions in one process. */
#ifndef WEFT_VERSION_VERSION_KIT_H
#define WEFT_VERSION_VERSION_KIT_H
#include <stdio.h>
#include <string.h>

#include "bus/directories.h"
#include "memory/memory.h"
#include "version/bus.h"
#include "version/parts_kit.h"
#include "weft/bus.h"

#define N 3
static const char *const texts[N] = {"f32[40,24] @x1", "bf16[130] @x1", "i64[] @x1"};
static const char *const names[N] = {"model.embed", "model.norm", "step"};

static inline weft_bus *open_bus(const char *job)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.token = PUBLISH_TOKEN;
    o.job = job;
    fine(weft_bus_open(directories_url(), &o, &b));
    return b;
}

/* A bus whose publishers serve other hosts, and one that is on the same host, or believes to be on another one. */
static inline void open_two(bool apart, weft_bus **here, weft_bus **there)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    o.token = PUBLISH_TOKEN;
    o.job = "here";
    o.listen = "127.0.0.1:0";
    fine(weft_bus_open(directories_url(), &o, here));
    *there = open_bus("there");
    if (apart)
        (*there)->host[0] = 'x';
}

struct set {
    weft_bus_tensor tensors[N];
    weft_layout *layouts[N];
};

static inline void make(struct set *s, const char *const *layouts)
{
    for (int i = 0; i < N; i++) {
        fine(weft_layout_parse(layouts[i], &s->layouts[i]));
        s->tensors[i] = (weft_bus_tensor){.name = names[i], .layout = s->layouts[i]};
    }
}

static inline void drop(struct set *s)
{
    for (int i = 0; i < N; i++)
        weft_layout_free(s->layouts[i]);
}

/* The arrays of a step, all in f32, i64 apart. */
struct arrays {
    float embed[40 * 24], norm[130];
    int64_t step;
    weft_view views[N];
};

static inline void fill(struct arrays *a, int64_t step)
{
    for (int i = 0; i < 40 * 24; i++)
        a->embed[i] = (float)(step * 10000 + i);
    for (int i = 0; i < 130; i++)
        a->norm[i] = (float)(step + i) / 3;
    a->step = step;
    a->views[0] = (weft_view)WEFT_VIEW(a->embed, sizeof a->embed);
    a->views[1] = (weft_view)WEFT_VIEW(a->norm, sizeof a->norm);
    a->views[2] = (weft_view)WEFT_VIEW(&a->step, sizeof a->step);
}

static inline weft_publisher *publish(weft_bus *b, const char *set, const weft_publish_opts *o)
{
    struct set s;
    weft_publisher *p;
    make(&s, texts);
    s.tensors[1].dtype = WEFT_F32; /* cast as it is put */
    fine(weft_publish(b, set, s.tensors, N, o, &p));
    puts_in_parts(p, (int64_t)strlen(set));
    drop(&s);
    return p;
}

static inline void commit(weft_publisher *p, int64_t step)
{
    struct arrays a;
    char meta[32];
    bool visible = false;
    fill(&a, step);
    fine(weft_put(p, step, a.views));
    memset(a.embed, 0xff, sizeof a.embed); /* the arrays are free on return */
    snprintf(meta, sizeof meta, "{\"step\": %lld}", (long long)step);
    fine(weft_commit(p, step, meta, &visible));
    assert_true(visible);
}

/* The live version is this step's, bit by bit. */
static inline void compare(weft_subscriber *s, int64_t step)
{
    struct arrays a;
    weft_pin *pin;
    const void *data;
    int64_t bytes;
    char meta[64], want[64];
    size_t len;
    fill(&a, step);
    fine(weft_use(s, &pin));
    assert_int_equal(weft_pin_version(pin).step, step);
    fine(weft_pin_data(pin, 0, &data, &bytes));
    assert_int_equal(bytes, sizeof a.embed);
    assert_memory_equal(data, a.embed, sizeof a.embed);
    fine(weft_pin_data(pin, 1, &data, &bytes));
    uint16_t norm[130];
    memory_cast(norm, WEFT_BF16, a.norm, WEFT_F32, 130);
    assert_int_equal(bytes, sizeof norm);
    assert_memory_equal(data, norm, sizeof norm);
    fine(weft_pin_data(pin, 2, &data, &bytes));
    assert_int_equal(*(const int64_t *)data, step);
    fine(weft_pin_meta(pin, meta, sizeof meta, &len));
    snprintf(want, sizeof want, "{\"step\": %lld}", (long long)step);
    assert_string_equal(meta, want);
    weft_unuse(pin);
}

static inline weft_subscriber *subscribe(weft_bus *b, const char *set, const weft_subscribe_opts *o)
{
    struct set s;
    weft_subscriber *sub;
    make(&s, texts);
    fine(weft_subscribe(b, set, s.tensors, N, o, &sub));
    copies_in_parts(sub, (int64_t)strlen(set));
    drop(&s);
    return sub;
}

static inline void says(const char *what)
{
    if (!strstr(weft_errmsg(), what))
        fail_msg("the text does not say '%s': %s", what, weft_errmsg());
}

static const weft_want latest = {WEFT_WANT_LATEST, 0};
/* Flips a bit of the data in every snapshot that this process has mapped for writing and that is large enough: those of
 * a test that has failed are still there. */
static inline int flip(size_t at)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strstr(line, "memfd:weft-bus") &&
            rights[1] == 'w' && to - from > 4096 + at) {
            ((unsigned char *)from)[4096 + at] ^= 4;
            n++;
        }
    }
    fclose(maps);
    return n;
}
#endif
