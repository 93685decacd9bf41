#define _DEFAULT_SOURCE
#include "guarded.h"

#include <sys/mman.h>

#include "memory_ref.h"
#include "support/suite.h"

enum { PAGE = 65536 /* or less */ };

unsigned char *guarded_make(struct guarded *g, int64_t bytes, uint64_t *seed)
{
    const size_t room = ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
    g->bytes = room + 2 * (size_t)PAGE;
    g->map = mmap(NULL, g->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g->map != MAP_FAILED);
    assert_int_equal(mprotect(g->map + PAGE, room, PROT_READ | PROT_WRITE), 0);
    g->at = g->map + PAGE + (ref_random(seed) % 2 ? room - (size_t)bytes : 0);
    for (int64_t i = 0; i < bytes; i++)
        g->at[i] = (unsigned char)ref_random(seed);
    return g->at;
}

void guarded_free(const struct guarded *g)
{
    assert_int_equal(munmap(g->map, g->bytes), 0);
}
