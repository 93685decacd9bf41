/* Copies of pieces that are shorter than a vector. A copy piece by piece takes a load and a store for a few bytes. Here
 * the positions of all bytes are found once: after some turns the output is a whole number of vectors, and what follows
 * is the same again, some bytes further on in each source. Each vector of this period is looked up, by a table, in
 * vectors that are read from a few places.
 *
 * Bytes between those that are needed are read as well, but none before the first or behind the last one of a piece. */
#include "memory/pick.h"

#include <string.h>

#include "base/math.h"
#include "memory/kernels.h"

#define PERIOD 512 /* bytes at most */
#define VECTORS (PERIOD / PICK_VECTOR)
#define LEAST 16 /* periods for which tables pay */
#define FEW 4    /* vectors that one instruction looks into, or nearly so */

struct period {
    int64_t turns, bytes, count; /* count: periods that can be read whole */
    int n, ways;
    bool apart;
    struct pick_vector vectors[VECTORS];
    int64_t left[VECTORS][PICK_WAYS]; /* bytes that can be read from the beginning of each place on, in all periods */
};

/* One byte of a vector: where it is in the first period, how far on in the next one, and how many bytes from it on its
 * piece has in all turns. */
struct byte {
    const unsigned char *at;
    int64_t step, left;
};

static void list_bytes(struct byte *b, const struct period *t, const struct pick_piece *pieces, int n, int64_t first,
                       int64_t turns)
{
    const int64_t all = t->bytes / t->turns;
    int64_t turn = first / all, at = first % all;
    int i = 0;
    for (; at >= pieces[i].bytes; i++)
        at -= pieces[i].bytes;
    for (int j = 0; j < PICK_VECTOR; j++) {
        const struct pick_piece *p = &pieces[i];
        b[j] = (struct byte){p->src + turn * p->step + at, p->step * t->turns,
                             (turns - 1 - turn) * p->step + p->bytes - at};
        if (++at == p->bytes) {
            at = 0;
            turn += ++i == n;
            i %= n;
        }
    }
}

/* Vectors that follow each other. Returns how many; 0: too many. */
static int lay_run(struct pick_vector *v, int64_t *left, const struct byte *b)
{
    int n = 0;
    for (int j = 0; j < PICK_VECTOR; j++) {
        const uintptr_t at = (uintptr_t)b[j].at - (uintptr_t)b->at;
        if (b[j].step != b->step || at >= PICK_WAYS * PICK_VECTOR)
            return 0;
        v->table[j] = (uint8_t)at;
        n = (int)(at / PICK_VECTOR) < n ? n : (int)(at / PICK_VECTOR) + 1;
    }
    v->src[0] = b->at;
    v->step[0] = b->step;
    left[0] = b->left;
    return n;
}

/* Vectors each of which begins with a byte that those before do not have. Those that are not needed are like the
 * first. */
static int lay_apart(struct pick_vector *v, int64_t *left, const struct byte *b)
{
    int n = 0;
    for (int j = 0, k; j < PICK_VECTOR; j++) {
        for (k = 0; k < n; k++)
            if (v->step[k] == b[j].step && (uintptr_t)b[j].at - (uintptr_t)v->src[k] < PICK_VECTOR)
                break;
        if (k == PICK_WAYS)
            return 0;
        if (k == n) {
            v->src[n] = b[j].at;
            v->step[n] = b[j].step;
            left[n++] = b[j].left;
        }
        v->table[j] = (uint8_t)(k * PICK_VECTOR + (int)(b[j].at - v->src[k]));
    }
    for (int k = n; k < PICK_WAYS; k++) {
        v->src[k] = v->src[0];
        v->step[k] = v->step[0];
        left[k] = left[0];
    }
    return n;
}

/* Lays out all vectors of the period. The last one may overlap the one before. False: some need too many others. */
static bool lay_out(struct period *t, const struct pick_piece *pieces, int n, int64_t turns, bool apart)
{
    t->n = t->ways = 0;
    t->apart = apart;
    for (int64_t at = 0; at < t->bytes; at += PICK_VECTOR, t->n++) {
        struct pick_vector *v = &t->vectors[t->n];
        struct byte b[PICK_VECTOR];
        v->to = min64(at, t->bytes - PICK_VECTOR);
        list_bytes(b, t, pieces, n, v->to, turns);
        const int ways = (apart ? lay_apart : lay_run)(v, t->left[t->n], b);
        if (!ways)
            return false;
        t->ways = ways > t->ways ? ways : t->ways;
    }
    return true;
}

/* Counts the periods that can be read whole. */
static void count_periods(struct period *t)
{
    const int64_t bytes = t->apart ? PICK_VECTOR : t->ways * PICK_VECTOR;
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < (t->apart ? t->ways : 1); k++) {
            const int64_t step = t->vectors[i].step[k], left = t->left[i][k];
            t->count = step <= 0 || left < bytes ? 0 : min64(t->count, (left - bytes) / step + 1);
        }
}

/* Turns with gaps between them are periods of their own. */
static bool make_period(struct period *t, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += pieces[i].bytes;
    t->turns = 1;
    while (all * t->turns % PICK_VECTOR && dstep == all && all * (t->turns + 1) <= PERIOD)
        t->turns++;
    t->bytes = all * t->turns;
    t->count = turns / t->turns;
    if (t->bytes < PICK_VECTOR || t->bytes > PERIOD || t->count < LEAST)
        return false;
    const bool run = lay_out(t, pieces, n, turns, false);
    const int ways = run ? t->ways : PICK_WAYS;
    if (ways > FEW && (!lay_out(t, pieces, n, turns, true) || ways <= t->ways + 1) &&
        !(run && lay_out(t, pieces, n, turns, false)))
        return false;
    count_periods(t);
    return t->count > 0;
}

int64_t pick_turns(unsigned char *dst, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns)
{
    pick_loop *loop = memory_level_kernels()->pick;
    struct period t;
    if (!loop || !make_period(&t, dstep, pieces, n, turns))
        return 0;
    loop(dst, t.turns * dstep, t.vectors, t.n, t.ways, t.apart, t.count);
    return t.count * t.turns;
}
