/* Modules: shared objects that libweft loads when something is first asked of them, so that the library itself needs
 * only libc and pthreads. A module exports one symbol: a table of calls that begins with the number of its interface.
 * Modules stay loaded, because the libraries behind them cannot be unloaded safely. */
#ifndef WEFT_BASE_MODULE_H
#define WEFT_BASE_MODULE_H
#include <stdbool.h>
#include <stdint.h>

struct module {
    const char *file;
    const char *library, *package; /* the library that it needs, and the package with which it can be built */
    const char *symbol;            /* its table of calls */
    uint32_t abi;                  /* the number with which the table begins */
};

/* Is the module's file there? Nothing is loaded. `asked` is the folder that is searched first; NULL: none. */
bool module_exists(const struct module *m, const char *asked);

/* Loads the module; *calls is its table. WEFT_EUNSUPPORTED: it is not there (the text begins with `what` and says what
 * to install), it cannot be loaded, or it was built for another version of weft. */
int module_load(const struct module *m, const char *what, const char *asked, const void **calls);
#endif
