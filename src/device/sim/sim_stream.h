/* The streams of the simulated devices: queues of work, the threads that do it, and graphs. */
#ifndef WEFT_DEVICE_SIM_SIM_STREAM_H
#define WEFT_DEVICE_SIM_SIM_STREAM_H
#include "device/sim/sim_device.h"
#include "device/sim/sim_work.h"

int sim_stream_open(struct device *d, void **stream);
/* What is queued is done still. */
void sim_stream_close(struct device *d, void *stream);
int sim_stream_sync(struct device *d, void *stream);
/* Waits until all streams of the device are at rest. */
void sim_stream_rest(struct device *d);
int sim_stream_idle(struct device *d, void *stream, bool *idle);
int sim_stream_capturing(struct device *d, void *stream, bool *capturing);

/* Queues the work, or records it if the stream is being captured. It owns w, also if it fails; w may be NULL, which
 * means that there was no memory for it. */
int sim_stream_add(struct device *d, void *stream, struct sim_work *w);

int sim_stream_capture_begin(struct device *d, void *stream);
int sim_stream_capture_end(struct device *d, void *stream, void **graph);
int sim_stream_graph_launch(struct device *d, void *graph, void *stream);
void sim_stream_graph_free(struct device *d, void *graph);

void sim_stream_use(struct sim_device *d, struct sim_use *out);
/* Ends all streams and joins their threads. What is queued and not done yet is dropped. */
void sim_stream_close_all(struct sim_device *d);
#endif
