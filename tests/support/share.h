/* How much of a campaign a test runs. WEFT_TEST_SHARE is a percentage of the ordinary count
 * (100 when it is not set), or "full" for the count of `make soak`. */
#ifndef WEFT_TESTS_SHARE_H
#define WEFT_TESTS_SHARE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int64_t test_share(int64_t ordinary, int64_t full)
{
    const char *text = getenv("WEFT_TEST_SHARE");
    if (!text || !*text)
        return ordinary;
    if (!strcmp(text, "full"))
        return full;
    char *end;
    long percent = strtol(text, &end, 10);
    if (*end || percent < 1 || percent > 10000) {
        fprintf(stderr, "WEFT_TEST_SHARE is '%s': give a percentage from 1 to 10000, or full\n", text);
        exit(1);
    }
    int64_t n = ordinary / 100 * percent + ordinary % 100 * percent / 100;
    return n > 0 ? n : 1;
}
#endif
