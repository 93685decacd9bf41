/* A line on stderr that says how far the command is. It is printed on a terminal only, and at most ten times a second.
 */
#ifndef WEFT_TOOL_PROGRESS_LINE_H
#define WEFT_TOOL_PROGRESS_LINE_H
#include <stdint.h>

void progress_line(const char *what, int64_t done, int64_t of);
void progress_line_text(const char *text); /* the same in words */
void progress_line_end(void);              /* wipes the line */
#endif
