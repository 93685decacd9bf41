/* Tasks become works: their loops are merged, put into the order in which threads walk best, and cut where there are
 * too many bytes for 32-bit numbers. Each work is for one kernel, and has the form that lets a thread move most at
 * once. */
#include "device/works.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "memory/cast.h"
#include "memory/ops.h"

#define TURNED 32 /* turns of both loops from which on a transpose goes through tiles */

/* A task, or a part of one, while it is taken apart. */
struct nest {
    int loops;
    int64_t n[WORKS_LOOPS + 1];
    struct works_side *side; /* dst, then the terms */
    size_t sides;
    bool run;          /* the innermost loop is contiguous in all sides */
    uint64_t bytes[2]; /* of a run in dst and src */
    const struct device_task *task;
};

/* ---- loops ---- */

static uint64_t magnitude(int64_t x)
{
    return x < 0 ? -(uint64_t)x : (uint64_t)x;
}

static void swap_loops(struct nest *w, int a, int b)
{
    int64_t t = w->n[a];
    w->n[a] = w->n[b];
    w->n[b] = t;
    for (size_t k = 0; k < w->sides; k++) {
        t = w->side[k].stride[a];
        w->side[k].stride[a] = w->side[k].stride[b];
        w->side[k].stride[b] = t;
    }
}

static bool joins(const struct nest *w, int outer, int inner)
{
    for (size_t k = 0; k < w->sides; k++)
        if (w->side[k].stride[outer] != w->n[inner] * w->side[k].stride[inner])
            return false;
    return true;
}

/* Drops loops of one turn, sorts the others by dst's strides and joins neighbours that are one loop in all operands. */
static void merge(struct nest *w)
{
    int kept = 0, out = 0;
    for (int i = 0; i < w->loops; i++) {
        if (w->n[i] == 1)
            continue;
        if (kept != i)
            swap_loops(w, kept, i);
        for (int j = kept++; j > 0 && magnitude(w->side[0].stride[j - 1]) < magnitude(w->side[0].stride[j]); j--)
            swap_loops(w, j - 1, j);
    }
    for (int i = 1; i < kept; i++) {
        if (joins(w, out, i))
            w->n[out] *= w->n[i];
        else
            w->n[++out] = w->n[i];
        for (size_t k = 0; k < w->sides; k++)
            w->side[k].stride[out] = w->side[k].stride[i];
    }
    w->loops = kept ? out + 1 : 0;
}

/* The loop along which a side is contiguous, or -1. */
static int unit_loop(const struct nest *w, size_t side)
{
    for (int i = w->loops - 1; i >= 0; i--)
        if (w->side[side].stride[i] == w->side[side].size)
            return i;
    return -1;
}

static void move_innermost(struct nest *w, int loop)
{
    for (int i = loop; i + 1 < w->loops; i++)
        swap_loops(w, i, i + 1);
}

/* Are all addresses of the side multiples of `bytes`? The first `loops` loops count. */
static bool aligned(const struct nest *w, size_t side, uint64_t bytes, int loops)
{
    uint64_t all = w->side[side].at;
    for (int i = 0; i < loops; i++)
        all |= (uint64_t)w->side[side].stride[i];
    return all % bytes == 0;
}

static void find_run(struct nest *w)
{
    const int last = w->loops - 1;
    w->run = last >= 0;
    for (size_t k = 0; k < w->sides; k++)
        w->run = w->run && w->side[k].stride[last] == w->side[k].size;
    for (size_t k = 0; k < 2 && k < w->sides; k++)
        w->bytes[k] = (uint64_t)(w->side[k].size * (w->run ? w->n[last] : 1));
}

/* ---- works ---- */

uint32_t works_blocks(const struct work *w)
{
    return w->each ? (uint32_t)ceil_div(w->item.units, (int64_t)DEVICE_THREADS * w->each) : w->item.units;
}

static bool is_fold(uint32_t kernel)
{
    return kernel == DEVICE_FOLD || kernel == DEVICE_FOLD_ANY;
}

