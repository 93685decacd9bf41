/* Partial sums: tensors of a publisher whose layout has folds. They are published in the layout without folds: put
 * folds them over the publisher's comm, by a plan of weft, in the dtype of the arrays, and every rank that has held a
 * part of the sum holds the sum. So put is collective then. The memory, one copy of what the rank holds of these
 * tensors, and the exec are taken by publish. */
#ifndef WEFT_VERSION_PARTIAL_H
#define WEFT_VERSION_PARTIAL_H
#include "weft/bus.h"

struct partial;
/* The tensors as they are published; *out becomes a list that partial_list_free frees. NULL: none has folds. */
int partial_list(const weft_bus_tensor *tensors, size_t n, weft_bus_tensor **out);
void partial_list_free(weft_bus_tensor *list, const weft_bus_tensor *tensors, size_t n);
/* Collective over the comm. */
int partial_open(const weft_bus_tensor *tensors, size_t n, weft_comm *comm, struct partial **out);
void partial_close(struct partial *f); /* NULL is allowed */
/* Collective: do all ranks put this step? mine: this rank's result so far; all fail if one does. */
int partial_agree(struct partial *f, int64_t step, int mine);
/* Where the caller's array of tensor i is copied to, dense and in its own dtype, before partial_run; NULL: tensor i is
 * not folded, or the rank holds nothing of it. After partial_run it is the sum. */
weft_view partial_view(struct partial *f, size_t i);
int partial_run(struct partial *f); /* collective */
#endif
