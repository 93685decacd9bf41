/* Lists of tensors that another process has sent: every cut and every flip of a bit is refused, or is a list again. */
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "version/reader_plan.h"
#include "version/record.h"
#include "version/schema.h"

static struct schema *sample(void)
{
    const char *const texts[] = {"f32[40/x,24] @x3", "bf16[130/y:4] @x2.y2", "i64[] @x1"};
    const char *const names[] = {"model.embed", "b", "step"};
    weft_bus_tensor t[3];
    weft_layout *l[3];
    struct schema *s = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_layout_parse(texts[i], &l[i]), 0);
        t[i] = (weft_bus_tensor){.name = names[i], .layout = l[i]};
    }
    assert_int_equal(schema_make("test", t, 3, &s), 0);
    for (int i = 0; i < 3; i++)
        weft_layout_free(l[i]);
    return s;
}

static void same_again(void **state)
{
    (void)state;
    struct schema *s = sample(), *again;
    assert_int_equal(schema_load("test", s->bytes, s->size, &again), 0);
    assert_memory_equal(s->layouts, again->layouts, SCHEMA_HASH);
    assert_memory_equal(s->digest, again->digest, SCHEMA_HASH);
    assert_true(again->n == 3 && again->ranks == 4 && again->total == s->total);
    assert_non_null(schema_find(again, "model.embed"));
    assert_null(schema_find(again, "model"));
    struct schema_part part;
    int64_t bytes = 0;
    for (int r = 0; r < 4; r++) {
        assert_int_equal(schema_part(again, r, false, &part), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(part.v[i].at % SCHEMA_ALIGN, 0);
            bytes += part.v[i].bytes;
        }
        schema_part_free(&part);
    }
    assert_int_equal(bytes, 40 * 24 * 4 + 2 * 130 * 2 + 8); /* x2 holds the second one twice */
    schema_free(again);
    schema_free(s);
}

static void damaged(void **state)
{
    (void)state;
    struct schema *s = sample(), *out;
    unsigned char *bytes = malloc(s->size);
    for (size_t n = 0; n < s->size; n++) {
        unsigned char *cut = malloc(n ? n : 1); /* so that a read beyond the end is seen */
        memcpy(cut, s->bytes, n);
        assert_int_not_equal(schema_load("test", cut, n, &out), 0);
        free(cut);
    }
    for (size_t i = 0; i < 8 * s->size; i++) {
        memcpy(bytes, s->bytes, s->size);
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        if (schema_load("test", bytes, s->size, &out))
            continue;
        assert_memory_not_equal(out->layouts, s->layouts, SCHEMA_HASH);
        schema_free(out);
    }
    free(bytes);
    schema_free(s);
}

/* Boxes of a peer: whatever its bytes say, they are refused, or a plan is made of them without a stumble. */
static void plan_with(const struct schema *theirs, const struct schema *mine)
{
    bool live[64] = {false, true};
    int missing;
    struct reader_plan plan;
    struct schema_part part;
    for (int r = 0; r < 3; r++) {
        int err = schema_part(theirs, r, false, &part);
        schema_part_free(&part);
        if (err)
            return;
    }
    if (reader_plan_check("set", theirs, mine, true))
        return;
    if (theirs->ranks <= 64)
        reader_plan_covered(theirs, mine, live, &missing);
    for (int packed = 0; packed < 2; packed++)
        if (!reader_plan_make(theirs, mine, 0, packed, &plan))
            reader_plan_free(&plan);
}

static struct schema *boxes_of(const char *text)
{
    weft_layout *l;
    struct schema *s;
    assert_int_equal(weft_layout_parse(text, &l), 0);
    assert_int_equal(schema_make("test", &(weft_bus_tensor){.name = "w", .layout = l}, 1, &s), 0);
    weft_layout_free(l);
    return s;
}

static void boxes_of_a_peer(void **state)
{
    (void)state;
    static const char others[] = "0123456789,:;[]{}()=+@x/ f";
    struct schema *mine = boxes_of("i32[6,4] @{0: [3:6,:] [0:3,:]=20(1,3)}"), *out;
    struct schema *s = boxes_of("i32[6,4] @{0: [0:3,:]; 1: [0:3,:]=0(1,3); 2: [2:6,:]} +overlaps");
    unsigned char *bytes = malloc(s->size);
    for (size_t i = 0; i < s->size; i++)
        for (const char *c = others; *c; c++) {
            memcpy(bytes, s->bytes, s->size);
            bytes[i] = (unsigned char)*c;
            if (schema_load("test", bytes, s->size, &out))
                continue;
            plan_with(out, mine);
            schema_free(out);
        }
    free(bytes);
    schema_free(s);
    schema_free(mine);
}

/* A short text with very many boxes, and a form that takes much memory. */
static void memory_for_a_peer_is_limited(void **state)
{
    (void)state;
    struct schema *s = boxes_of("i8[1000000000/x:1] @x2"), *mine = boxes_of("i8[1000000000] @{0: [:]}"), *out;
    struct reader_plan plan;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(reader_plan_make(k ? mine : s, k ? s : mine, 0, true, &plan), WEFT_EUNSUPPORTED);
        assert_non_null(strstr(weft_errmsg(), "tensor 'w': "));
        assert_non_null(strstr(weft_errmsg(), "has more than 4194304 boxes"));
    }
    schema_free(s);
    schema_free(mine);
    static const char json[] =
        "{\"dtype\": \"i8\", \"shape\": [4], \"boxes\": [{\"rank\": 0, \"at\": [0], \"len\": [4]}]}";
    s = boxes_of(json);
    const uint32_t lengths[2] = {1, sizeof json - 1};
    unsigned char bytes[21 + sizeof json];
    memcpy(bytes, s->bytes, 12);
    memcpy(bytes + 12, lengths, 8);
    bytes[20] = 'w';
    memcpy(bytes + 21, json, sizeof json - 1);
    assert_int_equal(schema_load("test", bytes, 21 + sizeof json - 1, &out), WEFT_EMISMATCH);
    schema_free(s);
}

static void records(void **state)
{
    (void)state;
    char text[RECORD_VERSION];
    weft_epoch_step v = {7, 42}, w;
    int64_t n;
    unsigned char bytes[2];
    record_version(&v, text);
    assert_true(record_version_take(text, strlen(text), &w) && w.epoch == 7 && w.step == 42);
    assert_false(record_version_take(text, strlen(text) - 1, &w));
    assert_false(record_version_take("9999999999.9999999999999999999", 30, &w)); /* more than a number holds */
    const char *record = "ranks 3\nbytes 12x\nhash 0aFf\nshort 0a\nhash2 0aff\nmeta a\nranks 4\n";
    assert_true(record_int(record, "ranks", &n) && n == 3);
    assert_false(record_int(record, "bytes", &n));
    assert_false(record_int(record, "rank", &n));
    assert_false(record_bytes(record, "hash", bytes, 2));
    assert_false(record_bytes(record, "short", bytes, 2));
    assert_true(record_bytes(record, "hash2", bytes, 2) && bytes[0] == 10 && bytes[1] == 255);
    const char *at;
    size_t len;
    assert_true(record_find(record, "meta", &at, &len));
    assert_string_equal(at, "a\nranks 4\n"); /* to the end */
    assert_false(record_find("meta x\nranks 4\n", "ranks", &at, &len));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_again), cmocka_unit_test(damaged),
                                       cmocka_unit_test(boxes_of_a_peer),
                                       cmocka_unit_test(memory_for_a_peer_is_limited), cmocka_unit_test(records)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
