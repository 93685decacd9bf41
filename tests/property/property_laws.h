/* The laws of the campaign. Each takes a case, and says what is wrong if it does not hold there:
 *
 *   plans    the plans of all ranks have one digest, pass verify, survive save and load; what is sent is what is
 *            received and what was stated; without a forced algorithm's freedom it is the lower bound, counted by brute
 *            force, and nobody is sent what he has
 *   value    the plans, run, give what the oracle gives, and all ranks that get an element the same bits
 *   return   A to B to A is the identity
 *   adjoint  lower(dual B, dual A) is the transpose of lower(A, B) */
#ifndef WEFT_TESTS_PROPERTY_LAWS_H
#define WEFT_TESTS_PROPERTY_LAWS_H
#include <stdbool.h>

#include "property_lab.h"

/* Plans alone, of tensors that no memory holds: nothing is compared with an oracle. What is beyond the limits may be
 * refused. */
bool laws_of_size(const struct property_case *c, struct why *why);

/* All who have the value of a reduced element have the same bits, NaN too. */
bool law_same_bits(const struct lab *l, int m, struct why *why);

/* Plans and value: one lowering of the case, by its algorithm. A forced one may not fit: then there is nothing to show.
 */
bool laws_of_lowering(const struct property_case *c, struct why *why);

/* A to B to A, for the first move of a case: folds of A are left out, and casts that lose something. A B that is left
 * as terms gives integers back: a value folded with identities is the value. */
bool law_return(const struct property_case *c, struct why *why);

/* <lower(A, B) x, y> = <x, lower(dual B, dual A) y>, for x consistent with A and y with dual B.
 *
 * The right inner product is the plain one: every slot of every rank that stands for an element counts once. For a
 * layout L let V(x) be the global tensor that buffers x mean (copies are equal and count once, terms are summed), and
 * E(v) the buffers that a destination gets for v (v in all copies, and in a sum v in the term at coordinate 0 and 0 in
 * the others). lower(A, B) is E_B V_A. In dual B copies are what in B are terms, and the reverse, so <E_B v, y> sums y
 * over B's copies, at coordinate 0 of its sums: that is <v, V_dualB y>, since y is the same along what B sums over.
 * In the same way, <x, E_dualA w> = <V_A x, w>. Both sides of the law are <V_A x, V_dualB y>.
 *
 * Slots that stand for nothing are 0 in a result and so do not count. All is linear over the integers modulo 2^64, so
 * that any bits will do for data. */
bool law_adjoint(const struct property_case *c, struct why *why);
#endif
