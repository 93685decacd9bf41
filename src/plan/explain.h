/* What the two forms of weft_plan_explain share: explain.c writes for readers, explain_json.c for programs. */
#ifndef WEFT_PLAN_EXPLAIN_H
#define WEFT_PLAN_EXPLAIN_H
#include "base/text.h"
#include "plan/plan.h"

struct explain {
    const weft_plan *p;
    weft_stats stats;
    const uint32_t *temps; /* for each buffer: its number among the TEMP buffers */
    struct text t;
    int err; /* the first failure; text that is written after it is ignored */
};

void explain_layout(struct explain *e, const weft_layout *l);
/* "src", "dst", or "temp" with its number. */
void explain_buf(struct explain *e, uint32_t buf, const char *before_number);
const char *explain_step_name(int kind);
void explain_json(struct explain *e);
#endif
