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

#define FEWEST 16                         /* bytes of a period */
#define LEAST 16                          /* periods for which tables pay */
#define FEW (PICK_MASKED ? PICK_WAYS : 4) /* vectors that are looked into as fast together as apart */

/* Bytes that can be read from the beginning of each place on, in all periods. */
struct left {
    int64_t of[PICK_PERIOD / PICK_VECTOR][PICK_WAYS];
};

/* One byte of a vector: where it is in the first period, how far on in the next one, and how many bytes from it on its
 * piece has in all turns. */
struct byte {
    const unsigned char *at;
    int64_t step, left;
};

static void list_bytes(struct byte *b, int bytes, const struct pick_period *t, const struct pick_piece *pieces, int n,
                       int64_t first, int64_t turns)
{
    const int64_t all = t->bytes / t->turns;
    int64_t turn = first / all, at = first % all;
    int i = 0;
    for (; at >= pieces[i].bytes; i++)
        at -= pieces[i].bytes;
    for (int j = 0; j < bytes; at = 0) {
        const struct pick_piece *p = &pieces[i];
        const unsigned char *from = p->src + turn * p->step;
        for (; at < p->bytes && j < bytes; at++)
            b[j++] = (struct byte){from + at, p->step * t->turns, (turns - 1 - turn) * p->step + p->bytes - at};
        turn += ++i == n;
        i = i < n ? i : 0;
    }
}

/* Byte j of the vector is the byte `at` of those that it is looked up in. */
static void take(struct pick_vector *v, int j, int at)
{
    v->table[j] = (uint8_t)at;
    v->way[j] = (uint8_t)(at / PICK_VECTOR);
}

/* Vectors that follow each other. Returns how many; 0: too many. */
static int lay_run(struct pick_vector *v, int64_t *left, const struct byte *b, int bytes)
{
    int n = 0;
    for (int j = 0; j < bytes; j++) {
        const uintptr_t at = (uintptr_t)b[j].at - (uintptr_t)b->at;
        if (b[j].step != b->step || at >= PICK_WAYS * PICK_VECTOR)
            return 0;
        take(v, j, (int)at);
        n = (int)(at / PICK_VECTOR) < n ? n : (int)(at / PICK_VECTOR) + 1;
    }
    v->src[0] = b->at;
    v->step[0] = b->step;
    left[0] = b->left;
    return n;
}

/* Vectors each of which begins with a byte that those before do not have. Those that are not needed are like the
 * first. */
static int lay_apart(struct pick_vector *v, int64_t *left, const struct byte *b, int bytes)
{
    int n = 0;
    for (int j = 0, k; j < bytes; j++) {
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
        take(v, j, k * PICK_VECTOR + (int)(b[j].at - v->src[k]));
    }
    for (int k = n; k < PICK_WAYS; k++) {
        v->src[k] = v->src[0];
        v->step[k] = v->step[0];
        left[k] = left[0];
    }
    return n;
}

/* Lays out all vectors of the period. The last one has fewer bytes, or overlaps the one before. False: some need too
 * many others. */
static bool lay_out(struct pick_period *t, struct left *left, const struct pick_piece *pieces, int n, int64_t turns,
                    bool apart)
{
    t->n = t->ways = 0;
    t->apart = apart;
    for (int64_t at = 0; at < t->bytes; at += PICK_VECTOR, t->n++) {
        struct pick_vector *v = &t->vectors[t->n];
        struct byte b[PICK_VECTOR];
        const int bytes = (int)min64(PICK_VECTOR, PICK_MASKED ? t->bytes - at : t->bytes);
        v->to = min64(at, t->bytes - bytes);
        v->bytes = bytes;
        list_bytes(b, bytes, t, pieces, n, v->to, turns);
        const int ways = (apart ? lay_apart : lay_run)(v, left->of[t->n], b, bytes);
        if (!ways)
            return false;
        t->ways = ways > t->ways ? ways : t->ways;
    }
    return true;
}

/* Counts the periods that can be read whole. */
static void count_periods(struct pick_period *t, const struct left *all)
{
    const int64_t bytes = t->apart ? PICK_VECTOR : t->ways * PICK_VECTOR;
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < (t->apart ? t->ways : 1); k++) {
            const int64_t step = t->vectors[i].step[k], left = all->of[i][k];
            t->count = step <= 0 || left < bytes ? 0 : min64(t->count, (left - bytes) / step + 1);
        }
}

/* Turns with gaps between them are periods of their own. Where a part of a vector can be stored, one vector is enough
 * for a period. */
static bool make_period(struct pick_period *t, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += pieces[i].bytes;
    const int64_t most = PICK_MASKED ? PICK_VECTOR : PICK_PERIOD;
    t->turns = 1;
    while (all * t->turns % PICK_VECTOR && dstep == all && all * (t->turns + 1) <= most)
        t->turns++;
    t->bytes = all * t->turns;
    t->count = turns / t->turns;
    if (t->bytes < FEWEST || t->bytes > PICK_PERIOD || t->count < LEAST)
        return false;
    struct left left;
    const bool run = lay_out(t, &left, pieces, n, turns, false);
    const int ways = run ? t->ways : PICK_WAYS + 1;
    if (ways > FEW && (!lay_out(t, &left, pieces, n, turns, true) || ways <= t->ways + 1) &&
        !(run && lay_out(t, &left, pieces, n, turns, false)))
        return false;
    count_periods(t, &left);
    return t->count > 0;
}

/* Not all processors of the level AVX-512 have VBMI. */
bool pick_here(void)
{
    const bool known = memory_level_kernels()->pick;
#if defined(__x86_64__)
    return known && __builtin_cpu_supports("avx512vbmi");
#else
    return known;
#endif
}

int64_t pick_begin(struct pick_period *t, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns)
{
    return pick_here() && make_period(t, dstep, pieces, n, turns) ? t->count * t->turns : 0;
}

void pick_next(struct pick_period *t, unsigned char *dst, int64_t dstep, int64_t turns)
{
    const int64_t periods = turns / t->turns;
    memory_level_kernels()->pick(dst, t->turns * dstep, t->vectors, t->n, t->ways, t->apart, periods);
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < (t->apart ? t->ways : 1); k++)
            t->vectors[i].src[k] += periods * t->vectors[i].step[k];
}

int64_t pick_turns(unsigned char *dst, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns)
{
    struct pick_period t;
    const int64_t picked = pick_begin(&t, dstep, pieces, n, turns);
    if (picked)
        pick_next(&t, dst, dstep, picked);
    return picked;
}
