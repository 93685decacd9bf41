/* A heap: the entry that is `earlier` than all others is v[0]. Entries are those of a VEC with room for one more. */
#ifndef WEFT_BASE_HEAP_H
#define WEFT_BASE_HEAP_H
#include "base/vec.h"

/* Adds x. */
#define HEAP_PUSH(heap, x, earlier)                                                        \
    do {                                                                                   \
        size_t at_ = (heap)->n++;                                                          \
        for (size_t up_; at_ && earlier(&(x), &(heap)->v[up_ = (at_ - 1) / 2]); at_ = up_) \
            (heap)->v[at_] = (heap)->v[up_];                                               \
        (heap)->v[at_] = (x);                                                              \
    } while (0)

/* Takes the first entry out, into `first`. There is one. */
#define HEAP_POP(heap, first, earlier)                                      \
    do {                                                                    \
        const size_t n_ = --(heap)->n;                                      \
        size_t at_ = 0;                                                     \
        (first) = (heap)->v[0];                                             \
        for (size_t k_; (k_ = 2 * at_ + 1) < n_; at_ = k_) {                \
            if (k_ + 1 < n_ && earlier(&(heap)->v[k_ + 1], &(heap)->v[k_])) \
                k_++;                                                       \
            if (!earlier(&(heap)->v[k_], &(heap)->v[n_]))                   \
                break;                                                      \
            (heap)->v[at_] = (heap)->v[k_];                                 \
        }                                                                   \
        if (n_)                                                             \
            (heap)->v[at_] = (heap)->v[n_];                                 \
    } while (0)
#endif
