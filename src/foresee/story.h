/* What a simulation says, for people and as JSON: the time, the bound, where it waited and why. */
#ifndef WEFT_FORESEE_STORY_H
#define WEFT_FORESEE_STORY_H
#include "foresee/events.h"
#include "tool/json_write.h"

void story_print(FILE *to, const struct graph *g, const struct events *e);
void story_json(struct json *j, const struct graph *g, const struct events *e); /* members of an object that is open */
/* "1.234 ms"; returns buf. */
char *story_time(double ns, char *buf, size_t cap);
#endif
