/* Libraries of the system that weft uses where they are installed: libsodium, libcrypto, libcurl, PMIx. Each is opened
 * when something first needs it, so that weft itself is built and runs without them. (Modules, in module.h, are weft's
 * own.) They stay open until the process ends. */
#ifndef WEFT_BASE_LIBRARY_H
#define WEFT_BASE_LIBRARY_H
#include <stdbool.h>
#include <stddef.h>

struct library_call {
    const char *name;
    void *to; /* a pointer to a pointer to a function of the right type, which is set */
};

/* Opens the first of n files that is installed, and finds every call in it; the last row of `calls` has no name.
 * false: no file is installed, or a call is missing; the pointers may then be set in part. */
bool library_open(const char *const *files, size_t n, const struct library_call *calls);
#endif
