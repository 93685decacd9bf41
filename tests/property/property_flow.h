/* Runs the plans of all ranks in one thread on the memory kernels: each rank's steps in the order of its plan, as far
 * as messages permit. Plans must have passed plan_check and verify; interp.h runs those that have not. */
#ifndef WEFT_TESTS_PROPERTY_FLOW_H
#define WEFT_TESTS_PROPERTY_FLOW_H

#include "plan/plan.h"

/* 0; WEFT_ETIMEOUT when ranks wait for messages that nobody sends or nobody takes; WEFT_EINVAL for a step whose parts
 * do not correspond; WEFT_ENOMEM. */
int flow_run(weft_plan *const *plans, int ranks, void *const *src, void *const *dst);
#endif
