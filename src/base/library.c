#define _GNU_SOURCE
#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

bool library_open(const char *const *files, size_t n, const struct library_call *calls)
{
    void *library = NULL;
    for (size_t i = 0; i < n && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    for (; library && calls->name; calls++) {
        void *at = dlsym(library, calls->name);
        if (!at)
            return false;
        memcpy(calls->to, &at, sizeof at); /* ISO C has no cast from an object's pointer to a function's */
    }
    return library;
}
