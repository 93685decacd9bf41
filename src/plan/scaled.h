/* The scales of a plan (plan_scales): made from the layouts when a plan is lowered and when it is loaded. */
#ifndef WEFT_PLAN_SCALED_H
#define WEFT_PLAN_SCALED_H
#include "plan/plan.h"

void scaled_free(struct plan_scales *s); /* and its plan; NULL is fine */
bool scaled_same(const weft_plan *a, const weft_plan *b);
/* The same entries, as plans of two ranks have them. */
bool scaled_alike(const struct plan_scales *a, const struct plan_scales *b);
/* The tensor's entry; NULL: there is none. */
const struct plan_scaled *scaled_of(const weft_plan *p, size_t tensor);
/* Checks tensor, fold, back and given of each entry of p->scales against the layouts of the plan and of `fold`, and
 * fills in the rest. */
int scaled_make(weft_plan *p);
/* Checks the entries of a plan alone. */
int scaled_check(const weft_plan *p);

/* scaled_save.c: the saved form of a plan with scales, in which `steps` is the saved form of the plan without. */
int scaled_save(const weft_plan *p, void *buf, size_t cap, size_t *len);
bool scaled_save_is(const void *buf, size_t len);
int scaled_save_load(const void *buf, size_t len, weft_plan **out);
/* save.c: the plan without its scales. */
int save_steps(const weft_plan *p, void *buf, size_t cap, size_t *len);
int save_load_steps(const void *buf, size_t len, weft_plan **out);
#endif
