#include "collective/kept.h"

#include <stdlib.h>
#include <string.h>

#include "weft/collective.h"

void kept_free(weft_comm *c, struct kept *k)
{
    if (!k)
        return;
    weft_exec_close(k->exec);
    weft_plan_free(k->plan);
    if (k->memory)
        weft_comm_free(c, k->memory);
    free(k);
}

/* The comm is about to be closed. */
static void forget(weft_comm *c)
{
    struct kept_list *l = c->kept;
    c->kept = NULL;
    while (l->first) {
        struct kept *k = l->first;
        l->first = k->next;
        kept_free(c, k);
    }
    free(l->copy);
    free(l);
}

struct kept_list *kept_of(weft_comm *c)
{
    if (!c->kept)
        c->kept = calloc(1, sizeof *c->kept);
    c->forget = forget;
    return c->kept;
}

bool kept_same(const struct kept_key *a, const struct kept_key *b)
{
    return a->count == b->count && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           !strcmp(a->kind, b->kind);
}

struct kept *kept_find(struct kept_list *l, const struct kept_key *key)
{
    struct kept **at = &l->first;
    while (*at && !kept_same(&(*at)->key, key))
        at = &(*at)->next;
    struct kept *k = *at;
    if (k && k != l->first) {
        *at = k->next;
        k->next = l->first;
        l->first = k;
    }
    return k;
}

void kept_add(weft_comm *c, struct kept_list *l, struct kept *k)
{
    k->next = l->first;
    l->first = k;
    if (++l->n <= WEFT_COLLECTIVE_KEPT)
        return;
    struct kept **last = &l->first;
    while ((*last)->next)
        last = &(*last)->next;
    kept_free(c, *last);
    *last = NULL;
    l->n--;
}
