/* Scenes: tables, saved plans and models; tensors that are alike and are lowered once; and what-ifs. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foresee/changes.h"
#include "foresee/models.h"
#include "foresee/story.h"
#include "support/suite.h"

static struct scene_how how_of(const char *machine)
{
    struct scene_how how = {.quiet = true};
    struct failure why;
    if (machine_file_open(machine, &how.machine, &why))
        fail_msg("%s", why.text);
    return how;
}

static void simulate(const struct scene *s, const struct scene_how *how, struct scene_run *r)
{
    struct failure why;
    if (scene_simulate(s, how, r, &why))
        fail_msg("%s", why.text);
}

/* A file with this text; the caller unlinks and frees its name. */
static char *file_with(const void *text, size_t n)
{
    char *path = strdup("/tmp/weft-scene-XXXXXX");
    assert_non_null(path);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
    return path;
}

static int read_table(const char *text, bool apart, struct scene *s, struct failure *why)
{
    char *path = file_with(text, strlen(text));
    *s = (struct scene){.apart = apart};
    int code = scene_table(s, path, why);
    unlink(path);
    free(path);
    return code;
}

static void tensors_that_are_alike_count_as_often_as_they_occur(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    fprintf(to, "# a model\n\n");
    for (int i = 0; i < 30; i++)
        fprintf(to,
                "layers.%d.up: bf16[4096/f,1024] @f8 -> bf16[4096/t,1024] @d4.t2=8..15\n"
                "layers.%d.norm: bf16[4096/f] @f8 -> bf16[4096] @d4.t2=8..15\n",
                i, i);
    fprintf(to, "f32[64] @x1 -> f32[64] @x1=3\n");
    fclose(to);
    struct scene joined, apart;
    struct failure why;
    assert_int_equal(read_table(text, false, &joined, &why), CLI_OK);
    assert_int_equal(read_table(text, true, &apart, &why), CLI_OK);
    assert_int_equal(joined.tensors, 61);
    assert_int_equal(joined.moves.n, 3);
    assert_int_equal(apart.moves.n, 61);
    assert_int_equal(joined.world, 16);
    struct scene_how how = how_of("plain");
    struct scene_run a, b;
    simulate(&joined, &how, &a);
    simulate(&apart, &how, &b);
    assert_int_equal(a.graph.bytes, b.graph.bytes);
    assert_int_equal(a.graph.copied, b.graph.copied);
    if (fabs(a.events.total / b.events.total - 1) > 0.05)
        fail_msg("joined %.0f ns, apart %.0f ns", a.events.total, b.events.total);
    scene_run_free(&a);
    scene_run_free(&b);
    scene_free(&joined);
    scene_free(&apart);
    free(text);
}

/* With a bucket of 1 each chunk is one message, also if it counts several times. */
static void messages_of_tensors_that_are_alike_are_counted_with_a_bucket_of_1(void **state)
{
    (void)state;
    struct failure why;
    struct scene s[2] = {{.apart = false}, {.apart = true}};
    struct scene_how how = how_of("plain");
    struct scene_run r[2];
    how.bucket = 1;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 20; i++)
            assert_int_equal(scene_add(&s[k], "f32[512/x,64] @x8", "f32[512,64/x] @x8=8..15", &why), CLI_OK);
        simulate(&s[k], &how, &r[k]);
    }
    assert_int_equal(r[1].graph.messages, 20 * 64);
    assert_int_equal(r[0].graph.messages, r[1].graph.messages);
    if (fabs(r[0].events.total / r[1].events.total - 1) > 0.05)
        fail_msg("joined %.0f ns, apart %.0f ns", r[0].events.total, r[1].events.total);
    for (int k = 0; k < 2; k++) {
        scene_run_free(&r[k]);
        scene_free(&s[k]);
    }
}

/* Plans have the scales of a tensor as another one behind it. */
static void tensors_with_scales_count_as_often_as_they_occur(void **state)
{
    (void)state;
    struct failure why;
    struct scene s[2] = {{.apart = false}, {.apart = true}};
    struct scene_how how = how_of("plain");
    struct scene_run r[2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 7; i++) {
            assert_int_equal(scene_add(&s[k], "bf16[512/x,512] @x4", "f8e4m3[512,512/x] @x4=4..7 *f32(128,128)", &why),
                             CLI_OK);
            assert_int_equal(scene_add(&s[k], "f32[100/x] @x4", "f32[100] @x4=4..7", &why), CLI_OK);
        }
        assert_int_equal(scene_add(&s[k], "f32[64] @x1", "f32[64] @x1=3", &why), CLI_OK);
        simulate(&s[k], &how, &r[k]);
    }
    assert_int_equal(s[0].moves.n, 3);
    assert_int_equal(r[0].graph.bytes, r[1].graph.bytes);
    assert_int_equal(r[0].graph.copied, r[1].graph.copied);
    for (int k = 0; k < 2; k++) {
        scene_run_free(&r[k]);
        scene_free(&s[k]);
    }
}

