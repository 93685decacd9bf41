#define _GNU_SOURCE
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"

#define TEXT 1200

_Atomic int log_most;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of these two, and while the function runs */
static void (*writer)(void *arg, const weft_log_record *r);
static void *writer_arg;
static _Thread_local bool inside; /* this thread is in the function: what it calls is not logged */

int weft_log(enum weft_log_level most, void (*write)(void *arg, const weft_log_record *r), void *arg)
{
    if ((int)most < 0 || most > WEFT_LOG_INFO)
        return error_set(WEFT_EINVAL,
                         "weft_log: the level is %d: it must be WEFT_LOG_ERROR, WEFT_LOG_WARNING or "
                         "WEFT_LOG_INFO",
                         (int)most);
    if (inside)
        return error_set(WEFT_EBUSY, "weft_log: not inside the function that is called for a record");
    pthread_mutex_lock(&lock);
    writer = write;
    writer_arg = arg;
    /* Relaxed: a thread that sees the new level takes the lock before it looks at the function. */
    atomic_store_explicit(&log_most, write ? (int)most : 0, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return 0;
}

void log_write(enum weft_log_level level, const char *event, const char *comm, int rank, const char *fmt, ...)
{
    char text[TEXT];
    struct error_text kept;
    va_list args;
    if (!log_wants(level) || inside)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    error_keep(&kept);
    weft_log_record r = {
        .size = sizeof r, .level = level, .event = event, .comm = comm ? comm : "", .rank = rank, .text = text};
    pthread_mutex_lock(&lock);
    if (writer && log_wants(level)) {
        inside = true;
        writer(writer_arg, &r);
        inside = false;
    }
    pthread_mutex_unlock(&lock);
    error_restore(&kept);
}
