/* Where bodies of ranks.h run on several hosts: on ucx:, where every rank is a host, and on auto: with two and three
 * hosts whose ranks take turns. Sanitizers look at one process: there ranks are threads, on ucx: alone. */
#ifndef WEFT_TESTS_HOSTS_PLACES_H
#define WEFT_TESTS_HOSTS_PLACES_H
#include "support/hosts_meet.h"
#include "support/ranks.h"

static const struct place {
    const char *transport, *hosts;
    int ranks[3]; /* how many of them, 0 after the last */
} places[] = {
    {"ucx", "abcd", {2, 3}},
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    {"auto", "abab", {3, 4}}, {"auto", "abcab", {3, 5}}, {"auto", "ababab", {6}},
#endif
    {"ucx", "abcd", {4}},
};

/* The body on each place that has from `least` to `most` ranks. */
static inline void everywhere(void (*body)(struct ranks_rank *), int least, int most, void *arg,
                              const weft_comm_opts *o)
{
    hosts_need_wire();
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    ranks_forked = true;
#endif
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int k = 0; k < 3 && places[i].ranks[k]; k++) {
            int n = places[i].ranks[k];
            if (n < least || n > most)
                continue;
            ranks_on = hosts_scheme(places[i].transport);
            ranks_hosts = places[i].hosts;
            ranks_run(n, o, body, arg, NULL);
        }
}
#endif
