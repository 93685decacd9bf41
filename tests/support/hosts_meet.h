/* Where ranks of tests on several hosts meet: a folder for as long as the tests run; and what they need. */
#ifndef WEFT_TESTS_HOSTS_MEET_H
#define WEFT_TESTS_HOSTS_MEET_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/wire/wire.h"

/* For mkdtemp. In memory, since a busy disk would look like a rank that stalls; not by the name of weft, since other
 * tests look there for what it has left. */
static char hosts_folder[] = "/dev/shm/hosts-XXXXXX"; /* its name is mkdtemp's to complete */

/* Which wire the tests are for: WEFT_WIRE, which is auto:'s, too. */
static inline const char *hosts_wire(void)
{
    const char *wire = getenv("WEFT_WIRE");
    return wire && *wire ? wire : "ucx";
}

static inline int hosts_setup(void **state)
{
    char at[80];
    (void)state;
    if (!mkdtemp(hosts_folder))
        return -1;
    snprintf(at, sizeof at, "file:%s", hosts_folder);
    return setenv("WEFT_WIRE", hosts_wire(), 1) || setenv("WEFT_AT", at, 1);
}

static inline int hosts_teardown(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", hosts_folder);
    return system(command);
}

/* Of a list: "ucx" stands for that wire. */
static inline const char *hosts_scheme(const char *scheme)
{
    return strcmp(scheme, "ucx") ? scheme : hosts_wire();
}

static inline bool hosts_have_wire(void)
{
    const char *module = wire_module(getenv("WEFT_MODULES"), 0);
    return strcmp(hosts_wire(), "ucx") || (module && !strcmp(module, "ucx:"));
}

static inline void hosts_need_wire(void)
{
    if (hosts_have_wire())
        return;
    print_message("there is no module for UCX\n");
    skip();
}
#endif
