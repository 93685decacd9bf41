/* Boxes, neighbours and values; see grid.h. */
#include "bench/work/grid.h"

struct grid grid_of(const struct work_grid *cell, int rank)
{
    struct grid g = {.dims = cell->dims, .floats = 1};
    for (int d = g.dims - 1; d >= 0; d--) {
        g.ranks[d] = cell->ranks[d];
        g.coord[d] = rank % g.ranks[d];
        rank /= g.ranks[d];
        g.own[d] = cell->own[d];
        g.wide[d] = cell->wide[d];
        g.shape[d] = g.own[d] + 2 * g.wide[d];
        g.floats *= g.shape[d];
    }
    return g;
}

/* The neighbour at a side of each dim (-1, 0, 1); -1 if there is none. */
static int rank_at(const struct grid *g, const int *side)
{
    int rank = 0;
    for (int d = 0; d < g->dims; d++) {
        int c = g->coord[d] + side[d];
        if (c < 0 || c >= g->ranks[d] || (side[d] && !g->wide[d]))
            return -1;
        rank = rank * g->ranks[d] + c;
    }
    return rank;
}

/* What goes to that side and comes from it, along one dim. */
static void cut(const struct grid *g, int d, int side, struct grid_face *f)
{
    f->len[d] = side ? g->wide[d] : g->own[d];
    f->send[d] = side > 0 ? g->own[d] : g->wide[d];
    f->recv[d] = side > 0 ? g->own[d] + g->wide[d] : side ? 0 : g->wide[d];
}

int grid_faces(const struct grid *g, struct grid_face out[GRID_NEIGHBOURS])
{
    int n = 0, all = 1;
    for (int d = 0; d < g->dims; d++)
        all *= 3;
    for (int i = 0; i < all; i++) {
        int side[WORK_DIMS], rest = i;
        for (int d = g->dims - 1; d >= 0; d--, rest /= 3)
            side[d] = rest % 3 - 1;
        int rank = rank_at(g, side);
        if (rank < 0 || i == all / 2) /* the one in the middle is the rank itself */
            continue;
        struct grid_face f = {.rank = rank};
        for (int d = 0; d < g->dims; d++)
            cut(g, d, side[d], &f);
        out[n++] = f;
    }
    return n;
}

int grid_faces_along(const struct grid *g, int dim, struct grid_face out[2])
{
    int n = 0;
    for (int to = -1; to <= 1; to += 2) {
        int side[WORK_DIMS] = {0};
        side[dim] = to;
        int rank = rank_at(g, side);
        if (rank < 0)
            continue;
        struct grid_face f = {.rank = rank};
        for (int d = 0; d < g->dims; d++) {
            cut(g, d, side[d], &f);
            if (d < dim) {
                f.len[d] = g->shape[d];
                f.send[d] = f.recv[d] = 0;
            }
        }
        out[n++] = f;
    }
    return n;
}

static const float spoilt = -1;

/* Visits each slot, with its place in the whole grid, or -1 beyond the ends of the grid. */
static int64_t visit(const struct grid *g, float *fill, const float *check)
{
    int64_t wrong = 0, at[WORK_DIMS] = {0};
    for (int64_t i = 0; i < g->floats; i++) {
        int64_t place = 0;
        bool own = true;
        for (int d = 0; d < g->dims; d++) {
            int64_t x = at[d] - g->wide[d], all = x + g->coord[d] * g->own[d];
            own = own && x >= 0 && x < g->own[d];
            place = place < 0 || all < 0 || all >= g->own[d] * g->ranks[d] ? -1 : place * g->own[d] * g->ranks[d] + all;
        }
        if (fill)
            fill[i] = own ? work_value(place) : spoilt;
        else
            wrong += check[i] != (place < 0 ? spoilt : work_value(place));
        for (int d = g->dims - 1; d >= 0 && ++at[d] == g->shape[d]; d--)
            at[d] = 0;
    }
    return wrong;
}

void grid_fill(const struct grid *g, float *cells)
{
    visit(g, cells, NULL);
}

int64_t grid_check(const struct grid *g, const float *cells)
{
    return visit(g, NULL, cells);
}

double grid_moved(const struct work_grid *cell)
{
    int ranks = 1;
    double floats = 0;
    for (int d = 0; d < cell->dims; d++)
        ranks *= cell->ranks[d];
    for (int r = 0; r < ranks; r++) {
        struct grid_face f[GRID_NEIGHBOURS];
        struct grid g = grid_of(cell, r);
        for (int n = grid_faces(&g, f); n > 0; n--) {
            double count = 1;
            for (int d = 0; d < g.dims; d++)
                count *= (double)f[n - 1].len[d];
            floats += count;
        }
    }
    return floats * sizeof(float);
}

void grid_deal(int ranks, int dims, int out[WORK_DIMS])
{
    int primes[32], n = 0;
    for (int p = 2; ranks > 1; p++)
        for (; ranks % p == 0; ranks /= p)
            primes[n++] = p;
    for (int d = 0; d < WORK_DIMS; d++)
        out[d] = 1;
    while (n > 0) { /* deals out the largest factor first, to the dim that has the fewest ranks */
        int least = 0;
        for (int d = 1; d < dims; d++)
            least = out[d] < out[least] ? d : least;
        out[least] *= primes[--n];
    }
    for (int d = 1; d < dims; d++) /* in order: few dims */
        for (int k = d; k > 0 && out[k] > out[k - 1]; k--) {
            int t = out[k];
            out[k] = out[k - 1];
            out[k - 1] = t;
        }
}
