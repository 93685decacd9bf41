#define _GNU_SOURCE
#include "stores.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/address.h"
#include "rendezvous/deadline.h"
#include "rendezvous/server.h"
#include "rendezvous/sodium.h"
#include "rendezvous/store.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

/* ---- places ---- */

int stores_reserve(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void stores_serve(struct stores_place *p)
{
    struct address a = {.host = "127.0.0.1"};
    int fd;
    assert_int_equal(address_listen(&a, &fd), 0);
    assert_int_equal(server_start(fd, TOKEN, -1, &p->server), 0);
    server_counts(p->server, &(struct server_counts){0}); /* now its thread has begun: ranks may be forked */
    snprintf(p->url, sizeof p->url, "tcp:127.0.0.1:%d", a.port);
}

void stores_begin(struct stores_place *p, enum stores_kind kind)
{
    int port;
    *p = (struct stores_place){.kind = kind, .reserved = -1};
    if (kind == STORES_FILE) {
        strcpy(p->dir, "/tmp/weft-store-XXXXXX");
        assert_non_null(mkdtemp(p->dir));
        snprintf(p->url, sizeof p->url, "file:%s", p->dir);
    } else if (kind == STORES_SERVED) {
        stores_serve(p);
    } else {
        p->reserved = stores_reserve(&port);
        snprintf(p->url, sizeof p->url, "tcp::%d", port);
    }
}

int stores_names(const char *dir)
{
    int n = -2;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

void stores_end(struct stores_place *p)
{
    if (p->server)
        server_stop(p->server, deadline_now() + LONG);
    if (p->reserved >= 0)
        close(p->reserved);
    if (p->kind == STORES_FILE) {
        assert_int_equal(stores_names(p->dir), 0);
        assert_int_equal(rmdir(p->dir), 0);
    }
}

bool stores_sodium(void)
{
    if (sodium_find())
        return true;
    printf("skip: libsodium is not installed\n");
    return false;
}

/* ---- crews ---- */

#define STORES_RANKS 96

int stores_open(struct stores_rank *r)
{
    struct store_opts o = {
        .name = r->name, .rank = r->rank, .size = r->size, .token = r->token, .timeout_ns = r->timeout_ns};
    r->code = store_open(r->url, &o, &r->s);
    if (r->code)
        snprintf(r->text, sizeof r->text, "%s", weft_errmsg());
    return r->code;
}

static void *stores_thread(void *arg)
{
    struct stores_rank *r = arg;
    r->body(r);
    return NULL;
}

struct stores_rank *stores_crew(const struct stores_place *p, int n, void (*body)(struct stores_rank *r))
{
    struct stores_rank *ranks = ranks_shared((size_t)n * sizeof *ranks);
    for (int i = 0; i < n; i++)
        ranks[i] =
            (struct stores_rank){.rank = i, .size = n, .url = p->url, .token = TOKEN, .timeout_ns = LONG, .body = body};
    return ranks;
}

void stores_run(struct stores_rank *ranks, int n, bool forked)
{
    pthread_t threads[STORES_RANKS];
    pid_t pids[STORES_RANKS];
    struct process_gate gate;
    fflush(NULL);
    process_gate_begin(&gate);
    for (int i = 0; i < n; i++) {
        if (!forked)
            assert_int_equal(pthread_create(&threads[i], NULL, stores_thread, &ranks[i]), 0);
        else if ((pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            process_gate_pass(&gate);
            ranks[i].body(&ranks[i]);
            _exit(0);
        }
    }
    process_gate_open(&gate);
    for (int i = 0; i < n; i++) {
        if (forked)
            waitpid(pids[i], NULL, 0);
        else
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < n; i++)
        if (ranks[i].broken)
            fail_msg("%s", ranks[i].text);
}

void stores_free(struct stores_rank *ranks, int n)
{
    munmap(ranks, (size_t)n * sizeof *ranks);
}
