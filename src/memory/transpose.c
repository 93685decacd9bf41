/* Transposes: one side is contiguous along one loop, the other side along another. Some rows of src at a time are
 * transposed in registers, vector by vector, so that whole lines of dst are written. The next rows are those whose
 * elements follow in the same columns of dst.
 *
 * For this, a line of each of these rows must stay in the first-level cache until all its vectors are read. That fails
 * if the distance of rows is a multiple of a large power of two, since they then share the same sets of the cache. In
 * this case, and if elements are cast or so small that lines are not written whole, rows are first read in runs of some
 * lines into a block, and the block is written out transposed, in runs of dst. The rows of the next block are read
 * while this one is written, a row and some columns in turn, so that memory does not wait. A cast happens on the way
 * into the block.
 *
 * Some processors read each line before they write it, even if it will be written whole. With many columns open at a
 * time this costs half of the memory bandwidth or more. So x86-64 writes the lines of a large dst with nontemporal
 * stores. */
#include "memory/transpose.h"

#include <string.h>
#if defined __x86_64__
#include <emmintrin.h>
#endif

#include "base/dtype.h"
#include "memory/cast.h"
#include "memory/raw.h"

#define LINE 64 /* bytes of a cache line */
#define ROWS 32 /* of a block */
#define RUN 512 /* bytes of each */
/* The distance of rows in a block: no power of two, so that they do not share the same sets of the cache. */
#define ROW (RUN + LINE)
/* Rows: far enough for memory; with more the hardware also begins to prefetch, which does not help. */
#define AHEAD 4
#define BAND 256        /* bytes of a row that are read before the next rows: as many columns are open in dst */
#define LARGE (1 << 20) /* bytes of dst that are more than the caches keep */
#define MEET 4096       /* rows that are a multiple of it apart share the same sets of the cache */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct block {
    const unsigned char *data;
    unsigned char *to;          /* where its first column goes; the next column is `across` bytes further on */
    int64_t across, high, wide; /* rows, and elements of each */
};

/* x[j] = column j of `lanes` rows that are 16 bytes wide. log2(lanes) rounds of interleaving the upper half of the
 * rows with the lower half turn a square of vectors. */
#define ROUND(x, lanes, LOW, HIGH)                                                \
    do {                                                                          \
        vector y[lanes];                                                          \
        for (int i = 0; i < lanes / 2; i++) {                                     \
            y[2 * i] = __builtin_shufflevector(x[i], x[i + lanes / 2], LOW);      \
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + lanes / 2], HIGH); \
        }                                                                         \
        memcpy(x, y, sizeof y);                                                   \
    } while (0)

/* Stores of two vectors, one behind the other, and of four, which are a line. Stores leave the processor in the order
 * of the code. A line whose parts come in another order is not merged as well, and compilers would reorder them. */
#if defined __aarch64__
#define STORE_PAIR(to, a, b) __asm__ volatile("stp %q1, %q2, [%0]" : : "r"(to), "w"(a), "w"(b) : "memory")
#define STORE_LINE(to, a, b, c, d)                                  \
    __asm__ volatile("stp %q1, %q2, [%0]\n stp %q3, %q4, [%0, #32]" \
                     :                                              \
                     : "r"(to), "w"(a), "w"(b), "w"(c), "w"(d)      \
                     : "memory")
#else
#define STORE_PAIR(to, a, b)         \
    do {                             \
        memcpy((to), &(a), 16);      \
        memcpy((to) + 16, &(b), 16); \
    } while (0)
#define STORE_LINE(to, a, b, c, d)   \
    do {                             \
        STORE_PAIR(to, a, b);        \
        STORE_PAIR((to) + 32, c, d); \
    } while (0)
#endif

/* Nontemporal stores of whole lines. They are ordered with other stores only after STREAMED. */
#if defined __x86_64__
#define STREAM_PAIR(to, a, b)                                           \
    do {                                                                \
        _mm_stream_si128((__m128i *)(void *)(to), (__m128i)(a));        \
        _mm_stream_si128((__m128i *)(void *)((to) + 16), (__m128i)(b)); \
    } while (0)
#define STREAM_LINE(to, a, b, c, d)   \
    do {                              \
        STREAM_PAIR(to, a, b);        \
        STREAM_PAIR((to) + 32, c, d); \
    } while (0)
