#define _GNU_SOURCE
#include "hosts_meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

char hosts_folder[sizeof "/dev/shm/hosts-XXXXXX"];

const char *hosts_wire(void)
{
    const char *wire = getenv("WEFT_WIRE");
    return wire && *wire ? wire : "ucx";
}

int hosts_setup(void **state)
{
    char at[80];
    (void)state;
    strcpy(hosts_folder, "/dev/shm/hosts-XXXXXX"); /* mkdtemp completes it */
    if (!mkdtemp(hosts_folder))
        return -1;
    snprintf(at, sizeof at, "file:%s", hosts_folder);
    return setenv("WEFT_WIRE", hosts_wire(), 1) || setenv("WEFT_AT", at, 1);
}

int hosts_teardown(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", hosts_folder);
    return system(command);
}

const char *hosts_scheme(const char *scheme)
{
    return strcmp(scheme, "ucx") ? scheme : hosts_wire();
}

bool hosts_have_wire(void)
{
    const char *module = wire_module(getenv("WEFT_MODULES"), 0);
    return strcmp(hosts_wire(), "ucx") || (module && !strcmp(module, "ucx:"));
}

void hosts_need_wire(void)
{
    if (hosts_have_wire())
        return;
    print_message("there is no module for UCX\n");
    skip();
}
