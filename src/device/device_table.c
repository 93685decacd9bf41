/* Makes the image that kernels read (item.h): works, sorted by level and kernel. */
#include "device/device_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/works.h"

#define BLOCKS (UINT64_C(1) << 30) /* of a launch */
#define IMAGE_ALIGN 256

struct device_table *device_table_new(void)
{
    return calloc(1, sizeof(struct device_table));
}

void device_table_free(struct device_table *t)
{
    if (!t)
        return;
    free(t->works.v);
    free(t->loops.v);
    free(t->terms.v);
    free(t->boxes.v);
    free(t->launches.v);
    free(t->image);
    free(t);
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_works(const void *a, const void *b)
{
    const struct work *x = a, *y = b;
    int c = (x->gone > y->gone) - (x->gone < y->gone);
    c = c ? c : compare_u64(x->level, y->level);
    c = c ? c : compare_u64(x->kernel, y->kernel);
    return c ? c : compare_u64(x->number, y->number);
}

static uint32_t term_step(const struct work *w) /* in 16 bytes */
{
    return 1 + (w->item.loops + 1u) / 2;
}

/* A launch and the works that are in it. */
struct group {
    const struct work *first;
    size_t n;
    uint32_t loops, words, shift, blocks; /* loops: of the work that has most */
    uint64_t step;                        /* from item to item, in 16 bytes */
};

static struct group next_group(const struct work *w, size_t n)
{
    struct group g = {.first = w};
    uint64_t blocks = 0;
    for (; g.n < n && w[g.n].level == w->level && w[g.n].kernel == w->kernel && blocks + w[g.n].blocks < BLOCKS;
         g.n++) {
        blocks += w[g.n].blocks;
        g.loops = w[g.n].item.loops > g.loops ? w[g.n].item.loops : g.loops;
    }
    while (blocks >> g.shift > 16 * g.n + 64) /* few blocks have to search */
        g.shift++;
    g.blocks = (uint32_t)blocks;
    g.words = (uint32_t)((blocks - 1) >> g.shift) + 2;
    g.words = (g.words + 3) & ~3u;
    g.step = (sizeof(struct device_item) + g.loops * sizeof(struct device_loop)) / 16;
    return g;
}

static void write_loop(struct device_loop *to, const struct works_loop *from)
{
    uint32_t up = 0;
    while (INT64_C(1) << up < from->n)
        up++;
    *to = (struct device_loop){.n = (uint32_t)from->n,
                               .mul =
                                   (uint32_t)(((UINT64_C(1) << (31 + up)) + (uint64_t)from->n - 1) / (uint64_t)from->n),
                               .shift = 31 + up,
                               .stride = {from->stride[0], from->stride[1]}};
}

static void write_item(const struct device_table *t, const struct work *w, unsigned char *at, uint32_t block,
                       size_t *more)
{
    struct device_item *item = (struct device_item *)at;
    struct device_loop *loops = (struct device_loop *)(item + 1);
    *item = w->item;
    item->block = block;
    item->more = (uint32_t)(*more / 16);
    for (int i = 0; i < item->loops; i++)
        write_loop(&loops[i], &t->loops.v[w->loop + (size_t)i]);
    if (w->boxes)
        memcpy(t->image + *more, t->boxes.v + w->box, w->boxes * sizeof *t->boxes.v);
    *more += w->boxes * sizeof(struct device_box);
    for (uint32_t k = 0; k < item->terms; k++) {
        const struct works_side *from = &t->terms.v[w->term + k];
        struct device_term *term = (struct device_term *)(t->image + *more);
        *term = (struct device_term){.at = from->at, .dtype = (uint32_t)from->dtype};
        if (item->loops)
            memcpy(term + 1, from->stride, item->loops * sizeof *from->stride);
        *more += (size_t)term_step(w) * 16;
    }
}

static void write_group(const struct device_table *t, const struct group *g, size_t at, size_t *more)
{
    uint32_t *map = (uint32_t *)(t->image + at), block = 0, word = 0;
    unsigned char *items = (unsigned char *)(map + g->words);
    for (size_t i = 0; i < g->n; i++) {
        const struct work *w = &g->first[i];
        write_item(t, w, items + i * g->step * 16, block, more);
        block += w->blocks;
        for (; (uint64_t)word << g->shift < block; word++)
            map[word] = (uint32_t)i;
    }
    for (; word < g->words; word++)
        map[word] = (uint32_t)(g->n - 1);
}

int device_table_add(struct device_table *t, const struct device_task *task)
{
    return works_add(t, task);
}

int device_table_sum(struct device_table *t, uint32_t level, uint64_t dst, uint64_t src, uint32_t bytes)
{
    if (dst % sizeof(uint64_t) || src % ITEM_BYTES || !bytes)
        return error_set(WEFT_EINVAL, "device table: a sum of %u bytes is not aligned, or has none", bytes);
    struct work *w = vec_push(&t->works);
    if (!w)
        return error_nomem();
    *w = (struct work){.level = level, .kernel = DEVICE_SUM, .blocks = 1, .loop = t->loops.n, .term = t->terms.n};
    w->item = (struct device_item){.form = FORM_SUM,
                                   .member = ITEM_NONE,
                                   .units = (bytes - 1) / ITEM_BYTES + 1,
                                   .rest = (uint16_t)(bytes % ITEM_BYTES),
                                   .dst = dst,
                                   .src = src};
    return 0;
}

void device_table_apart(struct device_table *t)
{
    t->apart = true;
}

int device_table_close(struct device_table *t)
{
    size_t works = 0, more = 0, at = 0;
    if (t->image)
        return 0;
    int e = works_join(t);
    if (e)
        return e;
    for (size_t i = 0; i < t->works.n; i++) {
        struct work *w = &t->works.v[i];
        w->number = i;
        works += !w->gone;
        more += w->gone ? 0 : w->boxes * sizeof(struct device_box) + (size_t)w->item.terms * term_step(w) * 16;
    }
    if (t->works.n)
        qsort(t->works.v, t->works.n, sizeof *t->works.v, compare_works);
    size_t heads = 0;
    for (size_t i = 0; i < works;) {
        struct group g = next_group(&t->works.v[i], works - i);
        struct device_launch *l = vec_push(&t->launches);
        if (!l)
            return error_nomem();
        *l = (struct device_launch){.kernel = g.first->kernel,
                                    .blocks = g.blocks,
                                    .first = (uint32_t)(heads / 16),
                                    .n = (uint32_t)g.step << 8 | g.shift,
                                    .level = g.first->level};
        heads += g.words * sizeof(uint32_t) + g.n * g.step * 16;
        i += g.n;
    }
    t->bytes = (heads + more + IMAGE_ALIGN) / IMAGE_ALIGN * IMAGE_ALIGN;
    if (t->bytes / 16 > UINT32_MAX)
        return error_set(WEFT_EUNSUPPORTED, "device table: %zu bytes; at most 64 GiB are possible", t->bytes);
    for (size_t i = 0; i < t->launches.n; i++)
        t->launches.v[i].lines = (uint32_t)(t->bytes / 128);
    t->image = aligned_alloc(IMAGE_ALIGN, t->bytes);
    if (!t->image)
        return error_nomem();
    memset(t->image, 0, t->bytes);
    more = heads;
    for (size_t i = 0; i < works;) {
        struct group g = next_group(&t->works.v[i], works - i);
        write_group(t, &g, at, &more);
        at += g.words * sizeof(uint32_t) + g.n * g.step * 16;
        i += g.n;
    }
    return 0;
}

const void *device_table_image(const struct device_table *t, size_t *bytes)
{
    *bytes = t->bytes;
    return t->image;
}

const struct device_launch *device_table_launches(const struct device_table *t, size_t *n)
{
    *n = t->launches.n;
    return t->launches.v;
}

bool device_table_small(const struct device_launch *l, size_t n)
{
    bool small = n <= MEET_LAUNCHES;
    for (size_t i = 0; i < n && small; i++)
        small = l[i].blocks <= MEET_WORK && l[i].kernel != DEVICE_TRANSPOSE && l[i].kernel != DEVICE_TRANSPOSE_ANY &&
                l[i].kernel != DEVICE_SUM;
    return small;
}
