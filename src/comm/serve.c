/* Stores that a launcher serves for its ranks: server.h with the token of the environment, or with a fresh one. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/forks.h"
#include "comm/environment.h"
#include "rendezvous/address.h"
#include "weft/store.h"

struct weft_store {
    struct server *server;
    char at[ADDRESS_TEXT + 8], token[SERVER_TOKEN_MAX + 2];
    unsigned forks; /* forks_count() of the process that serves */
};

static int fresh_token(char *token)
{
    unsigned char random[32];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(WEFT_ETRANSPORT, "no random number for a token: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static int listen_there(weft_store *s, const char *place, int *listener)
{
    struct address a;
    char text[ADDRESS_TEXT];
    int err = address_parse(place, &a);
    if (!err)
        err = address_listen(&a, listener);
    if (err > 0)
        return error_set(WEFT_ETRANSPORT, "tcp:%s: cannot listen there: %s", place, strerror(err));
    if (err)
        return err;
    forks_own(*listener);
    address_format(&a, text);
    snprintf(s->at, sizeof s->at, "tcp:%s", text);
    return 0;
}

int weft_store_open(const char *at, weft_store **out)
{
    if (!at || !out)
        return error_set(WEFT_EINVAL, "weft_store_open: arguments must not be NULL");
    if (strncmp(at, "tcp:", 4))
        return error_set(WEFT_EINVAL, "%s: only tcp:HOST:PORT is served", at);
    weft_store *s = calloc(1, sizeof *s);
    if (!s)
        return error_nomem();
    s->forks = forks_count();
    int listener, err = environment_token(s->token);
    if (!err && !s->token[0])
        err = fresh_token(s->token);
    if (!err)
        err = server_check_token(s->token, at);
    if (!err)
        err = listen_there(s, at + 4, &listener);
    if (!err)
        err = server_start(listener, s->token, -1, &s->server);
    if (err) {
        free(s);
        return err;
    }
    *out = s;
    return 0;
}

const char *weft_store_at(const weft_store *s)
{
    return s->at;
}

const char *weft_store_token(const weft_store *s)
{
    return s->token;
}

void weft_store_close(weft_store *s)
{
    if (!s || s->forks != forks_count()) /* in a forked child: the parent still serves */
        return;
    server_stop(s->server, 0);
    explicit_bzero(s->token, sizeof s->token);
    free(s);
}
