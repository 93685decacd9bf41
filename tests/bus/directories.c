#define _GNU_SOURCE
#include "directories.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bus/book.h"
#include "bus/bus_server.h"
#include "etcds.h"
#include "rendezvous/address.h"
#include "rendezvous/sodium.h"
#include "weft.h"

enum { TCP, FOLDER, ETCD, KINDS };
static const char *const names[] = {"tcp", "file", "etcd"};
static size_t here; /* the place that was entered */
static char url[256], folder[64];
static struct bus_server *server;
static struct etcds etcds;

static const char *place_name(size_t i)
{
    return i < KINDS ? names[i] : NULL;
}

static int enter_tcp(void)
{
    struct address a = {.host = "127.0.0.1"};
    int fd;
    if (!sodium_find()) {
        printf("skip: libsodium is not installed\n");
        return SUITE_SKIP;
    }
    if (address_listen(&a, &fd))
        return 1;
    snprintf(url, sizeof url, "tcp:127.0.0.1:%d", a.port);
    return bus_server_start(fd, &(struct bus_server_opts){.publish_token = PUBLISH_TOKEN, .read_token = READ_TOKEN},
                            &server);
}

static int enter_folder(void)
{
    strcpy(folder, "/tmp/weft-bus-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(url, sizeof url, "file:%s", folder);
    return 0;
}

static int enter_etcd(void)
{
    if (!etcds_begin(&etcds, 1))
        return SUITE_SKIP;
    snprintf(url, sizeof url, "%s", etcds.url);
    return 0;
}

static int enter(size_t i)
{
    here = i;
    return i == TCP ? enter_tcp() : i == FOLDER ? enter_folder() : enter_etcd();
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void leave(size_t i, bool failed)
{
    (void)failed;
    if (i == ETCD)
        etcds_end(&etcds);
    if (i == FOLDER)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    bus_server_stop(server);
    server = NULL;
}

static const char *served_name(size_t i)
{
    return i == TCP ? names[i] : NULL;
}

const struct suite_places directories_served = {served_name, NULL, enter, leave, NULL};
/* Sanitizers have nothing to say about etcd, and its tests wait for much. */
static bool usual(size_t i)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return i != ETCD;
#else
    return i < KINDS;
#endif
}

const struct suite_places directories_places = {place_name, usual, enter, leave, NULL};

const char *directories_url(void)
{
    return url;
}

bool directories_sees_death(void)
{
    return here != ETCD;
}

int64_t directories_ttl(int64_t ns)
{
    return here == ETCD && ns < 2 * SECOND ? 2 * SECOND : ns;
}

bool directories_slow(void)
{
    return here == ETCD;
}

bool directories_forget(int64_t revision)
{
    char body[64], reply[256];
    snprintf(body, sizeof body, "{\"revision\":\"%lld\"}", (long long)revision);
    return here == ETCD && etcds_post(&etcds, 0, "kv/compaction", body, reply, sizeof reply) == 200;
}

size_t directories_key_max(const char *space)
{
    return DIRECTORY_KEY_MAX - (here == FOLDER ? 0 : strlen(space) + 1);
}

size_t directories_log(void)
{
    return here == ETCD ? 0 : BOOK_LOG_MAX + 100;
}

/* ---- calls ---- */

struct directory *directories_open_with(const char *space, const char *token)
{
    char whole[300];
    struct directory *d;
    snprintf(whole, sizeof whole, "%s%s%s", url, *space ? "/" : "", space);
    int err = directory_open(whole, &(struct directory_opts){.token = token, .timeout_ns = LONG}, &d);
    if (err)
        fail_msg("%s", weft_errmsg());
    return d;
}

struct directory *directories_open(const char *space)
{
    return directories_open_with(space, PUBLISH_TOKEN);
}

int64_t directories_put(struct directory *d, const char *key, const char *value, int64_t lease)
{
    struct directory_outcome o = {0};
    if (directory_put_if(d, key, -1, value, strlen(value), lease, LONG, &o) || !o.done)
        fail_msg("'%s' could not be put: %s", key, weft_errmsg());
    return o.revision;
}

bool directories_has(struct directory *d, const char *key, const char *value)
{
    struct directory_items got;
    bool found = false;
    if (directory_get(d, key, LONG, &got))
        fail_msg("%s", weft_errmsg());
    for (size_t i = 0; i < got.n; i++)
        if (!strcmp(got.items[i].key, key))
            found =
                !value || (got.items[i].bytes == strlen(value) && !memcmp(got.items[i].value, value, strlen(value)));
    directory_items_free(&got);
    return value ? found : !found;
}

void directories_await(struct directory *d, const char *key, const char *value)
{
    for (int64_t until = clock_now() + LONG; !directories_has(d, key, value); clock_pause(5 * MS))
        if (clock_now() > until)
            fail_msg("'%s' does not become '%s'", key, value ? value : "(deleted)");
}

void directories_forks(void)
{
#if defined(__SANITIZE_THREAD__)
    print_message("under ThreadSanitizer a process with threads is not forked\n");
    skip();
#endif
}

size_t directories_keys(const char *prefix)
{
    struct directory_items items;
    struct directory *d = directories_open("");
    fine(directory_get(d, prefix, LONG, &items));
    size_t n = items.n;
    directory_items_free(&items);
    directory_close(d);
    return n;
}
