/* What the progress threads of this process cost: how many there are, and its CPU time. */
#ifndef WEFT_TESTS_PROGRESS_THREADS_H
#define WEFT_TESTS_PROGRESS_THREADS_H
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline int progress_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *d; tasks && (d = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "r");
        n += f && fgets(name, sizeof name, f) && !strcmp(name, "weft-progress\n");
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return n;
}

/* One that closed its comm in a callback ends by itself some time after that. */
static inline bool become_threads(int n)
{
    for (int i = 0; i < 20000 && progress_threads() != n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return progress_threads() == n;
}

static inline int64_t cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}
#endif
