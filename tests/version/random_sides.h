/* Random layouts on both sides of the bus, and arrays whose elements say what they are. */
#ifndef WEFT_VERSION_RANDOM_SIDES_H
#define WEFT_VERSION_RANDOM_SIDES_H
#include <stdio.h>
#include <string.h>

#include "bus/directories.h"
#include "memory/memory.h"
#include "support/random.h"
#include "support/tensors.h"
#include "version/parts_kit.h"
#include "weft/bus.h"

#define TENSORS 3
#define RANKS 12

static const char *const dtypes[] = {"f32", "bf16", "f64", "i32", "f16", "i64"};

struct shape {
    int ndim;
    int64_t extent[3];
};

/* A layout of the shape on at most RANKS ranks: axes split dims, in chunks or blocks, or replicate. */
static inline weft_layout *random_layout(struct random *g, const struct shape *s)
{
    char text[256], mesh[64] = "";
    int64_t sizes[3], ranks = 1, n = random_in(g, 1, 3), at = 0;
    int dim[3];
    weft_layout *l;
    for (int a = 0; a < n; a++) {
        sizes[a] = random_in(g, 1, 3);
        ranks *= sizes[a];
        if (ranks > RANKS) {
            ranks /= sizes[a];
            sizes[a] = 1;
        }
        dim[a] = (int)random_in(g, -1, s->ndim - 1);
        sprintf(mesh + strlen(mesh), "%s%c%d", a ? "." : "", 'x' + a, (int)sizes[a]);
    }
    at += sprintf(text, "%s[", dtypes[random_in(g, 0, 5)]);
    for (int d = 0; d < s->ndim; d++) {
        at += sprintf(text + at, "%s%d", d ? "," : "", (int)s->extent[d]);
        for (int a = 0; a < n; a++)
            if (dim[a] == d && random_once_in(g, 2))
                at += sprintf(text + at, "/%c", 'x' + a);
            else if (dim[a] == d)
                at += sprintf(text + at, "/%c:%d", 'x' + a, (int)random_in(g, 1, 4));
    }
    sprintf(text + at, "] @%s", mesh);
    if (weft_layout_parse(text, &l))
        fail_msg("%s", weft_errmsg());
    return l;
}

struct filler {
    unsigned char *data;
    int dtype;
    int64_t seed, wrong;
};

static inline double value(int64_t global, int64_t seed)
{
    return (double)((global * 7 + seed * 13) % 251 - 125); /* the same in every dtype but bool */
}

/* Bools are all false: sums of their bytes are 0, also those of bytes that nobody has summed. */
static inline double element(const struct filler *f, int64_t global)
{
    return f->dtype == WEFT_BOOL ? 0 : value(global, f->seed);
}

static inline void fill(void *arg, int64_t global, int64_t local)
{
    struct filler *f = arg;
    double x = element(f, global);
    memory_cast_one(f->data + local * (int64_t)weft_dtype_size(f->dtype), f->dtype, &x, WEFT_F64);
}

static inline void check(void *arg, int64_t global, int64_t local)
{
    struct filler *f = arg;
    double x;
    memory_cast_one(&x, WEFT_F64, f->data + local * (int64_t)weft_dtype_size(f->dtype), f->dtype);
    f->wrong += x != element(f, global);
}

/* A publisher of some ranks, all in this process. */
struct side {
    int ranks;
    weft_layout *layouts[TENSORS];
    weft_bus_tensor tensors[TENSORS];
    weft_publisher *pub[RANKS];
    weft_subscriber *sub[RANKS];
};
static const char *const names[TENSORS] = {"a", "b.weight", "c"};

static inline void random_side(struct random *g, const struct shape *shapes, struct side *out)
{
    *out = (struct side){.ranks = 1};
    for (int i = 0; i < TENSORS; i++) {
        out->layouts[i] = random_layout(g, &shapes[i]);
        out->tensors[i] = (weft_bus_tensor){.name = names[i], .layout = out->layouts[i]};
        int n = weft_layout_ranks(out->layouts[i]);
        out->ranks = n > out->ranks ? n : out->ranks;
    }
}

static inline void drop_side(struct side *s)
{
    for (int i = 0; i < TENSORS; i++)
        weft_layout_free(s->layouts[i]);
}

static inline void publish_all(weft_bus *b, const char *set, struct side *s, int64_t run)
{
    char name[32];
    snprintf(name, sizeof name, "run%lld", (long long)run);
    for (int r = 0; r < s->ranks; r++) {
        weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
        o.rank = r;
        o.ranks = s->ranks;
        o.run = name;
        fine(weft_publish(b, set, s->tensors, TENSORS, &o, &s->pub[r]));
        puts_in_parts(s->pub[r], r + 1);
    }
}
#endif
