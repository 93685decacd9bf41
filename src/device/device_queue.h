/* A table of work in the memory of a device (device_table.h), which streams run again and again. */
#ifndef WEFT_DEVICE_DEVICE_QUEUE_H
#define WEFT_DEVICE_DEVICE_QUEUE_H
#include "device/device_table.h"

struct device_queue;
int device_queue_new(struct device *d, struct device_queue **out);
int device_queue_add(struct device_queue *q, const struct device_task *task);
int device_queue_sum(struct device_queue *q, uint32_t level, uint64_t dst, uint64_t src, uint32_t bytes);
/* Data that gates need: it comes into device memory with the table. Before device_queue_close. */
int device_queue_attach(struct device_queue *q, const void *data, size_t bytes);
uint64_t device_queue_attached(const struct device_queue *q); /* its address on the device */
/* device_queue_run_level will run the levels: device_table_apart. Before device_queue_close; a table without folds does
 * not need it. */
void device_queue_apart(struct device_queue *q);
/* All tasks are there: copies the table into device memory, and returns when it is there. */
int device_queue_close(struct device_queue *q);
/* Queues all launches, between the two halves of the gate; NULL: there is none. */
int device_queue_run(struct device_queue *q, void *stream, const struct device_gate *g);
size_t device_queue_calls(const struct device_queue *q); /* kernels of such a run; a small one is one kernel */
/* Records such a run, for device_queue_replay, which queues it by one call of the driver. Once. */
int device_queue_record(struct device_queue *q, const struct device_gate *g);
int device_queue_replay(struct device_queue *q, void *stream);
/* Queues the launches of one level; there may be none. */
int device_queue_run_level(struct device_queue *q, uint32_t level, void *stream);
uint32_t device_queue_launches(const struct device_queue *q);
void device_queue_free(struct device_queue *q); /* NULL is fine; no run may be under way */
#endif