#define STREAMED() _mm_sfence()
#endif

/* Hides from compilers that one address follows from another one. Otherwise they would keep every address that a loop
 * needs in a register of its own. */
#define HIDE(pointer) __asm__("" : "+r"(pointer))

/* Turns a tile: 16 bytes of as many rows as `squares` side by side have; row r is read at `source`. They are held in
 * registers, so that lines of dst are written whole, STORE by STORE. */
#define WRITE_TILE(to, across, squares, lanes, TURN, STORE, source)                                   \
    do {                                                                                              \
        vector x[squares][lanes];                                                                     \
        unsigned char *line = (to);                                                                   \
        for (int s = 0; s < squares; s++) {                                                           \
            for (int i = 0; i < lanes; i++) {                                                         \
                const int r = s * lanes + i;                                                          \
                memcpy(&x[s][i], source, 16);                                                         \
            }                                                                                         \
            TURN(x[s]);                                                                               \
        }                                                                                             \
        for (int i = 0; i < lanes; i++, line += (across)) {                                           \
            HIDE(line);                                                                               \
            if (squares == 4)                                                                         \
                STORE##_LINE(line, x[0][i], x[1 % squares][i], x[2 % squares][i], x[3 % squares][i]); \
            else if (squares == 2)                                                                    \
                STORE##_PAIR(line, x[0][i], x[1 % squares][i]);                                       \
            else                                                                                      \
                memcpy(line, &x[0][i], 16);                                                           \
        }                                                                                             \
    } while (0)

/* Writes the columns that fill 16 bytes of some rows of a block in the cache, `from` on in the first of them. */
#define COLUMNS(name, bytes, squares, T, TURN, STORE)                                           \
    static inline __attribute__((always_inline)) void name(unsigned char *to, int64_t across,   \
                                                           const unsigned char *from, int rows) \
    {                                                                                           \
        enum { lanes = 16 / bytes, step = lanes * squares };                                    \
        typedef T vector __attribute__((vector_size(16)));                                      \
        for (int a = 0; a < rows; a += step, from += step * ROW, to += step * bytes)            \
            WRITE_TILE(to, across, squares, lanes, TURN, STORE, from + r * ROW);                \
    }

/* Writes a whole block, its rows `row` bytes apart. */
#define WHOLE(bytes, squares, T, TURN)                                                                       \
    static void whole_##bytes(const struct block *k, int64_t row)                                            \
    {                                                                                                        \
        enum { lanes = 16 / bytes, step = lanes * squares };                                                 \
        typedef T vector __attribute__((vector_size(16)));                                                   \
        const int64_t high = k->high - k->high % step, wide = k->wide - k->wide % lanes, across = k->across; \
        for (int64_t a = 0; a < high; a += step) {                                                           \
            const unsigned char *rows[step];                                                                 \
            unsigned char *to = k->to + a * bytes;                                                           \
            for (int i = 0; i < step; i++)                                                                   \
                rows[i] = k->data + (a + i) * row;                                                           \
            for (int64_t at = 0; at < wide * bytes; at += 16, to += lanes * across)                          \
                WRITE_TILE(to, across, squares, lanes, TURN, STORE, rows[r] + at);                           \
        }                                                                                                    \
        for (int64_t b = 0; b < k->wide; b++)                                                                \
            for (int64_t a = b < wide ? high : 0; a < k->high; a++)                                          \
                memcpy(k->to + b * across + a * bytes, k->data + a * row + b * bytes, bytes);                \
    }

#define LIST(...) __VA_ARGS__
#define ROUND_1(x)                                                             \
    ROUND(x, 16, LIST(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), \
          LIST(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))
#define ROUND_2(x) ROUND(x, 8, LIST(0, 8, 1, 9, 2, 10, 3, 11), LIST(4, 12, 5, 13, 6, 14, 7, 15))
#define ROUND_8(x) ROUND(x, 2, LIST(0, 2), LIST(1, 3))
#define TURN_1(x) \
    ROUND_1(x);   \
    ROUND_1(x);   \
    ROUND_1(x);   \
    ROUND_1(x)
#define TURN_2(x) \
    ROUND_2(x);   \
    ROUND_2(x);   \
    ROUND_2(x)
