/* Plans with scales as bytes. As in save.c, load trusts nothing: lengths and the checksum come first, then both plans
 * by their own load, and then scaled_make, which makes the rest from the layouts and refuses what does not fit them.
 *
 *   "WEFTSCAL"  u32 order mark  u32 version  u64 length of all
 *   u64 lengths: of the plan without scales, of `fold` (0: none), of the texts; u64 how many entries
 *   these two plans as save.c has them
 *   the entries: u32 tensor, u32 fold, u8 back
 *   the layouts that were given, one for each entry, in the text form, each closed by a zero
 *   u64 hash of all bytes before it */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "layout/layout.h"
#include "plan/scaled.h"

#define MAGIC "WEFTSCAL"
#define FORMAT UINT32_C(1)
#define ORDER_MARK UINT32_C(0x01020304)
enum { HEAD = 24 + 4 * 8, ENTRY = 9, TAIL = 8 };

struct head {
    uint64_t total, steps, fold, text, n;
};

static void put(unsigned char **at, const void *value, size_t n)
{
    memcpy(*at, value, n);
    *at += n;
}

static void take(const unsigned char **at, void *value, size_t n)
{
    memcpy(value, *at, n);
    *at += n;
}

static int lengths(const weft_plan *p, struct head *h)
{
    size_t steps = 0, fold = 0;
    int err = save_steps(p, NULL, 0, &steps);
    if (!err && p->scales->fold)
        err = save_steps(p->scales->fold, NULL, 0, &fold);
    *h = (struct head){.steps = steps, .fold = fold, .n = p->scales->n};
    for (size_t i = 0; i < p->scales->n && !err; i++) {
        size_t len = 0;
        err = weft_layout_format(p->scales->v[i].given, NULL, 0, &len);
        h->text += len + 1;
    }
    h->total = HEAD + h->steps + h->fold + h->n * ENTRY + h->text + TAIL;
    return err;
}

static int write_all(const weft_plan *p, const struct head *h, unsigned char *buf)
{
    unsigned char *at = buf;
    const uint32_t mark = ORDER_MARK, version = FORMAT;
    size_t len = 0;
    put(&at, MAGIC, 8);
    put(&at, &mark, 4);
    put(&at, &version, 4);
    put(&at, &h->total, 8);
    put(&at, &h->steps, 8);
    put(&at, &h->fold, 8);
    put(&at, &h->text, 8);
    put(&at, &h->n, 8);
    int err = save_steps(p, at, (size_t)h->steps, &len);
    at += h->steps;
    if (!err && p->scales->fold)
        err = save_steps(p->scales->fold, at, (size_t)h->fold, &len);
    at += h->fold;
    for (size_t i = 0; i < h->n; i++) {
        const struct plan_scaled *s = &p->scales->v[i];
        uint8_t back = s->back;
        put(&at, &s->tensor, 4);
        put(&at, &s->fold, 4);
        put(&at, &back, 1);
    }
    for (size_t i = 0; i < h->n && !err; i++) {
        err = weft_layout_format(p->scales->v[i].given, (char *)at, (size_t)(buf + h->total - at), &len);
        at += len + 1;
    }
    uint64_t sum = hash_bytes(FORMAT, buf, (size_t)h->total - TAIL);
    at = buf + h->total - TAIL;
    put(&at, &sum, TAIL);
    return err;
}

int scaled_save(const weft_plan *p, void *buf, size_t cap, size_t *len)
{
    struct head h;
    int err = lengths(p, &h);
    if (!err && cap >= h.total)
        err = write_all(p, &h, buf);
    if (!err)
        *len = (size_t)h.total;
    return err;
}

bool scaled_save_is(const void *buf, size_t len)
{
    return len >= 8 && !memcmp(buf, MAGIC, 8);
}

static int read_head(const unsigned char **at, size_t len, struct head *h)
{
    const unsigned char *buf = *at;
    uint32_t mark, version;
    uint64_t sum;
    if (len < HEAD + TAIL)
        return error_set(WEFT_EINVAL, "plan: truncated: %zu bytes, a plan with scales has at least %d", len,
                         HEAD + TAIL);
    *at += 8;
    take(at, &mark, 4);
    take(at, &version, 4);
    take(at, &h->total, 8);
    take(at, &h->steps, 8);
    take(at, &h->fold, 8);
    take(at, &h->text, 8);
    take(at, &h->n, 8);
    if (mark != ORDER_MARK)
        return error_set(WEFT_EINVAL, "plan: saved on a machine of another byte order");
    if (version != FORMAT)
        return error_set(WEFT_EINVAL, "plan: scales have format version %" PRIu32 ", this library reads %" PRIu32,
                         version, FORMAT);
    uint64_t room = len - HEAD - TAIL;
    if (h->total != len || h->steps > room || h->fold > room - h->steps || h->text > room - h->steps - h->fold ||
        h->n > (room - h->steps - h->fold - h->text) / ENTRY || h->n * ENTRY != room - h->steps - h->fold - h->text ||
        !h->n)
        return error_set(WEFT_EINVAL, "plan: the lengths of its parts are not those of its %zu bytes", len);
    memcpy(&sum, buf + len - TAIL, sizeof sum);
    if (sum != hash_bytes(FORMAT, buf, len - TAIL))
        return error_set(WEFT_EINVAL, "plan: damaged: its checksum is wrong");
    return 0;
}

/* The entries, and the texts behind them. */
static int read_entries(const unsigned char *at, const struct head *h, struct plan_scales *s)
{
    const char *text = (const char *)at + h->n * ENTRY, *end = text + h->text;
    s->v = calloc((size_t)h->n, sizeof *s->v);
    if (!s->v)
        return error_nomem();
    for (; s->n < h->n; s->n++) {
        struct plan_scaled *e = &s->v[s->n];
        weft_layout *given;
        uint8_t back;
        take(&at, &e->tensor, 4);
        take(&at, &e->fold, 4);
        take(&at, &back, 1);
        e->back = back;
        if (back > 1 || !memchr(text, 0, (size_t)(end - text)))
            return error_set(WEFT_EINVAL, "plan: entry %zu of the scales is cut off", s->n);
        int err = weft_layout_parse(text, &given);
        if (err)
            return err;
        e->given = given;
        text += strlen(text) + 1;
    }
    return text == end ? 0 : error_set(WEFT_EINVAL, "plan: there are bytes behind the last layout");
}

int scaled_save_load(const void *buf, size_t len, weft_plan **out)
{
    const unsigned char *at = buf;
    struct head h = {0};
    int err = read_head(&at, len, &h);
    weft_plan *p = NULL;
    if (!err)
        err = save_load_steps(at, (size_t)h.steps, &p);
    if (err)
        return err;
    p->scales = calloc(1, sizeof *p->scales);
    err = p->scales ? 0 : error_nomem();
    if (!err && h.fold)
        err = save_load_steps(at + h.steps, (size_t)h.fold, &p->scales->fold);
    if (!err)
        err = read_entries(at + h.steps + h.fold, &h, p->scales);
    if (!err)
        err = scaled_make(p);
    if (err)
        weft_plan_free(p);
    else
        *out = p;
    return err;
}
