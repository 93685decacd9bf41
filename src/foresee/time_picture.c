#include "foresee/time_picture.h"

#include <stdlib.h>

#include "foresee/story.h"

#define WIDTH 640.0
#define LEFT 90.0
#define LANE 5.0
#define GAP 3.0
#define TOP 26.0
#define BINS 200 /* of the time */

enum { SENDS, RECEIVES, WORKS, LANES };
static const char *const colours[LANES] = {"#2f74c0", "#c05f2f", "#3d9a52"};
static const char *const lanes[LANES] = {"sends", "receives", "copies or folds"};

struct grid {
    int rows, ranks; /* ranks of a row */
    double bin;      /* nanoseconds */
    float *busy;     /* flows on average: rows * LANES * BINS */
};

static void add(struct grid *g, int rank, int lane, double from, double to)
{
    float *row = g->busy + ((size_t)(rank / g->ranks) * LANES + (size_t)lane) * BINS;
    for (int b = (int)(from / g->bin); b < BINS && (double)b * g->bin < to; b++) {
        double lo = (double)b * g->bin, hi = lo + g->bin;
        row[b] += (float)(((to < hi ? to : hi) - (from > lo ? from : lo)) / g->bin);
    }
}

static void draw_lane(FILE *to, const struct grid *g, int row, int lane)
{
    const float *busy = g->busy + ((size_t)row * LANES + (size_t)lane) * BINS;
    double y = TOP + row * (LANES * LANE + GAP) + lane * LANE;
    for (int b = 0, n; b < BINS; b += n) {
        /* Full from one flow for each rank on; runs of equal bins are one box. */
        int shade = (int)(busy[b] / (float)g->ranks * 4 + 0.999F);
        shade = shade > 4 ? 4 : shade;
        for (n = 1; b + n < BINS; n++) {
            int next = (int)(busy[b + n] / (float)g->ranks * 4 + 0.999F);
            if ((next > 4 ? 4 : next) != shade)
                break;
        }
        if (shade)
            fprintf(to,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" fill-opacity=\"%.2f\"/>\n",
                    LEFT + b * WIDTH / BINS, y, n * WIDTH / BINS, LANE - 0.5, colours[lane], 0.25 * shade);
    }
}

static void draw(FILE *to, const struct grid *g, double total)
{
    char text[32];
    double height = TOP + g->rows * (LANES * LANE + GAP) + 30;
    fprintf(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
        "font-size=\"10\" fill=\"currentColor\" role=\"img\" aria-label=\"when ranks send, receive and work, from 0 to "
        "%s\">\n",
        LEFT + WIDTH + 40, height, story_time(total, text, sizeof text));
    for (int k = 0; k < LANES; k++)
        fprintf(
            to,
            "<rect x=\"%.0f\" y=\"6\" width=\"10\" height=\"10\" fill=\"%s\"/><text x=\"%.0f\" y=\"15\">%s</text>\n",
            LEFT + k * 120, colours[k], LEFT + k * 120 + 14, lanes[k]);
    for (int r = 0; r < g->rows; r++) {
        double y = TOP + r * (LANES * LANE + GAP);
        fprintf(to, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + LANES * LANE - 4);
        if (g->ranks == 1)
            fprintf(to, "rank %d</text>\n", r);
        else
            fprintf(to, "%d to %d</text>\n", r * g->ranks, (r + 1) * g->ranks - 1);
        for (int k = 0; k < LANES; k++)
            draw_lane(to, g, r, k);
    }
    for (int k = 0; k <= 4; k++)
        fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", LEFT + k * WIDTH / 4, height - 10,
                story_time(total * k / 4, text, sizeof text));
    fprintf(to, "</svg>\n");
}

int time_picture_print(FILE *to, const struct graph *g, const struct events *e)
{
    int world = g->links->world;
    struct grid x = {.ranks = (world + TIME_PICTURE_ROWS - 1) / TIME_PICTURE_ROWS,
                     .bin = (e->total > 0 ? e->total : 1) / BINS};
    x.rows = (world + x.ranks - 1) / x.ranks;
    x.busy = calloc((size_t)x.rows * LANES * BINS, sizeof *x.busy);
    if (!x.busy)
        return -1;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct links_load *l = &g->nodes.v[i].load;
        const struct events_span *s = &e->span[i];
        if (s->end < 0)
            continue;
        if (l->from == l->to) {
            add(&x, l->from, WORKS, s->start, s->end);
            continue;
        }
        add(&x, l->from, SENDS, s->start, s->end);
        add(&x, l->to, RECEIVES, s->start, s->end + links_latency(g->links, l->from, l->to));
    }
    draw(to, &x, e->total);
    free(x.busy);
    return 0;
}
