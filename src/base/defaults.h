/* Numbers by which messages are made and sent, that the engine (or lowering, or a comm) and the simulation of it
 * (src/foresee) must agree on. Each is defined here alone. */
#ifndef WEFT_BASE_DEFAULTS_H
#define WEFT_BASE_DEFAULTS_H
#include <stdint.h>

#define DEFAULTS_BUCKET ((int64_t)4 << 20) /* bytes of a message at most (weft_lower_opts) */
#define DEFAULTS_CHANNEL_BUCKETS 4         /* messages in staging slots of one channel (weft_comm_opts) */
#define DEFAULTS_EAGER 4096                /* bytes up to which a message inside a host is eager */
#define DEFAULTS_ASSIST (128 << 10)        /* bytes from which on both ends may copy a message inside a host */
#define DEFAULTS_CROWDED 2                 /* times as many bytes as its peer has: such a rank lets the peer copy */
#define DEFAULTS_PIECE 2048 /* bytes of a piece on average from which on a message between hosts goes as a list */
#endif
