/* Which transport a URL names. */
#include "transport/transport.h"

#include <string.h>

#include "base/error.h"

static const struct transport *const transports[] = {&transport_self, &transport_threads};

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
    error_set(WEFT_EINVAL, "%s: no such transport; there are self: and threads:N/NAME", url);
    return NULL;
}
