#define _GNU_SOURCE
#include "property_report.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "property_lab.h"
#include "support/suite.h"

struct report report;

/* The case that is about to be tried. */
static void report_case(const struct property_case *c)
{
    struct text t = text_start(report.line, sizeof report.line);
    text_printf(&t, "case %lld was under way: ", (long long)c->number);
    case_text(c, &t);
    text_put(&t, "\n");
    report.len = t.len < sizeof report.line ? t.len : sizeof report.line - 1;
}

#if !defined(__SANITIZE_THREAD__)
static void report_crash(void)
{
    if (write(STDERR_FILENO, report.line, report.len) < 0)
        _exit(1);
}
#endif

#if defined(__SANITIZE_ADDRESS__)
void __asan_on_error(void);
void __asan_on_error(void)
{
    report_crash();
}
void report_install(void) {}
#elif defined(__SANITIZE_THREAD__)
void report_install(void) {}
#else
static void report_signal(int number)
{
    report_crash();
    signal(number, SIG_DFL);
    raise(number);
}
void report_install(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], report_signal);
}
#endif

static void report_broken(const char *program, property_law *law, struct property_case *c, struct why *why)
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

void report_law(const char *program, property_law *law, struct property_case c)
{
    struct why why = {"", ""};
    report_case(&c);
    if (!law(&c, &why))
        report_broken(program, law, &c, &why);
}

int report_range(char **argv, void (*one_case)(int64_t number))
{
    int64_t from = strtoll(argv[1], NULL, 10), n = strtoll(argv[2], NULL, 10);
    for (int64_t i = from; i < from + n; i++)
        one_case(i);
    print_message("%lld cases, %lld laws broken\n", (long long)n, (long long)report.broken);
    return report.broken > 0;
}
