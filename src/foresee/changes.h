/* What another algorithm, another bucket size, another placement of the ranks or one more replica of the source would
 * give: the same scene simulated again with one thing changed. */
#ifndef WEFT_FORESEE_CHANGES_H
#define WEFT_FORESEE_CHANGES_H
#include "foresee/scene.h"
#include "tool/json_write.h"

struct changes {
    VEC(struct change {
        char what[80];
        double total; /* nanoseconds */
    })
    all;
};

/* was: the simulation that is compared with. */
int changes_try(struct changes *c, const struct scene *s, const struct scene_how *how, const struct scene_run *was,
                struct failure *why);
void changes_print(FILE *to, const struct changes *c, double was);
void changes_json(struct json *j, const struct changes *c); /* a member "what_if" of an object that is open */
void changes_free(struct changes *c);
#endif
