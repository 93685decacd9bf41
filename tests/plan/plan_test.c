/* Plans as objects: equality, save and load, stats. `plan_test --corpus DIR` writes the samples in their saved
 * form, which is the kept corpus of the plan fuzzer. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "support/json_syntax.h"
#include "support/plan_samples.h"
#include "support/suite.h"

static unsigned char *save(const weft_plan *p, size_t *len)
{
    assert_int_equal(weft_plan_save(p, NULL, 0, len), 0);
    unsigned char *buf = malloc(*len);
    size_t again;
    assert_int_equal(weft_plan_save(p, buf, *len, &again), 0);
    assert_int_equal(again, *len);
    return buf;
}

static weft_plan *load(const void *buf, size_t len)
{
    weft_plan *p = NULL;
    if (weft_plan_load(buf, len, &p))
        fail_msg("%s", weft_errmsg());
    return p;
}

static weft_stats stats(const weft_plan *p)
{
    weft_stats st = {.size = sizeof st};
    assert_int_equal(weft_plan_stats(p, &st), 0);
    return st;
}

/* ---- the object ---- */

static void plan_tells_rank_world_digest_and_tensors(void **state)
{
    (void)state;
    weft_plan *p = sample_bucket(1);
    assert_int_equal(weft_plan_rank(p), 1);
    assert_int_equal(weft_plan_world(p), 4);
    assert_true(weft_plan_digest(p) == p->digest);
    assert_int_equal(weft_plan_tensors(p), 6);
    weft_move m;
    assert_int_equal(weft_plan_tensor(p, 1, &m), 0);
    assert_string_equal(m.name, SAMPLE_ODD_NAME);
    weft_layout *l = sample_layout("f64[2] @x1=1");
    assert_true(weft_layout_equal(m.dst, l));
    weft_layout_free(l);
    assert_int_equal(weft_plan_tensor(p, 6, &m), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "plan: no tensor 6, there are 6");
    assert_int_equal(weft_plan_tensor(p, SIZE_MAX, &m), WEFT_EINVAL);
    weft_plan_free(p);
    weft_plan_free(NULL);
}

static void words_of_a_plan_are_checked(void **state)
{
    (void)state;
    const char *kind = plan_kind_text("allreduce...", 9);
    assert_string_equal(kind, "allreduce");
    assert_ptr_equal(kind, plan_kind_text("allreduce", 9));
    assert_null(plan_kind_text("allreduc", 8));
    assert_null(plan_kind_text("ring", 4));
    assert_true(plan_is_word("ring2") && plan_is_word("two_level") && plan_is_word("of_a_later_version"));
    assert_false(plan_is_word("") || plan_is_word("Ring") || plan_is_word("ring 2") || plan_is_word("ring-2"));
    assert_false(plan_is_word("a_word_of_thirty_two_letters_is_"));
}

/* Every field of every array and of the plan itself counts. */
#define FIELD(array, n, field)                                                                                  \
    {                                                                                                           \
#array "." #field, offsetof(weft_plan, array), offsetof(weft_plan, n), sizeof *((weft_plan *)0)->array, \
            offsetof(__typeof__(*((weft_plan *)0)->array), field), sizeof(((weft_plan *)0)->array->field)       \
    }
#define PLAIN(array, n)                                                                                 \
    {                                                                                                   \
#array, offsetof(weft_plan, array), offsetof(weft_plan, n), sizeof *((weft_plan *)0)->array, 0, \
            sizeof *((weft_plan *)0)->array                                                             \
    }
#define OWN(field)                                                                   \
    {                                                                                \
#field, 0, 0, 0, offsetof(weft_plan, field), sizeof(((weft_plan *)0)->field) \
    }
