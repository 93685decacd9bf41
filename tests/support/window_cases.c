#define _GNU_SOURCE
#include "window_cases.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "memory/memory.h"

#define WINDOW_DTYPES DTYPE_COUNT

static weft_buffer window_buffer(const char *name, enum weft_dtype dtype, int64_t count, size_t align)
{
    return (weft_buffer){.name = name, .dtype = dtype, .count = count, .align = align};
}

int window_number(const weft_window *w, const char *name)
{
    int buffer;
    return weft_window_find(w, name, &buffer) ? -1 : buffer;
}

static float *window_floats(weft_window *w, const char *name, int rank)
{
    return weft_window_pointer(w, window_number(w, name), rank);
}

int window_store(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count, size_t size)
{
    char *there = weft_window_pointer(w, buffer, rank);
    if (!there)
        return weft_window_put(w, buffer, rank, offset, src, count);
    memcpy(there + (size_t)offset * size, src, (size_t)count * size);
    return 0;
}

/* ---- shape ---- */

static bool window_is_all(const void *data, size_t n, int byte)
{
    return !values_bytes(data, n, byte);
}

/* Has the last call for a pointer said that the rank is on another host? */
static bool window_is_far(int rank, int me)
{
    char text[120];
    snprintf(text, sizeof text,
             "weft_window_pointer: rank %d is on another host than rank %d: weft_window_put reaches its memory", rank,
             me);
    return rank != me && !strcmp(weft_errmsg(), text);
}

void window_shape(struct ranks_rank *r)
{
    static const size_t aligns[] = {0, 1, 2, 64, 256, 4096};
    weft_buffer b[WINDOW_DTYPES + 2];
    char names[WINDOW_DTYPES][24];
    weft_window *w;
    for (int i = 0; i < WINDOW_DTYPES; i++) {
        snprintf(names[i], sizeof names[i], "of %s", weft_dtype_name(i + 1));
        b[i] = window_buffer(names[i], (enum weft_dtype)(i + 1), 7 * i + 1, aligns[i % 6]);
    }
    b[WINDOW_DTYPES] = window_buffer("none", WEFT_F64, 0, 4096);
    b[WINDOW_DTYPES + 1] = window_buffer("large", WEFT_I16, 600001, 32);
    for (int again = 0; again < 3; again++) { /* memory that was used before is zeroed again */
        RANKS_OK(r, weft_window_open(r->comm, b, WINDOW_DTYPES + 2, 3, &w));
        for (int i = 0; i < WINDOW_DTYPES + 2; i++) {
            size_t size = weft_dtype_size((int)b[i].dtype), align = b[i].align ? b[i].align : 128;
            RANKS_CHECK(r, window_number(w, b[i].name) == i);
            for (int q = 0; q < r->size; q++) {
                void *at = weft_window_pointer(w, i, q);
                if (!at && window_is_far(q, r->rank))
                    continue;
                RANKS_CHECK(r, at && (uintptr_t)at % (align > size ? align : size) == 0);
                RANKS_CHECK(r, window_is_all(at, (size_t)b[i].count * size, 0));
            }
        }
        for (int s = 0; s < 3; s++) {
            uint64_t value = 1;
            RANKS_OK(r, weft_window_signal(w, s, &value));
            RANKS_CHECK(r, value == 0);
        }
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        for (int i = 0; i < WINDOW_DTYPES + 2; i++) /* to the last byte, and no buffer on another */
            memset(weft_window_pointer(w, i, r->rank), 16 * r->rank + i + 1,
                   (size_t)b[i].count * weft_dtype_size((int)b[i].dtype));
        for (int s = 0; s < 3; s++)
            RANKS_OK(r, weft_window_notify(w, (r->rank + 1) % r->size, s, WEFT_NOTIFY_SET, ~UINT64_C(0)));
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        for (int q = 0; q < r->size; q++)
            for (int i = 0; i < WINDOW_DTYPES + 2; i++) {
                size_t bytes = (size_t)b[i].count * weft_dtype_size((int)b[i].dtype);
                const void *at = weft_window_pointer(w, i, q);
                RANKS_CHECK(r, at ? window_is_all(at, bytes, 16 * q + i + 1) : window_is_far(q, r->rank));
            }
        weft_window_close(w);
    }
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w)); /* signals alone */
    RANKS_OK(r, weft_window_notify(w, (r->rank + 1) % r->size, 0, WEFT_NOTIFY_SET, 1));
    RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, 1, WINDOW_LONG));
    weft_window_close(w);
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 0, &w)); /* a barrier alone */
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    weft_window_close(w);
}

