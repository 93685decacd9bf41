/* Values as people and shells read them. */
#ifndef WEFT_TOOL_READABLE_H
#define WEFT_TOOL_READABLE_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void readable_shell_word(FILE *to, const char *text); /* prints the text so that a shell reads it as one word */
/* "6291456 B (6.0 MiB)"; returns buf. */
char *readable_bytes(int64_t bytes, char *buf, size_t cap);
#endif
