/* The files that belong to this process alone: a bit for each number of a file. fork waits for the lock, so the bits
 * are consistent when a child begins. */
#include "base/forks.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *bits;
static size_t words, n; /* n: how many bits are set */
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
    for (size_t w = 0; w < words; w++)
        for (; bits[w]; bits[w] &= bits[w] - 1)
            close((int)(w * 64) + __builtin_ctzll(bits[w]));
    n = 0;
    pthread_mutex_unlock(&lock);
}

static void prepare(void)
{
    pthread_atfork(before, in_parent, in_child); /* if this fails, children keep the files */
}

static void grow(size_t word)
{
    size_t more = word < 8 ? 16 : 2 * word;
    uint64_t *grown = word < words ? NULL : realloc(bits, more * sizeof *bits);
    if (!grown)
        return;
    memset(grown + words, 0, (more - words) * sizeof *bits);
    bits = grown;
    words = more;
}

int forks_own(int fd)
{
    if (fd < 0)
        return fd;
    size_t word = (size_t)fd / 64;
    uint64_t bit = UINT64_C(1) << fd % 64;
    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
    grow(word);
    if (word < words && !(bits[word] & bit)) {
        bits[word] |= bit;
        n++;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

void forks_close(int fd)
{
    if (fd < 0)
        return;
    size_t word = (size_t)fd / 64;
    uint64_t bit = UINT64_C(1) << fd % 64;
    pthread_mutex_lock(&lock);
    if (word < words && bits[word] & bit) {
        bits[word] &= ~bit;
        n--;
    }
    close(fd); /* under the lock: otherwise a child could find another file under this number */
    if (!n) {
        free(bits);
        bits = NULL;
        words = 0;
    }
    pthread_mutex_unlock(&lock);
}

unsigned forks_count(void)
{
    pthread_once(&once, prepare);
    return count;
}