static const struct {
    const char *name;
    size_t array, n, element; /* element 0: a field of the plan itself */
    size_t at, size;
} fields[] = {
    FIELD(tensors, ntensors, name),
    FIELD(tensors, ntensors, src_buf),
    FIELD(tensors, ntensors, dst_buf),
    FIELD(tensors, ntensors, ndim),
    FIELD(bufs, nbufs, space),
    FIELD(bufs, nbufs, dtype),
    FIELD(bufs, nbufs, tensor),
    FIELD(bufs, nbufs, shape),
    FIELD(bufs, nbufs, offset),
    FIELD(parts, nparts, buf),
    FIELD(parts, nparts, runs),
    FIELD(parts, nparts, spots),
    FIELD(parts, nparts, wire),
    FIELD(parts, nparts, offset),
    FIELD(parts, nparts, count),
    FIELD(steps, nsteps, kind),
    FIELD(steps, nsteps, op),
    FIELD(steps, nsteps, via),
    FIELD(steps, nsteps, peer),
    FIELD(steps, nsteps, stage),
    FIELD(steps, nsteps, part),
    FIELD(steps, nsteps, nparts),
    FIELD(steps, nsteps, dep),
    FIELD(steps, nsteps, ndeps),
    FIELD(steps, nsteps, div),
    FIELD(steps, nsteps, bytes),
    FIELD(runs, nruns, at),
    FIELD(runs, nruns, len),
    FIELD(runs, nruns, n),
    FIELD(runs, nruns, step),
    FIELD(spots, nspots, to),
    FIELD(spots, nspots, tostep),
    PLAIN(shapes, nshapes),
    PLAIN(deps, ndeps),
    PLAIN(names, nnames),
    OWN(rank),
    OWN(world),
    OWN(digest),
    OWN(scratch),
    OWN(bound),
    OWN(stated),
    OWN(bucket),
    OWN(in_place),
    OWN(machine.ranks_per_host),
    OWN(machine.latency_ns),
    OWN(machine.bytes_per_us),
    OWN(machine.ranks),
};

static void equal_sees_every_field(void **state)
{
    (void)state;
    weft_plan *p = sample_allreduce(1), *q = sample_allreduce(1);
    assert_true(weft_plan_equal(p, p));
    assert_true(weft_plan_equal(p, q));
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        char *base = (char *)q;
        size_t n = 1;
        if (fields[f].element) {
            memcpy(&base, (char *)q + fields[f].array, sizeof base);
            memcpy(&n, (char *)q + fields[f].n, sizeof n);
        }
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++) {
            char *x = base + i * fields[f].element + fields[f].at;
            for (size_t b = 0; b < fields[f].size; b++) {
                x[b] = (char)(x[b] ^ 0x10);
                if (weft_plan_equal(p, q) || weft_plan_equal(q, p))
                    fail_msg("a change of %s goes unseen", fields[f].name);
                x[b] = (char)(x[b] ^ 0x10);
            }
        }
    }
    assert_true(weft_plan_equal(p, q));
    q->kind = "reshard";
    assert_false(weft_plan_equal(p, q));
    q->kind = p->kind;
    q->algorithm = "ring";
    assert_false(weft_plan_equal(p, q));
    q->algorithm = p->algorithm;
    const weft_layout *l = q->tensors[0].dst;
    q->tensors[0].dst = q->tensors[0].src;
    assert_false(weft_plan_equal(p, q));
    q->tensors[0].dst = l;
    q->ndeps--;
    assert_false(weft_plan_equal(p, q));
    q->ndeps++;
    weft_plan_free(p);
    weft_plan_free(q);
}

static void samples_differ(void **state)
{
    (void)state;
    weft_plan *p[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        p[i] = samples[i].make(samples[i].rank);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < SAMPLES; k++)
            assert_int_equal(weft_plan_equal(p[i], p[k]), i == k);
    for (int i = 0; i < SAMPLES; i++)
        weft_plan_free(p[i]);
}

/* ---- save and load ---- */

static void check_round_trip(const weft_plan *p)
{
    size_t len, len2;
    unsigned char *bytes = save(p, &len);
    weft_plan *q = load(bytes, len);
    assert_true(weft_plan_equal(p, q));
    assert_int_equal(q->machine.size, sizeof q->machine);
    unsigned char *again = save(q, &len2);
    assert_int_equal(len, len2);
    assert_memory_equal(bytes, again, len);
    free(bytes);
    free(again);
    weft_plan_free(q);
}

static void load_gives_what_was_saved(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank);
        check_round_trip(p);
        weft_plan_free(p);
    }
}

static void every_word_can_be_saved(void **state)
{
    (void)state;
    static const char *const kinds[] = {"copy",      "reshard",    "send",   "permute",      "broadcast",
                                        "scatter",   "gather",     "reduce", "allgather",    "reduce_scatter",
                                        "allreduce", "all_to_all", "halo",   "reverse_halo", "slice",
                                        "identity",  "mixed"};
    weft_plan *p = sample_idle(7);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        p->kind = kinds[i];
        check_round_trip(p);
    }
    for (size_t i = 0; weft_algorithm_name(i); i++) {
        p->algorithm = weft_algorithm_name(i);
        check_round_trip(p);
    }
    p->algorithm = "mixed";
    check_round_trip(p);
    p->kind = "a word that is too long to be a kind of plan";
    size_t len;
    assert_int_equal(weft_plan_save(p, NULL, 0, &len), WEFT_EINVAL);
    weft_plan_free(p);
}

