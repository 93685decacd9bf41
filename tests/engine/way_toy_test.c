/* A way that the library does not know carries messages, once it is a row of the table (toy_way.c). */
#include <string.h>

#include "engine/way.h"
#include "engine_model.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "toy_way.h"

static const struct pair pairs[] = {
    {"f32[9000/x] @x3", "f32[9000] @x3", 0xffffffff},
    {"f32[60,50/x] @x3", "f32[60/x,50] @x3", 0},
    {"u8[7] @x1=0", "u8[7] @x3", 0},
    {"f32[3000] @x3 +sum(x)", "bf16[3000/x] @x3", 0xffffffff},
};

static void run(struct ranks_rank *r)
{
    weft_lower_opts opts = {.size = sizeof opts, .bucket = 6000};
    struct model m;
    char text[8192];
    size_t len;
    RANKS_OK(r, model_make(&m, r, pairs, sizeof pairs / sizeof *pairs, &opts));
    RANKS_OK(r, weft_exec_explain(m.exec, false, text, sizeof text, &len));
    RANKS_CHECK(r, strstr(text, "toy: this is a test") && strstr(text, "eager"));
    for (int i = 0; i < 5; i++) {
        model_fill(&m, i);
        RANKS_OK(r, weft_exec_run(m.exec));
        RANKS_CHECK(r, !model_wrong(&m, i));
    }
    model_free(&m);
}

static void messages_go_through_files(void **state)
{
    (void)state;
    toy_messages = 0;
    ranks_run(3, NULL, run, NULL, NULL);
    assert_true(toy_messages >= 5 * 3 * 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_through_files),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
