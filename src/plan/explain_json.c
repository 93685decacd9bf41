/* A plan as JSON, all of it:
 *
 *   {"rank", "world", "digest": "0x...", "kind", "algorithm",
 *    "options": {"bucket", "in_place", "machine": {"ranks_per_host", "latency_ns", "bytes_per_us", "ranks"}},
 *    "tensors": [{"name", "src", "dst"}],                      src and dst: layouts in their text form
 *    "scales": [{"tensor", "side": "src" or "dst", "scales", "maxima"}],   only where a side was given without scales
 *    "temps": [{"tensor", "dtype", "shape", "offset"}],
 *    "stats": {as in weft_stats},
 *    "steps": [{"step", "kind", "stage", "peer", "bytes", "op", "div", "via", "deps",
 *               "parts": [{"tensor", "buffer", "dtype", "wire", "offset",
 *                          "box": [{"at", "len", "n", "step"}], "place": [{"to", "step"}]}]}]}
 *
 * What has no meaning for a step or a part is null. A buffer is "src", "dst" or "temp0", "temp1", ... in
 * the order of temps. Numbers are 64-bit integers. */
#include <inttypes.h>

#include "plan/explain.h"

static void put_key(struct text *t, const char *key)
{
    text_put(t, "\"");
    text_put(t, key);
    text_put(t, "\": ");
}

static void put_int(struct text *t, const char *key, int64_t value, const char *after)
{
    put_key(t, key);
    text_int(t, value);
    text_put(t, after);
}

/* A word that needs no escaping, or null. */
static void put_word(struct text *t, const char *key, const char *word, const char *after)
{
    put_key(t, key);
    text_put(t, word ? "\"" : "null");
    if (word) {
        text_put(t, word);
        text_put(t, "\"");
    }
    text_put(t, after);
}

/* The integer if it has a meaning, otherwise null. */
static void put_some(struct text *t, const char *key, bool there, int64_t value, const char *after)
{
    if (there)
        put_int(t, key, value, after);
    else
        put_word(t, key, NULL, after);
}

static void put_head(struct explain *e)
{
    const weft_plan *p = e->p;
    struct text *t = &e->t;
    text_put(t, "{");
    put_int(t, "rank", p->rank, ", ");
    put_int(t, "world", p->world, ", ");
    text_printf(t, "\"digest\": \"0x%016" PRIx64 "\", ", p->digest);
    put_word(t, "kind", p->kind, ", ");
    put_word(t, "algorithm", p->algorithm, ",\n \"options\": {");
    put_int(t, "bucket", p->bucket, ", ");
    text_printf(t, "\"in_place\": %s, \"machine\": {", p->in_place ? "true" : "false");
    put_int(t, "ranks_per_host", p->machine.ranks_per_host, ", ");
    put_int(t, "latency_ns", p->machine.latency_ns, ", ");
    put_int(t, "bytes_per_us", p->machine.bytes_per_us, ", ");
    put_int(t, "ranks", p->machine.ranks, "}},\n");
}

static void put_tensors(struct explain *e)
{
    const weft_plan *p = e->p;
    struct text *t = &e->t;
    text_put(t, " \"tensors\": [");
    for (size_t i = 0; i < p->ntensors; i++) {
        weft_move m = {0};
        weft_plan_tensor(p, i, &m);
        text_put(t, i ? ",\n  {" : "\n  {");
        put_key(t, "name");
        text_json(t, m.name);
        text_put(t, ", \"src\": \"");
        explain_layout(e, m.src);
        text_put(t, "\", \"dst\": \"");
        explain_layout(e, m.dst);
        text_put(t, "\"}");
    }
    text_put(t, "],\n");
}

static void put_scales(struct explain *e)
{
    struct text *t = &e->t;
    text_put(t, " \"scales\": [");
    for (size_t i = 0; i < e->p->scales->n; i++) {
        const struct plan_scaled *s = &e->p->scales->v[i];
        text_put(t, i ? ",\n  {" : "\n  {");
        put_int(t, "tensor", s->tensor, ", ");
        put_word(t, "side", s->back ? "dst" : "src", ", ");
        put_int(t, "scales", s->slots, ", ");
        put_int(t, "maxima", s->terms, "}");
    }
    text_put(t, "],\n");
}

