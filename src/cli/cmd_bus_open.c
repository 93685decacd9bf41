#define _GNU_SOURCE
#include "cli/cmd_bus_open.h"

#include <string.h>

#include "comm/environment.h"

#define SECOND INT64_C(1000000000)

int cmd_bus_open(const char *url, const char *token_file, const char *listen, int64_t timeout, weft_bus **out)
{
    char token[SERVER_TOKEN_MAX + 2] = "";
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    int err = token_file ? environment_token_file("--token-file ", token_file, token) : 0;
    o.token = *token ? token : NULL;
    o.listen = listen;
    o.deadline_ns = timeout * SECOND;
    if (!err)
        err = weft_bus_open(url, &o, out);
    explicit_bzero(token, sizeof token);
    return err;
}