static void a_small_buffer_is_left_alone(void **state)
{
    (void)state;
    weft_plan *p = sample_cyclic(0);
    size_t len, got = 0;
    free(save(p, &len));
    unsigned char *buf = malloc(len - 1);
    memset(buf, 0x5a, len - 1);
    assert_int_equal(weft_plan_save(p, buf, len - 1, &got), 0);
    assert_int_equal(got, len);
    for (size_t i = 0; i < len - 1; i++)
        assert_int_equal(buf[i], 0x5a);
    free(buf);
    weft_plan_free(p);
}

/* Layouts that are equal are saved once, also where they are different objects. */
static void layouts_are_saved_once(void **state)
{
    (void)state;
    static const char text[] = "f32[4096/x,4096] @x2";
    size_t one, many, text_len = strlen(text);
    weft_plan *p = sample_plan(0, 2, "identity", "direct");
    sample_tensor(p, "a", text, text);
    free(save(p, &one));
    for (int i = 0; i < 9; i++)
        sample_tensor(p, "b", text, text);
    free(save(p, &many));
    size_t tensor = 21 + 2, sides = 2 * (18 + 2 * 8); /* a tensor with its name, two buffers with their shapes */
    assert_int_equal(many, one + 9 * (tensor + sides));
    assert_true(one < 320 + tensor + sides + text_len);
    check_round_trip(p);
    weft_plan_free(p);
}

/* Whatever is cut off or changed, the bytes are refused: nothing but the whole loads. */
static void damage_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank), *q;
        size_t len;
        unsigned char *bytes = save(p, &len);
        for (size_t n = 0; n < len; n++) {
            unsigned char *cut = malloc(n + 1); /* of this very size, for the sanitizer */
            memcpy(cut, bytes, n);
            assert_int_equal(weft_plan_load(cut, n, &q), WEFT_EINVAL);
            assert_non_null(strstr(weft_errmsg(), "plan: truncated: "));
            cut[n] = 0;
            free(cut);
            bytes[n] ^= 1;
            assert_int_equal(weft_plan_load(bytes, len, &q), WEFT_EINVAL);
            bytes[n] ^= 1;
        }
        free(bytes);
        weft_plan_free(p);
    }
}

/* Puts n bytes at `at`, makes length and checksum right again, and expects this refusal. */
static void refuses(const weft_plan *p, size_t at, const void *change, size_t n, const char *message)
{
    size_t len;
    unsigned char *bytes = save(p, &len);
    weft_plan *q = NULL;
    memcpy(bytes + at, change, n);
    uint64_t sum = hash_bytes(2, bytes, len - 8);
    memcpy(bytes + len - 8, &sum, 8);
    assert_int_equal(weft_plan_load(bytes, len, &q), WEFT_EINVAL);
    assert_null(q);
    if (!strstr(weft_errmsg(), message))
        fail_msg("expected \"%s\", got \"%s\"", message, weft_errmsg());
    free(bytes);
}

static void refuses_count(const weft_plan *p, int count, uint64_t value, const char *message)
{
    refuses(p, 24 + 8 * (size_t)count, &value, 8, message);
}

static size_t find(const weft_plan *p, const char *what, size_t n)
{
    size_t len, at = 0;
    unsigned char *bytes = save(p, &len);
    while (memcmp(bytes + at, what, n))
        at++;
    free(bytes);
    return at;
}

