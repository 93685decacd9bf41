/* The store pmix:, for ranks of a launcher that speaks PMIx (mpirun of Open MPI, srun --mpi=pmix). Rank 0 serves a tcp:
 * store on a port that the system chooses, with a random token. Only its address and token go through PMIx, by put,
 * commit, fence and get. If all ranks are on one machine, the server listens on loopback. Otherwise it listens on all
 * addresses, and the other ranks try them in turn, since only they can know which of them they reach.
 *
 * libpmix is loaded when a pmix: store is first opened. Its header must be installed when weft is built. */
#define _GNU_SOURCE
#include <stddef.h>

#include "base/error.h"
#include "base/forks.h"
#include "rendezvous/store_tcp.h"

#ifdef WEFT_PMIX
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/library.h"
#include "base/text.h"
#include "rendezvous/sodium.h"

#define PLACES 16 /* addresses of rank 0's machine that the others get, at most */
#define CARD 2048

static struct {
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Fence_nb) *fence;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Error_string) *text;
} pmix;
static bool usable;
static pmix_status_t joined; /* PMIX_SUCCESS: this process is `self` of a launcher's job */
static pmix_proc_t self;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int opens; /* counts opens, which all ranks make in the same order: no key is used twice */

/* PMIx is left at the end of the process only: a fence fails for the ranks that wait in it when another rank leaves. */
static void leave(void)
{
    pmix.finalize(NULL, 0);
}

static void load(void)
{
    static const char *const file = "libpmix.so.2";
    const struct library_call calls[] = {
        {"PMIx_Init", &pmix.init},         {"PMIx_Finalize", &pmix.finalize},
        {"PMIx_Put", &pmix.put},           {"PMIx_Commit", &pmix.commit},
        {"PMIx_Fence_nb", &pmix.fence},    {"PMIx_Get", &pmix.get},
        {"PMIx_Error_string", &pmix.text}, {0},
    };
    usable = library_open(&file, 1, calls);
    if (!usable)
        return;
    joined = pmix.init(&self, NULL, 0);
    if (joined == PMIX_SUCCESS)
        atexit(leave);
}

static int failed(const char *what, pmix_status_t status)
{
    return error_set(WEFT_ETRANSPORT, "pmix: %s: %s", what, pmix.text(status));
}

/* ---- a fence with a time limit ---- */

struct fence {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users; /* the caller and the library, while they still use it */
    bool done;
    pmix_status_t status;
};

static void fence_release(struct fence *f)
{
    bool last = --f->users == 0;
    pthread_mutex_unlock(&f->lock);
    if (last) {
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->changed);
        free(f);
    }
}

static void fence_passed(pmix_status_t status, void *arg)
{
    struct fence *f = arg;
    pthread_mutex_lock(&f->lock);
    f->done = true;
    f->status = status;
    pthread_cond_signal(&f->changed);
    fence_release(f);
}

static int fence(int64_t until)
{
    struct fence *f = calloc(1, sizeof *f);
    if (!f)
        return error_nomem();
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, &clock);
    pthread_condattr_destroy(&clock);
    f->users = 2;
    pmix_info_t collect = {.key = PMIX_COLLECT_DATA, .value = {.type = PMIX_BOOL, .data.flag = true}};
    pmix_status_t status = pmix.fence(NULL, 0, &collect, 1, fence_passed, f);
    struct timespec end = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
    pthread_mutex_lock(&f->lock);
    if (status != PMIX_SUCCESS) { /* fence_passed will not be called: the fence failed, or is over already */
        f->users--;
        f->done = true;
        f->status = status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status;
    }
    while (!f->done && !pthread_cond_timedwait(&f->changed, &f->lock, &end))
        ;
    bool done = f->done;
    status = f->status;
    fence_release(f);
    if (!done)
        return error_set(WEFT_ETIMEOUT, "pmix: not all ranks came to the launcher's fence in time");
    return status == PMIX_SUCCESS ? 0 : failed("fence", status);
}

/* ---- what rank 0 tells ---- */

static bool all_here(int size)
{
    pmix_proc_t all = self;
    pmix_value_t *v = NULL;
    all.rank = PMIX_RANK_WILDCARD;
    if (pmix.get(&all, PMIX_LOCAL_SIZE, NULL, 0, &v) != PMIX_SUCCESS)
        return false;
    bool here = v->type == PMIX_UINT32 && v->data.uint32 == (uint32_t)size;
    free(v);
    return here;
}

/* Every address of this machine by which others may reach it. */
static void put_places(struct text *t, int port)
{
    struct ifaddrs *list, *i;
    int n = 0;
    if (getifaddrs(&list))
        return;
    for (i = list; i && n < PLACES; i = i->ifa_next) {
        struct address a = {.port = port};
        char text[ADDRESS_TEXT];
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_flags & IFF_LOOPBACK) ||
            getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), a.host, sizeof a.host, NULL, 0, NI_NUMERICHOST))
            continue;
        address_format(&a, text);
        text_printf(t, " %s", text);
        n++;
    }
    freeifaddrs(list);
}

