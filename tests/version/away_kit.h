/* A directory that goes away and comes back with its state. */
#ifndef WEFT_VERSION_AWAY_KIT_H
#define WEFT_VERSION_AWAY_KIT_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bus/bus_server.h"
#include "bus/directories.h"
#include "rendezvous/address.h"
#include "weft/bus.h"

struct away {
    struct address at;
    struct bus_server_opts opts;
    struct bus_server *server;
    char url[64], file[64];
};

static inline void away_comes(struct away *x)
{
    int fd;
    fine(address_listen(&x->at, &fd));
    fine(bus_server_start(fd, &x->opts, &x->server));
    snprintf(x->url, sizeof x->url, "tcp:127.0.0.1:%d", x->at.port);
}

static inline void away_begin(struct away *x)
{
    char folder[] = "/tmp/weft-away-XXXXXX";
    *x = (struct away){.at = {.host = "127.0.0.1"}, .opts = {.publish_token = PUBLISH_TOKEN}};
    assert_non_null(mkdtemp(folder));
    snprintf(x->file, sizeof x->file, "%s/state", folder);
    x->opts.keep = x->file;
    away_comes(x);
}

static inline void away_end(struct away *x)
{
    bus_server_stop(x->server);
    unlink(x->file);
    *strrchr(x->file, '/') = 0;
    rmdir(x->file);
}

static inline weft_bus *away_bus(const struct away *x, int64_t deadline_ns, int64_t lease_ns)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.token = PUBLISH_TOKEN;
    o.deadline_ns = deadline_ns;
    o.lease_ns = lease_ns;
    fine(weft_bus_open(x->url, &o, &b));
    return b;
}
#endif
