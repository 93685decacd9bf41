/* A halo exchange in one dimension: each rank exchanges messages of any size with the rank before it and the rank after
 * it. A convenience on top of weft_exchange. (Halos of tensors with fixed shapes are layouts: see weft_layout_halo.) */
#ifndef WEFT_HALO_H
#define WEFT_HALO_H
#include <weft.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_halo weft_halo;

/* Collective. periodic: the last rank and the first one are neighbours too. opts are those of weft_exchange_open. */
WEFT_API int weft_halo_open(weft_comm *c, bool periodic, const weft_exchange_opts *opts, weft_halo **out);
/* Starts a round: sends one message each way; NULL sends an empty one. done is the vote. Payloads must not change until
 * the round is complete. May be called again after an error. After WEFT_EBUSY (no room, inside a callback) call it
 * again with the same messages; one of them may already have been sent, and is not sent twice. */
WEFT_API int weft_halo_start(weft_halo *h, const weft_message *send_left, const weft_message *send_right, bool done);
/* The exchange below it: for test, wait, on_done, fd, over and stats. Do not put, take or close it. */
WEFT_API weft_exchange *weft_halo_rounds(weft_halo *h);
/* The two messages of the last complete round, once. NULL on a side without a neighbour. The caller frees both. */
WEFT_API int weft_halo_take(weft_halo *h, weft_message **from_left, weft_message **from_right);
/* Start, wait and take. */
WEFT_API int weft_halo_exchange(weft_halo *h, const weft_message *send_left, const weft_message *send_right,
                                weft_message **from_left, weft_message **from_right);
WEFT_API void weft_halo_close(weft_halo *h);

#ifdef __cplusplus
}
#endif
#endif
