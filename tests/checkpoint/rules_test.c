/* Rules of checkpoints: what parses, what is refused, which rule is a name's; patterns against a matcher that tries
 * everything. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/rules.h"
#include "support/random.h"
#include "support/suite.h"
#include "weft/checkpoint.h"

static struct arena arena;

static int parse(const char *text, struct rules *out)
{
    return rules_parse("r", text, strlen(text), &arena, out);
}

static int reset(void **state)
{
    (void)state;
    arena_free(&arena);
    arena = (struct arena){0};
    return 0;
}

static void rules_parse_to_what_they_say(void **state)
{
    (void)state;
    struct rules r;
    const char *text = "# none\r\n"
                       "fuse a.qkv = a.q:$h + a.k:2 + a.v  dim 1\n"
                       "\n"
                       "m.{pp}.w  [/tp/ep:3, /dp<=$kv ,...] x=first y=last z=7 # and so on\n"
                       "s[]\n"
                       "*[..., /tp<=4]";
    if (parse(text, &r))
        fail_msg("%s", weft_errmsg());
    assert_int_equal(r.nrules, 3);
    assert_int_equal(r.nfuses, 1);
    const struct rules_fuse *f = &r.fuse[0];
    assert_string_equal(f->fused, "a.qkv");
    assert_int_equal(f->nparts, 3);
    assert_int_equal(f->dim, 1);
    assert_string_equal(f->share[0].variable, "h");
    assert_int_equal(f->share[1].number, 2);
    assert_int_equal(f->share[2].number, 1);
    const struct rules_rule *rule = &r.rule[0];
    assert_string_equal(rule->pattern, "m.{pp}.w");
    assert_int_equal(rule->line, 4);
    assert_int_equal(rule->ndim, 2);
    assert_int_equal(rule->more, 2);
    assert_int_equal(rule->dim[0].n, 2);
    assert_string_equal(rule->dim[0].split[1].axis, "ep");
    assert_int_equal(rule->dim[0].split[1].block, 3);
    assert_string_equal(rule->dim[1].split[0].most.variable, "kv");
    assert_int_equal(rule->npins, 3);
    assert_int_equal(rule->pin[0].at, 0);
    assert_int_equal(rule->pin[1].at, RULES_LAST);
    assert_int_equal(rule->pin[2].at, 7);
    assert_int_equal(r.rule[1].ndim, 0);
    assert_int_equal(r.rule[1].more, -1);
    assert_int_equal(r.rule[2].more, 0);
    assert_int_equal(r.rule[2].dim[0].split[0].most.number, 4);
    assert_true(rules_match_mention(&r, "pp") && rules_match_mention(&r, "dp") && rules_match_mention(&r, "y"));
    assert_false(rules_match_mention(&r, "p") || rules_match_mention(&r, "ppp"));
}

static void bad_rules_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"a", "r:1: expected '['"},
        {"\n\na [", "r:3: expected '/' and an axis"},
        {"a [/]", "an axis name is missing"},
        {"a [/tp", "expected '/'"},
        {"a [/tp x]", "expected '/'"},
        {"a [/tp, /tp]", "two places"},
        {"a.{tp} [/tp]", "two places"},
        {"a.{tp}.{tp} []", "two places"},
        {"a [/tp] tp=0", "two places"},
        {"a [/tp:0]", "a block of 0"},
        {"a [/tp<=0]", "0 is neither a proportion"},
        {"a [/tp<=$]", "a name is missing after $"},
        {"a [/tp<=9999999999]", "larger than 999999999"},
        {"a [..., ...]", "'...' is there twice"},
        {"a [,,,,,,,,]", "more than 8 dims"},
        {"a [] pp", "expected '='"},
        {"a [] pp=middle", "a number is missing"},
        {"a [] pp=firstly", "expected first, last or a number"},
        {"a [] ]", "an axis name is missing"},
        {"a{ []", "'{' is not followed"},
        {"a{pp []", "'{' is not followed"},
        {"a}b []", "a '}' without"},
        {"[/tp]", "a pattern is missing"},
        {"fuse a", "expected '=' and the parts"},
        {"fuse a = b", "expected 'fuse NAME"},
        {"fuse a = b + ", "a part has no name"},
        {"fuse a = b + a", "a part has no name of its own"},
        {"fuse a = b + b", "two parts have one name"},
        {"fuse a = b + c dim 8", "dims are 0 to 7"},
        {"fuse a = b + c x", "expected 'fuse NAME"},
        {"fuse a = b:0 + c", "0 is neither a proportion"},
        {"fuse a = b+c+d+e+f+g+h+i+j", "more than 8 parts"},
        {"a [/abcdefghijklmnopqrstuvwxyzabcdefghi]", "longer than 31"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rules r;
        int rc = parse(rows[i].text, &r);
        if (rc != WEFT_EINVAL || !strstr(weft_errmsg(), rows[i].says))
            fail_msg("%s: %s", rows[i].text, rc ? weft_errmsg() : "taken");
    }
    struct rules r;
    assert_int_equal(rules_parse("r", "a\0[]", 4, &arena, &r), WEFT_EINVAL);
}

/* Every way to match, by trying them all. */
static bool slow_match(const char *p, const char *name, const char *s, long *number)
{
    if (*p == '*') {
        for (;; s++) {
            if (slow_match(p + 1, name, s, number))
                return true;
            if (!*s)
                return false;
        }
    }
    if (*p == '{') {
        char *end;
        if (*s < '0' || *s > '9' || (s > name && s[-1] >= '0' && s[-1] <= '9'))
            return false;
        long n = strtol(s, &end, 10);
        if (n > RULES_NUMBER_MAX)
            return false;
        if (!slow_match(strchr(p, '}') + 1, name, end, number))
            return false;
        *number = n;
        return true;
    }
    return *p == *s && (!*p || slow_match(p + 1, name, s + 1, number));
}

