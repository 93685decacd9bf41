/* What AddressSanitizer is told about leaks (leaks.c says why); nothing in other builds. */
#ifndef WEFT_TESTS_LEAKS_H
#define WEFT_TESTS_LEAKS_H

/* In a child process: what is allocated now belongs to the parent, and the child need not free it. */
void leaks_begin(void);

/* This process is not searched for leaks: another one that does the same is. */
void leaks_unsearched(void);
#endif
