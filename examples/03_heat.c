/* The heat equation in a plane, on any number of processes:
 *
 *   weft run -n 4 build/examples/03_heat heat.ppm
 *
 * The plane is cut both ways. Left and right wrap round; above the first row it is hot and below the last one it is
 * cold. Each rank has its cells with one ghost around them, twice: a step reads one buffer and writes the other. The
 * ghosts are filled in place while the cells that need none are computed. In the end rank 0 gathers the field, computes
 * all of it again by itself, finds the same bits, and paints it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#define ROWS 150 /* as they come: pieces are not all of one size */
#define COLUMNS 211
#define STEPS 1000
#define HOT 1.0
#define COLD 0.0

static void must(int err)
{
    if (err) {
        fprintf(stderr, "heat: %s\n", weft_errmsg());
        exit(1);
    }
}

/* ---- the equation ---- */

static double at_first(int64_t row, int64_t column)
{
    int64_t y = row - 40, x = column - 60, v = row - 95, u = column - 150;
    return x * x + y * y < 800 || u * u + v * v < 500 ? HOT : COLD;
}

/* n cells of a row, from those around them; rows are `pitch` apart. Products are with powers of two and so are exact:
 * the sum has the same bits whichever instructions a compiler takes. */
static void warm(double *new, const double *old, int64_t n, int64_t pitch)
{
    for (int64_t i = 0; i < n; i++) {
        const double *c = old + i, *up = c - pitch, *down = c + pitch;
        double sides = (up[0] + down[0]) + (c[-1] + c[1]), corners = (up[-1] + up[1]) + (down[-1] + down[1]);
        new[i] = (4 * c[0] + 2 * sides + corners) / 16;
    }
}

/* ---- one rank's part ---- */

enum { BOXES = 16 }; /* that a part of one rank's buffer may have here: eight sides and corners, cut where they wrap */

struct part {
    weft_box box[BOXES];
    size_t n;
};

static struct part part_of(const weft_layout *l, int rank, enum weft_halo_part which)
{
    struct part p;
    must(weft_layout_halo(l, rank, which, p.box, BOXES, &p.n));
    if (p.n > BOXES) {
        fprintf(stderr, "heat: a part has %zu boxes\n", p.n);
        exit(1);
    }
    return p;
}

static void compute(const struct part *p, double *new, const double *old, int64_t pitch)
{
    for (size_t i = 0; i < p->n; i++)
        for (int64_t row = 0; row < p->box[i].len[0]; row++) {
            int64_t at = (p->box[i].local[0] + row) * pitch + p->box[i].local[1];
            warm(new + at, old + at, p->box[i].len[1], pitch);
        }
}

/* What stands beyond the first and the last row stays as it is: an exchange leaves edges untouched. */
static void set_edges(const struct part *p, double *cells, int64_t pitch)
{
    for (size_t i = 0; i < p->n; i++)
        for (int64_t row = 0; row < p->box[i].len[0]; row++)
            for (int64_t k = 0; k < p->box[i].len[1]; k++)
                cells[(p->box[i].local[0] + row) * pitch + p->box[i].local[1] + k] = p->box[i].at[0] < 0 ? HOT : COLD;
}

static void set_cells(const weft_box *own, double *cells, int64_t pitch)
{
    for (int64_t row = 0; row < own->len[0]; row++)
        for (int64_t k = 0; k < own->len[1]; k++)
            cells[(own->local[0] + row) * pitch + own->local[1] + k] = at_first(own->at[0] + row, own->at[1] + k);
}

/* ---- the whole, on one rank ---- */

static double *alone(void)
{
    const int64_t pitch = COLUMNS + 2;
    double *old = calloc(2 * (ROWS + 2) * (size_t)pitch, sizeof *old), *new = old + (ROWS + 2) * pitch, *first = old;
    double *field = malloc(ROWS * COLUMNS * sizeof *field);
    if (!old || !field)
        exit(1);
    for (int64_t k = 0; k < pitch; k++)
        old[k] = new[k] = HOT, old[(ROWS + 1) * pitch + k] = new[(ROWS + 1) * pitch + k] = COLD;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t k = 0; k < COLUMNS; k++)
            old[(row + 1) * pitch + k + 1] = at_first(row, k);
    for (int step = 0; step < STEPS; step++) {
        for (int64_t row = 1; row <= ROWS; row++) {
            double *line = old + row * pitch;
            line[0] = line[COLUMNS];
            line[COLUMNS + 1] = line[1];
        }
        for (int64_t row = 1; row <= ROWS; row++)
            warm(new + row *pitch + 1, old + row * pitch + 1, COLUMNS, pitch);
        double *other = old;
        old = new;
        new = other;
    }
    for (int64_t row = 0; row < ROWS; row++)
        memcpy(field + row * COLUMNS, old + (row + 1) * pitch + 1, COLUMNS * sizeof *field);
    free(first);
    return field;
}

/* Black, red, yellow, white. */
static void paint(const double *field, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f || fprintf(f, "P6\n%d %d\n255\n", COLUMNS, ROWS) < 0) {
        perror(path);
        exit(1);
    }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        for (int colour = 0; colour < 3; colour++) {
            double v = 3 * field[i] - colour;
            fputc(v <= 0 ? 0 : v >= 1 ? 255 : (int)(255 * v), f);
        }
    if (fclose(f)) {
        perror(path);
        exit(1);
    }
}

