/* Places where ranks with several simulated devices, or with one that they do not share, are threads of this process.
 */
#ifndef WEFT_TESTS_DEVICE_PLACES_H
#define WEFT_TESTS_DEVICE_PLACES_H
#include <string.h>

#include "support/hosts_meet.h"
#include "support/ranks.h"
#include "support/suite.h"

/* With TSan the address space has no room for the files of several rank threads. */
static const char *const device_places[] = {
    "threads",
#if !defined(__SANITIZE_THREAD__)
    "shm",
    "tcp",
#endif
};
#define DEVICE_PLACES (sizeof device_places / sizeof *device_places)

/* Runs the test at a place; a wire needs a folder to meet in. */
static inline void run_at(const char *place, int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *),
                          void *arg)
{
    const char *before = ranks_on;
    bool wide = !strcmp(place, "tcp");
    ranks_on = place;
    if (wide)
        assert_int_equal(hosts_setup(NULL), 0);
    ranks_run(n, opts, body, arg, NULL);
    if (wide)
        hosts_teardown(NULL);
    ranks_on = before;
}
#endif
