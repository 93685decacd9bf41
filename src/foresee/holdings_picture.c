#include "foresee/holdings_picture.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

#define SIDE 360.0
#define ROW 60.0 /* the height of a tensor with one dim */
#define NAMED 6  /* ranks whose numbers are written into a box */

struct piece {
    int64_t at[2], len[2];
    int ranks[NAMED], n; /* n: how many hold it; the first of them are listed */
};
struct pieces {
    VEC(struct piece) all;
};

static bool same(const struct piece *p, const weft_box *b, int ndim)
{
    for (int d = 0; d < 2; d++) {
        int64_t at = d < ndim ? b->at[d] : 0, len = d < ndim ? b->len[d] : 1;
        if (p->at[d] != at || p->len[d] != len)
            return false;
    }
    return true;
}

/* Ranks come in order, and replicas of one piece mostly have it as the same box, so a search from the end is short. */
static bool add(struct pieces *p, int rank, const weft_box *b, int ndim)
{
    for (size_t i = 0; i < p->all.n; i++) {
        struct piece *x = &p->all.v[i];
        if (!same(x, b, ndim))
            continue;
        if (x->n < NAMED)
            x->ranks[x->n] = rank;
        x->n++;
        return true;
    }
    struct piece *x = p->all.n < HOLDINGS_PICTURE_BOXES ? vec_push(&p->all) : NULL;
    if (!x)
        return false;
    *x = (struct piece){.n = 1, .ranks = {rank}};
    for (int d = 0; d < 2; d++) {
        x->at[d] = d < ndim ? b->at[d] : 0;
        x->len[d] = d < ndim ? b->len[d] : 1;
    }
    return true;
}

static bool gather(struct pieces *p, const weft_layout *l, const weft_layout_desc *d)
{
    const int *ranks = d->boxes ? d->boxes->rank : d->ranks; /* of boxes: of each box, in ascending order */
    size_t all = d->boxes ? d->boxes->n : 1;
    for (int a = 0; a < d->naxes; a++)
        all *= (size_t)d->axes[a].size;
    bool fine = true;
    for (size_t i = 0; i < all && fine; i++) {
        size_t n = 0;
        if (d->boxes && i && ranks[i] == ranks[i - 1])
            continue;
        if (weft_layout_boxes(l, ranks[i], NULL, 0, &n) || n > HOLDINGS_PICTURE_BOXES)
            return false;
        weft_box *boxes = malloc((n + 1) * sizeof *boxes);
        fine = boxes && !weft_layout_boxes(l, ranks[i], boxes, n, &n);
        for (size_t k = 0; k < n && fine; k++)
            fine = add(p, ranks[i], &boxes[k], d->ndim);
        free(boxes);
    }
    return fine;
}

static void ranks_text(const struct piece *p, char *buf, size_t cap)
{
    size_t at = 0;
    for (int i = 0; i < p->n && i < NAMED && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%d", i ? ", " : "", p->ranks[i]);
    if (p->n > NAMED && at < cap)
        snprintf(buf + at, cap - at, " and %d more", p->n - NAMED);
}

/* Columns go to the right and rows down. The one dim of a vector goes to the right. */
static void draw(FILE *to, const struct piece *p, const double unit[2], int ndim)
{
    int x = ndim > 1 ? 1 : 0, y = 1 - x;
    double w = (double)p->len[x] * unit[x], h = (double)p->len[y] * unit[y];
    double left = (double)p->at[x] * unit[x], top = (double)p->at[y] * unit[y];
    char who[128];
    ranks_text(p, who, sizeof who);
    /* Neighbouring ranks have colours that are far apart. */
    fprintf(
        to,
        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%d 65%% 55%%)\" fill-opacity=\"0.65\" "
        "stroke=\"currentColor\" stroke-width=\"0.5\"><title>[%" PRId64 "..%" PRId64,
        left, top, w, h, p->ranks[0] * 137 % 360, p->at[0], p->at[0] + p->len[0] - 1);
    if (ndim > 1)
        fprintf(to, ", %" PRId64 "..%" PRId64, p->at[1], p->at[1] + p->len[1] - 1);
    fprintf(to, "]: rank %s</title></rect>\n", who);
    if (w > 7.0 * (double)strlen(who) && h > 12)
        fprintf(to, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\">%s</text>\n", left + w / 2, top + h / 2 + 4,
                who);
}

int holdings_picture_print(FILE *to, const weft_layout *l, const char *about)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    struct pieces p = {0};
    if (weft_layout_describe(l, &d) || !gather(&p, l, &d)) {
        free(p.all.v);
        return -1;
    }
    double height = d.ndim > 1 ? SIDE : ROW;
    int64_t extent[2] = {d.ndim > 0 ? d.dims[0].extent : 1, d.ndim > 1 ? d.dims[1].extent : 1};
    double unit[2];
    for (int k = 0; k < 2; k++)
        unit[k] = (d.ndim > 1 ? SIDE : k ? ROW : SIDE) / (double)(extent[k] > 0 ? extent[k] : 1);
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-1 -1 %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"11\" fill=\"currentColor\" role=\"img\" aria-label=\"%s\">\n",
            SIDE + 2, height + 2, about);
    for (size_t i = 0; i < p.all.n; i++)
        draw(to, &p.all.v[i], unit, d.ndim);
    fprintf(to, "</svg>\n");
    free(p.all.v);
    return 0;
}
