/* What a simulation says, for people and as JSON: the time, the bound, where it waited and why. */
#ifndef WEFT_FORESEE_STORY_H
#define WEFT_FORESEE_STORY_H
#include "foresee/events.h"
#include "tool/json_write.h"

#define STORY_LINKS 5 /* that are named */
#define STORY_LEGS 12 /* of the critical path that are shown: the last ones */

/* A part of the critical path: messages of one channel, or work of one rank, that follow each other. */
struct story_leg {
    int from, to;
    uint32_t last; /* node */
    double start, end, bytes, messages;
};

/* These fill `out`, which has room for STORY_LINKS or STORY_LEGS, and return how many there are. */
int story_busiest(const struct graph *g, uint32_t *out);
size_t story_legs(const struct graph *g, const struct events *e, struct story_leg *out);
uint32_t story_alike(const struct graph *g, uint32_t link); /* links of its kind that are as busy, itself included */
/* What limited a node, in words; returns buf. */
char *story_limit(const struct graph *g, const struct events_span *s, char *buf, size_t cap);
void story_print(FILE *to, const struct graph *g, const struct events *e);
void story_json(struct json *j, const struct graph *g, const struct events *e); /* members of an object that is open */
/* "1.234 ms"; returns buf. */
char *story_time(double ns, char *buf, size_t cap);
#endif
