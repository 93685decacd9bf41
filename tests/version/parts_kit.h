#ifndef WEFT_TESTS_PARTS_KIT_H
#define WEFT_TESTS_PARTS_KIT_H
#include "version/publish.h"
#include "version/subscribe.h"

/* Up to four threads copy the pieces of this subscriber, however short these are. */
static inline void copies_in_parts(weft_subscriber *s, int64_t number)
{
    s->threads = 1 + (int)(number % 4);
    s->least = 1 + number % 3 * 500;
}

/* The same of the tensors that this publisher puts. */
static inline void puts_in_parts(weft_publisher *p, int64_t number)
{
    p->threads = 1 + (int)(number % 4);
    p->least = 1 + number % 3 * 500;
}
#endif
