/* Random layouts: the struct form with all it points to, and a text for it, written without the
 * library's help so that parser and printer are tested against something else. */
#ifndef WEFT_TESTS_LAYOUT_RANDOM_H
#define WEFT_TESTS_LAYOUT_RANDOM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include "weft.h"

enum { SAMPLE_RANKS = 256 }; /* a sample with a larger mesh has no list of ranks */

struct sample_options {
    int dims, axes;       /* how many, at most */
    int64_t mesh, extent; /* how large, at most; beyond SAMPLE_RANKS ranks are 0, 1, 2, ... */
    int64_t ghosts;       /* how wide, at most */
    bool split;           /* every axis splits a dim */
};

struct sample {
    weft_layout_desc desc;
    weft_dim dims[WEFT_MAX_DIMS];
    weft_axis axes[WEFT_MAX_AXES];
    weft_fold folds[WEFT_MAX_AXES + 1];
    int ranks[SAMPLE_RANKS];
    char names[WEFT_MAX_AXES][WEFT_MAX_NAME + 1];
    char text[1 << 15];
    size_t len;
};

/* A law about a sample, which is shown where it does not hold. Include cmocka.h first. */
#define SAMPLE_LAW(sample, holds)                       \
    do {                                                \
        if (!(holds)) {                                 \
            print_error("layout: %s\n", (sample).text); \
            assert_true(holds);                         \
        }                                               \
    } while (0)
void sample_desc(struct random *g, struct sample *s, const struct sample_options *o);
int64_t sample_mesh_size(const struct sample *s);

/* Writes s->text; loose: with white space wherever it may stand. */
void sample_text(struct random *g, struct sample *s, bool spaces);
#endif
