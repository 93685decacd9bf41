/* Moves and folds of a program as tasks of a device's queue. */
#ifndef WEFT_ENGINE_DEVICE_TASKS_H
#define WEFT_ENGINE_DEVICE_TASKS_H
#include "device/device_queue.h"
#include "engine/program.h"

struct tasks {
    struct device_queue *queue;
    /* The address of a byte for the device. NULL: it is the same. */
    uint64_t (*address)(const void *arg, const char *at);
    const void *arg;
};

int tasks_move(const struct tasks *t, uint32_t level, const struct exec_move *m); /* both sides have addresses */
int tasks_fold(const struct tasks *t, uint32_t level, const struct exec_fold *f);
/* A move that packs or unpacks, with the address of its message. */
struct exec_move tasks_addressed(const struct exec_move *m, const char *message);
#endif
