/* weft bus status: what a directory has, as one look at all its keys shows it. */
#ifndef WEFT_CLI_CMD_BUS_STATUS_H
#define WEFT_CLI_CMD_BUS_STATUS_H
#include "bus/directory.h"

/* Prints all keys of a directory, in order, as a summary and a row for each set. ns: how long the directory took to
 * answer. False: memory is out. */
bool cmd_bus_status(const char *url, const struct directory_items *all, int64_t ns, bool json);
#endif
