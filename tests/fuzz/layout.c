/* weft_layout_parse on any text. What is refused is shown with a caret under it (JSON: is named); what is taken is
 * printed and parsed to the same, described and made again, asked for buffers, boxes and pieces, and has a dual
 * or a reason. Boxes are also asked for one by one, and flattened. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "layout/box_json.h"
#include "layout/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

/* The message ends in a line with a caret that is below a character of the line before, or right behind it. */
static void check_message(void)
{
    const char *text = weft_errmsg(), *caret = strrchr(text, '\n');
    must(!strncmp(text, "layout: ", 8) && caret);
    const char *shown = caret;
    while (*--shown != '\n')
        must(shown > text);
    size_t column = strspn(caret + 1, " ");
    must(caret[1 + column] == '^' && !caret[2 + column]);
    must(column >= 2 && column <= (size_t)(caret - shown - 1));
}

static char *print(const weft_layout *l)
{
    size_t len = 0, again = 0;
    must(!weft_layout_format(l, NULL, 0, &len));
    char *text = malloc(len + 1);
    must(text && !weft_layout_format(l, text, len + 1, &again));
    must(again == len && strlen(text) == len);
    return text;
}

static void check_text(const weft_layout *l)
{
    char *text = print(l);
    weft_layout *again = NULL;
    must(!weft_layout_parse(text, &again));
    must(weft_layout_equal(l, again));
    char *second = print(again);
    must(!strcmp(text, second));
    free(text);
    free(second);
    weft_layout_free(again);
}

static void check_struct(const weft_layout *l)
{
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    weft_layout *again = NULL;
    if (l->mesh > 65536)
        return; /* the list of ranks is written out here */
    must(!weft_layout_describe(l, &desc));
    must(!weft_layout_create(&desc, &again));
    must(weft_layout_equal(l, again));
    weft_layout_free(again);
}

static void check_dual(const weft_layout *l)
{
    weft_layout *dual = NULL, *again = NULL;
    if (weft_layout_dual(l, &dual)) {
        must(!strncmp(weft_errmsg(), "dual: ", 6));
        return;
    }
    if (!weft_layout_dual(dual, &again)) {
        must(again->dtype == l->dtype && layout_same_mesh(again, l) && again->nfolds == (l->nfolds > 0));
        for (int a = 0; a < l->naxes; a++)
            must((again->axis[a].role <= LAYOUT_FOLD) == (l->axis[a].role <= LAYOUT_FOLD));
    }
    weft_layout_free(dual);
    weft_layout_free(again);
}

/* Blocks inside blocks can meet in very many ways: only small ones are written out. */
static int is_cheap(const weft_layout *l)
{
    for (int d = 0; d < l->ndim; d++) {
        int blocks = 0;
        for (int s = 0; s < l->dim[d].nsplits; s++)
            blocks += l->dim[d].split[s].block > 0;
        if (blocks > 1 && l->dim[d].extent > 100000)
            return 0;
    }
    return 1;
}

/* The parts of a halo have as many slots as the buffer. */
static void check_parts(const weft_layout *l, int rank, const weft_local *local)
{
    enum { CAP = 256 };
    weft_box boxes[CAP];
    int64_t sum = 0;
    bool all = true;
    for (enum weft_halo_part part = WEFT_HALO_INNER; part <= WEFT_HALO_EDGES; part++) {
        size_t n = 0;
        must(!weft_layout_halo(l, rank, part, boxes, CAP, &n));
        all = all && n <= CAP;
        for (size_t k = 0; k < n && k < CAP; k++) {
            int64_t volume = 1;
            for (int d = 0; d < l->ndim; d++) {
                must(boxes[k].local[d] >= 0 && boxes[k].len[d] > 0);
                must(boxes[k].local[d] + boxes[k].len[d] <= local->shape[d]);
                volume *= boxes[k].len[d];
            }
            sum += volume;
        }
    }
    must(all ? sum == local->count : sum <= local->count);
}

static void check_rank(const weft_layout *l, int rank)
{
    enum { CAP = 64 };
    weft_local local;
    weft_box boxes[CAP];
    size_t n = 0;
    must(!weft_layout_local(l, rank, &local));
    must(local.holds == (mesh_index(l, rank) >= 0));
    must(local.count >= 0 && local.bytes == local.count * (int64_t)weft_dtype_size(l->dtype));
    must(!weft_layout_boxes(l, rank, boxes, CAP, &n));
    int64_t inner = local.holds, sum = 0;
    for (int d = 0; d < l->ndim; d++)
        inner *= local.inner[d];
    for (size_t k = 0; k < n && k < CAP; k++) {
        int64_t volume = 1;
        for (int d = 0; d < l->ndim; d++) {
            const weft_box *b = &boxes[k];
            must(b->at[d] >= 0 && b->len[d] > 0 && b->at[d] + b->len[d] <= l->dim[d].extent);
            must(b->local[d] >= local.interior[d] && b->local[d] + b->len[d] <= local.interior[d] + local.inner[d]);
            volume *= b->len[d];
        }
        sum += volume;
    }
    must(n <= CAP ? sum == inner : sum < inner);
    check_parts(l, rank, &local);
}

