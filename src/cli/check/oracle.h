/* The oracle: what a move must do, computed by brute force from the definitions, element by element, with arithmetic of
 * its own (scalar.h) and tables of its own (oracle_side.h).
 *
 *   oracle_open(src, dst, &o);
 *   for each rank: oracle_fill(o, seed, values, rank, src_buf[rank]);
 *   oracle_take(o, src_buf);                 the value of every element, from the buffers of all ranks
 *   for each rank: oracle_expect(o, rank, want[rank]);
 *
 * Folds are done in the order in which they are written. Within one fold the owners' copies come first, by rank, then
 * ghosts, by rank and slot. Of equal copies the one at coordinate 0 of all free axes is used. */
#ifndef WEFT_CLI_CHECK_ORACLE_H
#define WEFT_CLI_CHECK_ORACLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft.h"

struct oracle;

/* What data oracle_fill makes. EXACT: values whose folds give the same bits in any order and grouping. WILD: any bits,
 * with NaN, infinities, zeros of both signs, subnormals and ends in between: only the defined order gives these bits.
 */
enum oracle_values { ORACLE_EXACT = 1, ORACLE_WILD };

/* The layouts must outlive the oracle. Returns 0, WEFT_ENOMEM, an error of weft_layout_describe, or WEFT_EINVAL if the
 * shapes differ. Sets no error text. */
int oracle_open(const weft_layout *src, const weft_layout *dst, struct oracle **out);
void oracle_free(struct oracle *o);

int oracle_world(const struct oracle *o);
int64_t oracle_elements(const struct oracle *o);            /* of the tensor */
int64_t oracle_src_bytes(const struct oracle *o, int rank); /* of the rank's dense buffer; 0 if it holds nothing */
int64_t oracle_dst_bytes(const struct oracle *o, int rank);

/* The functions below may be called from several threads at once on one oracle, except for oracle_take. */

/* Fills a source buffer. Copies that should be equal are equal. What is never read is garbage: ghosts that are not
 * summands, slots without an element. */
void oracle_fill(const struct oracle *o, uint64_t seed, enum oracle_values values, int rank, void *buf);
/* The rank whose source buffer is used for this one's: the replica at coordinate 0 of all free axes. oracle_fill gives
 * both the same data, except for what is never read. */
int oracle_replica_of(const struct oracle *o, int rank);
/* Computes the value of every element from the source buffers, one for each rank (NULL if the rank holds nothing). */
int oracle_take(struct oracle *o, const void *const *src);
/* Writes what the destination must hold, after oracle_take. Slots without an element are left as they are. */
void oracle_expect(const struct oracle *o, int rank, void *buf);
/* The first slot where two destination buffers of a rank differ, or -1. Two NaN differ only in a move without a fold
 * or cast. */
int64_t oracle_compare(const struct oracle *o, int rank, const void *got, const void *want);
/* The global index of a slot of the rank's destination buffer; false if the slot has no element. */
bool oracle_locate(const struct oracle *o, int rank, int64_t slot, int64_t *index);

/* The fewest bytes that must cross between ranks. Without a fold, an element crosses once to each rank that needs it
 * and does not hold it. With a fold, the terms go to one of the ranks that need the value (the one that holds most of
 * them), and the value goes from there to the others. Values of a finished fold, or of a move without one, have the
 * narrower of the two dtypes. Counted element by element; elements that the same ranks hold are counted together.
 * Negative: WEFT_ENOMEM. */
int64_t oracle_bound(struct oracle *o);
#endif
