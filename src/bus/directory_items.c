#include "bus/directory_items.h"

bool directory_items_add(struct directory_items_draft *d, const struct directory_item *item)
{
    size_t len = strlen(item->key);
    if (!vec_room(&d->items, 1) || !vec_room(&d->places, 1) || !vec_room(&d->memory, len + 1 + item->bytes + 1))
        return false;
    d->places.v[d->places.n++] = d->memory.n;
    d->items.v[d->items.n++] = *item;
    memcpy(d->memory.v + d->memory.n, item->key, len + 1);
    if (item->bytes)
        memcpy(d->memory.v + d->memory.n + len + 1, item->value, item->bytes);
    d->memory.n += len + 1 + item->bytes;
    d->memory.v[d->memory.n++] = 0;
    return true;
}

void directory_items_finish(struct directory_items_draft *d, int64_t revision, struct directory_items *out)
{
    for (size_t i = 0; i < d->items.n; i++) {
        struct directory_item *item = &d->items.v[i];
        item->key = (const char *)d->memory.v + d->places.v[i];
        item->value = (const unsigned char *)item->key + strlen(item->key) + 1;
    }
    *out = (struct directory_items){
        .revision = revision, .n = d->items.n, .items = d->items.v, .memory = (char *)d->memory.v};
    free(d->places.v);
    *d = (struct directory_items_draft){0};
}

void directory_items_discard(struct directory_items_draft *d)
{
    free(d->items.v);
    free(d->memory.v);
    free(d->places.v);
    *d = (struct directory_items_draft){0};
}

void directory_items_free(struct directory_items *items)
{
    free(items->items);
    free(items->memory);
    *items = (struct directory_items){0};
}
