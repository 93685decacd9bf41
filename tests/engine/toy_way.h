/* The way of toy_way.c. */
#ifndef WEFT_TESTS_TOY_WAY_H
#define WEFT_TESTS_TOY_WAY_H
extern _Atomic int toy_messages; /* that were taken */
#endif