/* ---- putting and notifying ---- */

void window_ping_pong(struct ranks_rank *r)
{
    enum { N = 37, TURNS = 500 };
    weft_buffer b = window_buffer("in", WEFT_I32, 2 * N, 0);
    weft_window *w;
    int32_t out[N];
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 2, &w));
    const int32_t *in = weft_window_pointer(w, 0, r->rank);
    int right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    for (int turn = 1; turn <= TURNS; turn++) {
        for (int i = 0; i < N; i++)
            out[i] = r->rank * 1000003 + turn * 101 + i;
        RANKS_OK(r, weft_window_put(w, 0, right, turn % 2 * N + 5, out, N - 5));
        RANKS_OK(r, weft_window_put(w, 0, right, turn % 2 * N, out + N - 5, 5));
        memset(out, 0, sizeof out); /* src may be used again */
        if (turn % 3)
            RANKS_OK(r, weft_window_notify(w, right, 0, WEFT_NOTIFY_ADD, 1));
        else
            RANKS_OK(r, weft_window_notify(w, right, 0, WEFT_NOTIFY_SET, (uint64_t)turn));
        RANKS_OK(r, weft_window_wait(w, 0, WEFT_GE, (uint64_t)turn, WINDOW_LONG));
        for (int i = 0; i < N; i++)
            RANKS_CHECK(r, in[turn % 2 * N + (i + 5) % N] == left * 1000003 + turn * 101 + i);
        RANKS_OK(r, weft_window_notify(w, left, 1, WEFT_NOTIFY_SET, (uint64_t)turn)); /* has been read */
        RANKS_OK(r, weft_window_wait(w, 1, WEFT_EQ, (uint64_t)turn, WINDOW_LONG));
    }
    int32_t five[5] = {1, 2, 3, 4, 5};
    RANKS_OK(r, weft_window_put(w, 0, r->rank, 10, five, 5)); /* into oneself, and within it */
    RANKS_OK(r, weft_window_put(w, 0, r->rank, 12, in + 10, 5));
    RANKS_CHECK(r, in[10] == 1 && in[11] == 2 && in[12] == 1 && in[16] == 5);
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    weft_window_close(w);
}

/* Plus or minus one in any dtype that can be added; minus one wraps where there is no sign. */
static void window_terms(void *terms, int dtype, int n, int sign)
{
    for (int i = 0; i < n; i++) {
        int64_t whole = sign;
        double real = sign;
        bool is_float = dtype_is_float(dtype);
        size_t size = weft_dtype_size(dtype);
        char *term = (char *)terms + (size_t)i * size;
        memory_cast_one(term, dtype, is_float ? (void *)&real : &whole, is_float ? WEFT_F64 : WEFT_I64);
        if (dtype_is_complex(dtype))
            memcpy(term + size / 2, term, size / 2);
    }
}

void window_add(struct ranks_rank *r)
{
    enum { N = 7, TURNS = 4001 };
    uint64_t plus[2 * N], minus[2 * N], want[2 * N];
    for (int dtype = WEFT_U8; dtype <= DTYPE_COUNT; dtype++) {
        if (!dtype_foldable(WEFT_SUM, dtype))
            continue;
        weft_buffer b = window_buffer("sum", (enum weft_dtype)dtype, N + 2, 1);
        weft_window *w;
        size_t size = weft_dtype_size(dtype);
        window_terms(plus, dtype, N, 1);
        window_terms(minus, dtype, N, -1);
        window_terms(want, dtype, N, r->size);
        RANKS_OK(r, weft_window_open(r->comm, &b, 1, 0, &w));
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        for (int t = 0; t < TURNS; t++)
            for (int q = 0; q < r->size; q++)
                RANKS_OK(r, weft_window_put_add(w, 0, q, 1, t % 2 ? minus : plus, N));
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        const char *mine = weft_window_pointer(w, 0, r->rank);
        if (values_memory(mine + size, want, N * size) || !window_is_all(mine, size, 0) ||
            !window_is_all(mine + (N + 1) * size, size, 0)) {
            ranks_note(r, __FILE__, __LINE__, "put_add of %s", weft_dtype_name(dtype));
            return;
        }
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        weft_window_close(w);
    }
}

