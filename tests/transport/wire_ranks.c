#define _GNU_SOURCE
#include "wire_ranks.h"

#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "support/leaks.h"
#include "support/random.h"
#include "support/values.h"
#include "weft.h"

bool wire_leaks; /* rank 0 of 2 looks for leaks when it ends, which takes seconds */

__attribute__((format(printf, 4, 5))) void wire_note(struct wire_rank *r, const char *file, int line, const char *fmt,
                                                     ...)
{
    if (r->failed[0])
        return;
    int n = snprintf(r->failed, sizeof r->failed, "%s:%d: rank %d of %d: ", file, line, r->rank, r->size);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(r->failed + n, sizeof r->failed - (size_t)n, fmt, ap);
    va_end(ap);
    if (values_wrong() && (size_t)n < sizeof r->failed)
        snprintf(r->failed + n, sizeof r->failed - (size_t)n, "; %s", values_text());
}

/* ---- moving things ---- */

/* Mail of the bodies begins with a byte that is none of these. */
#define WIRE_ARRIVED 'b'
#define WIRE_RELEASED 'g'

bool wire_pump(struct wire_rank *r)
{
    const void *bytes;
    size_t n;
    int peer;
    bool moved = r->w->ops->progress(r->w);
    while (r->w->ops->fetch(r->w, &peer, &bytes, &n)) {
        const unsigned char *b = bytes;
        moved = true;
        if (b[0] == WIRE_ARRIVED)
            r->arrived++;
        else if (b[0] == WIRE_RELEASED)
            r->released++;
        else if (r->on_mail)
            r->on_mail(r, peer, b, n);
        else
            wire_note(r, __FILE__, __LINE__, "mail that nobody expects from rank %d", peer);
    }
    if (!moved && r->w->ops->arm(r->w)) /* there are more ranks than cores */
        poll(&(struct pollfd){.fd = r->w->fd, .events = POLLIN}, 1, 1);
    else if (!moved)
        sched_yield();
    return moved;
}

void wire_barrier(struct wire_rank *r)
{
    const unsigned char arrived = WIRE_ARRIVED, released = WIRE_RELEASED;
    if (r->failed[0])
        return;
    if (r->rank > 0) {
        WIRE_OK(r, r->w->ops->mail(r->w, 0, &arrived, 1));
        WIRE_UNTIL(r, r->released > 0);
        r->released--;
        return;
    }
    WIRE_UNTIL(r, r->arrived >= r->size - 1);
    r->arrived -= r->size - 1;
    for (int i = 1; i < r->size; i++)
        WIRE_OK(r, r->w->ops->mail(r->w, i, &released, 1));
}

/* ---- patterns ---- */

uint64_t wire_seed(int from, int to, uint64_t tag, uint64_t run)
{
    return hash_mix(hash_mix((uint64_t)from << 32 | (uint64_t)to) ^ hash_mix(tag << 32 | run));
}

unsigned char wire_byte(uint64_t seed, size_t i)
{
    return (unsigned char)((seed + (i >> 3) * UINT64_C(0x9e3779b97f4a7c15)) >> (i & 7) * 8);
}

/* The 8 bytes from byte i on, which is a multiple of 8, as they stand in memory. */
static uint64_t wire_word(uint64_t seed, size_t i)
{
    return htole64(seed + (i >> 3) * UINT64_C(0x9e3779b97f4a7c15));
}

