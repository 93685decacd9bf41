/* weft bus agent: a host's process that holds the snapshots of its publishers. */
#ifndef WEFT_CLI_CMD_BUS_AGENT_H
#define WEFT_CLI_CMD_BUS_AGENT_H
#include <stdint.h>

#include "tool/failure.h"

struct cmd_bus_agent {
    const char *url, *token_file, *listen;
    int64_t memory, versions, timeout;
};

int cmd_bus_agent(const struct cmd_bus_agent *a, struct failure *why);
#endif
