/* Groups of ranks by NCCL: calls of struct device_ops. libnccl.so.2 is opened when a group is first asked for, so
 * nobody needs it to build or to run weft. WEFT_NCCL names another file. */
#ifndef WEFT_DEVICE_CUDA_CUDA_NCCL_H
#define WEFT_DEVICE_CUDA_CUDA_NCCL_H
#include "device/device.h"

const char *cuda_nccl_name(bool together, const char **why);
int cuda_nccl_id(struct device *d, char id[DEVICE_GROUP]);
int cuda_nccl_join(struct device *d, const char id[DEVICE_GROUP], int rank, int size, int64_t ns,
                   struct device_group **out);
int cuda_nccl_move(struct device_group *g, void *stream, const struct device_message *messages, size_t n);
int cuda_nccl_health(struct device_group *g);
void cuda_nccl_abort(struct device_group *g);
void cuda_nccl_leave(struct device_group *g, int64_t ns);
#endif