/* Adds a work. Its innermost loop is walked in units of `lanes` elements, `each` units a thread. */
static int emit(struct device_table *t, const struct nest *w, uint32_t kernel, const struct device_item *item,
                uint32_t lanes, uint32_t each)
{
    if (!vec_room(&t->works, 1) || !vec_room(&t->loops, (size_t)w->loops) || !vec_room(&t->terms, w->sides))
        return error_nomem();
    const int last = w->loops - 1;
    const bool tiles = item->form == FORM_TILES || item->form == FORM_TILES_LANES;
    uint64_t units = 1;
    struct work *work = &t->works.v[t->works.n++];
    *work = (struct work){.level = w->task->level, .kernel = kernel, .loop = t->loops.n, .term = t->terms.n};
    work->item = *item;
    for (int i = 0; i <= last; i++) {
        const int64_t by = i == last ? (int64_t)lanes : 1, n = ceil_div(w->n[i], by);
        if (n == 1 && !tiles)
            continue;
        work->inner = i == last && w->run;
        t->loops.v[t->loops.n++] =
            (struct works_loop){n, {w->side[0].stride[i] * by, w->sides >= 2 ? w->side[1].stride[i] * by : 0}};
        units *= (uint64_t)n;
    }
    if (w->sides == 2 && !tiles && !item->rest && !is_fold(kernel))
        memcpy(work->run, w->bytes, sizeof work->run);
    work->item.loops = (uint8_t)(t->loops.n - work->loop);
    work->item.member = ITEM_NONE;
    work->item.units = (uint32_t)units;
    work->item.dst = w->side[0].at;
    work->item.src = w->sides == 2 ? w->side[1].at : 0;
    for (size_t k = 1; k < w->sides && is_fold(kernel); k++) {
        struct works_side *term = &t->terms.v[t->terms.n++];
        *term = w->side[k];
        work->item.terms++;
        for (int i = 0, out = 0; i <= last; i++) {
            const int64_t by = i == last ? (int64_t)lanes : 1;
            if (ceil_div(w->n[i], by) > 1)
                term->stride[out++] = term->stride[i] * by;
        }
    }
    work->each = tiles ? 0 : each;
    work->blocks = works_blocks(work);
    return 0;
}

/* From elements to bytes: the run has more of them, or each element becomes a run. */
static void in_bytes(struct nest *w)
{
    if (w->run)
        w->n[w->loops - 1] *= w->side[0].size;
    else
        w->n[w->loops++] = w->side[0].size;
    for (size_t k = 0; k < w->sides; k++) {
        w->side[k].stride[w->loops - 1] = 1;
        w->side[k].size = 1;
    }
    w->run = true;
}

/* One run whose two sides are at the same distance from a multiple of 16. The bytes before the first multiple are a
 * work of their own, and the last thread moves those after the last one. */
static int add_run(struct device_table *t, struct nest *w, struct device_item *item)
{
    const int64_t head = (int64_t)(-w->side[0].at % ITEM_BYTES);
    in_bytes(w);
    if (head) {
        struct works_side before[2] = {w->side[0], w->side[1]};
        struct nest part = *w;
        part.side = before;
        part.n[0] = head;
        item->size = 1;
        int e = emit(t, &part, DEVICE_COPY, item, 1, ITEM_BYTES);
        if (e)
            return e;
        w->side[0].at += (uint64_t)head;
        w->side[1].at += (uint64_t)head;
        w->n[0] -= head;
    }
    item->rest = (uint16_t)(w->n[0] % ITEM_BYTES);
    item->size = ITEM_BYTES;
    return emit(t, w, DEVICE_COPY, item, ITEM_BYTES, 1);
}

/* Rows of more than 16 bytes that are not all aligned to 16: a thread has 16 bytes of dst all the same. */
static int add_rows(struct device_table *t, struct nest *w, struct device_item *item)
{
    const int last = w->loops - 1;
    const uint64_t before = aligned(w, 0, ITEM_BYTES, last) ? 0 : ITEM_BYTES - 1;
    in_bytes(w);
    item->form = FORM_ROWS;
    item->size = ITEM_BYTES;
    item->turned[0] = (uint32_t)w->n[last];
    w->n[last] += (int64_t)before; /* the units of a row, wherever it begins */
    return emit(t, w, DEVICE_COPY, item, ITEM_BYTES, 1);
}

/* A copy or a fill, in units of the largest power of two up to 16 that divides the run and all addresses. Longer runs
 * whose unit would be smaller are copied as rows. */
