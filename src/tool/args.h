/* The options of a verb as a table: parsing and --help use the same rows. */
#ifndef WEFT_TOOL_ARGS_H
#define WEFT_TOOL_ARGS_H
#include "tool/failure.h"
#include <stdbool.h>
#include <stdint.h>

enum args_kind {
    ARGS_FLAG, /* bool */
    ARGS_TEXT, /* const char * */
    ARGS_INT,  /* int64_t from min to max */
    ARGS_BYTES /* int64_t from min to max; K, M, G and T may follow (powers of 1024) */
};

struct args_option {
    const char *name; /* without the dashes; a name of one letter has one dash */
    enum args_kind kind;
    const char *value; /* what the help calls its value */
    const char *help;
    void *out;
    int64_t min, max;
};

struct args_verb {
    const char *name;
    const char *usage;                 /* what follows the name; several lines are several forms */
    const char *about;                 /* for --help */
    const struct args_option *options; /* ends with a row without a name; --help is added */
    int words;                         /* most arguments that are not options; or ARGS_COMMAND */
};
#define ARGS_COMMAND (-1) /* the first word, or what follows "--", begins a command, whose options are its own */

/* Reads argv[0..argc). Words that are not options go to words[0..*nwords). For a command, *nwords is where it begins.
 * Returns 0, -1 after it has printed the help (exit 0), or CLI_BAD after it has said what is wrong. */
int args_parse(const struct args_verb *verb, int argc, char **argv, const char **words, int *nwords);
/* The whole of a verb whose words are one file or more: reads argv, calls `run` with the files, and prints what it has
 * said in *f, if anything. none: what is wrong if there is no file. Returns the exit code: that of `run`. */
int args_files(const struct args_verb *verb, int argc, char **argv, const char *none,
               int (*run)(void *arg, const char *const *files, int n, struct failure *f), void *arg);
/* Says what is wrong with the usage, points at --help, returns CLI_BAD. */
int args_complain(const struct args_verb *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