static void patterns_match_like_brute_force(void **state)
{
    (void)state;
    struct random r = {9};
    int matched = 0;
    for (int round = 0; round < 30000; round++) {
        char pattern[40] = "", name[16] = "", text[64];
        bool number = false;
        for (int i = (int)random_in(&r, 1, 6); i > 0; i--) {
            static const char *const bits[] = {"a", "b", "1", ".", "*", "{pp}"};
            int k = (int)random_in(&r, 0, 5);
            if (k == 5 && number)
                continue;
            number |= k == 5;
            strcat(pattern, bits[k]);
        }
        for (int i = (int)random_in(&r, 0, 7); i > 0; i--)
            strncat(name, &"ab1."[random_in(&r, 0, 3)], 1);
        strcpy(text, pattern);
        strcat(text, " []");
        struct rules rules;
        struct rules_match m;
        long want = -1;
        assert_int_equal(parse(text, &rules), 0);
        bool slow = slow_match(pattern, name, name, &want), fast = rules_match_find(&rules, name, &m);
        if (slow != fast)
            fail_msg("%s against %s: %d, should be %d", name, pattern, fast, slow);
        if (fast && number)
            assert_int_equal(m.number[0].at, want);
        matched += fast;
        if (round % 1000 == 0)
            reset(state);
    }
    assert_in_range(matched, 300, 29000);
}

static void first_rule_that_matches_counts(void **state)
{
    (void)state;
    struct rules r;
    struct rules_match m;
    assert_int_equal(parse("a.*.b []\na.{pp}.c []\n* []\n", &r), 0);
    assert_true(rules_match_find(&r, "a.7.b", &m) && m.rule == &r.rule[0] && m.n == 0);
    assert_true(rules_match_find(&r, "a.12.c", &m) && m.rule == &r.rule[1] && m.n == 1 && m.number[0].at == 12);
    assert_true(rules_match_find(&r, "a.99999999999.c", &m) && m.rule == &r.rule[2]);
    assert_int_equal(parse("a []\n", &r), 0);
    assert_false(rules_match_find(&r, "ab", &m) || rules_match_find(&r, "", &m));
}

static void fused_names_are_found_and_renamed(void **state)
{
    (void)state;
    struct rules r;
    int k;
    assert_int_equal(parse("fuse attn.qkv = attn.q + attn.kv\n", &r), 0);
    const struct rules_fuse *f = rules_match_fused(&r, "l.0.attn.qkv.weight");
    assert_ptr_equal(f, &r.fuse[0]);
    assert_string_equal(rules_match_renamed("l.0.attn.qkv.weight", f->fused, f->part[1], &arena), "l.0.attn.kv.weight");
    assert_string_equal(rules_match_renamed("attn.qkv", f->fused, "x", &arena), "x");
    assert_null(rules_match_fused(&r, "l.0.attn.qkvx.weight"));
    assert_null(rules_match_fused(&r, "l.0.xattn.qkv.weight"));
    assert_ptr_equal(rules_match_fused(&r, "xattn.qkv.attn.qkv"), f);
    assert_ptr_equal(rules_match_part(&r, "attn.kv", &k), f);
    assert_int_equal(k, 1);
}

static void shipped_rules_parse(void **state)
{
    (void)state;
    int n = 0;
    for (const char *name; (name = weft_checkpoint_rules_name((size_t)n)); n++) {
        struct rules r;
        const char *text = weft_checkpoint_rules(name);
        assert_non_null(text);
        if (rules_parse(name, text, strlen(text), &arena, &r))
            fail_msg("%s", weft_errmsg());
        size_t fuses =
            strcmp(name, "gpt_oss") ? 1 : 0; /* gpt-oss joins q, k and v alone: gate and up are one already */
        assert_true(r.nrules > 5 && r.nfuses > fuses && rules_match_mention(&r, "tp") && rules_match_mention(&r, "pp"));
    }
    assert_int_equal(n, 5);
    assert_null(weft_checkpoint_rules("none"));
    assert_null(weft_checkpoint_rules(NULL));
    assert_null(weft_checkpoint_rules_name(SIZE_MAX));
    assert_null(weft_checkpoint_rules_name(99));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(rules_parse_to_what_they_say, reset),
        cmocka_unit_test_teardown(bad_rules_are_refused_with_their_line, reset),
        cmocka_unit_test_teardown(patterns_match_like_brute_force, reset),
        cmocka_unit_test_teardown(first_rule_that_matches_counts, reset),
        cmocka_unit_test_teardown(fused_names_are_found_and_renamed, reset),
        cmocka_unit_test_teardown(shipped_rules_parse, reset),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
