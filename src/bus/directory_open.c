/* URLs: which kind of directory each one names, and the space in it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bus/directory.h"
#include "rendezvous/deadline.h"
#include "rendezvous/store.h"

static const struct directory_kind *const kinds[] = {&directory_tcp, &directory_file, &directory_etcd};
#define KINDS (sizeof kinds / sizeof *kinds)

static const struct directory_kind *kind_of(const char *url)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t n = strlen(kinds[i]->scheme);
        if (!strncmp(url, kinds[i]->scheme, n) && url[n] == ':')
            return kinds[i];
    }
    return NULL;
}

/* "HOST:PORT/run42" is the place "HOST:PORT" and the space "run42/"; "http://" may stand before it. */
static int cut_space(const char *url, char *place, char **space)
{
    char *host = strstr(place, "://"), *slash = strchr(host ? host + 3 : place, '/');
    *space = slash ? slash + 1 : place + strlen(place);
    size_t n = strlen(*space);
    if (!slash)
        return 0;
    *slash = 0;
    if (!n || !store_word(*space, n, STORE_NAME_MAX) || (*space)[n - 1] == '/')
        return error_set(WEFT_EINVAL,
                         "%s: what stands behind the slash is not 1 to %d letters, digits and . _ - : / @ +", url,
                         STORE_NAME_MAX);
    return 0;
}

int directory_open(const char *url, const struct directory_opts *opts, struct directory **out)
{
    const struct directory_kind *kind = url ? kind_of(url) : NULL;
    if (!kind)
        return error_set(WEFT_EINVAL, "%s: a directory is %s, %s or %s", url ? url : "NULL", directory_tcp.form,
                         directory_file.form, directory_etcd.form);
    if (opts->timeout_ns < 0)
        return error_set(WEFT_EINVAL, "%s: the timeout must not be negative", url);
    char *place = strdup(strchr(url, ':') + 1), *space = "";
    struct directory *d = calloc(1, kind->size);
    int err = place && d ? 0 : error_nomem();
    if (!err && kind->spaces)
        err = cut_space(url, place, &space);
    if (!err) {
        size_t n = strlen(space) + 2;
        d->kind = kind;
        d->url = strdup(url);
        d->space = malloc(n);
        err = d->url && d->space ? 0 : error_nomem();
        if (d->space)
            snprintf(d->space, n, "%s%s", space, *space ? "/" : "");
        if (!err)
            err = kind->open(d, place, opts, deadline_in(opts->timeout_ns));
    }
    free(place);
    if (err && d && d->kind)
        directory_close(d);
    else if (err)
        free(d);
    else
        *out = d;
    return err;
}
