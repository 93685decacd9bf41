#define _GNU_SOURCE
#include "base/open_files.h"

#include <dirent.h>
#include <stdint.h>
#include <sys/resource.h>

size_t open_files_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)limit.rlim_cur;
}

size_t open_files_count(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n ? n - 1 : 0; /* less the one that lists them */
}

bool open_files_allow(size_t n)
{
    struct rlimit limit;
    if (open_files_limit() >= n)
        return true;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return false;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > n ? (rlim_t)n : limit.rlim_max;
    return !setrlimit(RLIMIT_NOFILE, &limit) && open_files_limit() >= n;
}

bool open_files_allow_more(size_t n, size_t *need)
{
    size_t has = open_files_count();
    if (!has) /* not even that could be found out: there is no file left, or no /proc */
        has = open_files_limit() < 4096 ? open_files_limit() : 0;
    *need = has + n;
    return open_files_allow(*need);
}
