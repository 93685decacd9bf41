/* Fetching into devices. */
#ifndef WEFT_VERSION_FETCH_DEVICE_H
#define WEFT_VERSION_FETCH_DEVICE_H
#include "version/bus_device.h"
#include "version/subscribe.h"

struct fetch_device;
int fetch_device_open(int number, struct fetch_device **out);
void fetch_device_close(struct fetch_device *f); /* NULL is allowed. Memory of versions is freed before */
struct bus_device *fetch_device_lanes(struct fetch_device *f);
/* The subscriber has another plan. */
void fetch_device_forget(struct fetch_device *f);

/* A fetch into buffer `to`: its tensors on the device are loaded, piece after piece in the order of the plan. rank: for
 * each piece, the rank of the publisher that is read; -1: the piece is not. places: the part of each such rank. sums:
 * blocks are summed. */
int fetch_device_begin(weft_subscriber *s, const struct subscribe_buffer *to, const int *rank,
                       const struct schema_part *const *places, bool sums);
/* Begins to load a piece. part: where the part of its rank begins in host memory, or would begin. stays: that memory
 * stays as it is until fetch_device_end or fetch_device_stop; otherwise it is not pinned, and may be used again on
 * return. *done: all pieces before this one are loaded. */
int fetch_device_piece(weft_subscriber *s, size_t piece, const unsigned char *part, bool stays, size_t *done);
/* Waits until all pieces are loaded. */
int fetch_device_end(weft_subscriber *s);
/* Waits for the device after an error, so that memory can be given back. */
void fetch_device_stop(struct fetch_device *f);
/* The sums of the blocks of a piece that is loaded, in the order of its runs. */
const uint64_t *fetch_device_sums(const struct fetch_device *f, size_t piece);

/* Copies the staged version into the caller's arrays, as far as they are on the device. */
int fetch_device_write(weft_subscriber *s);
#endif
