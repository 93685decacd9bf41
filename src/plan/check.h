/* What the two halves of plan_check share: check.c has tensors, buffers and parts, check_steps.c the steps. */
#ifndef WEFT_PLAN_CHECK_H
#define WEFT_PLAN_CHECK_H
#include "base/error.h"
#include "plan/plan.h"

#define check_refuse(...) error_set(WEFT_EINVAL, "plan: " __VA_ARGS__)
#define CHECK_PAD 64 /* padding in messages and scratch is less than this; TEMP buffers are aligned to it */

/* Checks the steps of a plan whose tensors, buffers and parts are right. */
int check_steps(const weft_plan *p);
#endif