static void bad_bytes_are_named(void **state)
{
    (void)state;
    weft_plan *p = sample_allreduce(0);
    size_t len;
    unsigned char *bytes = save(p, &len);
    weft_plan *q = NULL;
    char message[128];
    refuses(p, 0, "WEFTPLAM", 8, "plan: this is not a saved plan: it does not start with \"WEFTPLAN\"");
    refuses(p, 8, "\1\2\3\4", 4, "plan: saved on a machine of another byte order");
    refuses(p, 12, &(uint32_t){7}, 4, "plan: format version 7, this library reads 2");
    snprintf(message, sizeof message, "plan: truncated: %zu bytes, header says 99999", len);
    refuses(p, 16, &(uint64_t){99999}, 8, message);
    snprintf(message, sizeof message, "plan: too long: %zu bytes, header says 300", len);
    refuses(p, 16, &(uint64_t){300}, 8, message);
    bytes[len - 20] ^= 4;
    assert_int_equal(weft_plan_load(bytes, len, &q), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "plan: damaged: its checksum is wrong");
    assert_int_equal(weft_plan_load(bytes, 120, &q), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "plan: truncated: 120 bytes, a plan has at least 257");
    assert_null(q);
    free(bytes);

    static const char *const what[] = {"tensors", "buffers", "parts", "steps",          "runs",
                                       "spots",   "extents", "deps",  "bytes of names", "bytes of layouts"};
    static const uint64_t large[] = {UINT64_MAX, UINT64_MAX / 2 + 1, UINT64_C(1) << 32, 5000};
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < 4; k++) {
            snprintf(message, sizeof message, "plan: %" PRIu64 " %s do not fit into the ", large[k], what[i]);
            refuses_count(p, i, large[k], message);
        }
    refuses_count(p, 7, p->ndeps - 1, "plan: 4 bytes are not used by anything");
    refuses_count(p, 10, UINT64_MAX, "layouts do not fit into");
    refuses_count(p, 10, 3, "plan: layout 2 is cut off");
    refuses_count(p, 10, 1, "bytes after the last layout");
    refuses_count(p, 10, 0, "bytes after the last layout");

    refuses(p, find(p, "allreduce", 10), "allr\neduce", 11, "plan: kind \"allr\\neduce\" is unknown");
    refuses(p, find(p, "direct", 7), "in-direct", 10, "plan: \"in-direct\" cannot be the name of an algorithm");
    refuses(p, find(p, "+avg(x)", 7), "+avg(y)", 7, "layout: ");
    refuses(p, find(p, "f32[12] @x3", 11), "f32[13] @x3", 11,
            "plan: tensor 0: dim 0 is 12 long in the source, 13 in the destination");
    size_t tensors = 249; /* where the first section starts */
    refuses(p, tensors, &(uint32_t){2}, 4, "plan: tensor 0 has layouts 2 and 1, there are 2");
    refuses(p, tensors + 4, &(uint32_t){PLAN_NONE}, 4, "plan: tensor 0 has layouts 0 and 4294967295, there are 2");
    refuses(p, tensors + 12, &(uint32_t){77}, 4, "plan: tensor 0: source buffer 77, there are 4");
    weft_plan_free(p);
}

static void null_arguments_are_refused(void **state)
{
    (void)state;
    weft_plan *p = sample_idle(0), *q;
    size_t len;
    char c[1];
    weft_stats st = {.size = sizeof st};
    assert_int_equal(weft_plan_save(NULL, c, 1, &len), WEFT_EINVAL);
    assert_int_equal(weft_plan_save(p, NULL, 1, &len), WEFT_EINVAL);
    assert_int_equal(weft_plan_save(p, c, 1, NULL), WEFT_EINVAL);
    assert_int_equal(weft_plan_load(NULL, 1, &q), WEFT_EINVAL);
    assert_int_equal(weft_plan_load(c, 0, NULL), WEFT_EINVAL);
    assert_int_equal(weft_plan_explain(NULL, true, c, 1, &len), WEFT_EINVAL);
    assert_int_equal(weft_plan_explain(p, true, NULL, 1, &len), WEFT_EINVAL);
    assert_int_equal(weft_plan_explain(p, true, c, 1, NULL), WEFT_EINVAL);
    assert_int_equal(weft_plan_stats(NULL, &st), WEFT_EINVAL);
    assert_int_equal(weft_plan_stats(p, NULL), WEFT_EINVAL);
    st.size = 0;
    assert_int_equal(weft_plan_stats(p, &st), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "the size in weft_stats is 0: initialise it with WEFT_STATS_INIT"));
    weft_plan_free(p);
}

/* ---- stats ---- */

static void stats_count_the_steps(void **state)
{
    (void)state;
    weft_plan *p = sample_allreduce(1);
    weft_stats st = stats(p);
    assert_int_equal(st.rank, 1);
    assert_int_equal(st.world, 3);
    assert_int_equal(st.tensors, 1);
    assert_string_equal(st.kind, "allreduce");
    assert_string_equal(st.algorithm, "direct");
    assert_int_equal(st.sent, 4 * 4 * 2);
    assert_int_equal(st.received, 4 * 4 * 2);
    assert_int_equal(st.copied, 0);
    assert_int_equal(st.folded, 3 * 4 * 2);
    assert_int_equal(st.bound, 32);
    assert_int_equal(st.stated, 32);
    assert_int_equal(st.scratch, 64 + 8);
    assert_int_equal(st.send_peers, 2);
    assert_int_equal(st.recv_peers, 2);
    assert_int_equal(st.steps, 9);
    assert_int_equal(st.sends, 4);
    assert_int_equal(st.recvs, 4);
    assert_int_equal(st.chunks, 8);
    assert_int_equal(st.largest_send, 8);
    assert_int_equal(st.largest_recv, 8);
    assert_true(st.memory > (int64_t)(sizeof *p + 9 * sizeof *p->steps + 12 * sizeof *p->parts));
    weft_plan_free(p);

    p = sample_bucket(0);
    st = stats(p);
    assert_int_equal(st.sent, 3 + 16 + 3 + 2); /* the message's padding is not counted here */
    assert_int_equal(st.largest_send, 30);     /* but here */
    assert_int_equal(st.copied, 24);
    assert_int_equal(st.chunks, 4);
    assert_int_equal(st.received + st.recv_peers + st.largest_recv + st.recvs, 0);
    weft_plan_free(p);

    p = sample_scalar(0);
    st = stats(p);
    assert_int_equal(st.copied, 8);
    assert_int_equal(st.sent, 8);
    weft_plan_free(p);
}

