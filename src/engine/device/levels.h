/* The launcher's table: the copies and folds of all ranks, each at a level. Levels run one after the other, so a step
 * comes at a higher level than all that it waits for:
 *   - a step waits for the steps that its plan says,
 *   - a RECV waits for the SEND of its message,
 *   - a step that waits for a SEND waits for the RECV of the message, which reads it. */
#ifndef WEFT_ENGINE_DEVICE_LEVELS_H
#define WEFT_ENGINE_DEVICE_LEVELS_H
#include "device/device_queue.h"
#include "engine/device/published.h"

/* of[r] is what rank r has published, for n ranks. */
struct levels {
    const struct published *const *of;
    int n;
    uint32_t *first; /* of each rank: its first step among the steps of all */
    uint32_t *mate;  /* of each SEND and RECV: the other end */
    uint32_t *level; /* of each step */
    void **bases;    /* the addresses here of all objects of all ranks, */
    uint32_t *base;  /* of each rank: its first one, */
    uint32_t mapped; /* and how many there are */
};

/* Makes the levels and maps the objects. WEFT_EMISMATCH if the plans do not fit together. levels_free frees what it has
 * made, also after an error. */
int levels_make(struct levels *l, struct device *d, const struct published *const *of, int n);
/* Adds all work to the queue. */
int levels_queue(const struct levels *l, struct device_queue *q);
/* The addresses of the near words of all ranks. */
void levels_near(const struct levels *l, uint64_t *out);
void levels_free(struct levels *l, struct device *d);
#endif