/* Four sources, of which one has less to send, and eight replicas that pass on what they get: the rounds of joined
 * tensors come as the tensors themselves would. */
static void joined_tensors_of_unequal_sources_take_as_long_as_apart(void **state)
{
    (void)state;
    static const int counts[] = {40, 64, 60, 60};
    struct failure why;
    struct scene s[2] = {{.apart = false}, {.apart = true}};
    struct scene_how how = how_of("h100");
    struct scene_run r[2];
    how.machine.inside_rank = 180;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 4; i++)
            for (int n = 0; n < counts[i]; n++) {
                char src[64];
                snprintf(src, sizeof src, "u8[8388608] @x1=%d", i);
                assert_int_equal(scene_add(&s[k], src, "u8[8388608] @d8=8..15", &why), CLI_OK);
            }
        simulate(&s[k], &how, &r[k]);
    }
    assert_int_equal(r[0].graph.bytes, r[1].graph.bytes);
    if (fabs(r[0].events.total / r[1].events.total - 1) > 0.01)
        fail_msg("joined %.0f ns, apart %.0f ns", r[0].events.total, r[1].events.total);
    for (int k = 0; k < 2; k++) {
        scene_run_free(&r[k]);
        scene_free(&s[k]);
    }
}

/* Messages that are joined as they are added give what those give that are joined when all plans are there. */
static void joining_early_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *model, *from, *to, *dtypes, *machine;
        bool fewer; /* no receiver passes on what it gets, so that fewer nodes are made */
    } cases[] = {{"deepseek-v3", "pp4.dp2.ep4", "tp8", "bf16:f8e4m3", "h100", true},
                 {"deepseek-v3", "pp4.dp2.ep4", "dp2.tp8", "bf16:f8e4m3", "h100", false},
                 {"qwen3-235b-a22b", "pp2.ep4", "dp2.ep2.tp2", "bf16", "h100", false},
                 {"llama-3-70b", "fsdp12", "dp4.tp2", "bf16", "plain", false},
                 {"llama-3-70b", "tp8", "tp4", "bf16:f32", "plain", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s = {0};
        struct scene_run early, late;
        struct failure why;
        struct scene_how how = how_of(cases[i].machine);
        if (models_add(&s, cases[i].model, cases[i].from, cases[i].to, cases[i].dtypes, &why))
            fail_msg("%s", why.text);
        simulate(&s, &how, &early);
        how.each = true;
        simulate(&s, &how, &late);
        assert_int_equal(early.graph.bytes, late.graph.bytes);
        assert_int_equal(early.graph.messages, late.graph.messages);
        assert_int_equal(early.graph.copied, late.graph.copied);
        assert_int_equal(early.graph.channels.n, late.graph.channels.n);
        assert_int_equal(early.graph.edges.n, late.graph.edges.n);
        for (uint32_t k = 0; k < links_count(&early.links); k++)
            if (fabs(early.graph.busy[k] - late.graph.busy[k]) > 1e-6 * late.graph.busy[k])
                fail_msg("%s: a link is busy for %.1f and not %.1f ns", cases[i].model, early.graph.busy[k],
                         late.graph.busy[k]);
        if (fabs(early.events.total / late.events.total - 1) > 1e-6)
            fail_msg("%s: %.1f ns, and not %.1f", cases[i].model, early.events.total, late.events.total);
        if (cases[i].fewer && 2 * early.graph.nodes.n > late.graph.nodes.n)
            fail_msg("%s: %zu nodes are hardly fewer than %zu", cases[i].model, early.graph.nodes.n,
                     late.graph.nodes.n);
        scene_run_free(&early);
        scene_run_free(&late);
        scene_free(&s);
    }
}

static void wrong_tables_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"# nothing\n", "there are no tensors in it"},
        {"x: f32[4] @x1 f32[4] @x1=1\n", ":1: no 'SRC -> DST' in it"},
        {"f32[4] @x1 -> f32[4] @x1=1\nx: f32[4 @x1 -> f32[4] @x1=1\n", ":2: SRC: layout"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s;
        struct failure why;
        assert_int_equal(read_table(cases[i].text, false, &s, &why), CLI_BAD);
        if (!strstr(why.text, cases[i].says))
            fail_msg("'%s': %s", cases[i].text, why.text);
        scene_free(&s);
    }
}

