/* Parses the text form of a layout in one pass, with a look-ahead of one character. An error shows the place. The
 * grammar is in docs/notation.md; build.c checks the meaning. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/vec.h"
#include "layout/box_json.h"
#include "layout/build.h"
#include "layout/mesh.h"

struct scan {
    const char *s;
    int pos;
    struct caret w;
    weft_layout_desc desc;
    weft_dim dim[WEFT_MAX_DIMS];
    weft_axis axis[WEFT_MAX_AXES];
    weft_fold fold[WEFT_MAX_AXES + 1];
    char name[WEFT_MAX_AXES][WEFT_MAX_NAME + 1];         /* of axes in the mesh */
    char used[2 * WEFT_MAX_AXES + 8][WEFT_MAX_NAME + 1]; /* of axes in dims and folds */
    int nused;
    VEC(struct layout_seg) segs;
    weft_scale scale;
    weft_boxes boxes; /* made of the lists below */
    VEC(int) box_rank;
    VEC(int) box_at; /* where in the text each box is */
    VEC(int64_t) at;
    VEC(int64_t) len;
    VEC(int64_t) stride;
    VEC(int64_t) offset;
    int64_t room; /* as far as the boxes of the current list reach */
    int64_t last; /* the rank of the current list; -1: none yet */
};

static void space(struct scan *t)
{
    while (t->s[t->pos] == ' ' || t->s[t->pos] == '\t' || t->s[t->pos] == '\n' || t->s[t->pos] == '\r')
        t->pos++;
}

static bool peek(struct scan *t, char c)
{
    space(t);
    return t->s[t->pos] == c;
}

static bool eat(struct scan *t, char c)
{
    if (!peek(t, c))
        return false;
    t->pos++;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int expected(struct scan *t, const char *what)
{
    space(t);
    char c = t->s[t->pos];
    if (!c)
        return caret_fail(&t->w, t->pos, "expected %s, and the text ends", what);
    if (c < ' ' || c > '~')
        return caret_fail(&t->w, t->pos, "expected %s, not byte 0x%02x", what, (unsigned)(unsigned char)c);
    return caret_fail(&t->w, t->pos, "expected %s, not '%c'", what, c);
}

static int number(struct scan *t, const char *what, int64_t *out)
{
    space(t);
    int from = t->pos;
    if (!is_digit(t->s[from]))
        return expected(t, what);
    int64_t n = 0;
    for (; is_digit(t->s[t->pos]); t->pos++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, t->s[t->pos] - '0', &n))
            return caret_fail(&t->w, from, "the number is too large: at most 2^63 - 1");
    *out = n;
    return 0;
}

static int axis_name(struct scan *t, char *out)
{
    space(t);
    size_t n = mesh_axis_name_length(t->s + t->pos);
    if (!n)
        return expected(t, "the name of an axis");
    if (n > WEFT_MAX_NAME)
        return caret_fail(&t->w, t->pos, "an axis name has at most %d characters", WEFT_MAX_NAME);
    memcpy(out, t->s + t->pos, n);
    out[n] = 0;
    t->pos += (int)n;
    return 0;
}

/* Reads an axis that is used in a dim or a fold, where no number may follow. */
static int used_name(struct scan *t, char *out)
{
    int rc = axis_name(t, out);
    if (!rc && is_digit(t->s[t->pos]))
        return caret_fail(&t->w, t->pos, "in an axis name, digits must follow a '_'");
    return rc;
}

/* The length of the next word. Words of the grammar are lower case; other words are read whole, to show them in an
 * error. */
