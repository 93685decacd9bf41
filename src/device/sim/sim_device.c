/* A device that has failed stays failed. */
#include "device/sim/sim_device.h"

#include <stdarg.h>
#include <stdio.h>

int sim_device_check(struct sim_device *d)
{
    switch (sim_device_state(d)) {
    case SIM_FAILED: return d->error(WEFT_ETRANSPORT, "simulated device %d has failed: %s", d->device.number, d->text);
    case SIM_FORKED:
        return d->error(WEFT_EUNSUPPORTED,
                        "simulated device %d was opened before the fork: the child has to open it for itself",
                        d->device.number);
    default: return 0;
    }
}

void sim_device_fail(struct sim_device *d, const char *form, ...)
{
    va_list args;
    va_start(args, form);
    pthread_mutex_lock(&d->lock);
    if (sim_device_state(d) == SIM_WORKS) {
        vsnprintf(d->text, sizeof d->text, form, args);
        atomic_store_explicit(&d->state, SIM_FAILED, memory_order_release);
        pthread_cond_broadcast(&d->done);
    }
    pthread_mutex_unlock(&d->lock);
    va_end(args);
}
