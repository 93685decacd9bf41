/* Schemas: the tensors of a set as one side has them, and which bytes a rank's part has.
 *
 * A schema has two hashes (BLAKE2s, 32 bytes). `digest` is of names, dtypes and global shapes: it is the same however
 * the tensors are cut. `layouts` is of the schema's bytes, which also have the layouts. Ranks of one publisher have the
 * same bytes, so whoever has them knows where each tensor is in each rank's part, and no rank has to tell.
 *
 * A part is what one rank holds: its dense local arrays, or packed boxes, one behind the other, each aligned to
 * SCHEMA_ALIGN. An array is
 * cut into blocks of SCHEMA_BLOCK bytes; the last one is shorter. Each block has a digest. A block is the unit that is
 * checked, so it is also what crosses between hosts: a reader that needs one element of it takes all of it. */
#ifndef WEFT_VERSION_SCHEMA_H
#define WEFT_VERSION_SCHEMA_H
#include "base/arena.h"
#include "base/table.h"
#include "weft/bus.h"

#define SCHEMA_HASH 32
#define SCHEMA_ALIGN 64
#define SCHEMA_BLOCK (INT64_C(64) << 10)
#define SCHEMA_NAME 1000                     /* bytes of a tensor's name */
#define SCHEMA_BYTES_MAX ((size_t)256 << 20) /* of a schema */
#define SCHEMA_PART_MAX (INT64_C(1) << 46)   /* bytes of a part */

struct schema_tensor {
    struct table_node node; /* by name */
    const char *name;
    weft_layout *layout;
    int from_dtype;   /* publish: of the arrays that are put */
    const char *from; /* subscribe: its name in the set */
};
struct schema {
    struct arena arena;
    size_t n;
    struct schema_tensor *v;
    struct table names;
    unsigned char *bytes;
    size_t size;
    unsigned char layouts[SCHEMA_HASH], digest[SCHEMA_HASH];
    int ranks;     /* the largest rank of the layouts, plus one */
    int64_t total; /* bytes of all tensors, each element once */
};

/* The caller's tensors. Names must be different, layouts without folds (partial.h) and ghosts. */
int schema_make(const char *call, const weft_bus_tensor *tensors, size_t n, struct schema **out);
/* From bytes that another process has sent. `source` is for the text. */
int schema_load(const char *source, const unsigned char *bytes, size_t size, struct schema **out);
void schema_free(struct schema *s); /* NULL is allowed */
struct schema_tensor *schema_find(const struct schema *s, const char *name);

struct schema_place {
    int64_t at, bytes; /* bytes 0: the rank holds nothing of the tensor */
    size_t block;      /* number of its first block */
};
struct schema_part {
    struct schema_place *v; /* for each tensor */
    size_t n;               /* tensors */
    int64_t bytes;
    size_t blocks;
};
/* Tensors whose layout is boxes are packed (packed.h), unless `loose`: then they are as the rank's own buffers. */
int schema_part(const struct schema *s, int rank, bool loose, struct schema_part *out);
/* The tensor that a block of the part belongs to; *at and *bytes: the block's bytes of the part. */
size_t schema_block(const struct schema_part *p, size_t block, int64_t *at, int64_t *bytes);
void schema_part_free(struct schema_part *p);
#endif
