#define _GNU_SOURCE
#include "hosts_meet.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "processes.h"
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

void hosts_live_on(char host)
{
    setenv("WEFT_HOST", (char[]){host, 0}, 1);
}

void no_files_memory_or_sockets_are_left(void **state)
{
    (void)state;
    char name[64];
    int files = 0;
    DIR *d = opendir(hosts_folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            print_message("left in the folder: %s\n", e->d_name);
            files++;
        }
    closedir(d);
    assert_int_equal(files, 0);
    snprintf(name, sizeof name, "-%ld-", (long)getpid());
    process_nothing_left(name);
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
