/* Texts for verify's errors: which step, which box, which element. */
#include <inttypes.h>

#include "base/text.h"
#include "plan/verify/verify.h"

static void put_tensor(struct text *t, const weft_plan *p, uint32_t tensor)
{
    text_put(t, "'");
    text_escaped(t, p->names + p->tensors[tensor].name);
    text_put(t, "'");
}

static void put_box(struct text *t, const weft_plan *p, const struct plan_part *part)
{
    text_put(t, "[");
    for (int d = 0; d < plan_ndim(p, part); d++) {
        const struct plan_run *r = &p->runs[part->runs + (size_t)d];
        text_printf(t, "%s%" PRId64 ":%" PRId64, d ? "," : "", r->at, r->at + r->len);
        if (r->n > 1)
            text_printf(t, " and %" PRId64 " more %" PRId64 " apart", r->n - 1, r->step);
    }
    text_put(t, "]");
}

const char *verify_text_part(const weft_plan *p, const struct plan_part *part, char buf[VERIFY_TEXT])
{
    struct text t = text_start(buf, VERIFY_TEXT);
    put_tensor(&t, p, verify_buf(p, part)->tensor);
    put_box(&t, p, part);
    return buf;
}

const char *verify_text_step(const struct verify *v, size_t r, size_t s, char buf[VERIFY_TEXT])
{
    const weft_plan *p = v->all[r];
    const struct plan_step *x = &p->steps[s];
    const struct plan_part *part = &p->parts[x->part];
    struct text t = text_start(buf, VERIFY_TEXT);
    text_printf(&t, "rank %zu step %zu (", r, s);
    switch (x->kind) {
    case PLAN_COPY:
    case PLAN_REDUCE:
        text_put(&t, x->kind == PLAN_COPY ? "copy " : "reduce ");
        put_tensor(&t, p, verify_buf(p, part)->tensor);
        put_box(&t, p, part);
        break;
    case PLAN_SEND: text_printf(&t, "send to rank %" PRId32, x->peer); break;
    default: text_printf(&t, "receive from rank %" PRId32, x->peer); break;
    }
    text_put(&t, ")");
    return buf;
}

/* The position that is at a place. */
static int64_t position(const struct runs *map, int64_t place)
{
    for (size_t i = 0; i < map->n; i++) {
        const struct run *r = &map->v[i];
        int64_t k = r->n > 1 && place > r->to ? (place - r->to) / r->tostep : 0, o = place - r->to - k * r->tostep;
        if (k < r->n && o >= 0 && o < r->len)
            return r->at + k * r->step + o;
    }
    return -1;
}

const char *verify_text_cell(const weft_plan *p, uint32_t tensor, const struct runs *maps, const int64_t *cell,
                             char buf[VERIFY_TEXT])
{
    struct text t = text_start(buf, VERIFY_TEXT);
    text_put(&t, "element [");
    for (int d = 0; d < p->tensors[tensor].ndim; d++)
        text_printf(&t, "%s%" PRId64, d ? "," : "", position(&maps[d], cell[d]));
    text_put(&t, "] of ");
    put_tensor(&t, p, tensor);
    return buf;
}
