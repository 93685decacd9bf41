/* Layouts of very many boxes: how long the list takes to check, index and hash, how much memory, and how long one rank
 * takes to lower then.
 *
 *   build/bench/boxes [RANKS [BOXES]]      boxes of each rank; default 1000 and 10000
 *
 * The tensor is a grid of tiles. Each side gives the tiles to ranks in an order of its own, so that the boxes of a rank
 * come from everywhere. "same tiles": both sides have the same tiles, and each box meets one. "other tiles": the
 * destination has tiles of another shape, and each box meets several. "rows of a mesh": the source is rows on a mesh.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/work/cost.h"
#include "weft.h"

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "build/bench/boxes: %s\n", weft_errmsg());
        exit(1);
    }
}

/* rows x columns tiles of height x width elements; tile i belongs to rank i * step mod ranks. */
static weft_layout *tiles(int64_t rows, int64_t columns, int64_t height, int64_t width, int ranks, int64_t step)
{
    int64_t n = rows * columns;
    int *rank = malloc((size_t)n * sizeof *rank);
    int64_t *at = malloc((size_t)n * 2 * sizeof *at), *len = malloc((size_t)n * 2 * sizeof *len);
    if (!rank || !at || !len)
        exit(1);
    for (int64_t i = 0; i < n; i++) {
        rank[i] = (int)(i * step % ranks);
        at[2 * i] = i / columns * height;
        at[2 * i + 1] = i % columns * width;
        len[2 * i] = height;
        len[2 * i + 1] = width;
    }
    weft_dim dims[2] = {{.extent = rows * height}, {.extent = columns * width}};
    weft_boxes boxes = {.n = (size_t)n, .rank = rank, .at = at, .len = len};
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    desc.dtype = WEFT_BF16;
    desc.ndim = 2;
    desc.dims = dims;
    desc.boxes = &boxes;
    weft_layout *l;
    double from = seconds();
    must(weft_layout_create(&desc, &l));
    printf("  made: %lld boxes of %d ranks in %.2f s, peak memory %.0f MiB\n", (long long)n, ranks, seconds() - from,
           peak());
    free(rank);
    free(at);
    free(len);
    return l;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void lower(const char *what, const weft_layout *src, const weft_layout *dst, int ranks)
{
    enum { TRIES = 15 };
    double took[TRIES];
    weft_stats s = WEFT_STATS_INIT;
    for (int i = 0; i < TRIES; i++) {
        weft_plan *p;
        double from = seconds();
        must(weft_lower(&(weft_move){"t", src, dst}, 1, (i * 397 + 5) % ranks, NULL, &p));
        took[i] = seconds() - from;
        must(weft_plan_stats(p, &s));
        weft_plan_free(p);
    }
    qsort(took, TRIES, sizeof *took, by_size);
    printf("  lowered, %s: %.1f ms a rank (median of %d; %.1f to %.1f), %lld parts, %d + %d peers\n", what,
           1e3 * took[TRIES / 2], TRIES, 1e3 * took[0], 1e3 * took[TRIES - 1], (long long)s.chunks, s.send_peers,
           s.recv_peers);
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 1000, each = argc > 2 ? atoi(argv[2]) : 10000;
    if (ranks < 1 || each < 4 || each % 4)
        return fprintf(stderr, "usage: build/bench/boxes [RANKS [BOXES]], BOXES a multiple of 4\n"), 2;
    int64_t rows = ranks, columns = each;
    char text[100];
    printf("%d ranks with %d boxes each\n", ranks, each);
    weft_layout *a = tiles(rows, columns, 24, 16, ranks, 1), *b = tiles(rows, columns, 24, 16, ranks, 7), *m;
    lower("same tiles", a, b, ranks);
    weft_layout_free(b);
    b = tiles(rows * 2, columns / 2, 12, 32, ranks, 7);
    lower("other tiles", a, b, ranks);
    snprintf(text, sizeof text, "bf16[%lld/x,%lld] @x%d", (long long)rows * 24, (long long)columns * 16, ranks);
    must(weft_layout_parse(text, &m));
    lower("rows of a mesh", m, b, ranks);
    lower("to rows of a mesh", a, m, ranks);
    weft_layout_free(a);
    weft_layout_free(b);
    weft_layout_free(m);
    return 0;
}