/* Field and text: rank 0 has all of it, and a rank that is not 0 nothing. */
static void finish(weft_comm *comm, const weft_layout *own, weft_view cells, const char *path)
{
    int rank = weft_comm_rank(comm), ranks = weft_comm_size(comm);
    double *field = rank ? NULL : malloc(ROWS * COLUMNS * sizeof *field);
    weft_layout *whole;
    weft_plan *plan;
    weft_exec *gather;
    char text[64];
    weft_lower_opts opts = {.size = sizeof opts, .world = ranks};
    snprintf(text, sizeof text, "f64[%d,%d] @r1=0", ROWS, COLUMNS);
    must(weft_layout_parse(text, &whole));
    must(weft_lower(&(weft_move){"field", own, whole}, 1, rank, &opts, &plan));
    weft_view to = WEFT_VIEW(field, rank ? 0 : ROWS * COLUMNS * sizeof *field);
    must(weft_bind(plan, comm, &cells, &to, NULL, &gather));
    must(weft_exec_run(gather));
    if (!rank) {
        double *right = alone();
        if (memcmp(field, right, ROWS * COLUMNS * sizeof *field)) {
            fprintf(stderr, "heat: the field is not what one rank computes\n");
            exit(1);
        }
        if (path)
            paint(field, path);
        printf("%d steps of heat on %d ranks: the same bits as on one\n", STEPS, ranks);
        free(right);
    }
    weft_exec_close(gather);
    weft_plan_free(plan);
    weft_layout_free(whole);
    free(field);
}

/* As square as can be. */
static void layouts(int ranks, weft_layout **own, weft_layout **all)
{
    int y = 1;
    char text[96];
    for (int k = 2; k * k <= ranks; k++)
        y = ranks % k ? y : k;
    snprintf(text, sizeof text, "f64[%d/y,%d/x] @y%d.x%d", ROWS, COLUMNS, y, ranks / y);
    must(weft_layout_parse(text, own));
    snprintf(text, sizeof text, "f64[%d/y~1,%d/x~1o] @y%d.x%d", ROWS, COLUMNS, y, ranks / y);
    must(weft_layout_parse(text, all));
}

int main(int argc, char **argv)
{
    weft_comm *comm;
    weft_layout *own, *all;
    weft_plan *plan;
    weft_local local;
    weft_box mine; /* this rank's cells, in the plane and in its buffers */
    size_t n;
    if (weft_comm_open(NULL, NULL, &comm)) {
        fprintf(stderr, "heat: %s\nstart it by: weft run -n 4 %s [picture.ppm]\n", weft_errmsg(), argv[0]);
        return 1;
    }
    int rank = weft_comm_rank(comm), ranks = weft_comm_size(comm);
    layouts(ranks, &own, &all);
    must(weft_layout_local(all, rank, &local));
    must(weft_layout_boxes(all, rank, &mine, 1, &n));
    if (n != 1) {
        fprintf(stderr, "heat: there are more ranks than rows or columns\n");
        return 1;
    }
    int64_t pitch = local.shape[1], strides[2] = {pitch * (int64_t)sizeof(double), sizeof(double)};
    int64_t first = mine.local[0] * pitch + mine.local[1];
    struct part inner = part_of(all, rank, WEFT_HALO_INNER), rim = part_of(all, rank, WEFT_HALO_RIM);
    struct part edges = part_of(all, rank, WEFT_HALO_EDGES);

    /* One plan, bound to either buffer: the source is the cells where they stand. */
    weft_exec *fill[2];
    weft_view inside[2];
    double *cells[2];
    weft_lower_opts opts = {.size = sizeof opts, .world = ranks};
    must(weft_lower(&(weft_move){"heat", own, all}, 1, rank, &opts, &plan));
    for (int i = 0; i < 2; i++) {
        void *memory;
        must(weft_comm_alloc(comm, (size_t)local.bytes, WEFT_MEMORY_HOST, 0, &memory));
        cells[i] = memory;
        set_edges(&edges, cells[i], pitch);
        inside[i] = (weft_view){
            .data = cells[i] + first, .bytes = (size_t)(local.count - first) * sizeof(double), .strides = strides};
        must(weft_bind(plan, comm, &inside[i], &(weft_view){.data = cells[i], .bytes = (size_t)local.bytes}, NULL,
                       &fill[i]));
    }
    set_cells(&mine, cells[0], pitch);

    for (int step = 0; step < STEPS; step++) {
        double *old = cells[step % 2], *new = cells[(step + 1) % 2];
        must(weft_exec_start(fill[step % 2]));
        compute(&inner, new, old, pitch); /* ghosts travel meanwhile */
        must(weft_exec_wait(fill[step % 2], WEFT_FOREVER));
        compute(&rim, new, old, pitch);
    }
    finish(comm, own, inside[STEPS % 2], argc > 1 ? argv[1] : "heat.ppm");

    for (int i = 0; i < 2; i++)
        weft_exec_close(fill[i]);
    weft_plan_free(plan);
    weft_layout_free(own);
    weft_layout_free(all);
    weft_comm_close(comm);
    return 0;
}
