/* How much of a campaign a test runs. WEFT_TEST_SHARE is a percentage of the ordinary count
 * (100 when it is not set), or "full" for the count of `make soak`. */
#ifndef WEFT_TESTS_SHARE_H
#define WEFT_TESTS_SHARE_H
#include <stdint.h>

int64_t test_share(int64_t ordinary, int64_t full);

/* How many of n rounds with random or alike cases are run: all; half of them if WEFT_TEST_SHARE is a percentage. Under
 * a sanitizer, where each takes several times as long, it is a third or a quarter, unless WEFT_TEST_SHARE is "full". */
int test_rounds(int n);
#endif
