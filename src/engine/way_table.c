/* The table of ways, in the order in which they are asked: way.c. */
#include "engine/way.h"

#ifdef TABLE_FIRST /* a way of the tests, which stands before all others: tests/engine/toy_way.c */
extern const struct way TABLE_FIRST;
#endif

const struct way *const way_table[] = {
#ifdef TABLE_FIRST
    &TABLE_FIRST,
#endif
    &way_wire,    &way_pinned, &way_eager, &way_cma, &way_staged, &way_push, &way_assist, &way_pull, NULL,
};

uint64_t way_table_bit(const struct way *w)
{
    int i = 0;
    while (way_table[i] != w)
        i++;
    return UINT64_C(1) << (16 + i);
}
