/* The steps of a rank whose memory is on a device that not all ranks share. Messages go through slots of pinned host
 * memory: those of ways/pinned.c between ranks of a host, those of ways/way_wire.c between hosts. The rank's device
 * does the work of its steps: it packs messages into slots, unpacks them, copies and folds. The pipeline
 * (drivers/pipeline.c) starts the work of a step when the step waits for no other, and goes on with other steps until
 * the device has done it. So the copies out of the device, those into it, and the wire between them are at work at the
 * same time, each with another message.
 *
 * There are two streams: SENDs are packed in one, and all other steps are done in the other. Each counts what it has
 * done in a word of host memory, which the host looks at. No stream ever waits for a word.
 *
 * Long pieces are copied by the device's copy engines: on a device that processes share without MPS, kernels of two
 * processes do not overlap, and copies do. Kernels do the rest, in pinned host memory as in the device's own. Steps
 * that are in host memory on both sides are done by the host. */
#ifndef WEFT_ENGINE_DEVICE_CARRY_H
#define WEFT_ENGINE_DEVICE_CARRY_H
#include "engine/exec.h"

struct carry;

#define CARRY_LANES 2 /* streams */

/* With the moves of the program and the slots of its messages. */
int carry_make(weft_exec *x, struct program *p, const weft_view *src, const weft_view *dst);
/* Begins the work of a step, unless it has begun in this run. If that is not possible the comm fails. */
void carry_begin(weft_exec *x, uint32_t step);
/* Is the work of the step done in this run? */
bool carry_done(const weft_exec *x, uint32_t step);
bool carry_begun(const weft_exec *x, uint32_t step);
/* Begins to unpack what has come. Returns whether something has begun. */
bool carry_pass(weft_exec *x);
/* Takes the next COPY or REDUCE that is done; false: there is none. */
bool carry_next(weft_exec *x, uint32_t *step);
/* Waits until the device does nothing any more for this exec. */
void carry_rest(weft_exec *x);
/* Bytes of host memory that are pinned for messages and for views. */
int64_t carry_bytes(const struct carry *c);
void carry_unpin(struct carry *c); /* no run may be under way; NULL is fine */
void carry_free(struct carry *c);  /* NULL is fine */
#endif
