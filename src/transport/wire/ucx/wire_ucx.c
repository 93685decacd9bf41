/* Opening and closing a wire of UCX. */
#define _GNU_SOURCE
#include "transport/wire/ucx/wire_ucx.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "transport/wire/wire_keepalive.h"
#include "weft.h"

#define LITERAL(x) #x
#define STRING(x) LITERAL(x) /* of a macro's value */
#define MS INT64_C(1000000)
/* Time within which peers must have got what was sent; on a busy machine connecting takes seconds. */
#define LEAVE_NS (5000 * MS)
#define FAILED_NS (50 * MS) /* the same after a failure, when peers may not read it any more */

static struct ucx_wire *ucx(struct wire *w)
{
    return (struct ucx_wire *)w;
}

/* ---- opening ---- */

struct setting {
    const char *name, *value;
    bool tcp;
};

/* Sets a variable of UCX, unless the user has set UCX_NAME, or UCX_TCP_NAME. Some versions of UCX know the variables of
 * the TCP transport by their short names, others by their long names, so both are set; UCX ignores one that it does not
 * know. */
static ucs_status_t set(ucp_config_t *config, const struct setting *s)
{
    char name[64];
    snprintf(name, sizeof name, "UCX_%s%s", s->tcp ? "TCP_" : "", s->name);
    if (getenv(name))
        return UCS_OK;
    ucs_status_t status = ucp_config_modify(config, s->name, s->value);
    return status || !s->tcp ? status : ucp_config_modify(config, name + strlen("UCX_"), s->value);
}

/* MAX_IOV 0: TCP sends from UCX's own buffers. If a connection breaks while UCX sends from the caller's memory, UCX (at
 * least up to 1.13) may end that send twice, and an assertion (comp->count > 0) then ends the process. It is also
 * faster with buffers of TX_SEG_SIZE, which stay in the cache: 4.8 GB/s instead of 4.0 between two network namespaces.
 * MAX_POLL 1: one event at a time. The first of several events may close the connection of another one, and then an
 * assertion (conn_state) ends the process, too. This costs nothing that can be measured. PROTO_ENABLE n: with the
 * protocols that are the default since 1.16, an assertion (ucp_memh_is_user_memh) ends a sender whose receiver was
 * killed in the middle of a large message; with the older ones it does not. */
static ucs_status_t configure(const struct wire_boot *boot, ucp_config_t **config)
{
    static const struct setting settings[] = {
        {"CONN_NB", "y", true}, /* connecting to a host that is not there must not block */
        {"PROTO_ENABLE", "n", false},
        {"FLUSH_WORKER_EPS", "n", false}, /* ucx_mail_flushed says why */
        {"MAX_IOV", "0", true},
        {"MAX_POLL", "1", true},
        {"TX_SEG_SIZE", "64k", true},
        {"KEEPIDLE", STRING(KEEP_IDLE) "s", true},
        {"KEEPINTVL", STRING(KEEP_INTERVAL) "s", true},
        {"KEEPCNT", STRING(KEEP_COUNT), true},
        {"RX_SEG_SIZE", "256K", true}, /* a fifth more bytes a second than with 64K: fewer system calls */
    };
    static const struct setting no_shm = {"TLS", "^sysv,posix,cma,knem,xpmem", false};
    ucs_status_t status = ucp_config_read(NULL, NULL, config);
    for (size_t i = 0; !status && i < sizeof settings / sizeof *settings; i++)
        status = set(*config, &settings[i]);
    return status || !boot->no_shm ? status : set(*config, &no_shm);
}

/* UCX prints warnings and catches SIGSEGV and similar signals. In a user's program it shall do neither unless the user
 * asks for it. These functions are of libucs, whose headers are not installed everywhere. */
void ucs_debug_disable_signal(int signum) __attribute__((weak));
ucs_status_t ucs_global_opts_set_value(const char *name, const char *value) __attribute__((weak));

static void hush(void)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    if (!getenv("UCX_LOG_LEVEL") && ucs_global_opts_set_value)
        ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!getenv("UCX_HANDLE_ERRORS") && ucs_debug_disable_signal)
            ucs_debug_disable_signal(signals[i]);
}

static ucs_status_t open_worker(struct ucx_wire *w, const struct wire_boot *boot)
{
    static pthread_once_t hushed = PTHREAD_ONCE_INIT;
    ucp_config_t *config = NULL;
    pthread_once(&hushed, hush);
    ucs_status_t status = configure(boot, &config);
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = (size_t)boot->size,
    };
    if (!status)
        status = ucp_init(&params, config, &w->context);
    if (config)
        ucp_config_release(config);
    if (status)
        return status;
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    status = ucp_context_query(w->context, &attr);
    w->request_bytes = (attr.request_size + 63) / 64 * 64;
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    int listeners[UCX_LISTENERS];
    size_t n = ucx_keepalive_listeners(listeners, UCX_LISTENERS);
    if (!status)
        status = ucp_worker_create(w->context, &worker, &w->worker);
    w->watch.on = !getenv("UCX_TCP_KEEPIDLE");
    if (!status && w->watch.on)
        ucx_keepalive_inherit(listeners, n);
    return status ? status : ucp_worker_get_efd(w->worker, &w->base.fd);
}

struct lengths {
    uint64_t most;
    int size;
};

static int longest(void *arg, void *told, void *more)
{
    const struct lengths *of = arg;
    const uint64_t *all = told;
    uint64_t most = 0;
    for (int i = 0; i < of->size; i++)
        most = all[i] > most ? all[i] : most;
    memcpy(more, &most, sizeof most);
    return 0;
}

/* Addresses have different lengths on different machines: all are padded to the longest one. The process of each rank
 * follows, by which ranks of the same machine see whether it has ended. */
