/* What a plan says of itself: explain, as text and as JSON. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "support/json_syntax.h"
#include "support/plan_samples.h"
#include "support/suite.h"

static void explain_is_a_readable_program(void **state)
{
    (void)state;
    static const struct {
        weft_plan *(*make)(int);
        int rank;
        const char *text;
    } cases[] = {
        {sample_allreduce, 0,
         "plan of rank 0 of 3: allreduce by direct, digest 0xfeedface00c0ffee, 1 tensor\n"
         "  #0 gradient/0: bf16[12] @x3 +avg(x) -> f32[12] @x3\n"
         "  sends 32 B to 2 ranks in 4 messages of at most 8 B\n"
         "  receives 32 B from 2 ranks in 4 messages of at most 8 B\n"
         "  copies 0 B, folds 24 B, scratch 72 B, bound 32 B, stated 32 B\n"
         "0  send    to 1               8 B  gradient/0[4:8] from src at [4]\n"
         "1  recv    from 1             8 B  gradient/0[0:4] into temp 0 at [0]\n"
         "2  send    to 2               8 B  gradient/0[8:12] from src at [8]\n"
         "3  recv    from 2             8 B  gradient/0[0:4] into temp 1 at [0]\n"
         "4  reduce  sum                     gradient/0[0:4] from src at [0], temp 0 at [0], temp 1 at [0] into dst at "
         "[0] div 3 via bf16  after 1, 3\n"
         "5  send    to 1               8 B  gradient/0[0:4] from dst at [0] as bf16  after 4\n"
         "6  recv    from 1             8 B  gradient/0[4:8] into dst at [4] as bf16\n"
         "7  send    to 2               8 B  gradient/0[0:4] from dst at [0] as bf16  after 4\n"
         "8  recv    from 2             8 B  gradient/0[8:12] into dst at [8] as bf16\n"},
        {sample_cyclic, 1,
         "plan of rank 1 of 2: allgather by one_phase, digest 0xfeedface00c0ffee, 1 tensor\n"
         "  #0 w: i16[5,16/x:2] @x2 -> i16[5,16] @x2\n"
         "  sends 80 B to 1 rank in 1 message of at most 80 B\n"
         "  receives 80 B from 1 rank in 1 message of at most 80 B\n"
         "  copies 80 B, folds 0 B, scratch 0 B, bound 80 B, stated 80 B\n"
         "0  copy                            w[0:5, 2:4+4*4] from src at [0, 0+2] into dst at [0, 2+4]\n"
         "1  send    to 0              80 B  w[0:5, 2:4+4*4] from src at [0, 0+2]\n"
         "2  recv    from 0            80 B  w[0:5, 0:2+4*4] into dst at [0, 0+4]\n"},
        {sample_bucket, 1,
         "plan of rank 1 of 4: mixed by mixed, digest 0xfeedface00c0ffee, 6 tensors\n"
         "  #0 a: u8[3] @x1 -> u8[3] @x1=1\n"
         "  #1 \"quote \\\" back \\\\ line\\n bell\\x07 \xc3\xa9 \xff\": f64[2] @x1 -> f64[2] @x1=1\n"
         "  #2 a.name.so.long.that.its.lines.would.be.hard.to.read.if.it.stood.in.each: u8[3] @x1 -> u8[3] @x1=1\n"
         "  #3 : bf16[1] @x1 -> f32[1] @x1=1\n"
         "  #4 elsewhere: f32[7] @x1=2 -> f32[7] @x1=3\n"
         "  #5 z: i32[6] @x1 -> i32[6] @x2 +band(x)\n"
         "  sends 0 B\n"
         "  receives 24 B from 1 rank in 1 message of at most 30 B\n"
         "  copies 0 B, folds 0 B, scratch 0 B, bound 0 B, stated 0 B\n"
         "0  recv    from 0            30 B  a[0:3] into dst at [0]\n"
         "                                   \"quote \\\" back \\\\ line\\n bell\\x07 \xc3\xa9 \xff\"[0:2] into dst at "
         "[0]\n"
         "                                   #2[0:3] into dst at [0]\n"
         "                                   #3[0:1] into dst at [0] as bf16\n"
         "1  reduce  band                    z[0:6] identity into dst at [0]\n"},
        {sample_scalar, 0,
         "plan of rank 0 of 2: broadcast by direct, digest 0xfeedface00c0ffee, 1 tensor\n"
         "  #0 : i64[] @x1 -> f64[] @x2\n"
         "  sends 8 B to 1 rank in 1 message of at most 8 B\n"
         "  receives 0 B\n"
         "  copies 8 B, folds 0 B, scratch 0 B, bound 8 B, stated 8 B\n"
         "0  copy                            #0[] from src at [] into dst at []\n"
         "1  send    to 1               8 B  #0[] from src at []\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_plan *p = cases[i].make(cases[i].rank);
        char *text = sample_explain(p, false);
        assert_string_equal(text, cases[i].text);
        free(text);
        weft_plan_free(p);
    }
}

static void explain_json_has_all_fields(void **state)
{
    (void)state;
    weft_plan *p = sample_allreduce(0);
    char *text = sample_explain(p, true);
    static const char *const pieces[] = {
        "{\"rank\": 0, \"world\": 3, \"digest\": \"0xfeedface00c0ffee\", \"kind\": \"allreduce\", \"algorithm\": "
        "\"direct\",",
        "\"options\": {\"bucket\": 1048576, \"in_place\": false, \"machine\": {\"ranks_per_host\": 4, \"latency_ns\": "
        "2000, "
        "\"bytes_per_us\": 12500, \"ranks\": 0}}",
        "\"tensors\": [\n  {\"name\": \"gradient/0\", \"src\": \"bf16[12] @x3 +avg(x)\", \"dst\": \"f32[12] @x3\"}]",
        "\"temps\": [\n  {\"tensor\": 0, \"dtype\": \"bf16\", \"shape\": [4], \"offset\": 0},\n"
        "  {\"tensor\": 0, \"dtype\": \"bf16\", \"shape\": [4], \"offset\": 64}]",
        "\"stats\": {\"sent\": 32, \"received\": 32, \"copied\": 0, \"folded\": 24, \"bound\": 32, \"stated\": 32, "
        "\"scratch\": 72, \"send_peers\": 2, \"recv_peers\": 2, \"steps\": 9, \"sends\": 4, \"recvs\": 4, \"chunks\": "
        "8, "
        "\"largest_send\": 8, \"largest_recv\": 8, \"memory\": ",
        "{\"step\": 3, \"kind\": \"recv\", \"stage\": 0, \"peer\": 2, \"bytes\": 8, \"op\": null, \"div\": null, "
        "\"via\": null, \"deps\": [], \"parts\": [\n"
        "    {\"tensor\": 0, \"buffer\": \"temp1\", \"dtype\": \"bf16\", \"wire\": \"bf16\", \"offset\": 0, "
        "\"box\": [{\"at\": 0, \"len\": 4, \"n\": 1, \"step\": 0}], \"place\": [{\"to\": 0, \"step\": 0}]}]},\n",
        "{\"step\": 4, \"kind\": \"reduce\", \"stage\": 0, \"peer\": null, \"bytes\": null, \"op\": \"sum\", \"div\": "
        "3, "
        "\"via\": \"bf16\", \"deps\": [1, 3], \"parts\": [\n"
        "    {\"tensor\": 0, \"buffer\": \"dst\", \"dtype\": \"f32\", \"wire\": null, \"offset\": null, ",
    };
    const char *at = text;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        at = strstr(at, pieces[i]);
        if (!at)
            fail_msg("no %s in\n%s", pieces[i], text);
    }
    free(text);
    weft_plan_free(p);
}

/* Valid JSON for every sample, whatever the names are; and any capacity gives the same beginning. */
static void explain_fits_any_buffer(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank);
        for (int json = 0; json < 2; json++) {
            char *text = sample_explain(p, json);
            size_t len = strlen(text), got;
            if (json && !json_is_valid(text))
                fail_msg("not JSON:\n%s", text);
            for (size_t cap = 1; cap <= len; cap += 1 + cap / 7) {
                char *buf = malloc(cap);
                assert_int_equal(weft_plan_explain(p, json, buf, cap, &got), 0);
                assert_int_equal(got, len);
                assert_int_equal(strlen(buf), cap - 1);
                assert_memory_equal(buf, text, cap - 1);
                free(buf);
            }
            free(text);
        }
        weft_plan_free(p);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain_is_a_readable_program),
        cmocka_unit_test(explain_json_has_all_fields),
        cmocka_unit_test(explain_fits_any_buffer),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
