/* What the property campaign tries: one or several pairs of layouts with the options of their lowering and their run,
 * in a form that a generator can change and a shrinker can make smaller; and their text, which is what the library and
 * `weft check` are given. */
#ifndef WEFT_TESTS_PROPERTY_CASE_H
#define WEFT_TESTS_PROPERTY_CASE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "weft.h"

enum {
    CASE_DIMS = 5,
    CASE_AXES = 4,
    CASE_RANKS = 24,
    CASE_MOVES = 5,
    CASE_GHOSTS = -1 /* "~" among what a fold is over */
};

struct side_spec {
    int dtype, ndim, naxes, nfolds;
    bool faces; /* ghosts have no corners */
    struct {
        int64_t extent, lo, hi;
        bool wrap;
        int nsplits;
        struct {
            int axis;
            int64_t block;
        } split[CASE_AXES];
    } dim[CASE_DIMS];
    int size[CASE_AXES];
    int ranks[CASE_RANKS]; /* of the mesh, always in full */
    struct {
        int op, nover, over[CASE_AXES + 1];
    } fold[CASE_AXES + 1];
};

struct property_case {
    int64_t number; /* in the campaign */
    int moves;
    struct side_spec side[CASE_MOVES][2]; /* source, destination */
    int64_t bucket;
    int ranks_per_host;
    bool hosts; /* ranks are on these hosts instead, which `weft check` has no option for */
    int host[CASE_RANKS];
    const char *algorithm; /* NULL: the chooser */
    bool in_place, staged, wild;
    int on;                  /* ranks of the comm, where there are more than the case needs; else 0 */
    bool processes, private; /* on shm:, and there in private memory */
    bool device;             /* some memory is on a device: property_device.h */
    uint64_t seed;           /* of the data */
};
int spec_mesh(const struct side_spec *s);
int spec_world(const struct side_spec *s);
int case_world(const struct property_case *c);
bool spec_has_ghosts(const struct side_spec *s);

/* Takes an axis out of wherever it stands; it replicates then. */
void spec_free_axis(struct side_spec *s, int axis);

/* Makes a side legal that was changed without care: ghosts only where pieces are contiguous, ops that fold the dtype
 * and can be left to a destination, no fold over nothing. */
void spec_mend(struct side_spec *s, bool destination);
void spec_text(const struct side_spec *s, struct text *t);
void case_text_options(const struct property_case *c, struct text *t);

/* Processes are as many as the case needs, or those of a job. */
void case_text_command(const struct property_case *c, struct text *t);

/* The command that runs the case again, one line a tensor. */
void case_text(const struct property_case *c, struct text *t);
#endif
