/* Groups of ranks on simulated devices, as NCCL makes them on real ones; WEFT_SIM_NCCL=1 has them. Ranks may be on one
 * device or on several. Calls of struct device_ops. */
#ifndef WEFT_DEVICE_SIM_SIM_GROUP_H
#define WEFT_DEVICE_SIM_SIM_GROUP_H
#include "device/sim/sim_device.h"

const char *sim_group_name(bool together, const char **why);
int sim_group_id(struct device *d, char id[DEVICE_GROUP]);
int sim_group_join(struct device *d, const char id[DEVICE_GROUP], int rank, int size, int64_t ns,
                   struct device_group **out);
int sim_group_move(struct device_group *g, void *stream, const struct device_message *messages, size_t n);
int sim_group_health(struct device_group *g);
void sim_group_abort(struct device_group *g);
void sim_group_leave(struct device_group *g, int64_t ns);
#endif
