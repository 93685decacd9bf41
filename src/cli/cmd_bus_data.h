/* weft bus push, pull and doctor: what they do with the data of sets. */
#ifndef WEFT_CLI_CMD_BUS_DATA_H
#define WEFT_CLI_CMD_BUS_DATA_H
#include <stdbool.h>
#include <stdint.h>

#include "tool/failure.h"

struct cmd_bus_data {
    const char *url, *set, *path;
    const char *token_file, *listen, *dtype, *meta, *to, *rules;
    int64_t step, timeout, seconds; /* step -1: none was said; seconds 0: until a signal */
    bool json, force;
};

int cmd_bus_data_push(const struct cmd_bus_data *a, struct failure *why);
int cmd_bus_data_pull(const struct cmd_bus_data *a, struct failure *why);
int cmd_bus_data_doctor(const struct cmd_bus_data *a, struct failure *why); /* CLI_WRONG: something is wrong */
#endif
