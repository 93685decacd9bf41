/* What a set has, for processes that do not know it. */
#include <stdlib.h>

#include "base/error.h"
#include "rendezvous/deadline.h"
#include "version/layouts.h"

#define PAUSE_NS INT64_C(20000000)

struct weft_bus_set {
    weft_epoch_step version;
    struct schema *schema;
    weft_bus_tensor *tensors;
};

static bool fits(const weft_want *w, const weft_epoch_step *v)
{
    return w->kind == WEFT_WANT_STEP ? v->step == w->step : w->kind != WEFT_WANT_AT_LEAST || v->step >= w->step;
}

/* From the newest version that is wanted and of which some process has a part. *schema stays NULL if there is none. */
static int look(weft_bus *b, const char *set, const weft_want *w, int64_t until, weft_epoch_step *version,
                struct schema **schema)
{
    struct catalog c;
    int err = catalog_get(&b->keeper, set, until, &c);
    if (err)
        return err;
    for (size_t i = c.nversions; i-- > 0 && !err && !*schema;)
        if (c.versions[i].holders && fits(w, &c.versions[i].version)) {
            err = layouts_read(b, set, &c.versions[i], NULL, until, schema);
            err = err == WEFT_EPEER ? 0 : err;
            *version = c.versions[i].version;
        }
    catalog_free(&c);
    return err;
}

static int make_list(weft_bus_set *s)
{
    s->tensors = calloc(s->schema->n + 1, sizeof *s->tensors);
    if (!s->tensors)
        return error_nomem();
    for (size_t i = 0; i < s->schema->n; i++)
        s->tensors[i] = (weft_bus_tensor){.name = s->schema->v[i].name, .layout = s->schema->v[i].layout};
    return 0;
}

int weft_bus_describe(weft_bus *b, const char *set, const weft_want *want, int64_t timeout_ns, weft_bus_set **out)
{
    int64_t until = 0;
    if (!b || !out || !want)
        return error_set(WEFT_EINVAL, "weft_bus_describe: %s is NULL", !b ? "the bus" : !out ? "out" : "want");
    int err = record_name("weft_bus_describe", "set", set);
    if (!err)
        err = bus_until(b, "weft_bus_describe", timeout_ns, &until);
    if (err)
        return err;
    weft_bus_set *s = calloc(1, sizeof *s);
    if (!s)
        return error_nomem();
    for (int64_t pause = PAUSE_NS; !err; deadline_pause(&pause, PAUSE_NS, until)) {
        err = look(b, set, want, until, &s->version, &s->schema);
        if (s->schema || err)
            break;
        if (deadline_now() >= until)
            err = error_set(WEFT_ETIMEOUT, "set '%s': there was no version in time that a live process has", set);
    }
    if (!err)
        err = make_list(s);
    if (err)
        weft_bus_set_free(s);
    else
        *out = s;
    return err;
}

weft_epoch_step weft_bus_set_version(const weft_bus_set *s)
{
    return s ? s->version : (weft_epoch_step){0};
}

const weft_bus_tensor *weft_bus_set_tensors(const weft_bus_set *s, size_t *n)
{
    if (n)
        *n = s ? s->schema->n : 0;
    return s ? s->tensors : NULL;
}

void weft_bus_set_free(weft_bus_set *s)
{
    struct error_text kept;
    if (!s)
        return;
    error_keep(&kept);
    schema_free(s->schema);
    free(s->tensors);
    free(s);
    error_restore(&kept);
}
