/* Buffers of a window that are on a device. The head, with signals and barriers, stays in host memory; it is pinned, so
 * that kernels reach the signals. All ranks use one device, and each maps the memory of the others.
 *
 * A put is a copy on a stream of this rank, and is done when the call returns: notify needs no more than its release.
 * put_add runs the kernel of a fold of the buffer and a copy of src. The owner's head has a lock for it, which makes
 * adds of several ranks atomic. */
#ifndef WEFT_WINDOW_WINDOW_DEVICE_H
#define WEFT_WINDOW_WINDOW_DEVICE_H
#include "window/window.h"

struct window_device {
    struct device *device;
    void *stream;
    char *memory;   /* of this rank's buffers */
    char **base;    /* by rank: what was mapped; NULL: nothing */
    char **data;    /* by rank: the buffers, as this process addresses them on the device */
    uint64_t *head; /* by rank: its pinned head, as kernels address it; 0: it is not pinned */
    char *staging;  /* for put_add: a table, and elements; NULL before the first one */
};

/* Which buffers are on a device. Refuses what is not possible. */
int window_device_check(const weft_window *w, const weft_buffer *buffers);
/* Makes this rank's memory, and describes it in its head. `number`: of the device. */
int window_device_make(weft_window *w, int number, uint64_t bytes);
int window_device_connect(weft_window *w); /* reaches the memory of all ranks */

int window_device_put(weft_window *w, int rank, const struct window_buffer *b, int64_t offset, const void *src,
                      int64_t count);
int window_device_add(weft_window *w, int rank, const struct window_buffer *b, int64_t offset, const void *src,
                      int64_t count);

/* Gives back all except this rank's own memory, which peers may still have mapped; see window_device_free. */
void window_device_close(weft_window *w);
/* The memory, once no peer has it mapped. The struct itself is in the window's arena. */
void window_device_free(struct device *device, void *memory);
#endif
