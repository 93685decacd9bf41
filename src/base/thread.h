/* The threads that weft starts. They block all signals: signals are for the threads of the program, and a handler of
 * the program must not run in a thread that the program did not start. */
#ifndef WEFT_BASE_THREAD_H
#define WEFT_BASE_THREAD_H
#include <pthread.h>

/* 0, or the error of pthread_create. The caller joins the thread. The caller's own mask is then as it was before. */
int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);
/* The same for a thread that nobody joins. */
int thread_start_detached(void *(*body)(void *arg), void *arg);
#endif
