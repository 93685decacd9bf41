/* A list of the files that belong to this process alone. fork waits for the list's lock, so the list is consistent when
 * a child begins. */
#include "base/forks.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *files;
static size_t n, cap;
static unsigned count;

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    count++;
    while (n > 0)
        close(files[--n]);
    pthread_mutex_unlock(&lock);
}

static void prepare(void)
{
    pthread_atfork(before, in_parent, in_child); /* if this fails, children keep the files */
}

int forks_own(int fd)
{
    if (fd < 0)
        return fd;
    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
    if (n == cap) {
        size_t more = cap ? 2 * cap : 16;
        int *grown = realloc(files, more * sizeof *files);
        files = grown ? grown : files;
        cap = grown ? more : cap;
    }
    if (n < cap)
        files[n++] = fd;
    pthread_mutex_unlock(&lock);
    return fd;
}

void forks_close(int fd)
{
    if (fd < 0)
        return;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < n && files[i] != fd)
        i++;
    if (i < n)
        files[i] = files[--n];
    close(fd); /* under the lock: otherwise a child could find another file under this number */
    if (!n) {
        free(files);
        files = NULL;
        cap = 0;
    }
    pthread_mutex_unlock(&lock);
}

unsigned forks_count(void)
{
    pthread_once(&once, prepare);
    return count;
}
