/* What the image of a device table contains, for device_table.c, which writes it, and body.h, which reads it. All
 * places in it are counted in 16 bytes from its beginning.
 *
 * Each launch has a map and a list of items. An item is one box, or several boxes of the same form, for one kernel. The
 * launch's blocks are shared out among its items in order. The map has a word for each 2^shift blocks: the number of
 * the item of the first of them; and one word more, the last item. A block searches for its item between two words. */
#ifndef WEFT_DEVICE_ITEM_H
#define WEFT_DEVICE_ITEM_H
#include <stdint.h>

#define ITEM_BYTES 16           /* what a thread moves at once at most */
#define ITEM_SHIFT(n) ((n)&255) /* of struct device_launch's n: log2 of the blocks of a word in the map */
#define ITEM_STEP(n) ((n) >> 8) /* and from one item to the next */
#define ITEM_NONE 255           /* struct device_item's member: there is one box */

/* Loop of a walk over units, outermost first. u / n is u * mul >> shift for all u below 2^31. */
struct device_loop {
    uint32_t n, mul, shift, unused;
    int64_t stride[2]; /* of dst and src, in bytes */
};

/* Forms of items. Casts and folds of the same kernel have a form each that compilers can unroll. */
enum device_form {
    FORM_COPY,      /* DEVICE_COPY: units of `size` bytes */
    FORM_ROWS,      /* DEVICE_COPY: units of 16 bytes of dst, of rows whose addresses are anything: body_copy_row */
    FORM_COPIES,    /* DEVICE_COPY: units of 16 bytes, each to several places: dst, and as far behind it as boxes say */
    FORM_FILL,      /* DEVICE_COPY: writes `fill` */
    FORM_LANES4,    /* DEVICE_CAST: 4 elements a unit */
    FORM_LANES8,    /* DEVICE_CAST: 8 elements a unit, of at most 2 bytes in dst, and in src unless it is f32 */
    FORM_FOLD_F32,  /* DEVICE_FOLD: 4 elements of f32 a unit */
    FORM_FOLD_THIN, /* DEVICE_FOLD: 8 elements of a narrow float a unit */
    FORM_FOLD_BITS, /* DEVICE_FOLD: 16 bytes a unit, folded as `fold` says */
    FORM_ELEMENTS,  /* DEVICE_CAST_ANY, DEVICE_FOLD_ANY: one element a unit */
    FORM_TILES,     /* DEVICE_TRANSPOSE, DEVICE_TRANSPOSE_ANY: a tile a unit and block */
    FORM_TILES_LANES, /* DEVICE_TRANSPOSE_ANY: the same, between floats of up to 4 bytes */
    FORM_SUM,         /* DEVICE_SUM: 16 bytes a unit, and a block for all units */
};

#define CAST_ELEMENTS 16 /* of a thread of DEVICE_CAST */

/* Folds that need no cast, on the parts of 16 bytes. */
enum device_fold {
    FOLD_NONE,
    FOLD_ADD8,
    FOLD_ADD16,
    FOLD_ADD32,
    FOLD_AND,
    FOLD_OR,
    FOLD_XOR,
    FOLD_MIN_I32,
    FOLD_MAX_I32,
    FOLD_MIN_U32,
    FOLD_MAX_U32,
    FOLD_ADD64, /* this one and those behind it: parts of 8 bytes */
    FOLD_MIN_I64,
    FOLD_MAX_I64,
    FOLD_MIN_U64,
    FOLD_MAX_U64,
    FOLD_ADD_F64,
    FOLD_MIN_F64,
    FOLD_MAX_F64
};

struct device_item {
    uint32_t block;             /* its first block in the launch */
    uint32_t units;             /* of all its boxes */
    uint8_t form, loops, size;  /* size: bytes of a unit of a copy, of an element of dst otherwise */
    uint8_t member;             /* the loop whose turns are the boxes, or ITEM_NONE */
    uint8_t to, from, acc, via; /* dtypes; acc is never 0 where it is read, via may be; from: of all terms of a fold */
    uint8_t op, any;            /* any: addresses are not multiples of the elements' sizes */
    uint16_t rest;              /* elements of the last unit if it is not whole (copies: bytes); 0: it is whole */
    uint32_t terms;             /* of a fold */
    uint32_t more;              /* where the boxes (struct device_box) are, then the terms (struct device_term) */
    uint8_t alike;              /* folds: all terms have the strides that the loops have for src */
    uint8_t fold;               /* FORM_FOLD_BITS: enum device_fold */
    uint16_t pad;
    uint64_t dst, src;
    union {
        int64_t div;   /* folds and casts: at most 1: none */
        uint64_t fill; /* the value, repeated up to 8 bytes */
    } u;
    uint32_t turned[2]; /* tiles: turns of the loop along which dst is contiguous, and of that of src; FORM_ROWS: bytes
                           of a row, then 0; copies and folds to several places: how many boxes say, then 0 */
    /* the loops follow */
};

struct device_box {
    uint64_t dst, src;
};

struct device_term {
    uint64_t at;
    uint32_t dtype, unused;
    /* a stride for each loop follows, filled up to 16 bytes */
};

/* Elements of a side of a tile, and bytes of the tile with a column more, which spreads columns over the banks. */
#define TILE_SIDE(size) ((size) == 1 ? 128 : (size) <= 4 ? 64 : 32)
#define TILE_BYTES (32 * 33 * 16)
#endif
