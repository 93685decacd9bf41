/* How the campaign says what is wrong: the case made small, as the commands that run it again. A crash shows the case
 * that was under way as it is. */
#ifndef WEFT_TESTS_PROPERTY_REPORT_H
#define WEFT_TESTS_PROPERTY_REPORT_H
#include <stddef.h>
#include <stdint.h>

#include "property_shrink.h"

extern struct report {
    char line[8192];
    size_t len;
    int64_t broken; /* laws, until now */
} report;

/* From now on a crash prints the case that is under way. */
void report_install(void);

/* Tries the law on the case; if it is broken, shrinks the case and prints it. Several tensors that fail only together
 * have no command of their own: then it is the program that runs the case again, by its number. */
void report_law(const char *program, property_law *law, struct property_case c);

/* FROM COUNT as arguments: these cases of the campaign, and all that is wrong with them. */
int report_range(char **argv, void (*one_case)(int64_t number));
#endif