void window_add_ends(struct ranks_rank *r)
{
    weft_buffer b[] = {window_buffer("f", WEFT_F32, 3, 0), window_buffer("h", WEFT_F16, 3, 0),
                       window_buffer("i", WEFT_I8, 1, 0), window_buffer("d", WEFT_F64, 1, 0)};
    weft_window *w;
    RANKS_OK(r, weft_window_open(r->comm, b, 4, 0, &w));
    float f[3] = {INFINITY, r->rank ? INFINITY : -INFINITY, -NAN}, *mine = weft_window_pointer(w, 0, 0);
    uint16_t h[3], *half = weft_window_pointer(w, 1, 0);
    double d = -(double)NAN;
    int8_t big = 100;
    for (int i = 0; i < 3; i++)
        memory_cast_one(&h[i], WEFT_F16, &f[i], WEFT_F32);
    RANKS_OK(r, weft_window_put_add(w, 0, 0, 0, f, 3));
    RANKS_OK(r, weft_window_put_add(w, 1, 0, 0, h, 3));
    RANKS_OK(r, weft_window_put_add(w, 2, 0, 0, &big, 1));
    RANKS_OK(r, weft_window_put_add(w, 3, 0, 0, &d, 1));
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    if (r->rank) {
        weft_window_close(w);
        return;
    }
    RANKS_CHECK(r, isinf(mine[0]) && mine[0] > 0 && isnan(mine[1]) && !signbit(mine[1]) && isnan(mine[2]) &&
                       !signbit(mine[2]));
    RANKS_CHECK(r, half[0] == 0x7c00 && half[1] == 0x7e00 && half[2] == 0x7e00);
    RANKS_CHECK(r, *(int8_t *)weft_window_pointer(w, 2, 0) == (int8_t)(uint8_t)(100 * r->size));
    RANKS_CHECK(r, !signbit(*(double *)weft_window_pointer(w, 3, 0)));
    weft_window_close(w);
}

/* ---- waiting ---- */

static bool window_holds(enum weft_compare how, uint64_t a, uint64_t b)
{
    switch (how) {
    case WEFT_EQ: return a == b;
    case WEFT_NE: return a != b;
    case WEFT_GE: return a >= b;
    case WEFT_GT: return a > b;
    case WEFT_LE: return a <= b;
    default: return a < b;
    }
}

