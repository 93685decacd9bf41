/* Every verb's --json is JSON, whatever the layouts. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/json_syntax.h"
#include "support/suite.h"

/* What `weft ARGS` prints to stdout; the caller frees it. */
static char *run(const char *args, int want_code)
{
    const char *bin = getenv("WEFT_BIN");
    char *command, *text = NULL;
    size_t n = 0;
    assert_non_null(bin);
    /* Looking for leaks costs seconds a process on AArch64. */
    assert_true(asprintf(&command, "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; '%s' %s 2>/dev/null", bin, args) >
                0);
    FILE *p = popen(command, "r"), *to = open_memstream(&text, &n);
    assert_non_null(p);
    assert_non_null(to);
    for (int c = getc(p); c != EOF; c = getc(p))
        putc(c, to);
    fclose(to);
    int code = pclose(p);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != want_code)
        fail_msg("%s: exit status %d, should be %d", command, code, want_code);
    free(command);
    return text;
}

static void json_of_every_verb_is_valid(void **state)
{
    (void)state;
    static const struct {
        const char *args;
        int code;
        const char *has;
    } rows[] = {
        {"info --json", 0, "\"threads:N/NAME\""},
        {"plan 'f32[8/x,4] @x4' 'bf16[8,4/x] @x4=2..5' --json", 0, "\"kind\": \"reshard\""},
        {"plan 'f32[8/x,4] @x4' 'f32[8,4/x] @x4' --json --rank 3", 0, "\"moved\": 96"},
        {"plan 'f32[8] @x4 +sum(x)' 'f32[8/x] @x4' --json --all --bucket 1", 0, "\"kind\": \"reduce_scatter\""},
        {"plan 'f32[0] @x1' 'f32[0] @x1' --json --all", 0, "\"traffic\": []"},
        {"check 'f32[8/x,4] @x4' 'bf16[8,4/x] @x4=2..5' --json", 0, "\"ok\": true"},
        {"check 'f32[8/x,4] @x4' 'bf16[8,4/y] @x4' --json", 2, "\"ok\": false"},
        {"check \"$(printf 'f32[\\377\\302\\242\\342\\202\\254\\355\\240\\200\\001\\t\"]')\" 'f32[8] @x4' --json", 2,
         "\\ufffd"},
        {"check --cases - --json <<'END'\na: f32[4] @x1 -> f32[4] @x2\nb: f32[4] @x1 -> f32[5] @x2\nc\nEND", 2,
         "\"passed\": 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = run(rows[i].args, rows[i].code);
        if (!json_is_valid(text))
            fail_msg("weft %s is not JSON: %s", rows[i].args, text);
        if (!strstr(text, rows[i].has))
            fail_msg("weft %s lacks %s: %s", rows[i].args, rows[i].has, text);
        free(text);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(json_of_every_verb_is_valid)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
