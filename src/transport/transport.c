/* The transports in one table, and which of them a URL names. */
#include "transport/transport.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const struct transport *const transports[] = {&transport_self, &transport_threads, &transport_shm,
                                                     &transport_tcp,  &transport_ucx,     &transport_mpi,
                                                     &transport_auto};

#define TRANSPORTS (sizeof transports / sizeof *transports)

const char *weft_transport_name(size_t i)
{
    return i < TRANSPORTS ? transports[i]->form : NULL;
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
