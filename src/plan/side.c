/* The buffers of a side: one, or, if the side is boxes, one for each box of this rank. */
#include "layout/layout.h"
#include "plan/plan.h"

const weft_layout *plan_side(const weft_plan *p, uint32_t buf)
{
    const struct plan_tensor *t = &p->tensors[p->bufs[buf].tensor];
    return p->bufs[buf].space == PLAN_SRC ? t->src : t->dst;
}

size_t plan_side_box(const weft_plan *p, uint32_t buf)
{
    const struct plan_tensor *t = &p->tensors[p->bufs[buf].tensor];
    const weft_layout *l = plan_side(p, buf);
    return l->boxes->first[mesh_index(l, p->rank)] + (buf - (p->bufs[buf].space == PLAN_SRC ? t->src_buf : t->dst_buf));
}

size_t plan_side_bufs(const weft_plan *p, uint32_t tensor, bool src)
{
    const weft_layout *l = src ? p->tensors[tensor].src : p->tensors[tensor].dst;
    int64_t holder = mesh_index(l, p->rank);
    return holder < 0 ? 0 : l->boxes ? l->boxes->first[holder + 1] - l->boxes->first[holder] : 1;
}

bool plan_side_is_boxes(const weft_plan *p, uint32_t tensor, bool src)
{
    return (src ? p->tensors[tensor].src : p->tensors[tensor].dst)->boxes;
}

struct plan_side_place plan_side_place(const weft_plan *p, uint32_t buf)
{
    const struct box_list *b = plan_side(p, buf)->boxes;
    size_t box = plan_side_box(p, buf);
    return (struct plan_side_place){b->offset[box], b->stride + box * (size_t)b->ndim};
}

int64_t plan_side_room(const weft_plan *p, uint32_t tensor, bool src)
{
    const weft_layout *l = src ? p->tensors[tensor].src : p->tensors[tensor].dst;
    return l->boxes->room[mesh_index(l, p->rank)];
}
