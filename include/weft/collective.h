/* Collectives in one call, for buffers that are dense arrays. A convenience on top of weft_lower_collective, weft_bind
 * and weft_exec_run: the comm keeps the plans. (A program that repeats a call with the same buffers, or that wants to
 * compute meanwhile, binds a plan itself: that is faster.)
 *
 * All ranks of the comm make the same calls in the same order, with the same count, dtype, op and root. Buffers may be
 * any memory, other buffers in each call, and src and dst may overlap or be the same. A buffer is NULL only on ranks
 * that give or get nothing.
 *
 * The comm keeps the WEFT_COLLECTIVE_KEPT plans that were used last, until it is closed. A plan is kept for a function
 * with its count, dtype, op and root. A call that finds no kept plan makes one and binds it, and so does the call that
 * follows after the plan has made room for others. Since all ranks make the same calls, they keep the same plans.
 *   - Up to WEFT_COLLECTIVE_SMALL bytes on either side of a rank, the plan is kept bound to memory of its own: data is
 *     copied in and out, and a call costs little more than a run.
 *   - Larger data is not copied: each call binds the kept plan to the buffers of the call (weft_exec_rebind).
 *
 * Errors. A wrong argument is refused on the rank that gives it. Calls that differ between ranks are WEFT_EMISMATCH, or
 * WEFT_ETIMEOUT after the comm's deadline if the ranks have such plans already. After WEFT_ETIMEOUT this rank may still
 * be in the call: make the same call again before any other in this header, or close the comm. In a callback they are
 * WEFT_EBUSY. For barriers there is weft_comm_barrier. */
#ifndef WEFT_COLLECTIVE_H
#define WEFT_COLLECTIVE_H
#include <weft.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_COLLECTIVE_KEPT 64      /* plans that a comm keeps */
#define WEFT_COLLECTIVE_SMALL 262144 /* bytes; larger data is not copied */

/* dst on all ranks: src of all ranks, folded by op. count: elements of src, and of dst. */
WEFT_API int weft_allreduce(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype,
                            enum weft_op op);
/* The same on the root alone; dst is not used on the other ranks. */
WEFT_API int weft_reduce(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype,
                         enum weft_op op, int root);
/* dst on rank r: part r of the src of all ranks, folded by op. count: elements of dst. src has one part for each
 * rank. */
WEFT_API int weft_reduce_scatter(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype,
                                 enum weft_op op);
/* dst on all ranks: src of rank 0, then that of rank 1, and so on. count: elements of src. */
WEFT_API int weft_allgather(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype);
/* The same on the root alone; dst is not used on the other ranks. */
WEFT_API int weft_gather(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, int root);
/* dst on rank r: part r of the root's src. count: elements of dst. src is not used on the other ranks. */
WEFT_API int weft_scatter(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype, int root);
/* data on all ranks: that of the root. count: elements of data. */
WEFT_API int weft_broadcast(weft_comm *c, void *data, int64_t count, enum weft_dtype dtype, int root);
/* Part s of dst on rank r: part r of the src of rank s. count: elements of one part. src and dst have one part for each
 * rank. */
WEFT_API int weft_all_to_all(weft_comm *c, const void *src, void *dst, int64_t count, enum weft_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
