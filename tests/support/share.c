#define _GNU_SOURCE
#include "share.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t test_share(int64_t ordinary, int64_t full)
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

int test_rounds(int n)
{
    const char *text = getenv("WEFT_TEST_SHARE");
    bool share = text && *text, full = share && !strcmp(text, "full");
    int part = share && !full ? 2 : 1;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    part = full ? 1 : part + 2;
#endif
    return (n + part - 1) / part;
}
