/* One piece of work of a stream, and doing it. */
#ifndef WEFT_DEVICE_SIM_SIM_WORK_H
#define WEFT_DEVICE_SIM_SIM_WORK_H
#include "base/list.h"
#include "device/sim/sim_device.h"

enum sim_kind {
    SIM_AWAIT,
    SIM_SIGNAL,
    SIM_COPY,
    SIM_LAUNCH,
    SIM_KERNEL,
    SIM_GATE_COME,
    SIM_GATE_AWAIT,
    SIM_GATE_TELL,
    SIM_GATE_COUNT
};

struct sim_stream;

struct sim_work {
    struct list node;
    struct sim_stream *stream;
    enum sim_kind kind;
    union {
        struct {
            uint64_t dst, src;
            size_t bytes;
            bool plain_dst, plain_src; /* it is host memory that is not pinned */
        } copy;
        struct {
            uint64_t table;
            struct device_launch what;
        } launch;
        struct {
            uint64_t counter, late; /* late: of what is awaited */
            uint32_t come;          /* what is written there */
            bool shown, counted;    /* counted: the counter is that of the next run already */
            struct device_words words;
        } gate;
        struct {
            sim_kernel *body;
            void *arg;
        } kernel;
    } u;
    size_t n; /* words of await and signal */
    struct device_word words[];
};

/* NULL: out of memory. */
struct sim_work *sim_work_words(enum sim_kind kind, const struct device_word *words, size_t n);
struct sim_work *sim_work_gate(enum sim_kind kind, const struct device_gate *g, const struct device_words *words);
/* *plain: it uses host memory that is not pinned, so that the caller has to wait for it. */
struct sim_work *sim_work_copy(void *dst, const void *src, size_t bytes, bool *plain);
struct sim_work *sim_work_launch(uint64_t table, const struct device_launch *l);
struct sim_work *sim_work_kernel(sim_kernel *body, void *arg);
struct sim_work *sim_work_again(const struct sim_work *w); /* a copy */

/* Random numbers that decide how late a queue is. */
struct sim_luck {
    bool on;
    uint64_t state;
};
/* Lets others run for a while, or not. */
void sim_work_late(struct sim_luck *luck);

uint64_t sim_work_below(struct sim_luck *luck, uint64_t n); /* a number below n */

/* Does it, unless the device fails or is closed meanwhile. */
void sim_work_do(struct sim_device *d, const struct sim_work *w, struct sim_luck *luck);
void *sim_work_at(struct sim_view *view, const void *address, size_t bytes); /* struct sim_calls */
#endif
