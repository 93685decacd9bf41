/* Whether the system has enough memory. Neither a memfd nor an anonymous mapping has a limit of its own, and a system
 * that runs out of memory kills processes. So weft does not ask for memory that the system plainly does not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/transport.h"

#define ASK_FROM ((uint64_t)16 << 20) /* smaller requests are not checked */

/* A number in a file of the system, times `unit`; UINT64_MAX if the file does not have it. */
static uint64_t system_says(const char *path, const char *field, uint64_t unit)
{
    char line[256];
    uint64_t n = UINT64_MAX;
    FILE *f = fopen(path, "re");
    while (f && n == UINT64_MAX && fgets(line, sizeof line, f)) {
        char *digits = line + strlen(field), *end;
        if (strncmp(line, field, strlen(field)))
            continue;
        unsigned long long value = strtoull(digits, &end, 10);
        if (end != digits)
            n = value * unit;
    }
    if (f)
        fclose(f);
    return n;
}

bool transport_afford(uint64_t bytes)
{
    if (bytes < ASK_FROM)
        return true;
    uint64_t free = system_says("/proc/meminfo", "MemAvailable:", 1024);
    uint64_t swap = system_says("/proc/meminfo", "SwapFree:", 1024);
    uint64_t limit = system_says("/sys/fs/cgroup/memory.max", "", 1),
             now = system_says("/sys/fs/cgroup/memory.current", "", 1);
    if (swap != UINT64_MAX && free < UINT64_MAX - swap)
        free += swap;
    if (limit != UINT64_MAX && now != UINT64_MAX && (limit < now || limit - now < free))
        free = limit < now ? 0 : limit - now;
    return bytes < free;
}