static void a_saved_plan_is_foreseen_as_its_pair(void **state)
{
    (void)state;
    struct failure why;
    struct scene s = {0}, t = {0};
    assert_int_equal(scene_add(&s, "f32[4096/x,64] @x4", "bf16[4096,64/x] @x4=2..5", &why), CLI_OK);
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    opts.bucket = 65536;
    weft_plan *p = NULL;
    size_t n = 0;
    assert_int_equal(weft_lower(s.moves.v, 1, 3, &opts, &p), 0);
    assert_int_equal(weft_plan_save(p, NULL, 0, &n), 0);
    void *bytes = malloc(n);
    assert_non_null(bytes);
    assert_int_equal(weft_plan_save(p, bytes, n, &n), 0);
    char *path = file_with(bytes, n);
    assert_int_equal(scene_plan(&t, path, &why), CLI_OK);
    assert_int_equal(t.bucket, 65536);
    struct scene_how how = how_of("h100"), same = how;
    same.bucket = 65536;
    struct scene_run a, b;
    simulate(&s, &same, &a);
    simulate(&t, &how, &b);
    assert_true(a.events.total == b.events.total);
    assert_int_equal(a.graph.messages, b.graph.messages);
    scene_run_free(&a);
    scene_run_free(&b);
    scene_free(&t);
    t = (struct scene){0};
    assert_int_equal(truncate(path, (off_t)n / 2), 0);
    assert_int_equal(scene_plan(&t, path, &why), CLI_BAD);
    assert_non_null(strstr(why.text, path));
    scene_free(&t);
    scene_free(&s);
    weft_plan_free(p);
    unlink(path);
    free(path);
    free(bytes);
}

/* The published numbers of parameters, in thousands of millions. */
static void models_have_as_many_parameters_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double parameters;
    } cases[] = {{"llama-3-70b", 70.554}, {"qwen3-235b-a22b", 235.09}, {"deepseek-v3", 671.03}, {"kimi-k2", 1026.4}};
    struct scene_how how = how_of("h100");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s = {0};
        struct scene_run r;
        struct failure why;
        if (models_add(&s, cases[i].name, "tp1", "tp1", "bf16", &why))
            fail_msg("%s", why.text);
        simulate(&s, &how, &r);
        double got = (double)r.graph.bytes / 2 / 1e9;
        if (fabs(got / cases[i].parameters - 1) > 2e-3)
            fail_msg("%s: %.3f, and not %.3f", cases[i].name, got, cases[i].parameters);
        scene_run_free(&r);
        scene_free(&s);
    }
}

static void a_model_between_parallelisms(void **state)
{
    (void)state;
    struct scene s = {0};
    struct failure why;
    assert_int_equal(models_add(&s, "qwen3-235b-a22b", "pp2.ep4.fsdp2", "dp2.tp4", "bf16", &why), CLI_OK);
    assert_int_equal(s.world, 24);
    assert_true(s.moves.n < s.tensors / 50);
    struct scene_how how = how_of("h100");
    struct scene_run r;
    simulate(&s, &how, &r);
    uint32_t link;
    assert_true(r.events.total >= graph_bound(&r.graph, &link) * (1 - 1e-7));
    /* Two replicas of the destination on one host: each has all bytes once. */
    assert_true(fabs((double)r.graph.bytes / (2 * 2 * 235.09e9) - 1) < 0.01);
    scene_run_free(&r);
    scene_free(&s);
    s = (struct scene){0};
    assert_int_equal(models_add(&s, "gpt-9", "tp1", "tp1", "bf16", &why), CLI_BAD);
    assert_int_equal(models_add(&s, "llama-3-70b", "tp0x", "tp1", "bf16", &why), CLI_BAD);
    scene_free(&s);
}

static void matrices_of_a_model_have_the_dtypes_that_are_asked_for(void **state)
{
    (void)state;
    struct failure why;
    struct scene_how how = how_of("h100");
    double bytes[3];
    static const char *const dtypes[] = {"bf16", "f8e4m3", "bf16:f8e4m3"};
    for (int i = 0; i < 3; i++) {
        struct scene s = {0};
        struct scene_run r;
        if (models_add(&s, "llama-3-70b", "tp1", "tp1", dtypes[i], &why))
            fail_msg("%s", why.text);
        simulate(&s, &how, &r);
        bytes[i] = (double)r.graph.bytes;
        scene_run_free(&r);
        scene_free(&s);
    }
    /* All but embedding, head and norms: 70.554 - 2 * 1.0507 - 0.0013 thousand million parameters. */
    assert_true(fabs((bytes[0] - bytes[1]) / 68.451e9 - 1) < 1e-3);
    assert_true(bytes[2] == bytes[1]); /* cast before it is sent */
    static const char *const wrong[] = {"", "bf17", "bf16:", ":bf16", "bf16:f8e4m3:bf16"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct scene s = {0};
        assert_int_equal(models_add(&s, "llama-3-70b", "tp1", "tp1", wrong[i], &why), CLI_BAD);
        assert_non_null(strstr(why.text, "--dtype"));
        scene_free(&s);
    }
}

