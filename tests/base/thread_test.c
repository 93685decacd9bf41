/* Threads that weft starts: they take no signals, and the caller's own mask stays as it was. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>

#include "base/thread.h"
#include "support/suite.h"

static bool fails; /* pthread_create does, as where there are too many threads */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg)
{
    return fails ? EAGAIN : __real_pthread_create(thread, attr, body, arg);
}

struct look {
    sem_t go, done;
    sigset_t mask;
    bool detached;
};

static void *look(void *arg)
{
    struct look *l = arg;
    pthread_attr_t attr;
    int state = PTHREAD_CREATE_JOINABLE;
    while (sem_wait(&l->go)) /* the caller's call has returned */
        ;
    pthread_sigmask(SIG_SETMASK, NULL, &l->mask);
    if (!pthread_getattr_np(pthread_self(), &attr)) {
        pthread_attr_getdetachstate(&attr, &state);
        pthread_attr_destroy(&attr);
    }
    l->detached = state == PTHREAD_CREATE_DETACHED;
    sem_post(&l->done);
    return NULL;
}

/* Static, since a thread that nobody joins may look at it until it has ended. */
static struct look *begin(void)
{
    static struct look l;
    l = (struct look){.detached = false};
    sem_init(&l.go, 0, 0);
    sem_init(&l.done, 0, 0);
    return &l;
}

static void await(struct look *l)
{
    sem_post(&l->go);
    while (sem_wait(&l->done))
        ;
}

/* The mask that the caller has in these tests: one signal of many. */
static void block_one(sigset_t *before)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &one, before), 0);
}

static void assert_one_blocked(void)
{
    sigset_t now;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    for (int s = 1; s <= SIGRTMAX; s++)
        assert_int_equal(sigismember(&now, s) == 1, s == SIGUSR1);
}

/* KILL and STOP cannot be blocked, and libc keeps some of those from 32 on for itself. */
static void assert_all_blocked(const sigset_t *mask)
{
    for (int s = 1; s <= SIGRTMAX; s++)
        if (s != SIGKILL && s != SIGSTOP && (s < 32 || s >= SIGRTMIN))
            assert_int_equal(sigismember(mask, s), 1);
}

static void a_thread_takes_no_signals(void **state)
{
    struct look *l = begin();
    sigset_t before;
    pthread_t thread;
    (void)state;
    block_one(&before);
    assert_int_equal(thread_start(&thread, look, l), 0);
    assert_one_blocked();
    await(l);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_all_blocked(&l->mask);
    assert_false(l->detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void a_detached_thread_takes_none_and_needs_no_join(void **state)
{
    struct look *l = begin();
    sigset_t before;
    (void)state;
    block_one(&before);
    assert_int_equal(thread_start_detached(look, l), 0);
    assert_one_blocked();
    await(l);
    assert_all_blocked(&l->mask);
    assert_true(l->detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void the_mask_is_as_before_when_there_is_no_thread(void **state)
{
    sigset_t before;
    pthread_t thread;
    (void)state;
    block_one(&before);
    fails = true;
    assert_int_equal(thread_start(&thread, look, NULL), EAGAIN);
    assert_one_blocked();
    assert_int_equal(thread_start_detached(look, NULL), EAGAIN);
    assert_one_blocked();
    fails = false;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_takes_no_signals),
        cmocka_unit_test(a_detached_thread_takes_none_and_needs_no_join),
        cmocka_unit_test(the_mask_is_as_before_when_there_is_no_thread),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