/* Makes the listener, and writes "TOKEN ADDRESS..." into card. */
static int make_card(int size, char *card, int *listener)
{
    struct address a = {.port = 0};
    unsigned char random[32];
    struct text t = text_start(card, CARD);
    bool local = all_here(size);
    strcpy(a.host, local ? "127.0.0.1" : "0.0.0.0");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(WEFT_ETRANSPORT, "pmix: no random number for a token: %s", strerror(errno));
    int err = address_listen(&a, listener);
    if (err)
        return err < 0 ? err : error_set(WEFT_ETRANSPORT, "pmix: cannot listen: %s", strerror(err));
    forks_own(*listener);
    for (size_t i = 0; i < sizeof random; i++)
        text_printf(&t, "%02x", random[i]);
    if (local)
        text_printf(&t, " 127.0.0.1:%d", a.port);
    else
        put_places(&t, a.port);
    return 0;
}

static int tell(const char *key, char *card)
{
    pmix_value_t v = {.type = PMIX_STRING, .data.string = card};
    pmix_status_t status = pmix.put(PMIX_GLOBAL, key, &v);
    if (status == PMIX_SUCCESS)
        status = pmix.commit();
    return status == PMIX_SUCCESS ? 0 : failed("put", status);
}

static int ask(const char *key, char *card)
{
    pmix_proc_t first = self;
    pmix_value_t *v = NULL;
    first.rank = 0;
    pmix_status_t status = pmix.get(&first, key, NULL, 0, &v);
    if (status != PMIX_SUCCESS)
        return failed("get", status);
    bool fine = v->type == PMIX_STRING && v->data.string && strlen(v->data.string) < CARD;
    if (fine)
        strcpy(card, v->data.string);
    if (v->type == PMIX_STRING)
        free(v->data.string);
    free(v);
    return fine ? 0 : error_set(WEFT_ETRANSPORT, "pmix: the value of rank 0 is not text");
}

/* ---- opening and closing ---- */

static int open_card(char *card, int listener, const struct store_opts *o, int64_t until, struct store **out)
{
    struct address at[PLACES];
    struct store_opts opts = *o;
    char *rest, *word = strtok_r(card, " ", &rest);
    int n = 0, err = 0;
    opts.token = word;
    while (word && !err && n < PLACES && (word = strtok_r(NULL, " ", &rest)))
        err = address_parse(word, &at[n++]);
    if (!err && !n)
        err = error_set(WEFT_ETRANSPORT, "pmix: rank 0's machine has no address");
    if (!err)
        return store_tcp_open_at(&store_pmix, "", at, n, listener, &opts, until, out);
    forks_close(listener);
    return err;
}

static int meet(const struct store_opts *o, int64_t until, struct store **out)
{
    char key[64 + STORE_NAME_MAX], card[CARD] = "";
    int listener = STORE_TCP_CONNECT, err = 0;
    if (self.rank != (pmix_rank_t)o->rank)
        return error_set(WEFT_EINVAL,
                         "pmix: rank %d of the store is rank %u of the launcher: all ranks of the job must open it, "
                         "with the launcher's ranks",
                         o->rank, self.rank);
    snprintf(key, sizeof key, "weft.store.%d.%s", atomic_fetch_add_explicit(&opens, 1, memory_order_relaxed),
             o->name ? o->name : "");
    if (!o->rank)
        err = make_card(o->size, card, &listener);
    if (!err && !o->rank)
        err = tell(key, card);
    if (!err)
        err = fence(until);
    if (!err && o->rank)
        err = ask(key, card);
    if (!err)
        err = open_card(card, listener, o, until, out);
    else
        forks_close(listener);
    explicit_bzero(card, sizeof card);
    return err;
}

static int open_store(const char *place, const struct store_opts *o, int64_t until, struct store **out)
{
    if (*place)
        return error_set(WEFT_EINVAL, "pmix:%s: nothing may follow pmix:", place);
    if (!sodium_find())
        return WEFT_EUNSUPPORTED;
    pthread_once(&once, load);
    if (!usable)
        return error_set(WEFT_EUNSUPPORTED,
                         "pmix: needs libpmix, which is not installed (Debian: apt-get install libpmix2)");
    if (joined != PMIX_SUCCESS)
        return error_set(WEFT_EINVAL, "pmix: no launcher that speaks PMIx has started this process (%s)",
                         pmix.text(joined));
    return meet(o, until, out);
}

#else

static int open_store(const char *place, const struct store_opts *o, int64_t until, struct store **out)
{
    (void)place, (void)o, (void)until, (void)out;
    return error_set(WEFT_EUNSUPPORTED,
                     "pmix: this weft was built without PMIx (Debian: apt-get install libpmix-dev, then "
                     "build again); file:DIR and tcp:HOST:PORT need none");
}
#endif

const struct store_kind store_pmix = {
    .scheme = "pmix",
    .form = "pmix:",
    .open = open_store,
    .set = store_tcp_set,
    .get = store_tcp_get,
    .parts = store_tcp_parts,
    .again = store_tcp_again,
    .close = store_tcp_close,
};
