/* A plan as a text for readers: totals, then the steps, one line for each step and one more for each further part of a
 * message.
 *
 *   plan of rank 1 of 2: reduce_scatter by direct, digest 0x1f0a..., 1 tensor
 *     #0 w: f32[1024] @x2 +sum(x) -> f32[1024/x] @x2
 *     sends 2048 B to 1 rank in 1 message of at most 2048 B
 *     receives 2048 B from 1 rank in 1 message of at most 2048 B
 *     copies 0 B, folds 4096 B, scratch 2048 B, bound 2048 B, stated 2048 B
 *   0  send    to 0        2048 B  w[0:512] from src at [0]
 *   1  recv    from 0      2048 B  w[512:1024] into temp 0 at [0]
 *   2  reduce  sum                 w[512:1024] from temp 0 at [0], src at [512] into dst at [0]  after 1
 *
 * A box has for each dim first:end, of global positions. first:end+step*n is n runs, each `step` further on than the
 * one before: 0:4+16*8 is 0:4, 16:20, ... 112:116. The place of its first element says where the box is in a buffer,
 * with +step if the runs' places are step apart. "as bf16" is the dtype on the wire if it is not the buffer's. A tensor
 * is called by its name, in quotes if the name has characters other than letters, digits and _ . - / : in it. If the
 * name is empty or longer than 60 bytes, the tensor is called by its number, #i. If the caller's values have no scales
 * on one side, a line says what is done besides; the totals contain the messages for it, the steps do not. */
#include "plan/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define NAME_LIMIT 60
enum { PEER = 8, PARTS = 32 }; /* columns, from the name of the step on */

void explain_layout(struct explain *e, const weft_layout *l)
{
    struct text *t = &e->t;
    size_t room = t->len < t->cap ? t->cap - t->len : 0, len = 0;
    int err = weft_layout_format(l, room ? t->buf + t->len : NULL, room, &len);
    if (err && !e->err)
        e->err = err;
    t->len += len;
}

void explain_buf(struct explain *e, uint32_t buf, const char *before_number)
{
    static const char *const names[] = {[PLAN_SRC] = "src", [PLAN_DST] = "dst", [PLAN_TEMP] = "temp"};
    int space = e->p->bufs[buf].space;
    text_put(&e->t, names[space]);
    if (space == PLAN_TEMP) {
        text_put(&e->t, before_number);
        text_int(&e->t, e->temps[buf]);
    }
}

const char *explain_step_name(int kind)
{
    static const char *const names[] = {
        [PLAN_COPY] = "copy", [PLAN_REDUCE] = "reduce", [PLAN_SEND] = "send", [PLAN_RECV] = "recv"};
    return names[kind];
}

static void put_count(struct text *t, int64_t n, const char *one, const char *many)
{
    text_int(t, n);
    text_put(t, n == 1 ? one : many);
}

static bool is_plain(const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/:";
    return s[strspn(s, plain)] == 0;
}

static void put_name(struct text *t, const char *name)
{
    if (is_plain(name)) {
        text_put(t, name);
        return;
    }
    text_put(t, "\"");
    text_escaped(t, name);
    text_put(t, "\"");
}

static void put_tensor(struct explain *e, uint32_t tensor)
{
    const char *name = e->p->names + e->p->tensors[tensor].name;
    if (*name && memchr(name, 0, NAME_LIMIT + 1)) {
        put_name(&e->t, name);
    } else {
        text_put(&e->t, "#");
        text_int(&e->t, tensor);
    }
}

static void put_box(struct explain *e, const struct plan_part *part)
{
    const weft_plan *p = e->p;
    put_tensor(e, p->bufs[part->buf].tensor);
    text_put(&e->t, "[");
    for (int d = 0; d < plan_ndim(p, part); d++) {
        const struct plan_run *r = &p->runs[part->runs + (size_t)d];
        text_put(&e->t, d ? ", " : "");
        text_int(&e->t, r->at);
        text_put(&e->t, ":");
        text_int(&e->t, r->at + r->len);
        if (r->n > 1) {
            text_put(&e->t, "+");
            text_int(&e->t, r->step);
            text_put(&e->t, "*");
            text_int(&e->t, r->n);
        }
    }
    text_put(&e->t, "]");
}

static void put_place(struct explain *e, const struct plan_part *part)
{
    const weft_plan *p = e->p;
    explain_buf(e, part->buf, " ");
    text_put(&e->t, " at [");
    for (int d = 0; d < plan_ndim(p, part); d++) {
        const struct plan_spot *s = &p->spots[part->spots + (size_t)d];
        text_put(&e->t, d ? ", " : "");
        text_int(&e->t, s->to);
        if (s->tostep) {
            text_put(&e->t, "+");
            text_int(&e->t, s->tostep);
        }
    }
    text_put(&e->t, "]");
}

static void put_message_part(struct explain *e, const struct plan_part *part, int kind)
{
    put_box(e, part);
    text_put(&e->t, kind == PLAN_SEND ? " from " : " into ");
    put_place(e, part);
    if (part->wire != e->p->bufs[part->buf].dtype) {
        text_put(&e->t, " as ");
        text_put(&e->t, weft_dtype_name(part->wire));
    }
}