/* Two rounds in which neighbours meet: first elements, then pairs of them. */
#define TURN_4(x)                                               \
    do {                                                        \
        vector y[4];                                            \
        y[0] = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5); \
        y[1] = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7); \
        y[2] = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5); \
        y[3] = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7); \
        x[0] = __builtin_shufflevector(y[0], y[2], 0, 1, 4, 5); \
        x[1] = __builtin_shufflevector(y[0], y[2], 2, 3, 6, 7); \
        x[2] = __builtin_shufflevector(y[1], y[3], 0, 1, 4, 5); \
        x[3] = __builtin_shufflevector(y[1], y[3], 2, 3, 6, 7); \
    } while (0)
#define TURN_8(x) ROUND_8(x)
#define TURN_16(x) (void)(x)
WHOLE(1, 1, uint8_t, TURN_1)
WHOLE(2, 2, uint16_t, TURN_2)
WHOLE(4, 4, uint32_t, TURN_4)
WHOLE(8, 4, uint64_t, TURN_8)
WHOLE(16, 4, uint64_t, TURN_16)
COLUMNS(columns_1, 1, 1, uint8_t, TURN_1, STORE)
COLUMNS(columns_2, 2, 2, uint16_t, TURN_2, STORE)
COLUMNS(columns_4, 4, 4, uint32_t, TURN_4, STORE)
COLUMNS(columns_8, 8, 4, uint64_t, TURN_8, STORE)
COLUMNS(columns_16, 16, 4, uint64_t, TURN_16, STORE)
#ifdef STREAM_PAIR
COLUMNS(streams_2, 2, 4, uint16_t, TURN_2, STREAM)
COLUMNS(streams_4, 4, 4, uint32_t, TURN_4, STREAM)
COLUMNS(streams_8, 8, 4, uint64_t, TURN_8, STREAM)
COLUMNS(streams_16, 16, 4, uint64_t, TURN_16, STREAM)
#endif

/* Copies four lines, and prefetches four later ones: after the loads, before the stores. In the orders that compilers
 * choose, a row costs more. */
static inline __attribute__((always_inline)) void copy_lines(unsigned char *to, const unsigned char *from,
                                                             const unsigned char *ahead)
{
#if defined __aarch64__
    __asm__ volatile("ldp q0, q1, [%1]\n ldp q2, q3, [%1, #32]\n ldp q4, q5, [%1, #64]\n ldp q6, q7, [%1, #96]\n"
                     "ldp q16, q17, [%1, #128]\n ldp q18, q19, [%1, #160]\n"
                     "ldp q20, q21, [%1, #192]\n ldp q22, q23, [%1, #224]\n"
                     "prfm pldl2keep, [%2]\n prfm pldl2keep, [%2, #64]\n"
                     "prfm pldl2keep, [%2, #128]\n prfm pldl2keep, [%2, #192]\n"
                     "stp q0, q1, [%0]\n stp q2, q3, [%0, #32]\n stp q4, q5, [%0, #64]\n stp q6, q7, [%0, #96]\n"
                     "stp q16, q17, [%0, #128]\n stp q18, q19, [%0, #160]\n"
                     "stp q20, q21, [%0, #192]\n stp q22, q23, [%0, #224]\n"
                     :
                     : "r"(to), "r"(from), "r"(ahead)
                     : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22",
                       "v23", "memory");
#else
    RAW_UNROLL for (int i = 0; i < 4 * LINE; i += LINE) __builtin_prefetch(ahead + i, 0, 2);
    RAW_UNROLL for (int i = 0; i < 4 * LINE; i += LINE) memcpy(to + i, from + i, LINE);
#endif
}

/* The address that is prefetched may be beyond src. */
static inline const unsigned char *later_row(const unsigned char *from, int64_t srow)
{
    return (const void *)((uintptr_t)from + (uintptr_t)(AHEAD * srow));
}

/* Reads row `from` of src into the block, and prefetches a row that comes later. */
static inline __attribute__((always_inline)) void read_row(const struct transpose *t, unsigned char *to,
                                                           const unsigned char *from, int64_t size, int64_t wide)
{
    const unsigned char *ahead = later_row(from, t->srow);
    if (t->to != t->from) {
        for (int64_t i = 0; i < wide * t->ssize; i += LINE)
            __builtin_prefetch(ahead + i, 0, 2);
        cast_run(to, t->to, from, t->from, (size_t)wide);
    } else if (wide * size == RUN) {
        RAW_UNROLL for (int i = 0; i < RUN; i += 4 * LINE) copy_lines(to + i, from + i, ahead + i);
    } else {
        memcpy(to, from, (size_t)(wide * size));
    }
}

