/* How the campaign says what is wrong: the case made small, as the commands that run it again. A crash shows the case
 * that was under way as it is. */
#ifndef WEFT_TESTS_PROPERTY_REPORT_H
#define WEFT_TESTS_PROPERTY_REPORT_H
#include <signal.h>
#include <unistd.h>

#include "property_shrink.h"

static struct {
    char line[8192];
    size_t len;
    int64_t broken;
} report;

/* The case that is about to be tried. */
static inline void report_case(const struct property_case *c)
{
    struct text t = text_start(report.line, sizeof report.line);
    text_printf(&t, "case %lld was under way: ", (long long)c->number);
    case_text(c, &t);
    text_put(&t, "\n");
    report.len = t.len < sizeof report.line ? t.len : sizeof report.line - 1;
}

static inline void report_crash(void)
{
    if (write(STDERR_FILENO, report.line, report.len) < 0)
        _exit(1);
}

#if defined(__SANITIZE_ADDRESS__)
void __asan_on_error(void);
void __asan_on_error(void)
{
    report_crash();
}
static inline void report_install(void) {}
#elif defined(__SANITIZE_THREAD__)
static inline void report_install(void) {}
#else
static inline void report_signal(int number)
{
    report_crash();
    signal(number, SIG_DFL);
    raise(number);
}
static inline void report_install(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], report_signal);
}
#endif

/* Shrinks the case and prints it. Several tensors that fail only together have no command of their own: then it is the
 * program that runs the case again, by its number. */
static inline void report_broken(const char *program, property_law *law, struct property_case *c, struct why *why)
{
    char text[8192];
    struct text t = text_start(text, sizeof text);
    case_text(c, &t);
    print_error("case %lld: %s\n  found as: %s\n", (long long)c->number, why->text, text);
    report.broken++;
    shrink(law, c, why);
    t = text_start(text, sizeof text);
    case_text(c, &t);
    print_error("  made small: %s\n  again: %s\n", why->text, why->again[0] ? why->again : text);
    if (c->moves > 1)
        print_error("  with all its tensors: %s %lld 1\n", program, (long long)c->number);
}

static inline void report_law(const char *program, property_law *law, struct property_case c)
{
    struct why why = {"", ""};
    report_case(&c);
    if (!law(&c, &why))
        report_broken(program, law, &c, &why);
}

/* FROM COUNT as arguments: these cases of the campaign, and all that is wrong with them. */
static inline int report_range(char **argv, void (*one_case)(int64_t number))
{
    int64_t from = strtoll(argv[1], NULL, 10), n = strtoll(argv[2], NULL, 10);
    for (int64_t i = from; i < from + n; i++)
        one_case(i);
    print_message("%lld cases, %lld laws broken\n", (long long)n, (long long)report.broken);
    return report.broken > 0;
}
#endif