static int share_address(struct ucx_wire *w, const struct wire_boot *boot, const ucp_address_t *address, size_t bytes)
{
    uint64_t mine = bytes;
    struct lengths of = {.size = boot->size};
    struct process_id self;
    struct roster lengths = {.all = NULL};
    int err =
        wire_roster(boot,
                    &(struct roster_ask){
                        .mine = &mine, .bytes = sizeof mine, .sum_up = longest, .arg = &of, .more = sizeof of.most},
                    &lengths);
    if (err)
        return err;
    memcpy(&of.most, lengths.more, sizeof of.most);
    roster_drop(&lengths);
    w->process_at = (of.most + 7) / 8 * 8;
    w->address_bytes = w->process_at + sizeof self;
    unsigned char *padded = calloc(1, w->address_bytes);
    if (!padded)
        return boot->error(WEFT_ENOMEM, "out of memory");
    memcpy(padded, address, bytes);
    process_self(&self);
    memcpy(padded + w->process_at, &self, sizeof self);
    err = wire_roster(boot, &(struct roster_ask){.mine = padded, .bytes = w->address_bytes}, &w->roster);
    w->addresses = w->roster.all;
    free(padded);
    return err;
}

static void destroy(struct ucx_wire *w)
{
    ucx_end_shut(w);
    ucx_keepalive_end(w);
    if (w->context)
        ucp_cleanup(w->context);
    for (struct ucx_message *m = w->kept, *next; m; m = next) {
        next = m->next;
        ucx_request_free(w, m);
    }
    roster_drop(&w->roster);
    free(w->peers);
    free(w);
}

extern const struct wire_ops weft_wire;

static int open_wire(const struct wire_boot *boot, struct wire **out)
{
    if (boot->size > 1 << UCX_RANK_BITS)
        return boot->error(WEFT_EUNSUPPORTED, "ucx: %d ranks; there can be %d", boot->size, 1 << UCX_RANK_BITS);
    struct ucx_wire *w = calloc(1, sizeof *w);
    ucp_address_t *address = NULL;
    size_t bytes = 0;
    if (!w || !(w->peers = calloc((size_t)boot->size, sizeof *w->peers))) {
        free(w);
        return boot->error(WEFT_ENOMEM, "out of memory");
    }
    w->base = (struct wire){&weft_wire, boot->error, boot->rank, boot->size, UINT64_C(1) << UCX_TAG_BITS, -1, false, 0};
    w->used = w->last_lost = -1;
    int err = 0;
    ucs_status_t status = open_worker(w, boot);
    if (!status)
        status = ucp_worker_get_address(w->worker, &address, &bytes);
    if (status)
        err = boot->error(WEFT_ETRANSPORT, "ucx: cannot be opened: %s", ucs_status_string(status));
    else if (!ucx_mail_open(w))
        err = boot->error(WEFT_ENOMEM, "out of memory");
    if (!err)
        err = share_address(w, boot, address, bytes);
    if (address)
        ucp_worker_release_address(w->worker, address);
    if (err) {
        destroy(w);
        return err;
    }
    *out = &w->base;
    return 0;
}

/* The new wire has a worker of its own: if a connection has to be ended after a failure, other wires are not touched.
 */
static int split_wire(struct wire *base, const int *ranks, const struct wire_boot *boot, struct wire **out)
{
    struct wire_boot own = *boot;
    (void)ranks;
    own.error = base->error;
    return open_wire(&own, out);
}

/* ---- the rest ---- */

static enum transport_fate gone(struct wire *base, int rank)
{
    ucx_keepalive_look(ucx(base));
    ucx_mail_look(ucx(base));
    return ucx_peer_fate(ucx(base), rank);
}

static bool used(struct wire *base, int rank)
{
    return ucx(base)->peers[rank].used;
}

static void leave(struct ucx_wire *w)
{
    ucx_mail_leave(w, ucx_now() + (w->base.failed ? FAILED_NS : LEAVE_NS));
    ucx_end_shut(w);
}

static void close_wire(struct wire *base)
{
    struct ucx_wire *w = ucx(base);
    if (w->worker)
        leave(w);
    destroy(w);
}

static bool progress(struct wire *base)
{
    struct ucx_wire *w = ucx(base);
    bool moved = w->worker && ucp_worker_progress(w->worker);
    ucx_mail_look(w);
    if (w->worker && base->failed)
        ucx_data_discard(w);
    return moved;
}

static bool arm(struct wire *base)
{
    struct ucx_wire *w = ucx(base);
    if (!w->worker || w->in[w->next_in % UCX_MAILS]->done)
        return false;
    /* A rank that sleeps is not woken when the grace time of a broken connection ends. */
    if (w->last_lost >= 0 && ucx_peer_doubtful(w, w->last_lost))
        return false;
    /* If a connection comes while UCX arms, UCX's thread notes it for the next progress, and nothing would wake this
     * rank for that. */
    return ucp_worker_arm(w->worker) == UCS_OK && !ucp_worker_progress(w->worker);
}

__attribute__((visibility("default"))) const struct wire_ops weft_wire = {
    .abi = WIRE_ABI,
    .name = "UCX " STRING(UCP_API_MAJOR) "." STRING(UCP_API_MINOR),
    .can = {.deaths = true, .cancels = true},
    .open = open_wire,
    .split = split_wire,
    .close = close_wire,
    .progress = progress,
    .mail = ucx_mail,
    .flushed = ucx_mail_flushed,
    .fetch = ucx_mail_fetch,
    .make = ucx_data_make,
    .start = ucx_data_start,
    .test = ucx_data_test,
    .cancel = ucx_data_cancel,
    .drop = ucx_data_drop,
    .gone = gone,
    .used = used,
    .arm = arm,
    .make_list = ucx_data_make_list,
};
