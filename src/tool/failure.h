/* Exit codes, and what went wrong in words. */
#ifndef WEFT_TOOL_FAILURE_H
#define WEFT_TOOL_FAILURE_H
#include <stdio.h>

enum { CLI_OK = 0, CLI_WRONG = 1, CLI_BAD = 2 }; /* exit codes: right; wrong or failed; bad usage, layout or file */

/* What went wrong, in words; the code is the exit code that it means. */
struct failure {
    int code;
    char text[4096];
};
/* Sets the failure and returns its code. */
int failure_set(struct failure *f, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Prints "weft VERB: text" to stderr and returns the code. */
int failure_print(const struct failure *f, const char *verb);
#endif