static size_t word(struct scan *t)
{
    space(t);
    return strspn(t->s + t->pos, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

static int not_a_word(struct scan *t, size_t n, const char *what, const char *words)
{
    if (!n)
        return expected(t, what);
    return caret_fail(&t->w, t->pos, "'%.*s%s' is not %s: %s", n > 40 ? 40 : (int)n, t->s + t->pos, n > 40 ? "..." : "",
                      what, words);
}

static int ghosts(struct scan *t, weft_dim *d, int *where)
{
    *where = t->pos - 1;
    int rc = number(t, "the number of ghosts", &d->lo);
    d->hi = d->lo;
    if (!rc && eat(t, ':'))
        rc = number(t, "the number of ghosts behind the piece", &d->hi);
    if (!rc)
        d->wrap = eat(t, 'o');
    return rc;
}

/* Reads one dim, up to a ',' or a ']'. */
static int dim(struct scan *t, int i)
{
    weft_dim *d = &t->dim[i];
    *d = (weft_dim){0};
    space(t);
    t->w.dim[i] = t->pos;
    int rc = number(t, "an extent", &d->extent);
    while (!rc && eat(t, '/')) {
        if (d->nsplits == WEFT_MAX_AXES)
            return caret_fail(&t->w, t->pos - 1, "a dim has at most %d splits", WEFT_MAX_AXES);
        space(t);
        t->w.split[i][d->nsplits] = t->pos;
        /* More uses than there are axes: some axis is used twice. */
        if (t->nused == (int)(sizeof t->used / sizeof *t->used))
            return caret_fail(&t->w, t->pos, "more axes are used than a mesh can have (%d)", WEFT_MAX_AXES);
        weft_split *s = &d->splits[d->nsplits++];
        char *name = t->used[t->nused++];
        rc = used_name(t, name);
        *s = (weft_split){.axis = name};
        if (!rc && eat(t, ':')) {
            int at = t->pos;
            rc = number(t, "the size of a block", &s->block);
            if (!rc && !s->block)
                return caret_fail(&t->w, at, "a block has size 0: it must be at least 1");
        }
    }
    bool ghosted = !rc && eat(t, '~');
    if (ghosted)
        rc = ghosts(t, d, &t->w.ghost[i]);
    if (rc || peek(t, ',') || peek(t, ']'))
        return rc;
    if (ghosted && peek(t, '/'))
        return caret_fail(&t->w, t->pos, "splits come before ghosts, as in 8/x~1");
    return expected(t, ghosted ? "',' or ']'" : "'/' and an axis, '~' and ghosts, ',' or ']'");
}

static int dims(struct scan *t)
{
    if (!eat(t, '['))
        return expected(t, "'['");
    if (eat(t, ']'))
        return 0;
    for (;;) {
        if (t->desc.ndim == WEFT_MAX_DIMS)
            return caret_fail(&t->w, t->pos, "a tensor has at most %d dims", WEFT_MAX_DIMS);
        int rc = dim(t, t->desc.ndim++);
        if (rc || eat(t, ']'))
            return rc;
        eat(t, ',');
    }
}

static int rank_item(struct scan *t)
{
    int64_t from, to;
    space(t);
    int at = t->pos, rc = number(t, "a rank", &from);
    if (rc)
        return rc;
    to = from;
    space(t);
    if (t->s[t->pos] == '.' && t->s[t->pos + 1] == '.') {
        t->pos += 2;
        rc = number(t, "the last rank of the range", &to);
        if (rc)
            return rc;
        if (to < from)
            return caret_fail(&t->w, at, "the range %lld..%lld runs backwards: list the ranks one by one",
                              (long long)from, (long long)to);
    }
    if (to >= INT_MAX)
        return caret_fail(&t->w, at, "a rank is at most %d", INT_MAX - 1);
    int64_t index = t->segs.n ? t->segs.v[t->segs.n - 1].index + t->segs.v[t->segs.n - 1].n : 0;
    struct layout_seg *s = vec_push(&t->segs);
    if (!s)
        return error_nomem();
    *s = (struct layout_seg){.index = index, .n = to - from + 1, .rank = (int)from};
    return 0;
}

/* caret.rank_again, for an error of the mesh. The list has been read once, so it reads without errors. */
static int rank_again(const struct caret *w, int rank)
{
    struct scan t = {.s = w->text, .pos = w->ranks, .w = *w};
    bool seen = false;
    do {
        space(&t);
        int at = t.pos;
        int64_t from = 0, to;
        number(&t, "", &from);
        to = from;
        space(&t);
        if (t.s[t.pos] == '.') {
            t.pos += 2;
            number(&t, "", &to);
        }
        if (from <= rank && rank <= to) {
            if (seen)
                return at;
            seen = true;
        }
    } while (eat(&t, ','));
    return w->ranks;
}

static int mesh(struct scan *t)
{
    do {
        int i = t->desc.naxes;
        space(t);
        if (i == WEFT_MAX_AXES)
            return caret_fail(&t->w, t->pos, "a mesh has at most %d axes", WEFT_MAX_AXES);
        t->w.axis[i] = t->pos;
        int rc = axis_name(t, t->name[i]);
        if (rc)
            return rc;
        bool digits = is_digit(t->s[t->pos - 1]);
        space(t);
        if (digits && !is_digit(t->s[t->pos]))
            return caret_fail(&t->w, t->pos,
                              "axis '%s' has no size: digits after a '_' belong to the name, write 'x_1 4'",
                              t->name[i]);
        rc = number(t, "the size of the axis", &t->axis[i].size);
        if (rc)
            return rc;
        t->axis[i].name = t->name[i];
        t->desc.naxes++;
    } while (eat(t, '.'));
    if (!eat(t, '='))
        return 0;
    space(t);
    t->w.ranks = t->pos;
    int rc = rank_item(t);
    while (!rc && eat(t, ','))
        rc = rank_item(t);
    return rc;
}

/* Reads "lo:hi" or ":", the whole dim. */
static int span(struct scan *t, int d, int64_t *at, int64_t *len)
{
    int64_t end = t->dim[d].extent;
    space(t);
    int where = t->pos, rc = 0;
    *at = 0;
    if (!eat(t, ':')) {
        rc = number(t, "the first position of the box, or ':'", at);
        if (!rc && !eat(t, ':'))
            rc = expected(t, "':' and the end of the box");
        if (!rc)
            rc = number(t, "the end of the box", &end);
        if (!rc && (end < *at || end > t->dim[d].extent))
            rc = caret_fail(&t->w, where, "%lld:%lld is not within the %lld positions of dim %d", (long long)*at,
                            (long long)end, (long long)t->dim[d].extent, d);
    }
    *len = end - *at;
    return rc;
}

/* Reads "= offset ( stride, ... )"; what is left out is dense and behind the boxes before. */
static int place(struct scan *t, const int64_t *len, int64_t *offset, int64_t *stride)
{
    int n = t->desc.ndim, rc = 0;
    bool empty = false;
    *offset = t->room;
    box_list_dense(n, len, stride);
    if (eat(t, '='))
        rc = number(t, "the offset of the box in the rank's buffer", offset);
    else
        n = 0;
    if (!rc && n && eat(t, '(')) {
        for (int d = 0; d < n && !rc; d++) {
            rc = number(t, "a stride", &stride[d]);
            if (!rc && !eat(t, d + 1 < n ? ',' : ')'))
                rc = expected(t, d + 1 < n ? "',' and the stride of the next dim" : "')'");
        }
    }
    for (int d = 0; d < t->desc.ndim; d++)
        empty = empty || !len[d];
    if (rc || empty)
        return rc;
    int64_t span = box_list_span(t->desc.ndim, len, stride), end;
    if (span >= 0 && !__builtin_add_overflow(*offset, span, &end) && end > t->room)
        t->room = end;
    return 0;
}

static int box(struct scan *t, int rank)
{
    int n = t->desc.ndim, where = t->pos, rc = 0;
    int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS], stride[WEFT_MAX_DIMS], offset;
    if (!eat(t, '['))
        return expected(t, "'[' and a box");
    for (int d = 0; d < n && !rc; d++) {
        rc = span(t, d, &at[d], &len[d]);
        if (!rc && d + 1 < n && !eat(t, ','))
            rc = expected(t, "',' and the next dim of the box");
    }
    if (!rc && !eat(t, ']'))
        rc = expected(t, "']'");
    if (!rc)
        rc = place(t, len, &offset, stride);
    if (rc)
        return rc;
    if (!vec_room(&t->box_rank, 1) || !vec_room(&t->box_at, 1) || !vec_room(&t->offset, 1) ||
        !vec_room(&t->at, (size_t)n + 1) || !vec_room(&t->len, (size_t)n + 1) || !vec_room(&t->stride, (size_t)n + 1))
        return error_nomem();
    t->box_rank.v[t->box_rank.n++] = rank;
    t->box_at.v[t->box_at.n++] = where;
    t->offset.v[t->offset.n++] = offset;
    for (int d = 0; d < n; d++) {
        t->at.v[t->at.n++] = at[d];
        t->len.v[t->len.n++] = len[d];
        t->stride.v[t->stride.n++] = stride[d];
    }
    return 0;
}

/* Reads "rank: box box ..." */
static int box_list(struct scan *t)
{
    int64_t rank;
    space(t);
    int at = t->pos, rc = number(t, "a rank", &rank);
    if (!rc && rank >= INT_MAX)
        rc = caret_fail(&t->w, at, "a rank is at most %d", INT_MAX - 1);
    if (!rc && !eat(t, ':'))
        rc = expected(t, "':' and the boxes of the rank");
    if (rc)
        return rc;
    if (rank <= t->last)
        return caret_fail(&t->w, at, "the lists of boxes are in ascending order of ranks, each rank once");
    t->last = rank;
    t->room = 0;
    do {
        space(t);
        rc = box(t, (int)rank);
    } while (!rc && peek(t, '['));
    return rc;
}

/* Reads "* dtype ( block, ... )" if it is there, and the end. The blocks are those of the last dims. */
static int scale_and_end(struct scan *t, const char *before)
{
    if (!eat(t, '*'))
        return peek(t, 0) ? 0 : expected(t, before);
    size_t n = word(t);
    int dtype = dtype_parse(t->s + t->pos, n), blocks = 0, rc = 0;
    t->w.scale = t->pos;
    if (!dtype)
        return not_a_word(t, n, "a dtype of scales", "f32 f8e8m0");
    t->pos += (int)n;
    if (!eat(t, '('))
        return expected(t, "'(' and the blocks of the last dims");
    int64_t block[WEFT_MAX_DIMS] = {0};
    do {
        space(t);
        int at = t->pos;
        if (blocks == t->desc.ndim)
            return caret_fail(&t->w, at, "there are more blocks than the %d dims", t->desc.ndim);
        rc = number(t, "the extent of a block", &block[blocks]);
        if (!rc && !block[blocks])
            rc = caret_fail(&t->w, at, "a block has extent 0: it must be at least 1");
        blocks++;
    } while (!rc && eat(t, ','));
    if (!rc && !eat(t, ')'))
        rc = expected(t, "',' or ')'");
    if (!rc && !peek(t, 0))
        rc = expected(t, "the end");
    t->scale.dtype = (enum weft_dtype)dtype;
    for (int d = 0; d < t->desc.ndim; d++)
        t->scale.block[d] = d < t->desc.ndim - blocks ? 1 : block[d - (t->desc.ndim - blocks)];
    t->desc.scale = &t->scale;
    return rc;
}

/* Reads the lists behind "@{", and what is allowed. */
static int boxes(struct scan *t)
{
    t->w.boxes = t->pos - 1;
    t->last = -1;
    int rc;
    do
        rc = box_list(t);
    while (!rc && eat(t, ';'));
    if (!rc && !eat(t, '}'))
        rc = expected(t, "'[' and a box, ';' and a rank, or '}'");
    while (!rc && eat(t, '+')) {
        static const char words[] = "overlaps gaps";
        size_t n = word(t);
        bool gaps = n == 4 && !memcmp(t->s + t->pos, "gaps", n);
        uint64_t flag = gaps ? WEFT_LAYOUT_GAPS : WEFT_LAYOUT_OVERLAPS;
        if (!gaps && (n != 8 || memcmp(t->s + t->pos, "overlaps", n) != 0))
            return not_a_word(t, n, "what boxes allow", words);
        if (t->desc.flags & flag)
            return caret_fail(&t->w, t->pos, "'%s' stands twice", gaps ? "gaps" : "overlaps");
        t->desc.flags |= flag;
        t->pos += (int)n;
    }
    if (!rc)
        rc = scale_and_end(t, "'+' and overlaps or gaps, '*' and scales, or the end");
    t->w.box = t->box_at.v;
    t->boxes = (weft_boxes){.n = t->box_rank.n,
                            .rank = t->box_rank.v,
                            .at = t->at.v,
                            .len = t->len.v,
                            .offset = t->offset.v,
                            .stride = t->stride.v};
    t->desc.boxes = &t->boxes;
    return rc;
}

static int fold(struct scan *t)
{
    int f = t->desc.nfolds;
    if (f > WEFT_MAX_AXES)
        return caret_fail(&t->w, t->pos - 1, "a layout has at most %d folds", WEFT_MAX_AXES + 1);
    size_t n = word(t);
    t->w.fold[f] = t->pos;
    int op = dtype_parse_op(t->s + t->pos, n);
    if (!op)
        return not_a_word(t, n, "an op", "sum prod min max avg band bor bxor");
    weft_fold *o = &t->fold[f];
    *o = (weft_fold){.op = (enum weft_op)op};
    t->pos += (int)n;
    if (!eat(t, '('))
        return expected(t, "'(' and the axes to fold over");
    do {
        space(t);
        if (o->nover > WEFT_MAX_AXES || t->nused == (int)(sizeof t->used / sizeof *t->used))
            return caret_fail(&t->w, t->pos, "more axes are used than a mesh can have (%d)", WEFT_MAX_AXES);
        t->w.over[f][o->nover] = t->pos;
        char *name = t->used[t->nused++];
        if (eat(t, '~')) {
            strcpy(name, "~");
        } else if (!mesh_axis_name_length(t->s + t->pos)) {
            return expected(t, "the name of an axis or '~'");
        } else {
            int rc = used_name(t, name);
            if (rc)
                return rc;
        }
        o->over[o->nover++] = name;
    } while (eat(t, ','));
    if (!eat(t, ')'))
        return expected(t, "',' or ')'");
    t->desc.nfolds++;
    return 0;
}

static int scan(struct scan *t)
{
    size_t n = word(t);
    int dtype = dtype_parse(t->s + t->pos, n);
    t->w.dtype = t->pos;
    if (!dtype)
        return not_a_word(
            t, n, "a dtype",
            "bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 f8e4m3 f8e5m2 f8e4m3sat f8e5m2sat f8e8m0 c64 c128");
    t->desc.dtype = (enum weft_dtype)dtype;
    t->pos += (int)n;
    int rc = dims(t);
    if (!rc && eat(t, '+'))
        t->desc.flags = WEFT_LAYOUT_FACES;
    if (!rc && !eat(t, '@'))
        rc = expected(t, "'@' and a mesh");
    if (!rc && eat(t, '{'))
        return t->desc.flags ? caret_fail(&t->w, t->pos - 1, "']+' is for ghosts, which boxes do not have") : boxes(t);
    if (!rc)
        rc = mesh(t);
    while (!rc && eat(t, '+'))
        rc = fold(t);
    if (!rc)
        rc =
            scale_and_end(t, t->desc.nfolds ? "'+' and an op, or the end"
                             : t->segs.n    ? "',' and a rank, '+' and an op, '*' and scales, or the end"
                                         : "'.' and an axis, '=' and ranks, '+' and an op, '*' and scales, or the end");
    return rc;
}

int weft_layout_parse(const char *text, weft_layout **out)
{
    if (!text || !out)
        return error_set(WEFT_EINVAL, "layout: %s is NULL", text ? "out" : "text");
    if (strlen(text) > INT_MAX / 2)
        return error_set(WEFT_EINVAL, "layout: the text has more than %d characters", INT_MAX / 2);
    if (box_json_is(text))
        return box_json_parse(text, out);
    struct scan *t = calloc(1, sizeof *t);
    if (!t)
        return error_nomem();
    t->s = t->w.text = text;
    t->w.rank_again = rank_again;
    t->desc = (weft_layout_desc){.size = sizeof t->desc, .dims = t->dim, .axes = t->axis, .folds = t->fold};
    int rc = scan(t);
    if (!rc)
        rc = layout_build(&t->desc, t->segs.n ? t->segs.v : NULL, t->segs.n, &t->w, out);
    free(t->segs.v);
    free(t->box_rank.v);
    free(t->box_at.v);
    free(t->at.v);
    free(t->len.v);
    free(t->stride.v);
    free(t->offset.v);
    free(t);
    return rc;
}