void window_compare(struct ranks_rank *r)
{
    static const uint64_t values[] = {0, 1, 5, UINT64_C(1) << 63, ~UINT64_C(0)}; /* unsigned */
    weft_window *w;
    int right = (r->rank + 1) % r->size;
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 3, &w));
    for (int how = WEFT_EQ; how <= WEFT_LT; how++)
        for (int a = 0; a < 5; a++)
            for (int b = 0; b < 5; b++) {
                RANKS_OK(r, weft_window_notify(w, r->rank, 1, WEFT_NOTIFY_SET, values[a]));
                int err = weft_window_wait(w, 1, (enum weft_compare)how, values[b], 0);
                bool holds = window_holds((enum weft_compare)how, values[a], values[b]);
                RANKS_CHECK(r, err == (holds ? 0 : WEFT_ETIMEOUT));
            }
    /* A wait that begins before the other rank notifies, in each way. The signals go: 5, 7, 7, 8, 3, 2. */
    static const uint64_t next[] = {5, 7, 7, 8, 3, 2}, want[] = {5, 5, 7, 7, 3, 3};
    RANKS_OK(r, weft_window_notify(w, r->rank, 1, WEFT_NOTIFY_SET, 0));
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    for (int turn = 0; turn < 50; turn++)
        for (int i = 0; i < 6; i++) {
            if ((turn + i + r->rank) % 2)
                RANKS_OK(r, weft_window_notify(w, right, 1, WEFT_NOTIFY_SET, next[i]));
            RANKS_CHECK(r, weft_window_wait(w, 2, WEFT_GT, 0, (turn % 5) * 10000) == WEFT_ETIMEOUT); /* skew */
            if ((turn + i + r->rank) % 2 == 0)
                RANKS_OK(r, weft_window_notify(w, right, 1, WEFT_NOTIFY_SET, next[i]));
            RANKS_OK(r, weft_window_wait(w, 1, (enum weft_compare)(i + 1), want[i], WINDOW_LONG));
            RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        }
    RANKS_OK(r, weft_window_notify(w, right, 0, WEFT_NOTIFY_SET, 10));
    RANKS_OK(r, weft_window_notify(w, right, 0, WEFT_NOTIFY_ADD, ~UINT64_C(0))); /* one less */
    RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, 9, WEFT_FOREVER));
    RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE));
    weft_window_close(w);
}

/* ---- times that run out ---- */

void window_timeouts(struct ranks_rank *r)
{
    weft_window *w;
    int all[RANKS_MAX], last = r->size - 1, pair[2] = {0, last};
    for (int i = 0; i < r->size; i++)
        all[i] = i;
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 4, &w));
    RANKS_OK(r, weft_window_notify(w, r->rank, 3, WEFT_NOTIFY_SET, 5));
    for (int64_t t = 0; t <= 3 * MS; t += MS) {
        RANKS_CHECK(r, weft_window_wait(w, 3, WEFT_GE, 6, t) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, !strcmp(weft_errmsg(), "weft_window_wait: time ran out: signal 3 is 5, waiting for >= 6"));
    }
    if (r->rank == 0) { /* still in it after each of these, and it counts once */
        char text[120];
        snprintf(text, sizeof text, ": time ran out, rank%s %s", r->size > 2 ? "s" : "",
                 r->size == 2 ? "1 not there yet" : "1, ");
        for (int i = 0; i < 3; i++) {
            RANKS_CHECK(r, weft_window_barrier(w, i * MS) == WEFT_ETIMEOUT);
            RANKS_CHECK(r, strstr(ranks_said(), text) && !strncmp(weft_errmsg(), "weft_window_barrier", 19));
        }
        for (int i = 0; i < 3; i++)
            RANKS_CHECK(r, weft_window_barrier_with(w, pair + 1, 1, i * MS) == WEFT_ETIMEOUT);
        snprintf(text, sizeof text, "weft_window_barrier_with: time ran out, rank %d not there yet", last);
        RANKS_CHECK(r, !strcmp(ranks_said(), text));
        RANKS_CHECK(r, weft_window_barrier_with(w, pair, 2, 0) == WEFT_ETIMEOUT); /* oneself may be listed */
        RANKS_CHECK(r, r->size == 2 || weft_window_barrier_with(w, all, (size_t)r->size, 0) == WEFT_EBUSY);
        RANKS_CHECK(r, r->size == 2 || strstr(weft_errmsg(), "enter it again first"));
        for (int q = 1; q < r->size; q++)
            RANKS_OK(r, weft_window_notify(w, q, 0, WEFT_NOTIFY_SET, 1));
    } else {
        RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, 1, WINDOW_LONG));
    }
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    if (r->rank == 0 || r->rank == last)
        RANKS_OK(r, weft_window_barrier_with(w, pair, 2, WINDOW_LONG));
    /* Had a barrier counted more than once, this rank would find the others there before they came. */
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    if (r->rank == 0) {
        RANKS_CHECK(r, weft_window_barrier(w, 5 * MS) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, weft_window_barrier_with(w, pair, 2, 5 * MS) == WEFT_ETIMEOUT);
        for (int q = 1; q < r->size; q++)
            RANKS_OK(r, weft_window_notify(w, q, 0, WEFT_NOTIFY_SET, 2));
    }
    RANKS_OK(r, weft_window_wait(w, 0, r->rank ? WEFT_EQ : WEFT_NE, 2, WINDOW_LONG));
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    if (r->rank == 0 || r->rank == last)
        RANKS_OK(r, weft_window_barrier_with(w, pair, 2, WINDOW_LONG));
    weft_window_close(w);
}

