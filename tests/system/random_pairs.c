/* Prints random pairs of layouts, one "name: SRC -> DST" a line, for weft check --cases: random_pairs COUNT RANKS
 * [SEED], of RANKS ranks at most. The pairs are those of the property campaign. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/property_random.h"
#include "support/suite.h"

int main(int argc, char **argv)
{
    int64_t want = argc > 2 ? atoll(argv[1]) : 0, made = 0;
    int ranks = argc > 2 ? atoi(argv[2]) : 0;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (want < 1 || ranks < 1) {
        fprintf(stderr, "usage: random_pairs COUNT RANKS [SEED]\n");
        return 2;
    }
    for (int64_t i = 0; made < want; i++) {
        struct property_case c;
        char src[1024], dst[1024];
        random_case(seed, i, &c);
        if (case_world(&c) > ranks)
            continue;
        struct text a = text_start(src, sizeof src), b = text_start(dst, sizeof dst);
        spec_text(&c.side[0][0], &a);
        spec_text(&c.side[0][1], &b);
        printf("pair-%lld: %s -> %s\n", (long long)i, src, dst);
        made++;
    }
    return 0;
}