static int first(void *arg, int64_t piece)
{
    *(int64_t *)arg = piece;
    return 7;
}

/* The piece that is found for a position holds it. */
static void check_owner(const weft_layout *l, int dim, int64_t at)
{
    struct arena arena = {0};
    struct run one = {.at = at, .len = 1, .n = 1};
    struct runs q = {&one, 1, 1, NULL}, inner = {.arena = &arena};
    struct pair_runs both = {.arena = &arena};
    int64_t piece = -1;
    must(layout_pieces_at(l, dim, &q, false, &arena, first, &piece) == 7);
    must(piece >= 0 && piece < l->dim[dim].pieces);
    must(!layout_piece_interior(l, dim, piece, &inner) && !runs_join(&inner, &q, &both));
    must(runs_pair_count(&both) == 1);
    arena_free(&arena);
}

/* Each box is inside the tensor and inside its rank's buffer, and is found in the index; the list has as many elements
 * if all dims are joined. */
static int is_box(void *arg, uint32_t box)
{
    return box == *(uint32_t *)arg;
}

static void check_boxes(const weft_layout *l)
{
    const struct box_list *b = l->boxes;
    int64_t all = 1, elements = 0, flat = 0;
    for (int d = 0; d < l->ndim; d++)
        all *= l->dim[d].extent;
    for (size_t i = 0; i < b->holders; i++)
        for (size_t k = b->first[i]; k < b->first[i + 1]; k++) {
            struct box_region r = box_region_of(b, k);
            uint32_t box = (uint32_t)k;
            size_t n = (size_t)l->ndim;
            must(b->rank[k] == mesh_rank(l, (int64_t)i) && b->offset[k] >= 0);
            must(b->offset[k] + box_list_span(l->ndim, r.len, b->stride + k * n) <= b->room[i]);
            for (size_t d = 0; d < n; d++)
                must(r.at[d] >= 0 && r.len[d] > 0 && r.at[d] + r.len[d] <= l->dim[d].extent);
            must(box_index_at(b, &b->index, &r, is_box, &box) == 1);
            elements += box_region_count(l->ndim, &r);
        }
    must(b->shared || (elements == all) == !b->gaps);
    weft_layout *one = NULL;
    if (all > 4096 || weft_layout_reshape(l, 1, &all, &one))
        return;
    for (size_t k = 0; k < one->boxes->n; k++)
        flat += one->boxes->len[k];
    must(flat == elements && one->boxes->shared == b->shared);
    weft_layout_free(one);
}

/* There is one scale for each block, or the layout is refused for its size. */
static void check_scales(const weft_layout *l)
{
    weft_layout *s = NULL;
    int rc = weft_layout_scales(l, &s);
    must(rc == 0 || rc == WEFT_EUNSUPPORTED);
    for (int d = 0; !rc && d < l->ndim; d++) {
        int64_t n = l->dim[d].extent, b = l->scale.block[d];
        must(s->dim[d].extent == n / b + (n % b > 0));
    }
    weft_layout_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    weft_layout *l = NULL;
    int rc = weft_layout_parse(text, &l);
    const bool json = box_json_is(text);
    free(text);
    if (rc) {
        must(rc == WEFT_EINVAL && !l);
        if (json)
            must(!strncmp(weft_errmsg(), "layout: ", 8));
        else
            check_message();
        return 0;
    }
    check_text(l);
    check_struct(l);
    check_dual(l);
    if (l->scale.dtype && l->mesh < 1000 && is_cheap(l))
        check_scales(l);
    if (l->boxes) {
        check_boxes(l);
    } else if (is_cheap(l)) {
        int ranks[] = {0, mesh_rank(l, 0), mesh_rank(l, l->mesh / 2), l->nranks - 1, l->nranks, INT32_MAX};
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
            check_rank(l, ranks[i]);
        for (int d = 0; d < l->ndim; d++)
            for (int k = 0; k < 3 && l->dim[d].extent; k++)
                check_owner(l, d, (l->dim[d].extent - 1) / 2 * k + (k == 2 && l->dim[d].extent % 2 == 0));
    }
    weft_layout_free(l);
    return 0;
}