/* ---- what is refused ---- */

static bool window_refused(struct ranks_rank *r, const weft_buffer *b, int n, int signals, int code, const char *text)
{
    weft_window *w = NULL;
    int err = weft_window_open(r->comm, b, (size_t)n, signals, &w);
    if (err == code && !w && !strcmp(ranks_said(), text))
        return true;
    ranks_note(r, __FILE__, __LINE__, "%d and '%s', not %d and '%s'", err, weft_errmsg(), code, text);
    return false;
}

void window_mismatch(struct ranks_rank *r)
{
    const weft_buffer a = WEFT_BUFFER("a", WEFT_F32, 8);
    static const struct {
        weft_buffer b;
        int n, signals, code;
        const char *text;
    } odd[] = {
        {WEFT_BUFFER("b", WEFT_F32, 8), 1, 2, WEFT_EMISMATCH,
         "buffer 0 of its window is 'b', f32, 8 elements, align 0; rank 0's is 'a', f32, 8 elements, align 0"},
        {WEFT_BUFFER("a", WEFT_I32, 8), 1, 2, WEFT_EMISMATCH,
         "buffer 0 of its window is 'a', i32, 8 elements, align 0; rank 0's is 'a', f32, 8 elements, align 0"},
        {WEFT_BUFFER("a", WEFT_F32, 9), 1, 2, WEFT_EMISMATCH,
         "buffer 0 of its window is 'a', f32, 9 elements, align 0; rank 0's is 'a', f32, 8 elements, align 0"},
        {{.name = "a", .dtype = WEFT_F32, .count = 8, .align = 64},
         1,
         2,
         WEFT_EMISMATCH,
         "buffer 0 of its window is 'a', f32, 8 elements, align 64; rank 0's is 'a', f32, 8 elements, align 0"},
        {WEFT_BUFFER("a", WEFT_F32, 8), 1, 3, WEFT_EMISMATCH,
         "its window has 1 buffers and 3 signals, rank 0's 1 and 2"},
        {WEFT_BUFFER("a", WEFT_F32, 8), 0, 2, WEFT_EMISMATCH,
         "its window has 0 buffers and 2 signals, rank 0's 1 and 2"},
        {WEFT_BUFFER(NULL, WEFT_F32, 8), 1, 2, WEFT_EINVAL, "weft_window_open: buffer 0 has no name"},
        {WEFT_BUFFER("", WEFT_F32, 8), 1, 2, WEFT_EINVAL, "weft_window_open: buffer 0 has no name"},
        {WEFT_BUFFER("a", (enum weft_dtype)99, 8), 1, 2, WEFT_EINVAL,
         "weft_window_open: buffer 'a': there is no dtype 99"},
        {WEFT_BUFFER("a", WEFT_F32, -8), 1, 2, WEFT_EINVAL, "weft_window_open: buffer 'a' has -8 elements"},
        {{.name = "a", .dtype = WEFT_F32, .count = 8, .align = 48},
         1,
         2,
         WEFT_EINVAL,
         "weft_window_open: the alignment of buffer 'a' is 48: it must be a power of two up to 4096"},
        {{.name = "a", .dtype = WEFT_F32, .count = 8, .align = 8192},
         1,
         2,
         WEFT_EINVAL,
         "weft_window_open: the alignment of buffer 'a' is 8192: it must be a power of two up to 4096"},
        {WEFT_BUFFER("a", WEFT_F32, INT64_C(1) << 60), 1, 2, WEFT_ENOMEM,
         "weft_window_open: no memory for a window of 4611686018427387904 bytes"},
        {WEFT_BUFFER("a", WEFT_F64, INT64_MAX), 1, 2, WEFT_EUNSUPPORTED,
         "weft_window_open: the buffers up to 'a' have more than 2^62 bytes"},
        {WEFT_BUFFER("a", WEFT_F32, 8), -1, 2, WEFT_EINVAL,
         "weft_window_open: 18446744073709551615 buffers and 2 signals"},
        {WEFT_BUFFER("a", WEFT_F32, 8), 1, -2, WEFT_EINVAL, "weft_window_open: 1 buffers and -2 signals"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char text[400];
        bool odd_one = r->rank == 1;
        snprintf(text, sizeof text, "rank 1: %s",
                 ranks_wide() && odd[i].code == WEFT_EMISMATCH ? "its window has other buffers or signals than rank 0's"
                                                               : odd[i].text);
        if (!window_refused(r, odd_one ? &odd[i].b : &a, odd_one ? odd[i].n : 1, odd_one ? odd[i].signals : 2,
                            odd[i].code, text))
            return;
    }
    const weft_buffer twice[] = {a, WEFT_BUFFER("b", WEFT_U8, 1), WEFT_BUFFER("a", WEFT_U8, 1)};
    if (!window_refused(r, twice, 3, 0, WEFT_EINVAL, "rank 0: weft_window_open: buffers 0 and 2 are both called 'a'") ||
        !window_refused(r, NULL, 1, 0, WEFT_EINVAL, "rank 0: weft_window_open: 1 buffers at NULL and 0 signals"))
        return;
    /* Ranks are in different calls. */
    weft_window *w = NULL;
    int err = r->rank == 1 ? weft_comm_barrier(r->comm, WINDOW_LONG) : weft_window_open(r->comm, &a, 1, 2, &w);
    RANKS_CHECK(r, err == WEFT_EMISMATCH && !w);
    const char said[] = "rank 0 is in weft_window_open, rank 1 in weft_comm_barrier";
    RANKS_CHECK(r, !strncmp(ranks_said(), said, strlen(said)));
    /* And all is well again. */
    RANKS_OK(r, weft_window_open(r->comm, &a, 1, 2, &w));
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    weft_window_close(w);
}
#define WINDOW_REFUSED(r, call, words) RANKS_CHECK(r, (call) == WEFT_EINVAL && !strcmp(weft_errmsg(), words))

void window_arguments(struct ranks_rank *r)
{
    const weft_buffer b[] = {WEFT_BUFFER("a", WEFT_F32, 8), WEFT_BUFFER("truth", WEFT_BOOL, 8)};
    weft_window *w;
    float x[8] = {0};
    uint64_t value;
    char text[160];
    RANKS_OK(r, weft_window_open(r->comm, b, 2, 2, &w));
    RANKS_CHECK(r, weft_window_open(NULL, b, 2, 2, &w) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_window_open(r->comm, b, 2, 2, NULL) == WEFT_EINVAL);
    int number = 99;
    WINDOW_REFUSED(r, weft_window_find(w, "b", &number), "weft_window_find: the window has no buffer 'b'");
    WINDOW_REFUSED(r, weft_window_find(w, NULL, &number), "weft_window_find: arguments must not be NULL");
    WINDOW_REFUSED(r, weft_window_find(w, "a", NULL), "weft_window_find: arguments must not be NULL");
    RANKS_CHECK(r, number == 99 && !weft_window_find(w, "truth", &number) && number == 1);
    RANKS_CHECK(r, !weft_window_pointer(w, 2, 0) && !weft_window_pointer(w, -1, 0) && !weft_window_pointer(NULL, 0, 0));
    RANKS_CHECK(r, !weft_window_pointer(w, 0, r->size) && !weft_window_pointer(w, 0, -1));
    WINDOW_REFUSED(r, weft_window_put(w, 2, 0, 0, x, 1), "weft_window_put: there is no buffer 2, the window has 2");
    WINDOW_REFUSED(r, weft_window_put(w, 0, 0, 5, x, 4), "weft_window_put: 4 elements from 5 on, buffer 'a' has 8");
    WINDOW_REFUSED(r, weft_window_put(w, 0, 0, -1, x, 4), "weft_window_put: 4 elements from -1 on, buffer 'a' has 8");
    WINDOW_REFUSED(r, weft_window_put(w, 0, 0, 9, x, 0), "weft_window_put: 0 elements from 9 on, buffer 'a' has 8");
    WINDOW_REFUSED(r, weft_window_put(w, 0, 0, 0, x, -1), "weft_window_put: -1 elements from 0 on, buffer 'a' has 8");
    WINDOW_REFUSED(r, weft_window_put(w, 0, 0, 1, x, INT64_MAX),
                   "weft_window_put: 9223372036854775807 elements from 1 on, buffer 'a' has 8");
    WINDOW_REFUSED(r, weft_window_put(w, 0, 0, 0, NULL, 1), "weft_window_put: src is NULL");
    RANKS_OK(r, weft_window_put(w, 0, 0, 8, NULL, 0));
    WINDOW_REFUSED(r, weft_window_put_add(w, 0, 0, 8, x, 1),
                   "weft_window_put_add: 1 elements from 8 on, buffer 'a' has 8");
    WINDOW_REFUSED(r, weft_window_put_add(w, 1, 0, 0, x, 1),
                   "weft_window_put_add: buffer 'truth' is bool, which cannot be added");
    snprintf(text, sizeof text, "weft_window_notify: there is no rank %d, the comm has %d", r->size, r->size);
    WINDOW_REFUSED(r, weft_window_notify(w, r->size, 0, WEFT_NOTIFY_SET, 1), text);
    WINDOW_REFUSED(r, weft_window_notify(w, 0, 2, WEFT_NOTIFY_SET, 1),
                   "weft_window_notify: there is no signal 2, the window has 2");
    WINDOW_REFUSED(r, weft_window_notify(w, 0, 0, (enum weft_notify)7, 1),
                   "weft_window_notify: there is no way 7 to notify");
    WINDOW_REFUSED(r, weft_window_wait(w, -1, WEFT_EQ, 0, 0),
                   "weft_window_wait: there is no signal -1, the window has 2");
    WINDOW_REFUSED(r, weft_window_wait(w, 0, (enum weft_compare)0, 0, 0), "weft_window_wait: there is no comparison 0");
    WINDOW_REFUSED(r, weft_window_signal(w, 9, &value), "weft_window_signal: there is no signal 9, the window has 2");
    WINDOW_REFUSED(r, weft_window_signal(w, 0, NULL), "weft_window_signal: value must not be NULL");
    WINDOW_REFUSED(r, weft_window_barrier(NULL, 0), "weft_window_barrier: the window is NULL");
    WINDOW_REFUSED(r, weft_window_barrier_with(w, (const int[]){0, 0}, 2, 0),
                   "weft_window_barrier_with: rank 0 is listed twice");
    WINDOW_REFUSED(
        r, weft_window_barrier_with(w, (const int[]){-1}, 1, 0),
        (snprintf(text, sizeof text, "weft_window_barrier_with: there is no rank -1, the comm has %d", r->size), text));
    RANKS_CHECK(r, weft_window_barrier_with(w, NULL, 1, 0) == WEFT_EINVAL);
    RANKS_OK(r, weft_window_barrier_with(w, NULL, 0, 0)); /* nobody to wait for */
    RANKS_OK(r, weft_window_barrier_with(w, &r->rank, 1, 0));
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    weft_window_close(w);
    weft_window_close(NULL);
}

/* ---- barriers ---- */

void window_skew(struct random *rnd)
{
    volatile int sink = 0;
    if (random_once_in(rnd, 3))
        for (int64_t n = random_in(rnd, 0, 2000); n > 0; n--)
            sink = (int)n;
    (void)sink;
}

void window_generations(struct ranks_rank *r)
{
    int turns = *(const int *)r->arg;
    const weft_buffer b = WEFT_BUFFER("turn", WEFT_I64, r->size);
    weft_window *w;
    struct random rnd = {(uint64_t)r->rank + 1};
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 0, &w));
    const int64_t *mine = weft_window_pointer(w, 0, r->rank);
    for (int64_t turn = 1; turn <= turns; turn++) {
        for (int q = 0; q < r->size; q++)
            RANKS_OK(r, window_store(w, 0, q, r->rank, &turn, 1, sizeof turn));
        window_skew(&rnd);
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
        values_begin();
        for (int q = 0; q < r->size; q++)
            VALUES_CHECK(q, mine[q], turn);
        RANKS_VALUES(r);
        window_skew(&rnd);
        RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    }
    weft_window_close(w);
}

