#define _GNU_SOURCE
#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* which the new thread inherits */
    int err = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

int thread_start_detached(void *(*body)(void *arg), void *arg)
{
    pthread_t thread;
    int err = thread_start(&thread, body, arg);
    if (!err)
        pthread_detach(thread);
    return err;
}