static inline __attribute__((always_inline)) void read_block(const struct transpose *t, unsigned char *to,
                                                             const unsigned char *from, int64_t size, int64_t high,
                                                             int64_t wide)
{
    for (int64_t r = 0; r < high; r++)
        read_row(t, to + r * ROW, from + r * t->srow, size, wide);
}

typedef void turn_columns(unsigned char *to, int64_t across, const unsigned char *from, int rows);
typedef void turn_whole(const struct block *k, int64_t row);

/* Moves all full blocks except the last one, in strips of RUN bytes of the rows, from the first row to the last. Each
 * block is read into `in` while the one before, in `out`, is written: a row and some columns in turn. Then the two are
 * exchanged. The first block has been read already.
 *
 * Nothing else may be stored meanwhile: a register that is spilled to the stack writes a part of a line among the whole
 * lines that bypass the first-level cache, and at every second position of the stack all then takes a sixth longer. So
 * these moves have a function of their own, for all blocks, and with HIDE its registers suffice. */
static inline __attribute__((always_inline)) void pace(const struct transpose *t, unsigned char *dst,
                                                       const unsigned char *src, unsigned char *in, unsigned char *out,
                                                       const int64_t size, const int parts, bool casts,
                                                       turn_columns *columns)
{
    const int64_t most = RUN / size, lanes = 16 / size, srow = t->srow, across = t->drow;
    const unsigned char *from = src + ROWS * srow;
    unsigned char *to = dst, *next = dst;
    int64_t left = t->high / ROWS - 1; /* blocks of this strip */
    for (int64_t n = t->high / ROWS * (t->wide / most) - 1; n; n--) {
        if (left) {
            next += ROWS * size;
        } else {
            left = t->high / ROWS;
            src += casts ? most * t->ssize : RUN;
            from = src;
            dst += most * across;
            next = dst;
        }
        left--;
        for (int turn = 0; turn < ROWS; turn++) {
            if (casts)
                read_row(t, in, from, size, most);
            RAW_UNROLL for (int part = 0; part < parts; part++)
            {
                const int rows = ROWS / parts, r = rows * part, bytes = RUN / parts, at = bytes * part;
                if (!casts)
                    RAW_UNROLL for (int i = 0; i < bytes; i += 4 * LINE)
                        copy_lines(in + at + i, from + at + i, later_row(from, srow) + at + i);
                columns(to + r * size, across, out + r * ROW, rows);
            }
            from += srow;
            in += ROW;
            out += 16;
            to += lanes * across;
            HIDE(out);
        }
        unsigned char *read = in - ROWS * ROW;
        in = out - RUN;
        out = read;
        to = next;
    }
}

/* A loop that goes on from one page of code to the next takes a third longer on AArch64. */
#define IN_PAGE static __attribute__((noinline, aligned(1024)))

typedef void turn_blocks(const struct transpose *t, unsigned char *dst, const unsigned char *src, unsigned char *in,
                         unsigned char *out);
#define PACE(columns, size, parts)                                                                       \
    IN_PAGE void move_##columns(const struct transpose *t, unsigned char *dst, const unsigned char *src, \
                                unsigned char *in, unsigned char *out)                                   \
    {                                                                                                    \
        pace(t, dst, src, in, out, size, parts, false, columns);                                         \
    }                                                                                                    \
    IN_PAGE void cast_##columns(const struct transpose *t, unsigned char *dst, const unsigned char *src, \
                                unsigned char *in, unsigned char *out)                                   \
    {                                                                                                    \
        pace(t, dst, src, in, out, size, parts, true, columns);                                          \
    }
PACE(columns_1, 1, 2)
PACE(columns_2, 2, 2)
PACE(columns_4, 4, 2)
PACE(columns_8, 8, 2)
PACE(columns_16, 16, 2)
#ifdef STREAM_PAIR
PACE(streams_2, 2, 1)
PACE(streams_4, 4, 1)
PACE(streams_8, 8, 1)
PACE(streams_16, 16, 1)
#endif

