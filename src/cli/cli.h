/* What all verbs share: exit codes, the table of verbs, how errors are said. */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_WRONG = 1, CLI_BAD = 2 }; /* exit codes: right; wrong or failed; bad usage, layout or file */

/* A verb takes the arguments after its name and returns an exit code. */
int cmd_plan(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_reshard(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_diagnose(int argc, char **argv);

/* What went wrong, in words; the code is the exit code that it means. */
struct failure {
    int code;
    char text[4096];
};
/* Sets the failure and returns its code. */
int failure_set(struct failure *f, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Prints "weft VERB: text" to stderr and returns the code. */
int failure_print(const struct failure *f, const char *verb);

/* A line on stderr that says how far it is, on a terminal only and not too often; the end wipes it. */
void progress(const char *what, int64_t done, int64_t of);
void progress_text(const char *text); /* the same in words */
void progress_end(void);

void shell_quote(FILE *to, const char *text); /* prints text so that a shell reads it as one word */
/* "6291456 B (6.0 MiB)"; returns buf. */
char *bytes_text(int64_t bytes, char *buf, size_t cap);
#endif
