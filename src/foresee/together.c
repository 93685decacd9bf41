#define _GNU_SOURCE
#include "foresee/together.h"

#include <pthread.h>
#include <sched.h>

int together_here(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n < 1 ? 1 : n > TOGETHER_MOST ? TOGETHER_MOST : n;
}

struct member {
    void (*work)(void *arg, int k);
    void *arg;
    int k;
};

static void *enter(void *arg)
{
    struct member *m = arg;
    m->work(m->arg, m->k);
    return NULL;
}

void together_do(int n, void (*work)(void *arg, int k), void *arg)
{
    pthread_t threads[TOGETHER_MOST];
    struct member members[TOGETHER_MOST];
    int made = 1;
    for (; made < n && made < TOGETHER_MOST; made++) {
        members[made] = (struct member){work, arg, made};
        if (pthread_create(&threads[made], NULL, enter, &members[made]))
            break;
    }
    work(arg, 0);
    for (int k = 1; k < made; k++)
        pthread_join(threads[k], NULL);
}
