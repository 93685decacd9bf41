/* Plans taken apart into steps that own their parts and deps, to be changed and put together again. */
#ifndef WEFT_TESTS_LOOSE_H
#define WEFT_TESTS_LOOSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

struct loose_part {
    struct plan_part p;
    struct plan_run run[WEFT_MAX_DIMS];
    struct plan_spot spot[WEFT_MAX_DIMS];
};

struct loose_step {
    struct plan_step s;
    struct loose_part *parts; /* s.nparts of them */
    size_t *deps;             /* s.ndeps of them */
};

struct loose {
    const weft_plan *of;
    struct plan_buf *bufs;
    struct loose_step *steps;
    size_t nsteps;
    bool in_place;
};

struct mutation {
    const weft_plan *const *all;
    size_t ranks;
    struct loose **loose; /* of the ranks that are changed */
    uint64_t random;
    char text[256]; /* what was done */
};
void *loose_alloc(size_t n, size_t size);
void loose_free(struct loose *l);
weft_plan *loose_close(const struct loose *l);
size_t loose_pick(struct mutation *m, size_t n);
bool loose_say(struct mutation *m, const char *fmt, ...);
struct loose *loose_plan(struct mutation *m, size_t r);
int loose_ndim(const struct loose *l, const struct loose_part *p);
bool loose_is_message(const struct plan_step *s);

/* A random step of one of the kinds (bits 1 << kind), on any rank. */
struct loose_step *loose_pick_step(struct mutation *m, unsigned kinds, size_t *r, size_t *s);

enum {
    ANY_COPY = 1 << PLAN_COPY,
    ANY_REDUCE = 1 << PLAN_REDUCE,
    ANY_SEND = 1 << PLAN_SEND,
    ANY_RECV = 1 << PLAN_RECV,
    ANY_MESSAGE = ANY_SEND | ANY_RECV,
    ANY_STEP = ANY_COPY | ANY_REDUCE | ANY_MESSAGE
};

/* The other end of a message, in the plans as they were. */
bool loose_other_end(const struct mutation *m, size_t r, size_t s, size_t *peer, size_t *step);
void loose_drop_dep(struct loose_step *s, uint32_t k);
void loose_add_dep(struct loose_step *s, size_t dep);

/* Whoever waited for the step waits for what it waited for. */
void loose_drop_step(struct loose *l, size_t s, bool inherit);
void loose_repeat_step(struct loose *l, size_t s, size_t at);

/* Step `from` comes to stand at `to`; deps go with their steps. */
void loose_move_step(struct loose *l, size_t from, size_t to);

/* Counts, offsets and the size of a message after its parts have changed. */
void loose_lay_out(struct loose *l, struct loose_step *s);
#endif
