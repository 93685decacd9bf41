/* What is simulated: tensors with their layouts, from a pair, a table, a saved plan or a model; and one simulation of
 * it on a machine. Tensors with the same two layouts are lowered once and counted as often as they occur. */
#ifndef WEFT_FORESEE_SCENE_H
#define WEFT_FORESEE_SCENE_H
#include "foresee/events.h"

#define SCENE_ROUNDS \
    16 /* a tensor that counts many times travels in rounds, this many at most, so that relays overlap */

struct scene {
    VEC(weft_move) moves; /* the layouts are the scene's */
    VEC(int) times;       /* how often each counts */
    VEC(char *) texts;    /* "SRC -> DST" of each */
    uint32_t *table;      /* of moves, by their texts */
    size_t table_size;
    size_t tensors; /* all that count */
    int64_t bucket; /* of a saved plan; otherwise 0 */
    int world;
    bool apart; /* each tensor is lowered by itself, however many are alike */
};

/* These return an exit code and say in *why what is wrong. A scene starts as zeros. */
int scene_add(struct scene *s, const char *src, const char *dst, struct failure *why);
int scene_table(struct scene *s, const char *path, struct failure *why); /* lines "name: SRC -> DST" */
int scene_plan(struct scene *s, const char *path,
               struct failure *why); /* one rank's plan, as weft_plan_save wrote it */
void scene_free(struct scene *s);

struct scene_how {
    struct machine_file machine;
    const int *host; /* where each rank is; NULL: ranks_per_host in a row */
    int64_t bucket;
    const char *algorithm;
    bool quiet; /* no line that tells of the progress */
    bool each;  /* no message is joined before all plans are there, which takes more memory: for tests */
};

struct scene_run {
    struct links links;
    struct graph graph;
    struct events events;
};
/* Lowers all ranks and makes the graph; scene_simulate also runs it. */
int scene_lower(const struct scene *s, const struct scene_how *how, struct scene_run *out, struct failure *why);
int scene_simulate(const struct scene *s, const struct scene_how *how, struct scene_run *out, struct failure *why);
void scene_run_free(struct scene_run *r);
#endif