void window_neighbours(struct ranks_rank *r)
{
    int turns = *(const int *)r->arg;
    const weft_buffer b = WEFT_BUFFER("turn", WEFT_I64, r->size);
    weft_window *w;
    struct random rnd = {(uint64_t)r->rank + 99};
    int beside[2] = {(r->rank + r->size - 1) % r->size, (r->rank + 1) % r->size}, n = beside[0] == beside[1] ? 1 : 2;
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 0, &w));
    const int64_t *mine = weft_window_pointer(w, 0, r->rank);
    for (int64_t turn = 1; turn <= turns; turn++) {
        for (int i = 0; i < n; i++)
            RANKS_OK(r, window_store(w, 0, beside[i], r->rank, &turn, 1, sizeof turn));
        window_skew(&rnd);
        RANKS_OK(r, weft_window_barrier_with(w, beside, (size_t)n, WINDOW_LONG));
        values_begin();
        for (int i = 0; i < n; i++)
            VALUES_CHECK(beside[i], mine[beside[i]], turn);
        RANKS_VALUES(r);
        window_skew(&rnd);
        RANKS_OK(r, weft_window_barrier_with(w, beside, (size_t)n, WINDOW_LONG));
    }
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    weft_window_close(w);
}

/* One member's part in an allreduce of a group of two, whose terms each stores at the other. */
static void window_pair(struct ranks_rank *r, weft_window *w, int other, int turn)
{
    enum { N = 64 };
    const char *name = r->rank + other == 1 ? "01" : r->rank + other == 2 ? "02" : "12";
    float mine[N];
    const float *theirs = window_floats(w, name, r->rank);
    for (int i = 0; i < N; i++)
        mine[i] = (float)(i + 100 * r->rank + turn);
    RANKS_OK(r, window_store(w, window_number(w, name), other, 0, mine, N, sizeof *mine));
    RANKS_OK(r, weft_window_barrier_with(w, &other, 1, WINDOW_LONG));
    values_begin();
    for (int i = 0; i < N; i++)
        VALUES_CHECK(i, mine[i] + theirs[i], (float)(2 * i + 100 * (r->rank + other) + 2 * turn));
    RANKS_VALUES(r);
    RANKS_OK(r, weft_window_barrier_with(w, &other, 1, WINDOW_LONG));
}

void window_overlap(struct ranks_rank *r)
{
    static const int others[3][2] = {{1, 2}, {0, 2}, {1, 0}}; /* 12 before 02 on rank 2, or they wait in a circle */
    int turns = *(const int *)r->arg;
    const weft_buffer b[] = {WEFT_BUFFER("01", WEFT_F32, 64), WEFT_BUFFER("02", WEFT_F32, 64),
                             WEFT_BUFFER("12", WEFT_F32, 64)};
    weft_window *w;
    struct random rnd = {(uint64_t)r->rank + 7};
    RANKS_OK(r, weft_window_open(r->comm, b, 3, 0, &w));
    for (int turn = 0; turn < turns && !r->failed[0]; turn++) {
        for (int k = 0; k < 2; k++) {
            window_skew(&rnd);
            window_pair(r, w, others[r->rank][k], turn);
        }
        if (turn % 5 == 0)
            RANKS_OK(r, weft_window_barrier_with(w, (const int[]){0, 1, 2}, 3, WINDOW_LONG));
        if (turn % 7 == 0)
            RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    }
    RANKS_OK(r, weft_window_barrier(w, WINDOW_LONG));
    weft_window_close(w);
}
