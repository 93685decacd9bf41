/* The hash table of texts: what is put in is found, what is taken out is not, and finding does not get slower. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/table.h"
#include "support/random.h"
#include "support/suite.h"

enum { THINGS = 5000 };

struct thing {
    struct table_node node;
    char key[16];
    bool in;
};

static void end_thing(struct table_node *n, void *arg)
{
    struct thing *t = LIST_OF(n, struct thing, node);
    assert_true(t->in);
    t->in = false;
    ++*(int *)arg;
}

static void table_finds_what_is_in_it(void **state)
{
    (void)state;
    static struct thing things[THINGS];
    struct table t = {.seed = 7};
    struct random r = {3};
    int n = 0, ended = 0;
    assert_null(table_find(&t, "", 0));
    for (int i = 0; i < THINGS; i++)
        snprintf(things[i].key, sizeof things[i].key, "%d", i);
    for (int step = 0; step < 10 * THINGS; step++) {
        struct thing *one = &things[random_in(&r, 0, THINGS - 1)];
        struct table_node *found = table_find(&t, one->key, strlen(one->key));
        assert_ptr_equal(found, one->in ? &one->node : NULL);
        if (one->in)
            table_remove(&t, &one->node);
        else
            assert_true(table_put(&t, &one->node, one->key, strlen(one->key)));
        one->in = !one->in;
        n += one->in ? 1 : -1;
        assert_int_equal(t.used, n);
    }
    assert_true(t.steps < 5 * 10 * THINGS); /* find, and put or remove, and growing */
    table_clear(&t, end_thing, &ended);
    assert_int_equal(ended, n);
    assert_null(table_find(&t, "1", 1));
}

static void list_keeps_the_order(void **state)
{
    (void)state;
    struct list head = {NULL, NULL}, nodes[3] = {{NULL, NULL}};
    assert_true(list_empty(&head) && !list_first(&head));
    list_begin(&head);
    for (int i = 0; i < 3; i++)
        list_append(&head, &nodes[i]);
    assert_ptr_equal(list_first(&head), &nodes[0]);
    list_remove(&nodes[1]);
    list_remove(&nodes[1]); /* it is in no list any more */
    assert_false(list_has(&nodes[1]));
    assert_ptr_equal(list_after(&head, &nodes[0]), &nodes[2]);
    assert_null(list_after(&head, &nodes[2]));
    list_remove(&nodes[0]);
    list_remove(&nodes[2]);
    assert_true(list_empty(&head));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_finds_what_is_in_it),
        cmocka_unit_test(list_keeps_the_order),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