static int add_copy(struct device_table *t, struct nest *w, struct device_item *item)
{
    const bool fill = item->form == FORM_FILL;
    const int last = w->loops - 1;
    uint32_t unit = ITEM_BYTES;
    if (!fill && w->run && last == 0 && w->bytes[0] > ITEM_BYTES && (w->side[0].at - w->side[1].at) % ITEM_BYTES == 0)
        return add_run(t, w, item);
    for (size_t k = 0; k < w->sides; k++)
        while (unit > 1 && (!aligned(w, k, unit, w->run ? last : last + 1) || w->bytes[k] % unit))
            unit /= 2;
    if (fill && unit < (uint64_t)w->side[0].size) { /* an element is never filled by parts */
        item->size = (uint8_t)w->side[0].size;
        item->any = 1;
        return emit(t, w, DEVICE_COPY, item, 1, 1);
    }
    if (!fill && unit < ITEM_BYTES && w->run && w->bytes[0] > ITEM_BYTES)
        return add_rows(t, w, item);
    in_bytes(w);
    item->size = (uint8_t)unit;
    return emit(t, w, DEVICE_COPY, item, unit, fill ? 1 : ITEM_BYTES / unit);
}

/* A copy or cast between sides that are contiguous along different loops. */
static int add_turned(struct device_table *t, struct nest *w, struct device_item *item, int row, int column, bool moves,
                      bool lanes)
{
    const int64_t side = TILE_SIDE(moves ? item->size : lanes ? 4 : 8);
    item->form = lanes ? FORM_TILES_LANES : FORM_TILES;
    item->turned[0] = (uint32_t)w->n[row];
    item->turned[1] = (uint32_t)w->n[column];
    move_innermost(w, column);
    move_innermost(w, row - (column < row));
    for (int i = w->loops - 2; i < w->loops; i++) {
        w->n[i] = ceil_div(w->n[i], side);
        for (size_t k = 0; k < 2; k++)
            w->side[k].stride[i] *= side;
    }
    return emit(t, w, moves ? DEVICE_TRANSPOSE : DEVICE_TRANSPOSE_ANY, item, 1, 1);
}

/* A copy whose runs are as long as an element of some size: then that is its element. */
static void fuse(struct nest *w)
{
    const int last = w->loops - 1;
    const uint64_t bytes = w->bytes[0];
    if (!w->run || bytes > ITEM_BYTES || (bytes & (bytes - 1)) || !aligned(w, 0, bytes, last) ||
        !aligned(w, 1, bytes, last))
        return;
    w->side[0].size = w->side[1].size = (int64_t)bytes;
    w->loops--;
    find_run(w);
}

/* The casts that a value goes through, without those that change nothing. Returns their number. */
static int casts_of(const struct nest *w, const struct device_item *item, int dtypes[4])
{
    const int all[4] = {w->side[1].dtype, item->acc, item->via, w->side[0].dtype};
    int n = 0;
    dtypes[0] = all[0];
    for (int i = 1; i < 4; i++)
        if (all[i] && all[i] != dtypes[n])
            dtypes[++n] = all[i];
    return n;
}

/* Floats of up to 4 bytes. */
static bool is_narrow(int dtype)
{
    return dtype_is_float(dtype) && dtype != WEFT_F64;
}

/* Is the cast one of body_lanes.h: is each value one of f32, or rounded to it? */
static bool has_lanes(int from, int to)
{
    if (is_narrow(from))
        return to != WEFT_U64 && to != WEFT_I64;
    if (from == WEFT_F64 || from == WEFT_U32 || from == WEFT_I32)
        return to == WEFT_F32;
    return from != WEFT_U64 && from != WEFT_I64 && dtype_is_float(to);
}

/* Tiles of casts: floats that have a sign. */
static bool tile_lanes(int from, int to)
{
    return is_narrow(from) && is_narrow(to) && from != WEFT_F8E8M0 && to != WEFT_F8E8M0;
}

/* Are runs of `lanes` elements whole, or is there one run, whose last unit may have fewer? */
static bool whole(const struct nest *w, int64_t lanes)
{
    return w->run && (w->loops == 1 || w->n[w->loops - 1] % lanes == 0);
}

static bool lanes_aligned(const struct nest *w, size_t side, int64_t lanes)
{
    return aligned(w, side, (uint64_t)min64(lanes * w->side[side].size, ITEM_BYTES), w->loops - 1);
}

static bool elements_aligned(const struct nest *w)
{
    for (size_t k = 0; k < w->sides; k++)
        if (!aligned(w, k, (uint64_t)w->side[k].size, w->loops))
            return false;
    return true;
}

static bool has_units(const struct nest *w, int64_t lanes)
{
    bool ok = whole(w, lanes);
    for (size_t k = 0; k < w->sides && ok; k++)
        ok = lanes_aligned(w, k, lanes);
    return ok;
}

