/* The error of a thread: a code that the function returns, and a text. The function that first notices the error writes
 * the text. Its callers return the code and leave the text as it is. */
#ifndef WEFT_BASE_ERROR_H
#define WEFT_BASE_ERROR_H
#include "weft.h"

/* Writes the text and returns code, so that `return error_set(WEFT_EINVAL, "...")` reads well. */
int error_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int error_nomem(void);

/* For functions that close or free something: their caller may still want the text of the error that made it do so. */
#define ERROR_TEXT 1024
struct error_text {
    char text[ERROR_TEXT];
};
void error_keep(struct error_text *kept);
void error_restore(const struct error_text *kept);
#endif