/* One of the blocks from row a, column b on that are not full. */
static inline __attribute__((always_inline)) void walk_edge(const struct transpose *t, unsigned char *dst,
                                                            const unsigned char *src, unsigned char *buf, int64_t a,
                                                            int64_t b, const int64_t size, turn_whole *whole)
{
    const struct block k = {buf, dst + b * t->drow + a * size, t->drow, least(ROWS, t->high - a),
                            least(RUN / size, t->wide - b)};
    read_block(t, buf, src + a * t->srow + b * t->ssize, size, k.high, k.wide);
    whole(&k, ROW);
}

static inline __attribute__((always_inline)) void walk(const struct transpose *t, unsigned char *dst,
                                                       const unsigned char *src, const int64_t size, turn_blocks *moves,
                                                       turn_blocks *casts, turn_whole *whole)
{
    _Alignas(LINE) unsigned char buf[2][ROWS * ROW];
    const int64_t most = RUN / size, high = t->high - t->high % ROWS, wide = t->wide - t->wide % most;
    if (high && wide) {
        int64_t a = high - ROWS, b = wide - most;
        struct block last = {buf[(high / ROWS * (wide / most) - 1) % 2], dst + b * t->drow + a * size, t->drow, ROWS,
                             most};
        read_block(t, buf[0], src, size, ROWS, most);
        (t->to == t->from ? moves : casts)(t, dst, src, buf[1], buf[0]);
        whole(&last, ROW);
    }
    for (int64_t b = 0; b < wide && high < t->high; b += most)
        walk_edge(t, dst, src, buf[0], high, b, size, whole);
    for (int64_t a = 0; a < t->high && wide < t->wide; a += ROWS)
        walk_edge(t, dst, src, buf[0], a, wide, size, whole);
}

/* Without a block in between: bands of some columns, from the first row to the last. */
static void walk_straight(const struct transpose *t, unsigned char *dst, const unsigned char *src, int64_t size,
                          turn_whole *whole)
{
    const int64_t most = BAND / size;
    for (int64_t b = 0; b < t->wide; b += most) {
        const struct block band = {src + b * size, dst + b * t->drow, t->drow, t->high, least(most, t->wide - b)};
        whole(&band, t->srow);
    }
}

/* With nontemporal stores, if dst is larger than the caches and a block's columns are whole lines. */
static bool walk_streaming(const struct transpose *t, unsigned char *dst, const unsigned char *src, size_t size)
{
#ifdef STREAM_PAIR
    if (t->high * t->wide * (int64_t)size < LARGE || (uintptr_t)dst % LINE || t->drow % LINE)
        return false;
    switch (size) {
    case 2: walk(t, dst, src, 2, move_streams_2, cast_streams_2, whole_2); break;
    case 4: walk(t, dst, src, 4, move_streams_4, cast_streams_4, whole_4); break;
    case 8: walk(t, dst, src, 8, move_streams_8, cast_streams_8, whole_8); break;
    case 16: walk(t, dst, src, 16, move_streams_16, cast_streams_16, whole_16); break;
    default: return false;
    }
    STREAMED();
    return true;
#else
    (void)t, (void)dst, (void)src, (void)size;
    return false;
#endif
}

bool transpose_knows(size_t size)
{
    return size == 1 || size == 2 || size == 4 || size == 8 || size == 16;
}

void transpose(const struct transpose *t, void *dst, const void *src, size_t size)
{
    if (walk_streaming(t, dst, src, size))
        return;
    bool straight = t->to == t->from && t->srow % MEET;
    switch (straight ? size : 0) {
    case 4: walk_straight(t, dst, src, 4, whole_4); return;
    case 8: walk_straight(t, dst, src, 8, whole_8); return;
    case 16: walk_straight(t, dst, src, 16, whole_16); return;
    default: break;
    }
    switch (size) {
    case 1: walk(t, dst, src, 1, move_columns_1, cast_columns_1, whole_1); break;
    case 2: walk(t, dst, src, 2, move_columns_2, cast_columns_2, whole_2); break;
    case 4: walk(t, dst, src, 4, move_columns_4, cast_columns_4, whole_4); break;
    case 8: walk(t, dst, src, 8, move_columns_8, cast_columns_8, whole_8); break;
    default: walk(t, dst, src, 16, move_columns_16, cast_columns_16, whole_16); break;
    }
}