/* Elements of a unit of a cast; 0: the addresses or the lengths of runs do not allow more than one. */
static int64_t cast_lanes(const struct nest *w)
{
    if (w->side[0].size <= 2 && (w->side[1].size <= 2 || w->side[1].dtype == WEFT_F32) && has_units(w, 8))
        return 8;
    return has_units(w, 4) ? 4 : 0;
}

/* One term: a copy or a cast, by tiles where the sides are contiguous along different loops. Otherwise threads walk
 * along the shorter one of these loops first: so the cache lines of both sides are used while they are in the cache. */
static int add_one_term(struct device_table *t, struct nest *w, struct device_item *item)
{
    int dtypes[4], casts = casts_of(w, item, dtypes);
    const bool divides = item->u.div > 1,
               is_bool = w->side[0].dtype == WEFT_BOOL && (item->acc == WEFT_BOOL || item->via == WEFT_BOOL);
    const bool moves = !divides && ((casts == 0 && !is_bool) || (casts == 1 && cast_is_move(dtypes[1], dtypes[0])));
    if (moves && casts == 0 && w->side[0].at == w->side[1].at &&
        memcmp(w->side[0].stride, w->side[1].stride, (size_t)w->loops * sizeof *w->side[0].stride) == 0)
        return 0;
    if (!item->acc)
        item->acc = (uint8_t)w->side[1].dtype;
    item->from = (uint8_t)w->side[1].dtype;
    if (moves)
        fuse(w);
    const int a = unit_loop(w, 0), b = unit_loop(w, 1);
    item->size = (uint8_t)w->side[0].size;
    item->any = !elements_aligned(w);
    if (a >= 0 && b >= 0 && a != b) {
        if (w->n[a] >= TURNED && w->n[b] >= TURNED && w->n[a] < WORKS_MOST && w->n[b] < WORKS_MOST &&
            !(moves && item->any))
            return add_turned(t, w, item, a, b, moves,
                              !moves && !divides && !item->any && casts == 1 && tile_lanes(dtypes[0], dtypes[1]));
        const bool first = w->n[b] < w->n[a];
        move_innermost(w, first ? a : b);
        move_innermost(w, first ? b - (a < b) : a - (b < a));
        find_run(w);
    } else if (a < 0 && b >= 0) {
        move_innermost(w, b);
        find_run(w);
    }
    if (moves) {
        item->form = FORM_COPY;
        item->any = 0;
        return add_copy(t, w, item);
    }
    const int64_t lanes = casts == 1 && !divides && has_lanes(dtypes[0], dtypes[1]) ? cast_lanes(w) : 0;
    item->form = FORM_ELEMENTS;
    if (!lanes)
        return emit(t, w, DEVICE_CAST_ANY, item, 1, 4);
    item->form = lanes == 8 ? FORM_LANES8 : FORM_LANES4;
    item->rest = (uint16_t)(w->n[w->loops - 1] % lanes);
    return emit(t, w, DEVICE_CAST, item, (uint32_t)lanes, (uint32_t)(CAST_ELEMENTS / lanes));
}

/* The fold of words that has the same result, or FOLD_NONE. */
static int word_fold(int op, int dtype)
{
    static const uint8_t ints[4][3] = {[0] = {FOLD_ADD8},
                                       [1] = {FOLD_ADD16},
                                       [2] = {FOLD_ADD32, FOLD_MIN_I32, FOLD_MAX_I32},
                                       [3] = {FOLD_ADD64, FOLD_MIN_I64, FOLD_MAX_I64}};
    const int column = op == WEFT_SUM ? 0 : op == WEFT_MIN ? 1 : op == WEFT_MAX ? 2 : -1;
    const size_t size = weft_dtype_size(dtype);
    if (dtype == WEFT_BOOL || is_narrow(dtype))
        return FOLD_NONE;
    if (dtype == WEFT_F64)
        return column < 0 ? FOLD_NONE : FOLD_ADD_F64 + column;
    if (op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR)
        return op == WEFT_BAND ? FOLD_AND : op == WEFT_BOR ? FOLD_OR : FOLD_XOR;
    if (column < 0)
        return FOLD_NONE;
    const int fold = ints[size == 8 ? 3 : size / 2][column];
    return column && fold && (dtype == WEFT_U32 || dtype == WEFT_U64) ? fold + FOLD_MIN_U32 - FOLD_MIN_I32 : fold;
}