void wire_fill(void *memory, size_t bytes, uint64_t seed)
{
    unsigned char *to = memory;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = wire_word(seed, i);
        memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

size_t wire_differs(const void *memory, size_t bytes, uint64_t seed)
{
    const unsigned char *is = memory;
    size_t first = 0;
    values_begin();
    for (uint64_t word = wire_word(seed, 0); bytes - first >= 8 && !memcmp(is + first, &word, 8);)
        word = wire_word(seed, first += 8);
    while (first < bytes && is[first] == wire_byte(seed, first))
        first++;
    for (size_t i = first; i < bytes; i++)
        VALUES_CHECK(i, is[i], wire_byte(seed, i));
    return first;
}

/* ---- processes ---- */

static int wire_gather(void *arg, const void *mine, size_t bytes, void *all)
{
    struct wire_rank *r = arg;
    if (bytes > WIRE_CARD)
        return WEFT_ENOMEM;
    memcpy(r->job->cards[r->rank], mine, bytes);
    pthread_barrier_wait(&r->job->barrier);
    for (int i = 0; i < r->size; i++)
        memcpy((unsigned char *)all + (size_t)i * bytes, r->job->cards[i], bytes);
    pthread_barrier_wait(&r->job->barrier); /* nobody overwrites a card that is being read */
    return 0;
}

int wire_rank_open(struct wire_rank *r, const char *url)
{
    struct wire_boot boot = {.rank = r->rank,
                             .size = r->size,
                             .gather = wire_gather,
                             .arg = r,
                             .wait_ns = 30 * SECOND,
                             .no_shm = true,
                             .modules = getenv("WEFT_MODULES")};
    int err = wire_open(url, &boot, &r->w);
    if (!err) {
        r->rank = r->w->rank;
        r->size = r->w->size;
    }
    return err;
}

const char *wire_run(const char *url, int n, int victim, void (*body)(struct wire_rank *), void *arg)
{
    static char failed[WIRE_RANKS * 512];
    struct wire_job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job == MAP_FAILED)
        return "no memory to share";
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&job->barrier, &shared, (unsigned)n);
    job->size = n;
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            leaks_begin();
            struct wire_rank r = {.rank = i, .size = n, .url = url, .job = job, .arg = arg};
            if (wire_rank_open(&r, url))
                wire_note(&r, __FILE__, __LINE__, "open: %s", weft_errmsg());
            else
                body(&r);
            if (r.w)
                r.w->ops->close(r.w);
            memcpy(job->failed[i], r.failed, sizeof r.failed);
            if (n > 2 || i > 0 || !wire_leaks)
                _exit(0);
            exit(0); /* looks for leaks, where that is built in */
        }
        job->pids[i] = pid;
    }
    const char *result = NULL;
    for (int i = 0; i < n; i++) {
        int status = -1, killed = i == victim ? SIGKILL : 0;
        if (job->pids[i] < 0 || waitpid(job->pids[i], &status, 0) != job->pids[i] ||
            (job->failed[i][0] == 0 && status != killed)) {
            snprintf(job->failed[i], sizeof job->failed[i], "rank %d of %d ended with status %#x", i, n,
                     (unsigned)status);
        }
        if (job->failed[i][0]) {
            size_t at = result ? strlen(failed) : 0;
            snprintf(failed + at, sizeof failed - at, "%s%s", at ? "\n" : "", job->failed[i]);
            result = failed;
        }
    }
    munmap(job, sizeof *job);
    return result;
}

/* ---- wires as places ---- */

const char *wire_url = "tcp:";

static const char *wire_place_name(size_t i)
{
    static const char *const names[] = {"tcp", "ucx", NULL};
    return names[i];
}

static int wire_place_enter(size_t i)
{
    wire_url = i ? "ucx:" : "tcp:";
    return 0;
}

static void wire_place_leave(size_t i, bool failed)
{
    (void)i, (void)failed;
    wire_url = "tcp:";
}

const struct suite_places wire_places = {wire_place_name, NULL, wire_place_enter, wire_place_leave, NULL};

bool wire_have(const char *url)
{
    const char *name;
    for (size_t i = 0; (name = wire_module(getenv("WEFT_MODULES"), i)); i++)
        if (!strcmp(name, url))
            return true;
    return !strcmp(url, "tcp:");
}

void wire_need(const char *url)
{
    if (wire_have(url))
        return;
    print_message("skip: this build has no module for %s\n", url);
    skip();
}
