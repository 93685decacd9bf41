/* Deltas that put finds: a reader that applies them to the version before has the new version, whatever has changed.
 * They are found only for readers that take them, and never while another thread reads those of the version before. */
#include <stdlib.h>
#include <string.h>

#include "bus/delta.h"
#include "support/random.h"
#include "support/share.h"
#include "version/publish.h"
#include "version/version_kit.h"

#define COUNT 100003 /* elements: three blocks and a bit more in bf16 */
#define ROWS 61
#define COLUMNS 83

static weft_publisher *p;
static weft_bus *bus;
static uint16_t flat[COUNT];
static uint32_t turned[COLUMNS * ROWS]; /* is put with strides */

static void begin(int keep)
{
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_layout *l[2];
    char text[64];
    o.keep = keep;
    bus = open_bus("trainer");
    snprintf(text, sizeof text, "u16[%d] @x1", COUNT);
    fine(weft_layout_parse(text, &l[0]));
    snprintf(text, sizeof text, "u32[%d,%d] @x1", ROWS, COLUMNS);
    fine(weft_layout_parse(text, &l[1]));
    weft_bus_tensor t[2] = {{.name = "flat", .layout = l[0]}, {.name = "turned", .layout = l[1]}};
    fine(weft_publish(bus, "deltas", t, 2, &o, &p));
    puts_in_parts(p, 2); /* three threads */
    weft_layout_free(l[0]);
    weft_layout_free(l[1]);
}

static void end(void)
{
    weft_publisher_close(p);
    fine(weft_bus_close(bus));
}

/* Changes some elements of a thousand, and puts. */
static void put(struct random *r, int64_t step, int64_t some)
{
    int64_t strides[2] = {sizeof *turned, ROWS * sizeof *turned};
    for (int i = 0; i < COUNT; i++)
        flat[i] = (uint16_t)(random_in(r, 0, 999) < some ? random_next(r) : flat[i]);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        turned[i] = (uint32_t)(random_in(r, 0, 999) < some ? random_next(r) : turned[i]);
    weft_view v[2] = {WEFT_VIEW(flat, sizeof flat), WEFT_VIEW(turned, sizeof turned)};
    v[1].strides = strides;
    fine(weft_put(p, step, v));
}

static void put_commit(struct random *r, int64_t step, int64_t some)
{
    put(r, step, some);
    fine(weft_commit(p, step, NULL, NULL));
}

static const struct publish_ring *ring_of(int64_t step)
{
    for (int i = 0; i < p->keep; i++)
        if (p->ring[i].state == PUBLISH_SHOWN && p->ring[i].step == step)
            return &p->ring[i];
    fail_msg("step %lld is not there", (long long)step);
    return NULL;
}

/* What a relay that has `base` does: takes all blocks of a version, and stores them over the base's. */
static void take(int64_t step, int64_t base)
{
    unsigned char wanted[8];
    const struct publish_ring *now = ring_of(step);
    size_t left = p->part.blocks;
    unsigned char *copy = malloc((size_t)p->part.bytes);
    assert_true(copy && left < 64);
    memcpy(copy, ring_of(base)->snapshot.data, (size_t)p->part.bytes);
    memset(wanted, 0xff, sizeof wanted);
    struct part_link_message m = {.epoch = p->epoch,
                                  .step = step,
                                  .generation = now->generation,
                                  .count = (int64_t)left,
                                  .who = UINT64_C(77) << 32,
                                  .base = base,
                                  .flags = PART_LINK_BASE,
                                  .most = PART_LINK_MOST};
    while (left) {
        struct part_server_blocks out = {0};
        assert_int_equal(p->source.take(p, &m, wanted, &out), 0);
        size_t at = out.n * sizeof(struct part_link_block);
        assert_true(out.n > 0 && out.n <= left);
        for (size_t i = 0; i < out.n; i++) {
            struct part_link_block head;
            int64_t place, bytes;
            memcpy(&head, out.payload + i * sizeof head, sizeof head);
            size_t size = schema_block(&p->part, head.block, &place, &bytes) ? 4 : 2;
            wanted[head.block / 8] &= (unsigned char)~(1 << head.block % 8);
            uint64_t added;
            if (head.bytes < bytes)
                assert_true(
                    delta_apply(copy + place, out.payload + at, head.bytes, (size_t)bytes / size, size, &added));
            else
                memcpy(copy + place, out.payload + at, (size_t)bytes);
            at += head.bytes;
        }
        assert_int_equal(at, out.size);
        left -= out.n;
        free(out.payload);
    }
    for (size_t i = 0; i < p->part.n; i++)
        assert_memory_equal(copy + p->part.v[i].at, now->snapshot.data + p->part.v[i].at, (size_t)p->part.v[i].bytes);
    assert_int_equal(p->delta.users, 0);
    free(copy);
}