/* The form of a fold that has one of its own, and how many elements its units have. */
static int fold_form(const struct nest *w, struct device_item *item, int64_t *lanes)
{
    const int dtype = w->side[1].dtype, to = w->side[0].dtype;
    for (size_t k = 2; k < w->sides; k++)
        if (w->side[k].dtype != dtype)
            return FORM_ELEMENTS;
    if (item->via && item->via != to && item->via != item->acc)
        return FORM_ELEMENTS;
    item->from = (uint8_t)dtype;
    if (item->acc == dtype && to == dtype && !is_narrow(dtype)) {
        item->fold = (uint8_t)word_fold(item->op, dtype);
        *lanes = ITEM_BYTES / w->side[0].size;
        return item->fold && item->u.div <= 1 && has_units(w, *lanes) ? FORM_FOLD_BITS : FORM_ELEMENTS;
    }
    if (item->acc != WEFT_F32 || !tile_lanes(dtype, to) ||
        (item->op != WEFT_SUM && item->op != WEFT_MIN && item->op != WEFT_MAX))
        return FORM_ELEMENTS;
    if (dtype == WEFT_F8E4M3SAT || dtype == WEFT_F8E5M2SAT) /* they are read as the others are */
        item->from = dtype == WEFT_F8E4M3SAT ? WEFT_F8E4M3 : WEFT_F8E5M2;
    *lanes = dtype == WEFT_F32 ? 4 : 8;
    if (dtype == WEFT_F32 && to != WEFT_F32 && to != WEFT_BF16 && to != WEFT_F16)
        return FORM_ELEMENTS;
    return !has_units(w, *lanes) ? FORM_ELEMENTS : dtype == WEFT_F32 ? FORM_FOLD_F32 : FORM_FOLD_THIN;
}

/* Do all terms have the same strides? */
static bool terms_alike(const struct nest *w)
{
    for (size_t k = 2; k < w->sides; k++)
        if (w->loops && memcmp(w->side[k].stride, w->side[1].stride, (size_t)w->loops * sizeof *w->side[1].stride) != 0)
            return false;
    return true;
}

static int add_fold(struct device_table *t, struct nest *w, struct device_item *item)
{
    int64_t lanes = 1;
    item->size = (uint8_t)w->side[0].size;
    item->any = !elements_aligned(w);
    item->form = (uint8_t)fold_form(w, item, &lanes);
    item->alike = terms_alike(w);
    if (item->form == FORM_ELEMENTS)
        return emit(t, w, DEVICE_FOLD_ANY, item, 1, 1);
    item->rest = (uint16_t)(w->n[w->loops - 1] % lanes);
    return emit(t, w, DEVICE_FOLD, item, (uint32_t)lanes, 1);
}

static int add_fill(struct device_table *t, struct nest *w, struct device_item *item)
{
    const int size = (int)w->side[0].size;
    uint64_t value = 0;
    ops_identity(&value, w->side[0].dtype, w->task->op);
    for (int i = size; i < 8; i *= 2)
        value |= value << 8 * i;
    item->form = FORM_FILL;
    item->u.fill = value;
    return add_copy(t, w, item);
}

static int add_part(struct device_table *t, struct nest *w)
{
    const struct device_task *task = w->task;
    struct device_item item = {.to = (uint8_t)w->side[0].dtype,
                               .acc = (uint8_t)task->acc,
                               .via = (uint8_t)task->via,
                               .op = (uint8_t)task->op,
                               .u.div = task->div};
    find_run(w);
    if (w->sides == 1)
        return add_fill(t, w, &item);
    return w->sides == 2 ? add_one_term(t, w, &item) : add_fold(t, w, &item);
}

/* Cuts the longest loop until a part is small enough. Pieces begin at multiples of 64 elements, so that they are
 * aligned as the whole is. */
static int add_parts(struct device_table *t, struct nest *w)
{
    int64_t bytes = w->side[0].size;
    int longest = 0;
    for (int i = 0; i < w->loops; i++) {
        bytes *= w->n[i];
        longest = w->n[i] > w->n[longest] ? i : longest;
    }
    if (bytes <= WORKS_MOST)
        return add_part(t, w);
    struct nest part = *w;
    part.side = malloc(w->sides * sizeof *part.side);
    if (!part.side)
        return error_nomem();
    memcpy(part.side, w->side, w->sides * sizeof *part.side);
    part.n[longest] /= 2;
    if (part.n[longest] > 64)
        part.n[longest] -= part.n[longest] % 64;
    w->n[longest] -= part.n[longest];
    for (size_t k = 0; k < w->sides; k++)
        w->side[k].at += (uint64_t)part.n[longest] * (uint64_t)w->side[k].stride[longest];
    merge(&part);
    merge(w);
    int e = add_parts(t, &part);
    free(part.side);
    return e ? e : add_parts(t, w);
}