/* The parts of a copy or a reduction: the box, what is read, what is written. */
static void put_local_parts(struct explain *e, const struct plan_step *s)
{
    const struct plan_part *parts = &e->p->parts[s->part];
    uint32_t to = s->kind == PLAN_COPY, read = 0;
    put_box(e, &parts[to]);
    for (uint32_t k = 0; k < s->nparts; k++) {
        if (k == to)
            continue;
        text_put(&e->t, read++ ? ", " : " from ");
        put_place(e, &parts[k]);
    }
    text_put(&e->t, read ? " into " : " identity into ");
    put_place(e, &parts[to]);
    if (s->div > 1) {
        text_put(&e->t, " div ");
        text_int(&e->t, s->div);
    }
    if (s->via) {
        text_put(&e->t, " via ");
        text_put(&e->t, weft_dtype_name(s->via));
    }
}

static void put_after(struct explain *e, const struct plan_step *s)
{
    for (uint32_t k = 0; k < s->ndeps; k++) {
        text_put(&e->t, k ? ", " : "  after ");
        text_int(&e->t, e->p->deps[s->dep + k]);
    }
    text_put(&e->t, "\n");
}

static size_t digits(uint64_t v)
{
    size_t n = 1;
    while (v /= 10)
        n++;
    return n;
}

static void put_step(struct explain *e, size_t i, size_t width)
{
    const struct plan_step *s = &e->p->steps[i];
    struct text *t = &e->t;
    size_t start = t->len + width + 2;
    for (size_t k = digits(i); k < width; k++)
        text_put(t, " ");
    text_int(t, (long long)i);
    text_pad(t, start);
    text_put(t, explain_step_name(s->kind));
    text_pad(t, start + PEER);
    if (s->kind == PLAN_COPY || s->kind == PLAN_REDUCE) {
        text_put(t, s->kind == PLAN_REDUCE ? weft_op_name(s->op) : "");
        text_pad(t, start + PARTS);
        put_local_parts(e, s);
        put_after(e, s);
        return;
    }
    text_put(t, s->kind == PLAN_SEND ? "to " : "from ");
    text_int(t, s->peer);
    text_pad(t, start + PARTS - 4 - digits((uint64_t)s->bytes));
    text_int(t, s->bytes);
    text_put(t, " B  ");
    for (uint32_t k = 0; k < s->nparts; k++) {
        size_t line = t->len;
        if (k)
            text_pad(t, line + width + 2 + PARTS);
        put_message_part(e, &e->p->parts[s->part + k], s->kind);
        if (k)
            text_put(t, "\n");
        else
            put_after(e, s);
    }
}

static void put_traffic(struct text *t, const char *verb, const char *way, int64_t bytes, int peers, int64_t messages,
                        int64_t largest)
{
    text_printf(t, "  %s %" PRId64 " B", verb, bytes);
    if (messages) {
        text_put(t, way);
        put_count(t, peers, " rank", " ranks");
        text_put(t, " in ");
        put_count(t, messages, " message", " messages");
        text_printf(t, " of at most %" PRId64 " B", largest);
    }
    text_put(t, "\n");
}

/* What is done before the first step and behind the last one. */
static void put_scales(struct text *t, const weft_plan *p)
{
    for (size_t i = 0; p->scales && i < p->scales->n; i++) {
        const struct plan_scaled *s = &p->scales->v[i];
        text_printf(t, "  #%u %s: %" PRId64 " scales on this rank", s->tensor,
                    s->back ? "is multiplied by its scales behind the steps" : "is scaled before the steps", s->slots);
        if (s->fold != PLAN_NONE) {
            text_put(t, ", ");
            put_count(t, s->terms, " maximum", " maxima");
            text_put(t, " of other ranks in shared blocks");
        }
        text_put(t, "\n");
    }
}

static void put_all(struct explain *e)
{
    const weft_plan *p = e->p;
    const weft_stats *st = &e->stats;
    struct text *t = &e->t;
    text_printf(t, "plan of rank %d of %d: %s by %s, digest 0x%016" PRIx64 ", ", st->rank, st->world, st->kind,
                st->algorithm, p->digest);
    put_count(t, (int64_t)st->tensors, " tensor\n", " tensors\n");
    for (size_t i = 0; i < p->ntensors; i++) {
        weft_move m = {0};
        weft_plan_tensor(p, i, &m);
        text_printf(t, "  #%zu ", i);
        put_name(t, m.name);
        text_put(t, ": ");
        explain_layout(e, m.src);
        text_put(t, " -> ");
        explain_layout(e, m.dst);
        text_put(t, "\n");
    }
    put_scales(t, p);
    put_traffic(t, "sends", " to ", st->sent, st->send_peers, st->sends, st->largest_send);
    put_traffic(t, "receives", " from ", st->received, st->recv_peers, st->recvs, st->largest_recv);
    text_printf(t,
                "  copies %" PRId64 " B, folds %" PRId64 " B, scratch %" PRId64 " B, bound %" PRId64
                " B, stated %" PRId64 " B\n",
                st->copied, st->folded, st->scratch, st->bound, st->stated);
    for (size_t i = 0; i < p->nsteps; i++)
        put_step(e, i, digits(p->nsteps - 1));
}

int weft_plan_explain(const weft_plan *p, bool json, char *buf, size_t cap, size_t *len)
{
    if (!p || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "plan: a NULL argument");
    struct explain e = {.p = p, .stats.size = sizeof e.stats};
    int err = weft_plan_stats(p, &e.stats);
    if (err)
        return err;
    uint32_t *temps = malloc(p->nbufs * sizeof *temps + 1), n = 0;
    if (!temps)
        return error_nomem();
    for (size_t i = 0; i < p->nbufs; i++)
        temps[i] = p->bufs[i].space == PLAN_TEMP ? n++ : 0;
    e.temps = temps;
    e.t = text_start(buf, cap);
    if (json)
        explain_json(&e);
    else
        put_all(&e);
    free(temps);
    if (!e.err)
        *len = e.t.len;
    return e.err;
}