static void put_temps(struct explain *e)
{
    const weft_plan *p = e->p;
    struct text *t = &e->t;
    const char *before = "\n  {";
    text_put(t, " \"temps\": [");
    for (size_t i = 0; i < p->nbufs; i++) {
        const struct plan_buf *b = &p->bufs[i];
        if (b->space != PLAN_TEMP)
            continue;
        text_put(t, before);
        before = ",\n  {";
        put_int(t, "tensor", b->tensor, ", ");
        put_word(t, "dtype", weft_dtype_name(b->dtype), ", \"shape\": [");
        for (int d = 0; d < p->tensors[b->tensor].ndim; d++) {
            text_put(t, d ? ", " : "");
            text_int(t, p->shapes[b->shape + (size_t)d]);
        }
        text_put(t, "], ");
        put_int(t, "offset", b->offset, "}");
    }
    text_put(t, "],\n");
}

static void put_stats(struct explain *e)
{
    const weft_stats *s = &e->stats;
    struct text *t = &e->t;
    text_put(t, " \"stats\": {");
    put_int(t, "sent", s->sent, ", ");
    put_int(t, "received", s->received, ", ");
    put_int(t, "copied", s->copied, ", ");
    put_int(t, "folded", s->folded, ", ");
    put_int(t, "bound", s->bound, ", ");
    put_int(t, "stated", s->stated, ", ");
    put_int(t, "scratch", s->scratch, ", ");
    put_int(t, "send_peers", s->send_peers, ", ");
    put_int(t, "recv_peers", s->recv_peers, ", ");
    put_int(t, "steps", s->steps, ", ");
    put_int(t, "sends", s->sends, ", ");
    put_int(t, "recvs", s->recvs, ", ");
    put_int(t, "chunks", s->chunks, ", ");
    put_int(t, "largest_send", s->largest_send, ", ");
    put_int(t, "largest_recv", s->largest_recv, ", ");
    put_int(t, "memory", s->memory, "},\n");
}

static void put_part(struct explain *e, const struct plan_part *part, bool message)
{
    const weft_plan *p = e->p;
    const struct plan_buf *b = &p->bufs[part->buf];
    struct text *t = &e->t;
    int ndim = plan_ndim(p, part);
    text_put(t, "{");
    put_int(t, "tensor", b->tensor, ", \"buffer\": \"");
    explain_buf(e, part->buf, "");
    text_put(t, "\", ");
    put_word(t, "dtype", weft_dtype_name(b->dtype), ", ");
    put_word(t, "wire", message ? weft_dtype_name(part->wire) : NULL, ", ");
    put_some(t, "offset", message, part->offset, ", \"box\": [");
    for (int d = 0; d < ndim; d++) {
        const struct plan_run *r = &p->runs[part->runs + (size_t)d];
        text_put(t, d ? ", {" : "{");
        put_int(t, "at", r->at, ", ");
        put_int(t, "len", r->len, ", ");
        put_int(t, "n", r->n, ", ");
        put_int(t, "step", r->step, "}");
    }
    text_put(t, "], \"place\": [");
    for (int d = 0; d < ndim; d++) {
        const struct plan_spot *s = &p->spots[part->spots + (size_t)d];
        text_put(t, d ? ", {" : "{");
        put_int(t, "to", s->to, ", ");
        put_int(t, "step", s->tostep, "}");
    }
    text_put(t, "]}");
}

static void put_step(struct explain *e, size_t i)
{
    const weft_plan *p = e->p;
    const struct plan_step *s = &p->steps[i];
    struct text *t = &e->t;
    bool message = s->kind == PLAN_SEND || s->kind == PLAN_RECV, fold = s->kind == PLAN_REDUCE;
    text_put(t, i ? ",\n  {" : "\n  {");
    put_int(t, "step", (int64_t)i, ", ");
    put_word(t, "kind", explain_step_name(s->kind), ", ");
    put_int(t, "stage", s->stage, ", ");
    put_some(t, "peer", message, s->peer, ", ");
    put_some(t, "bytes", message, s->bytes, ", ");
    put_word(t, "op", fold ? weft_op_name(s->op) : NULL, ", ");
    put_some(t, "div", fold && s->div, s->div, ", ");
    put_word(t, "via", fold ? weft_dtype_name(s->via) : NULL, ", \"deps\": [");
    for (uint32_t k = 0; k < s->ndeps; k++) {
        text_put(t, k ? ", " : "");
        text_int(t, p->deps[s->dep + k]);
    }
    text_put(t, "], \"parts\": [");
    for (uint32_t k = 0; k < s->nparts; k++) {
        text_put(t, k ? ",\n    " : "\n    ");
        put_part(e, &p->parts[s->part + k], message);
    }
    text_put(t, "]}");
}

void explain_json(struct explain *e)
{
    put_head(e);
    put_tensors(e);
    if (e->p->scales)
        put_scales(e);
    put_temps(e);
    put_stats(e);
    text_put(&e->t, " \"steps\": [");
    for (size_t i = 0; i < e->p->nsteps; i++)
        put_step(e, i);
    text_put(&e->t, "]}\n");
}
