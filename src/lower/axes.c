#include "lower/axes.h"

int64_t axes_count(const weft_layout *l, uint32_t set)
{
    int64_t n = 1;
    for (int a = 0; a < l->naxes; a++)
        if (set & 1u << a)
            n *= l->axis[a].size;
    return n;
}

int64_t axes_number(const weft_layout *l, uint32_t set, int64_t index)
{
    int64_t n = 0;
    for (int a = 0; a < l->naxes; a++)
        if (set & 1u << a)
            n = n * l->axis[a].size + layout_coord(l, index, a);
    return n;
}

int64_t axes_offset(const weft_layout *l, uint32_t set, int64_t number)
{
    int64_t off = 0;
    for (int a = l->naxes - 1; a >= 0 && number; a--)
        if (set & 1u << a) {
            off += number % l->axis[a].size * l->axis[a].stride;
            number /= l->axis[a].size;
        }
    return off;
}

void axes_next(const weft_layout *l, uint32_t set, struct axes_walk *w)
{
    for (int a = l->naxes - 1; a >= 0; a--) {
        if (!(set & 1u << a))
            continue;
        w->offset += l->axis[a].stride;
        if (++w->coord[a] < l->axis[a].size)
            return;
        w->offset -= l->axis[a].size * l->axis[a].stride;
        w->coord[a] = 0;
    }
}

int64_t axes_part(const weft_layout *l, uint32_t set, int64_t index)
{
    int64_t off = 0;
    for (int a = 0; a < l->naxes; a++)
        if (set & 1u << a)
            off += layout_coord(l, index, a) * l->axis[a].stride;
    return off;
}
