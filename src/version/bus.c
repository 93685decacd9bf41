/* Opening and closing a bus, and the list of a set's versions. */
#define _GNU_SOURCE
#include "version/bus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "base/process.h"
#include "base/sized.h"
#include "comm/environment.h"
#include "rendezvous/deadline.h"
#include "version/catalog.h"

#define SECOND INT64_C(1000000000)
#define DEADLINE (30 * SECOND)
#define LEASE (10 * SECOND)

static void name_process(weft_bus *b, const char *job)
{
    struct process_id self;
    process_self(&self);
    snprintf(b->host, sizeof b->host, "%.36s.%016llx", self.boot[0] ? self.boot : self.host,
             (unsigned long long)process_net());
    if (job)
        snprintf(b->job, sizeof b->job, "%s", job);
    else {
        snprintf(b->job, sizeof b->job, "%.40s.%lld", self.host, (long long)self.pid);
        for (char *c = b->job; *c; c++)
            *c = isalnum((unsigned char)*c) || strchr("._-", *c) ? *c : '_';
    }
}

static void free_bus(weft_bus *b)
{
    struct error_text kept;
    error_keep(&kept);
    part_server_stop(b->server);
    keeper_stop(&b->keeper);
    if (b->token)
        explicit_bzero(b->token, strlen(b->token));
    free(b->token);
    free(b->listen);
    free(b->url);
    pthread_mutex_destroy(&b->relaying);
    job_metrics_end(&b->metrics);
    pthread_mutex_destroy(&b->lock);
    free(b);
    error_restore(&kept);
}

int weft_bus_open(const char *url, const weft_bus_opts *opts, weft_bus **out)
{
    weft_bus_opts o;
    char token[SERVER_TOKEN_MAX + 2] = "";
    if (!url || !out)
        return error_set(WEFT_EINVAL, "weft_bus_open: %s is NULL", url ? "out" : "url");
    int err = sized_read("weft_bus_open", "weft_bus_opts", &o, sizeof o, opts);
    if (!err && o.job)
        err = record_name("weft_bus_open", "job", o.job);
    if (!err && (o.deadline_ns < 0 || o.lease_ns < 0))
        err = error_set(WEFT_EINVAL, "weft_bus_open: a time is negative");
    int64_t lease = o.lease_ns ? o.lease_ns : LEASE;
    if (!err && (lease < DIRECTORY_TTL_MIN_NS || lease > DIRECTORY_TTL_MAX_NS))
        err = error_set(WEFT_EINVAL, "weft_bus_open: lease_ns is %lld: it must be 100 ms to 24 h", (long long)lease);
    if (!err && !o.token)
        err = environment_token(token);
    if (err)
        return err;
    weft_bus *b = calloc(1, sizeof *b);
    if (!b)
        return error_nomem();
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->relaying, NULL);
    list_begin(&b->relays);
    const char *secret = o.token ? o.token : *token ? token : NULL;
    b->url = strdup(url);
    b->token = secret ? strdup(secret) : NULL;
    b->listen = o.listen ? strdup(o.listen) : NULL;
    b->deadline_ns = o.deadline_ns ? o.deadline_ns : DEADLINE;
    b->forks = forks_count();
    explicit_bzero(token, sizeof token);
    name_process(b, o.job);
    err = job_metrics_begin(&b->metrics, o.metrics);
    if (!b->url || (secret && !b->token) || (o.listen && !b->listen))
        err = error_nomem();
    if (!err)
        err = keeper_start(&b->keeper, url, &(struct directory_opts){b->token, b->deadline_ns}, lease);
    if (err)
        free_bus(b);
    else
        *out = b;
    return err;
}

int weft_bus_close(weft_bus *b)
{
    if (!b || b->forks != forks_count())
        return 0;
    pthread_mutex_lock(&b->lock);
    int users = b->users;
    pthread_mutex_unlock(&b->lock);
    if (users)
        return error_set(WEFT_EBUSY, "weft_bus_close: %d publishers and subscribers are open still", users);
    free_bus(b);
    return 0;
}

int weft_bus_metrics(weft_bus *b, char *buf, size_t cap, size_t *len)
{
    if (!b || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_bus_metrics: %s is NULL", !b ? "the bus" : !len ? "len" : "buf");
    struct text t = text_start(buf, cap);
    job_metrics_text(&b->metrics, &t);
    *len = t.len;
    return 0;
}

const char *weft_bus_job(const weft_bus *b)
{
    return b ? b->job : NULL;
}

int bus_enter(weft_bus *b, const char *call)
{
    if (!b)
        return error_set(WEFT_EINVAL, "%s: the bus is NULL", call);
    if (b->forks != forks_count())
        return error_set(WEFT_EINVAL, "%s: the bus was opened by a parent of this process: open it anew after fork",
                         call);
    pthread_mutex_lock(&b->lock);
    b->users++;
    pthread_mutex_unlock(&b->lock);
    return 0;
}

void bus_leave(weft_bus *b)
{
    pthread_mutex_lock(&b->lock);
    b->users--;
    pthread_mutex_unlock(&b->lock);
}

int bus_serve(weft_bus *b)
{
    pthread_mutex_lock(&b->lock);
    int err = b->server ? 0 : part_server_start(b->listen, &b->server);
    pthread_mutex_unlock(&b->lock);
    return err;
}

void bus_way(const weft_bus *b, struct text *t)
{
    const struct part_server *s = b->server;
    text_printf(t, "job %s\nhost %s\nsocket %s\naddress %s\nsecret %s\n", b->job, b->host, part_server_socket(s),
                part_server_address(s), part_server_secret(s));
}

int bus_until(const weft_bus *b, const char *call, int64_t timeout_ns, int64_t *until)
{
    if (timeout_ns < 0 && timeout_ns != WEFT_FOREVER && timeout_ns != WEFT_DEADLINE)
        return error_set(WEFT_EINVAL, "%s: the timeout is %lld", call, (long long)timeout_ns);
    *until = timeout_ns == WEFT_FOREVER ? INT64_MAX / 2 : deadline_in(timeout_ns < 0 ? b->deadline_ns : timeout_ns);
    return 0;
}

int bus_open_directory(const weft_bus *b, int64_t until, struct directory **out)
{
    return directory_open(b->url, &(struct directory_opts){b->token, max64(until - deadline_now(), 1)}, out);
}

int weft_bus_versions(weft_bus *b, const char *set, int64_t timeout_ns, weft_bus_version *out, size_t cap, size_t *n)
{
    int64_t until = 0;
    struct catalog c;
    if (!b || !n || (cap && !out))
        return error_set(WEFT_EINVAL, "weft_bus_versions: %s is NULL", !b ? "the bus" : !n ? "n" : "out");
    int err = record_name("weft_bus_versions", "set", set);
    if (!err)
        err = bus_until(b, "weft_bus_versions", timeout_ns, &until);
    if (!err)
        err = catalog_get(&b->keeper, set, until, &c);
    if (err)
        return err;
    for (size_t i = 0; i < c.nversions && i < cap; i++) {
        const struct catalog_version *v = &c.versions[i];
        out[i] = (weft_bus_version){.version = v->version, .bytes = v->bytes, .ranks = v->ranks, .holders = v->holders};
        out[i].meta_len = strnlen(v->meta, WEFT_BUS_META);
        memcpy(out[i].meta, v->meta, out[i].meta_len);
        out[i].meta[out[i].meta_len] = 0;
    }
    *n = c.nversions;
    catalog_free(&c);
    return 0;
}
