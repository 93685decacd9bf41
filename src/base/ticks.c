#define _GNU_SOURCE
#include "base/ticks.h"

#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#endif

#define TRIES 3
#define LONGEST 300 /* ns that reading a pair may take */
#define ALIKE 1000  /* two lengths of a tick are alike if they differ by less than this part */

#if defined(__x86_64__)
static bool counter_even;

/* The processor says that the speed is even. That the counters of all cores agree, on several sockets too, is known to
 * the system alone: it takes its own clock from the counter then. */
static void find_out(void)
{
    static const char *const by_counter[] = {"tsc\n", "kvm-clock\n", "hyperv_clocksource_tsc_page\n"};
    unsigned a, b, c, d;
    char source[64] = "";
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d >> 8 & 1))
        return;
    FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (!f)
        return;
    if (fgets(source, sizeof source, f))
        for (size_t i = 0; i < sizeof by_counter / sizeof *by_counter; i++)
            counter_even |= !strcmp(source, by_counter[i]);
    fclose(f);
}
#endif

/* Does the counter run at an even speed, whatever the core does, and alike on all of them? */
static bool even(void)
{
#if defined(__aarch64__)
    return true;
#elif defined(__x86_64__)
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_out);
    return counter_even;
#else
    return false;
#endif
}

static int64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Reads both at the same time, as far as that can be: the counter between two looks at the clock, and the pair counts
 * that took least. False: all took so long that a pair may lie too far apart. The thread was held up, or the clock is
 * slow here. */
static bool read_both(struct ticks *out)
{
    int64_t least = INT64_MAX, from = clock_now();
    for (int i = 0; i < TRIES; i++) {
        uint64_t at = ticks_count(1);
        int64_t to = clock_now(), took = to - from;
        if (took < least) {
            least = took;
            out->at = at;
            out->ns = from + took / 2;
        }
        from = to;
    }
    return least <= LONGEST;
}

/* The counter is trusted if a tick took as long as it did from the pair before to the one before that. */
static void pair(struct ticks *t)
{
    struct ticks now = {.latest = t->latest, .each = t->each};
    now.good = read_both(&now);
    uint64_t ticks = now.at - t->at;
    if (t->good && now.good && now.ns > t->ns && ticks && even()) {
        double each = (double)(now.ns - t->ns) / (double)ticks, before = (double)t->each / 4294967296.0;
        double apart = each > before ? each - before : before - each;
        now.each = each < 1000 ? (uint64_t)(each * 4294967296.0) : 0;
        if (now.each && apart * ALIKE < before)
            now.span = (uint64_t)((double)TICKS_SPAN / each);
    }
    *t = now;
}

int64_t ticks_ask(struct ticks *t)
{
    int64_t now = clock_now();
    if (!t->ns || now - t->ns >= TICKS_SPAN)
        pair(t);
    return t->latest = now > t->latest ? now : t->latest;
}
