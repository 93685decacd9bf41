/* Ranks join a group of their devices (device_group): at bind, if it is to be the form of the exec. */
#ifndef WEFT_ENGINE_DEVICE_JOINING_H
#define WEFT_ENGINE_DEVICE_JOINING_H
#include "device/device.h"
#include "engine/exec.h"

/* Collective. d: the device of this rank; NULL: it has none. `together`: another rank has the same. *out is the
 * group, or NULL on all ranks if one could not join. `text` says what makes the group, or why there is none. An error
 * is a failure of the comm. */
int joining_all(weft_exec *x, struct device *d, bool together, int64_t deadline_ns, struct device_group **out,
                char *text, size_t cap);
#endif
