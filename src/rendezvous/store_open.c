/* The kinds of store in one table, and opening the one that a URL names. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "rendezvous/deadline.h"
#include "rendezvous/store.h"

static const struct store_kind *const kinds[] = {&store_file, &store_tcp, &store_pmix};
#define KINDS (sizeof kinds / sizeof *kinds)

static const struct store_kind *find_kind(const char *url, const char **place)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t n = strlen(kinds[i]->scheme);
        if (!strncmp(url, kinds[i]->scheme, n) && url[n] == ':') {
            *place = url + n + 1;
            return kinds[i];
        }
    }
    char forms[128];
    struct text t = text_start(forms, sizeof forms);
    for (size_t i = 0; i < KINDS; i++)
        text_printf(&t, "%s%s", i == 0 ? "" : i + 1 < KINDS ? ", " : " and ", kinds[i]->form);
    error_set(WEFT_EINVAL, "%s: no such store; there are %s", url, forms);
    return NULL;
}

/* Ranks that do not come may be at another place: adds where this one has waited to the text of the error. */
static int say_where(const char *url, const struct store_opts *o)
{
    char text[512];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    return error_set(
        WEFT_ETIMEOUT,
        "%s; this rank waited at %s under the name '%s' for %d ranks: all ranks need the same place (WEFT_AT), "
        "name (WEFT_NAME) and number",
        text, url, o->name ? o->name : "", o->size);
}

int store_open(const char *url, const struct store_opts *o, struct store **out)
{
    const char *place;
    const struct store_kind *kind = find_kind(url, &place);
    if (!kind)
        return WEFT_EINVAL;
    int err = store_check_opts(url, o);
    if (err)
        return err;
    err = kind->open(place, o, deadline_in(o->timeout_ns), out);
    return err == WEFT_ETIMEOUT ? say_where(url, o) : err;
}
