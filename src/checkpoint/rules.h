/* Rules: from the name of a tensor to how it is split and where it is placed. A text, one rule a line:
 *
 *     # what a Llama's attention looks like
 *     fuse self_attn.qkv_proj = self_attn.q_proj:$heads + self_attn.k_proj:$kv_heads + self_attn.v_proj:$kv_heads
 *     model.layers.{pp}.self_attn.q_proj.weight   [/tp, ]
 *     model.layers.{pp}.self_attn.k_proj.*        [/tp<=$kv_heads, ...]
 *     model.embed_tokens.weight                   [/tp, ]     pp=first
 *     *                                           [...]
 *
 * The first pattern that matches counts. `*` is any run of characters. `{axis}` is a number: tensors are dealt out over
 * the axis by this number, as positions of a dim would be. Brackets have the splits of each dim as in the notation,
 * without extents. `...` stands for any dims that are not split. `/tp<=8` splits into at most 8 pieces of whole heads;
 * if the axis has more ranks, several ranks hold copies of a piece. `axis=first`, `=last` or `=N` puts a tensor at one
 * coordinate. A fuse line says that a tensor is several parts, one behind the other along dim 0 (or `dim N`, at the end
 * of the line), in these shares. Patterns match the names of the parts. `$name` is a number that is given elsewhere.
 *
 * Pure functions: texts in, data out. Results live in the arena. */
#ifndef WEFT_CHECKPOINT_RULES_H
#define WEFT_CHECKPOINT_RULES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "weft.h"

#define RULES_PARTS 8              /* most parts of a fused tensor */
#define RULES_NUMBER_MAX 999999999 /* any number in a rule, a name or a variable */

struct rules_value {
    int64_t number;       /* used if variable is NULL; 0: none */
    const char *variable; /* "heads" for $heads */
};
struct rules_split {
    const char *axis;
    int64_t block;
    struct rules_value most;
};
struct rules_dim {
    int n;
    struct rules_split split[WEFT_MAX_AXES];
};
struct rules_pin {
    const char *axis;
    int64_t at; /* RULES_LAST: the last one */
};
#define RULES_LAST (-1)
struct rules_rule {
    int line;
    const char *pattern;
    int ndim, more; /* dims that are written; the one before which "..." is, or -1 */
    struct rules_dim dim[WEFT_MAX_DIMS];
    int npins;
    struct rules_pin pin[WEFT_MAX_AXES];
};
struct rules_fuse {
    int line, dim, nparts;
    const char *fused;
    const char *part[RULES_PARTS];
    struct rules_value share[RULES_PARTS];
};
struct rules {
    const char *path; /* for messages */
    struct rules_rule *rule;
    struct rules_fuse *fuse;
    size_t nrules, nfuses;
};

/* A rule that matches a name, and the numbers of its `{axis}`. */
struct rules_match {
    const struct rules_rule *rule;
    int n;
    struct rules_pin number[WEFT_MAX_AXES];
};

/* Parses len bytes of text. An error names the path and the line. */
int rules_parse(const char *path, const char *text, size_t len, struct arena *arena, struct rules *out);
/* False: no rule matches. */
bool rules_match_find(const struct rules *r, const char *name, struct rules_match *out);
/* The fuse line whose fused name is in `name` as whole words between dots; NULL: none. */
const struct rules_fuse *rules_match_fused(const struct rules *r, const char *name);
/* The same for the name of a part; *part says which part. */
const struct rules_fuse *rules_match_part(const struct rules *r, const char *name, int *part);
/* `name` with the words `from`, which must be in it, replaced by `to`; NULL if memory is out. */
char *rules_match_renamed(const char *name, const char *from, const char *to, struct arena *arena);
/* Does any rule split or place over the axis? */
bool rules_match_mention(const struct rules *r, const char *axis);
bool rules_match_ask(const struct rules *r, const char *name, size_t len); /* does any rule use $name? */
#endif