static void take_side(struct works_side *s, const struct device_operand *o, int loops)
{
    s->at = o->at;
    s->dtype = o->dtype;
    s->size = (int64_t)weft_dtype_size(o->dtype);
    if (loops)
        memcpy(s->stride, o->stride, (size_t)loops * sizeof *s->stride);
}

static int add_task(struct device_table *t, const struct device_task *task)
{
    struct nest w = {.loops = task->loops, .sides = (size_t)task->nterms + 1, .task = task};
    struct works_side few[9];
    if (task->loops < 0 || task->loops > WORKS_LOOPS)
        return error_set(WEFT_EINVAL, "device table: %d loops; at most %d are possible", task->loops, WORKS_LOOPS);
    for (int i = 0; i < task->loops; i++) {
        if (task->n[i] <= 0)
            return 0;
        w.n[i] = task->n[i];
    }
    w.side = w.sides <= sizeof few / sizeof *few ? few : malloc(w.sides * sizeof *w.side);
    if (!w.side)
        return error_nomem();
    take_side(&w.side[0], &task->dst, task->loops);
    for (uint32_t k = 0; k < task->nterms; k++)
        take_side(&w.side[k + 1], &task->terms[k], task->loops);
    merge(&w);
    int e = add_parts(t, &w);
    if (w.side != few)
        free(w.side);
    return e;
}

/* ---- complex numbers ---- */

/* The dtype of both parts of a complex one; other dtypes as they are. */
static int part_of(int dtype)
{
    return dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
}

/* A complex operand is one of real numbers with another loop, of two turns. */
static struct device_operand parts(const struct device_operand *o, int loops, int64_t stride[WORKS_LOOPS])
{
    int part = part_of(o->dtype);
    for (int i = 0; i < loops; i++)
        stride[i] = o->stride[i];
    stride[loops] = (int64_t)weft_dtype_size(part);
    return (struct device_operand){o->at, stride, part};
}

/* The sum or the cast of complex numbers is that of their parts. */
static int add_complex(struct device_table *t, const struct device_task *task)
{
    int64_t n[WORKS_LOOPS], dst[WORKS_LOOPS];
    struct device_operand *terms = calloc((size_t)task->nterms + 1, sizeof *terms);
    int64_t(*strides)[WORKS_LOOPS] = calloc((size_t)task->nterms + 1, sizeof *strides);
    struct device_task real = *task;
    int err = terms && strides ? 0 : error_nomem();
    for (uint32_t k = 0; k < task->nterms && !err; k++)
        terms[k] = parts(&task->terms[k], task->loops, strides[k]);
    for (int i = 0; i < task->loops; i++)
        n[i] = task->n[i];
    n[task->loops] = 2;
    real.loops++;
    real.n = n;
    real.dst = parts(&task->dst, task->loops, dst);
    real.terms = terms;
    real.acc = part_of(task->acc);
    real.via = part_of(task->via);
    if (!err)
        err = add_task(t, &real);
    free(terms);
    free(strides);
    return err;
}

/* Real numbers become complex ones whose imaginary parts are zero. */
static int add_real_part(struct device_table *t, const struct device_task *task)
{
    struct device_task real = *task, imaginary = *task;
    real.dst.dtype = imaginary.dst.dtype = part_of(task->dst.dtype);
    real.via = part_of(task->via);
    imaginary.dst.at += weft_dtype_size(imaginary.dst.dtype);
    imaginary.nterms = 0;
    imaginary.op = WEFT_SUM;
    imaginary.acc = imaginary.via = 0;
    imaginary.div = 0;
    int err = add_task(t, &real);
    return err ? err : add_task(t, &imaginary);
}

int works_add(struct device_table *t, const struct device_task *task)
{
    if (!dtype_is_complex(task->dst.dtype))
        return add_task(t, task);
    if (task->loops < 0 || task->loops > MEMORY_LOOPS)
        return error_set(WEFT_EINVAL, "device table: %d loops; at most %d are possible", task->loops, MEMORY_LOOPS);
    return !task->nterms || dtype_is_complex(task->terms[0].dtype) ? add_complex(t, task) : add_real_part(t, task);
}
