/* Which transport a URL names, and what is the same in all of them. */
#include "transport/hosts/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const struct transport *const transports[] = {&transport_self, &transport_threads, &transport_shm,
                                                     &transport_tcp,  &transport_ucx,     &transport_mpi,
                                                     &transport_auto};

#define TRANSPORTS (sizeof transports / sizeof *transports)

const char *weft_transport_name(int i)
{
    return i >= 0 && (size_t)i < TRANSPORTS ? transports[i]->form : NULL;
}

const struct transport *transport_find(const char *url, const char **place)
{
    for (size_t i = 0; i < TRANSPORTS; i++) {
        size_t n = strlen(transports[i]->scheme);
        if (!strncmp(url, transports[i]->scheme, n) && url[n] == ':') {
            *place = url + n + 1;
            return transports[i];
        }
    }
    char forms[160];
    struct text t = text_start(forms, sizeof forms);
    for (size_t i = 0; i < TRANSPORTS; i++)
        text_printf(&t, "%s%s", i == 0 ? "" : i + 1 < TRANSPORTS ? ", " : " and ", transports[i]->form);
    error_set(WEFT_EINVAL, "%s: no such transport; there are %s", url, forms);
    return NULL;
}

void transport_enter(struct transport_link *l)
{
    if (l->hosts && !l->hosts->home->inside)
        transport_enter(l->hosts->home);
    l->inside = true;
    core_arrive(l->group, l->rank);
}

int transport_founder(const struct transport_link *l, const int *ranks, int size)
{
    for (int r = 0; r < size; r++)
        if (!transport_far(l, ranks[r]))
            return r;
    return 0;
}

int *transport_origin(const struct transport_link *l, const int *ranks, int size)
{
    int *origin = malloc((size_t)size * sizeof *origin);
    for (int r = 0; r < size && origin; r++)
        origin[r] = l->origin ? l->origin[ranks[r]] : ranks[r];
    return origin;
}
