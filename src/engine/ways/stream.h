/* What order/comb.c needs of messages that stream: it packs and unpacks them itself. */
#ifndef WEFT_ENGINE_WAYS_STREAM_H
#define WEFT_ENGINE_WAYS_STREAM_H
#include "engine/way.h"

/* Does this SEND stream in strips, together with those of other channels? */
bool stream_in_strips(const weft_exec *x, const struct program *p, uint32_t send);
/* Shows the message, which has its slot, to all its readers. */
void stream_show(weft_exec *x, const struct exec_multicast *m);
void stream_tell(weft_exec *x, const struct exec_multicast *m, int64_t bytes); /* that many are packed */
/* Bytes that are packed of the channel's next message; acquires them. */
int64_t stream_there(const weft_exec *x, const struct exec_in *in);
#endif
