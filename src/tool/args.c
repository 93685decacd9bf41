/* Parsing of options; see args.h. */
#include "tool/args.h"

#include "tool/failure.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int args_complain(const struct args_verb *verb, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "weft %s: ", verb->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "; see weft %s --help\n", verb->name);
    va_end(ap);
    return CLI_BAD;
}

/* Prints text with every line after the first indented. */
static void print_lines(const char *text, int indent)
{
    for (const char *p = text; *p; p++) {
        putchar(*p);
        if (*p == '\n')
            printf("%*s", indent, "");
    }
    putchar('\n');
}

static const char *dashes(const struct args_option *o)
{
    return o->name[1] ? "--" : "-";
}

static void print_help(const struct args_verb *verb)
{
    const char *usage = verb->usage;
    for (const char *lead = "usage:"; *usage; lead = "      ") {
        size_t n = strcspn(usage, "\n");
        printf("%s weft %s %.*s\n", lead, verb->name, (int)n, usage);
        usage += n + (usage[n] == '\n');
    }
    printf("\n%s\n\n", verb->about);
    for (const struct args_option *o = verb->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s", dashes(o), o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-20s ", left);
        print_lines(o->help, 23);
    }
    printf("  %-20s this text\n", "--help");
}

/* Digits, and for sizes one letter. */
static bool read_number(const char *text, bool suffix, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || !strchr("-0123456789", *text))
        return false;
    int64_t n = v;
    const char *letters = "KMGT", *letter = suffix && *end ? strchr(letters, *end) : NULL;
    for (const char *l = letters; letter && l <= letter; l++)
        if (__builtin_mul_overflow(n, 1024, &n))
            return false;
    end += letter != NULL;
    *out = n;
    return !*end;
}

static int take_value(const struct args_verb *verb, const struct args_option *o, const char *text)
{
    if (o->kind == ARGS_TEXT) {
        *(const char **)o->out = text;
        return 0;
    }
    int64_t v;
    bool size = o->kind == ARGS_BYTES;
    if (!read_number(text, size, &v))
        return args_complain(verb, "%s%s takes a %s, not '%s'", dashes(o), o->name,
                             size ? "number of bytes (K, M, G or T may follow)" : "whole number", text);
    if (v < o->min || v > o->max)
        return args_complain(verb, "%s%s takes a number from %" PRId64 " to %" PRId64 ", not '%s'", dashes(o), o->name,
                             o->min, o->max, text);
    *(int64_t *)o->out = v;
    return 0;
}

static bool is_option(const struct args_option *o, const char *arg, size_t n)
{
    size_t dash = strlen(dashes(o));
    return !strncmp(arg, dashes(o), dash) && strlen(o->name) == n - dash && !strncmp(arg + dash, o->name, n - dash);
}

/* "-n4": an option of one letter with its value. Returns the end of the list if it is not an option. */
static const struct args_option *find_joined(const struct args_option *o, const char *arg)
{
    while (o->name && (o->kind == ARGS_FLAG || !is_option(o, arg, 2)))
        o++;
    return o;
}

int args_parse(const struct args_verb *verb, int argc, char **argv, const char **words, int *nwords)
{
    bool only_words = false;
    *nwords = 0;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (verb->words == ARGS_COMMAND && (only_words || arg[0] != '-' || !arg[1])) {
            *nwords = i;
            return 0;
        }
        if (only_words || arg[0] != '-' || !arg[1]) {
            if (*nwords == verb->words)
                return args_complain(verb, "'%s' is one argument too many", arg);
            words[(*nwords)++] = arg;
            continue;
        }
        if (!strcmp(arg, "--")) {
            only_words = true;
            continue;
        }
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            print_help(verb);
            return -1;
        }
        size_t n = strcspn(arg, "=");
        const struct args_option *o = verb->options;
        while (o->name && !is_option(o, arg, n))
            o++;
        if (!o->name && (o = find_joined(verb->options, arg))->name) {
            int err = take_value(verb, o, arg + 2);
            if (err)
                return err;
            continue;
        }
        if (!o->name)
            return args_complain(verb, "there is no option '%.*s'", (int)n, arg);
        if (o->kind == ARGS_FLAG) {
            if (arg[n])
                return args_complain(verb, "--%s takes no value", o->name);
            *(bool *)o->out = true;
            continue;
        }
        if (!arg[n] && i + 1 == argc)
            return args_complain(verb, "%s%s lacks its %s", dashes(o), o->name, o->value);
        int err = take_value(verb, o, arg[n] ? arg + n + 1 : argv[++i]);
        if (err)
            return err;
    }
    if (verb->words == ARGS_COMMAND)
        *nwords = argc;
    return 0;
}

int args_files(const struct args_verb *verb, int argc, char **argv, const char *none,
               int (*run)(void *arg, const char *const *files, int n, struct failure *f), void *arg)
{
    const char **words = calloc((size_t)argc + 1, sizeof *words);
    struct failure f = {.text = ""};
    int n, code = words ? args_parse(verb, argc, argv, words, &n) : failure_set(&f, CLI_WRONG, "memory is out");
    if (!code && !n)
        code = args_complain(verb, "%s", none);
    if (!code)
        code = run(arg, words, n, &f);
    if (*f.text)
        failure_print(&f, verb->name);
    free(words);
    return code < 0 ? CLI_OK : code;
}