static void readers_get_what_put_found(void **state)
{
    (void)state;
    static const int64_t some[] = {0, 1, 20, 100, 700, 1000};
    for (int64_t number = 0; number < test_share(20, 200); number++) {
        struct random r = random_of(0xde17a, number);
        begin(2 + (int)random_in(&r, 0, 2));
        put_commit(&r, 1, 1000);
        put_commit(&r, 2, 20);
        assert_int_equal(p->delta.step, -1); /* nobody has asked */
        take(2, 1);
        for (int64_t step = 3; step < 7; step++) {
            put_commit(&r, step, some[random_in(&r, 0, 5)]);
            assert_int_equal(p->delta.step, step);
            assert_int_equal(p->delta.base, step - 1);
            assert_true(p->delta.used <= p->delta.size);
            take(step, step - 1);
        }
        put_commit(&r, 7, 20);
        put_commit(&r, 8, 20); /* nobody took deltas of step 7 */
        assert_int_equal(p->delta.step, -1);
        take(8, 7);
        end();
    }
}

static void a_version_is_put_twice(void **state)
{
    (void)state;
    struct random r = random_of(0xde17b, 0);
    begin(2);
    put_commit(&r, 1, 1000);
    put_commit(&r, 2, 20);
    take(2, 1);
    put(&r, 3, 20);
    put_commit(&r, 3, 20);
    assert_int_equal(p->delta.step, 3);
    take(3, 2);
    end();
}

static void deltas_that_are_read_stay(void **state)
{
    (void)state;
    struct random r = random_of(0xde17c, 0);
    begin(3);
    put_commit(&r, 1, 1000);
    put_commit(&r, 2, 20);
    take(2, 1);
    put_commit(&r, 3, 20);
    take(3, 2);
    p->delta.users++; /* a thread that serves step 3 */
    put_commit(&r, 4, 20);
    assert_int_equal(p->delta.step, 3);
    p->delta.users--;
    take(3, 2);
    take(4, 3); /* is compared as it is asked for */
    put_commit(&r, 5, 20);
    assert_int_equal(p->delta.step, 5);
    take(5, 4);
    take(5, 3); /* another base */
    end();
}

static void changes_beyond_the_room_are_compared_later(void **state)
{
    (void)state;
    struct random r = random_of(0xde17d, 0);
    begin(2);
    put_commit(&r, 1, 1000);
    put_commit(&r, 2, 20);
    take(2, 1);
    put_commit(&r, 3, 100);
    take(3, 2);
    size_t blocks = p->part.blocks, less = (size_t)SCHEMA_BLOCK + 200; /* room for the first block only */
    assert_true(less < p->delta.size);
    p->delta.size = less;
    put_commit(&r, 4, 300);
    assert_int_equal(p->delta.step, 4);
    size_t kept = 0;
    for (size_t b = 0; b < blocks; b++)
        kept += p->delta.v[b].data != NULL;
    assert_true(kept > 0 && kept < blocks);
    take(4, 3);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_get_what_put_found), cmocka_unit_test(a_version_is_put_twice),
        cmocka_unit_test(deltas_that_are_read_stay), cmocka_unit_test(changes_beyond_the_room_are_compared_later)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