static const struct change *change_of(const struct changes *c, const char *what)
{
    for (size_t i = 0; i < c->all.n; i++)
        if (!strncmp(c->all.v[i].what, what, strlen(what)))
            return &c->all.v[i];
    fail_msg("no change '%s'", what);
    return NULL;
}

static void what_ifs_are_simulations_of_their_own(void **state)
{
    (void)state;
    struct scene s = {0};
    struct failure why;
    struct scene_how how = how_of("h100"), ring = how;
    struct scene_run r, forced;
    struct changes c = {0};
    assert_int_equal(scene_add(&s, "f32[262144/x] @x16", "f32[262144] @x16", &why), CLI_OK);
    simulate(&s, &how, &r);
    ring.algorithm = "ring";
    simulate(&s, &ring, &forced);
    if (changes_try(&c, &s, &how, &r, &why))
        fail_msg("%s", why.text);
    assert_true(change_of(&c, "algorithm ring")->total == forced.events.total);
    change_of(&c, "buckets of 1048576 B");
    change_of(&c, "ranks in turn");
    change_of(&c, "one more replica");
    changes_free(&c);
    scene_run_free(&r);
    scene_run_free(&forced);
    scene_free(&s);
}

static void one_more_replica_halves_the_time_of_a_sender(void **state)
{
    (void)state;
    struct scene s = {0};
    struct failure why;
    struct scene_how how = how_of("plain");
    struct scene_run r;
    struct changes c = {0};
    how.machine.ranks_per_host = 1;
    assert_int_equal(scene_add(&s, "u8[67108864] @x1=0", "u8[67108864/x] @x2=1,2", &why), CLI_OK);
    simulate(&s, &how, &r);
    assert_int_equal(changes_try(&c, &s, &how, &r, &why), CLI_OK);
    double ratio = change_of(&c, "one more replica")->total / r.events.total;
    if (fabs(ratio - 0.5) > 0.01)
        fail_msg("%.3f times", ratio);
    changes_free(&c);
    scene_run_free(&r);
    scene_free(&s);
}

/* Four sources send tensors of their own, at the same time, to four replicas on another host, which pass on a quarter
 * of each to one another. In the order of tensors, what came from the last source would wait for all of the first. */
static void what_is_passed_on_goes_in_the_order_of_its_arrival(void **state)
{
    (void)state;
    struct scene s = {.apart = true};
    struct failure why;
    struct scene_run r;
    struct scene_how how = how_of("h100");
    uint32_t link;
    how.machine.ranks_per_host = how.machine.nics = 4;
    how.machine.inside_rank = 200;
    how.bucket = 1 << 20;
    for (int source = 0; source < 4; source++)
        for (int i = 0; i < 8; i++) {
            char src[64];
            snprintf(src, sizeof src, "u8[67108864] @x1=%d", source);
            assert_int_equal(scene_add(&s, src, "u8[67108864] @d4=4..7", &why), CLI_OK);
        }
    simulate(&s, &how, &r);
    double bound = graph_bound(&r.graph, &link);
    if (r.events.total > 1.1 * bound)
        fail_msg("%.0f ns, and the busiest link is busy for %.0f", r.events.total, bound);
    scene_run_free(&r);
    scene_free(&s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_that_are_alike_count_as_often_as_they_occur),
        cmocka_unit_test(tensors_with_scales_count_as_often_as_they_occur),
        cmocka_unit_test(messages_of_tensors_that_are_alike_are_counted_with_a_bucket_of_1),
        cmocka_unit_test(joined_tensors_of_unequal_sources_take_as_long_as_apart),
        cmocka_unit_test(joining_early_changes_nothing),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(a_saved_plan_is_foreseen_as_its_pair),
        cmocka_unit_test(models_have_as_many_parameters_as_published),
        cmocka_unit_test(a_model_between_parallelisms),
        cmocka_unit_test(what_ifs_are_simulations_of_their_own),
        cmocka_unit_test(one_more_replica_halves_the_time_of_a_sender),
        cmocka_unit_test(what_is_passed_on_goes_in_the_order_of_its_arrival),
        cmocka_unit_test(matrices_of_a_model_have_the_dtypes_that_are_asked_for),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