/* A program that was built with an older, shorter struct gets what it knows and no more. */
static void stats_respect_the_size(void **state)
{
    (void)state;
    weft_plan *p = sample_cyclic(0);
    weft_stats st;
    memset(&st, 0x77, sizeof st);
    st.size = offsetof(weft_stats, copied);
    assert_int_equal(weft_plan_stats(p, &st), 0);
    assert_int_equal(st.size, offsetof(weft_stats, copied));
    assert_int_equal(st.received, 80);
    const unsigned char *rest = (const unsigned char *)&st.copied;
    for (size_t i = 0; i < sizeof st - offsetof(weft_stats, copied); i++)
        assert_int_equal(rest[i], 0x77);
    weft_plan_free(p);
}

/* ---- size ---- */

/* A hundred thousand parts and more: nothing here may take time in the square of it. */
static void large_plans_take_no_square_time(void **state)
{
    (void)state;
    enum { STEPS = 1000, EACH = 120 };
    weft_plan *p = sample_plan(0, STEPS + 1, "reshard", "direct");
    char text[64];
    snprintf(text, sizeof text, "f32[%d] @x1", STEPS * EACH);
    sample_tensor(p, "w", text, "f32[120000/x] @x1000=1..1000");
    for (int s = 0; s < STEPS; s++) {
        for (int k = 0; k < EACH; k++)
            PART(p, 0, WEFT_F32, 4 * k, SPAN(s * EACH + k, 1, s * EACH + k));
        STEP(p, .kind = PLAN_SEND, .peer = s + 1);
    }
    assert_int_equal(plan_check(p), 0);
    check_round_trip(p);
    weft_stats st = stats(p);
    assert_int_equal(st.sent, 4 * STEPS * EACH);
    assert_int_equal(st.send_peers, STEPS);
    assert_int_equal(st.chunks, STEPS * EACH);
    char *json = sample_explain(p, true);
    assert_true(json_is_valid(json));
    free(json);
    weft_plan_free(p);
}

/* ---- the fuzzer's corpus ---- */

static int write_corpus(const char *folder)
{
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank);
        char path[1024];
        size_t len;
        unsigned char *bytes = save(p, &len);
        snprintf(path, sizeof path, "%s/%s.plan", folder, samples[i].name);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(bytes, 1, len, f) != len || fclose(f)) {
            perror(path);
            return 1;
        }
        free(bytes);
        weft_plan_free(p);
    }
    return 0;
}

/* The kept files are today's form of the samples: when the form changes, they must be written again. */
static void the_corpus_is_up_to_date(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank);
        size_t len;
        unsigned char *bytes = save(p, &len), *kept = malloc(len + 1);
        char path[1024];
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/plan/%s.plan", WEFT_SOURCE_DIR, samples[i].name);
        FILE *f = fopen(path, "rb");
        if (!f)
            fail_msg("%s is missing: plan_test --corpus tests/fuzz/corpus/plan", path);
        assert_int_equal(fread(kept, 1, len + 1, f), len);
        assert_memory_equal(kept, bytes, len);
        fclose(f);
        free(kept);
        free(bytes);
        weft_plan_free(p);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--corpus"))
        return write_corpus(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_tells_rank_world_digest_and_tensors),
        cmocka_unit_test(words_of_a_plan_are_checked),
        cmocka_unit_test(equal_sees_every_field),
        cmocka_unit_test(samples_differ),
        cmocka_unit_test(load_gives_what_was_saved),
        cmocka_unit_test(every_word_can_be_saved),
        cmocka_unit_test(a_small_buffer_is_left_alone),
        cmocka_unit_test(layouts_are_saved_once),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(bad_bytes_are_named),
        cmocka_unit_test(null_arguments_are_refused),
        cmocka_unit_test(stats_count_the_steps),
        cmocka_unit_test(stats_respect_the_size),
        cmocka_unit_test(large_plans_take_no_square_time),
        cmocka_unit_test(the_corpus_is_up_to_date),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
