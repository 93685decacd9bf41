/* Where ranks of tests on several hosts meet: a folder for as long as the tests run; and what they need. */
#ifndef WEFT_TESTS_HOSTS_MEET_H
#define WEFT_TESTS_HOSTS_MEET_H
#include <stdbool.h>

#include "transport/wire/wire.h"

/* For mkdtemp. In memory, since a busy disk would look like a rank that stalls; not by the name of weft, since other
 * tests look there for what it has left. */
extern char hosts_folder[];

/* Which wire the tests are for: WEFT_WIRE, which is auto:'s, too. */
const char *hosts_wire(void);
int hosts_setup(void **state);
int hosts_teardown(void **state);

/* From here on this process is on that host. */
void hosts_live_on(char host);
/* A test: all jobs of this process have left nothing in the folder, in shared memory and among sockets. */
void no_files_memory_or_sockets_are_left(void **state);

/* Of a list: "ucx" stands for that wire. */
const char *hosts_scheme(const char *scheme);
bool hosts_have_wire(void);
void hosts_need_wire(void);
#endif
