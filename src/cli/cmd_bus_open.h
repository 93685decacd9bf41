/* The bus for commands that publish, read or hold versions. */
#ifndef WEFT_CLI_CMD_BUS_OPEN_H
#define WEFT_CLI_CMD_BUS_OPEN_H
#include <stdint.h>

#include "weft/bus.h"

/* token_file, listen: NULL if they were not given. timeout: the deadline in seconds. Returns weft's error code. */
int cmd_bus_open(const char *url, const char *token_file, const char *listen, int64_t timeout, weft_bus **out);
#endif
