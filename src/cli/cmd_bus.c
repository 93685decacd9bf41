/* weft bus: serves a directory, and shows what is in one. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/utf8.h"
#include "bus/bus_metrics.h"
#include "bus/bus_server.h"
#include "bus/directory.h"
#include "cli/cli.h"
#include "cli/cmd_bus_status.h"
#include "comm/environment.h"
#include "rendezvous/address.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "weft.h"

#define LISTEN "127.0.0.1:7077"
#define SECOND INT64_C(1000000000)
#define TIMEOUT_S 30 /* within which a directory must answer, without --timeout */
#define METRICS_S 5  /* after which the file of metrics is written anew */
#define SHOWN 60     /* bytes of a value that a table shows */

struct asked {
    const char *listen, *token, *read_token, *keep, *metrics_file;
    bool json;
    int64_t metrics; /* a port; -1: none */
    int64_t after, count, timeout;
    const char *url, *prefix;
};

/* ---- serve ---- */

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
static sigset_t end_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaddset(&set, ends[i]);
    return set;
}

/* Tells systemd, or whichever program has set NOTIFY_SOCKET, how the server is. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof at.sun_path || (*path != '/' && *path != '@'))
        return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(at.sun_path, path, n);
    if (*path == '@')
        at.sun_path[0] = 0; /* an abstract name */
    if (fd < 0)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&at,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* A server without its metrics is better than none: what goes wrong is said once. */
static void write_metrics(struct bus_server *server, const char *path, bool *said)
{
    bool wrong = path && bus_metrics_write(server, path);
    if (wrong && !*said)
        fprintf(stderr, "weft bus: %s\n", weft_errmsg());
    *said = wrong;
}

/* Until a signal ends the server, or it has lost its file. */
static int stay(struct bus_server *server, const struct asked *a, struct failure *f)
{
    sigset_t set = end_signals();
    const struct timespec pause = {.tv_nsec = 200000000};
    char why[256];
    bool said = false;
    for (int64_t written = 0;;) {
        if (now_ns() - written >= METRICS_S * SECOND) {
            write_metrics(server, a->metrics_file, &said);
            written = now_ns();
        }
        int number = sigtimedwait(&set, NULL, &pause);
        bool broken = number <= 0 && bus_server_broken(server, why, sizeof why);
        if (number <= 0 && !broken)
            continue;
        write_metrics(server, a->metrics_file, &said);
        return broken ? failure_set(f, CLI_WRONG, "%s", why) : CLI_OK;
    }
}

static int library(struct failure *f, int err)
{
    return err ? failure_set(f, err == WEFT_EINVAL ? CLI_BAD : CLI_WRONG, "%s", weft_errmsg()) : CLI_OK;
}

static int read_tokens(const struct asked *a, char *publish, char *reading)
{
    int err = a->token ? environment_token_file("--token-file ", a->token, publish) : environment_token(publish);
    if (!err)
        err = server_check_token(publish, "serve");
    *reading = 0;
    if (!err && a->read_token)
        err = environment_token_file("--read-token-file ", a->read_token, reading);
    if (!err && a->read_token)
        err = server_check_token(reading, "serve");
    return err;
}

static int serve(const struct asked *a, struct failure *f)
{
    char publish[SERVER_TOKEN_MAX + 2], reading[SERVER_TOKEN_MAX + 2], text[ADDRESS_TEXT];
    struct address at;
    struct bus_server *server;
    struct bus_metrics *metrics = NULL;
    int port = 0;
    sigset_t set = end_signals();
    int listener, err = read_tokens(a, publish, reading);
    if (err && !a->token && !getenv("WEFT_TOKEN") && !getenv("WEFT_TOKEN_FILE"))
        return failure_set(
            f, CLI_BAD,
            "serve needs a token: make one by 'head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE', and "
            "name it by --token-file or WEFT_TOKEN_FILE");
    if (!err && a->read_token && !strcmp(publish, reading))
        return failure_set(f, CLI_BAD, "the tokens for publishing and for reading are the same");
    if (!err)
        err = address_parse(a->listen, &at);
    if (err)
        return library(f, err);
    err = address_listen(&at, &listener);
    if (err > 0)
        return failure_set(f, CLI_WRONG, "cannot listen at %s: %s", a->listen, strerror(err));
    if (err)
        return library(f, err);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before the server's thread begins */
    struct bus_server_opts opts = {
        .publish_token = publish, .read_token = a->read_token ? reading : NULL, .keep = a->keep};
    err = bus_server_start(forks_own(listener), &opts, &server);
    explicit_bzero(publish, sizeof publish);
    explicit_bzero(reading, sizeof reading);
    if (err)
        return library(f, err);
    if (a->metrics >= 0)
        err = bus_metrics_start(server, (int)a->metrics, &port, &metrics);
    if (err) {
        bus_server_stop(server);
        return library(f, err);
    }
    address_format(&at, text);
    if (metrics)
        printf("metrics http://127.0.0.1:%d/metrics\n", port);
    printf("serving tcp:%s\n", text);
    fflush(stdout);
    notify("READY=1");
    int code = stay(server, a, f);
    notify("STOPPING=1");
    bus_metrics_stop(metrics);
    bus_server_stop(server);
    return code;
}

/* ---- ls, status and watch ---- */

static bool is_text(const struct directory_item *i)
{
    for (size_t at = 0, n; at < i->bytes; at += n) {
        n = i->value[at] ? utf8_length(i->value + at) : 0;
        if (!n || at + n > i->bytes)
            return false;
    }
    return true;
}

/* The value for people: what can be printed of its beginning. */
static void print_value(const struct directory_item *i)
{
    for (size_t at = 0; at < i->bytes && at < SHOWN; at++)
        putchar(i->value[at] > ' ' && i->value[at] < 127 ? i->value[at] : i->value[at] == ' ' ? ' ' : '.');
    if (i->bytes > SHOWN)
        printf("... (%zu bytes)", i->bytes);
}

static void json_item(struct json *j, const struct directory_item *i)
{
    json_write_open(j, NULL, '{', true);
    json_write_text(j, "key", i->key);
    json_write_int(j, "revision", i->revision);
    json_write_bool(j, "deleted", i->deleted);
    if (!i->deleted) {
        json_write_int(j, "made", i->made);
        json_write_int(j, "lease", i->lease);
        json_write_int(j, "bytes", (int64_t)i->bytes);
        char *text = malloc(2 * i->bytes + 1);
        if (text && is_text(i)) {
            memcpy(text, i->value, i->bytes);
            text[i->bytes] = 0;
        } else if (text) {
            for (size_t k = 0; k < i->bytes; k++)
                snprintf(text + 2 * k, 3, "%02x", i->value[k]);
        }
        json_write_text(j, text && is_text(i) ? "value" : "hex", text);
        free(text);
    }
    json_write_close(j, '}');
}

static int open_directory(const struct asked *a, struct directory **d, struct failure *f)
{
    char token[SERVER_TOKEN_MAX + 2];
    bool folder = !strncmp(a->url, "file:", 5);
    if (folder && access(a->url + 5, F_OK)) /* opening would make it */
        return failure_set(f, CLI_BAD, "%s: %s", a->url, strerror(errno));
    int err = a->token ? environment_token_file("--token-file ", a->token, token) : environment_token(token);
    if (!err)
        err = directory_open(
            a->url, &(struct directory_opts){.token = *token ? token : NULL, .timeout_ns = a->timeout * SECOND}, d);
    explicit_bzero(token, sizeof token);
    return library(f, err);
}

static void print_keys(const struct directory_items *got)
{
    int wide = 3;
    for (size_t i = 0; i < got->n; i++)
        wide = (int)strlen(got->items[i].key) > wide ? (int)strlen(got->items[i].key) : wide;
    if (got->n)
        printf("%-*s  %-18s  %-6s  %s\n", wide, "key", "revision", "lease", "value");
    for (size_t i = 0; i < got->n; i++) {
        const struct directory_item *item = &got->items[i];
        printf("%-*s  %-18" PRId64 "  %-6s  ", wide, item->key, item->revision, item->lease ? "yes" : "no");
        print_value(item);
        putchar('\n');
    }
}

static int list(const struct asked *a, struct failure *f)
{
    struct directory *d;
    struct directory_items got;
    int code = open_directory(a, &d, f);
    if (code)
        return code;
    code = library(f, directory_get(d, a->prefix, a->timeout * SECOND, &got));
    if (!code && a->json) {
        struct json j = {.to = stdout};
        json_write_open(&j, NULL, '{', false);
        json_write_text(&j, "url", a->url);
        json_write_int(&j, "revision", got.revision);
        json_write_open(&j, "keys", '[', false);
        for (size_t i = 0; i < got.n; i++)
            json_item(&j, &got.items[i]);
        json_write_close(&j, ']');
        json_write_close(&j, '}');
    } else if (!code) {
        print_keys(&got);
    }
    if (!code)
        directory_items_free(&got);
    directory_close(d);
    return code;
}

static int status(const struct asked *a, struct failure *f)
{
    struct directory *d;
    struct directory_items got;
    int code = open_directory(a, &d, f);
    if (code)
        return code;
    int64_t begun = now_ns();
    code = library(f, directory_get(d, "", a->timeout * SECOND, &got));
    if (!code && !cmd_bus_status(a->url, &got, now_ns() - begun, a->json))
        code = failure_set(f, CLI_WRONG, "out of memory");
    if (!code)
        directory_items_free(&got);
    directory_close(d);
    return code;
}

static void print_change(const struct directory_item *i, bool json)
{
    if (json) {
        json_item(&(struct json){.to = stdout}, i);
        return;
    }
    printf("%" PRId64 "  %s  %s", i->revision, i->deleted ? "gone" : "put ", i->key);
    if (!i->deleted) {
        fputs("  ", stdout);
        print_value(i);
    }
    putchar('\n');
}

/* Prints changes until there were `count` of them, or until --timeout without one. */
static int follow(const struct asked *a, struct directory *d, struct failure *f)
{
    struct directory_items got;
    struct directory_watch *w = NULL;
    int64_t left = a->count, after = a->after;
    int err = 0;
    if (after < 0) {
        err = directory_get(d, a->prefix, a->timeout * SECOND, &got);
        after = err ? 0 : got.revision;
        if (!err)
            directory_items_free(&got);
    }
    if (!err)
        err = directory_watch(d, a->prefix, after, &w);
    while (!err && (!a->count || left > 0)) {
        err = directory_next(w, a->timeout * SECOND, &got);
        if (err == WEFT_ETIMEOUT && !a->count) {
            err = 0; /* it waits on */
            continue;
        }
        if (err)
            break;
        if (got.lost)
            fprintf(stderr, "weft bus: changes were lost; these are all keys\n");
        for (size_t i = 0; i < got.n; i++, left--)
            print_change(&got.items[i], a->json);
        directory_items_free(&got);
        if (fflush(stdout))
            break; /* nobody reads it */
    }
    int code = library(f, err);
    directory_unwatch(w);
    return code;
}

static int watch(const struct asked *a, struct failure *f)
{
    struct directory *d;
    int code = open_directory(a, &d, f);
    if (code)
        return code;
    code = follow(a, d, f);
    directory_close(d);
    return code;
}

/* ---- the verb ---- */

int cmd_bus(int argc, char **argv)
{
    struct asked a = {.listen = LISTEN, .metrics = -1, .after = -1, .timeout = TIMEOUT_S, .prefix = ""};
    const struct args_option rows[] = {
        {"listen", ARGS_TEXT, "HOST:PORT",
         "serve: where; port 0 lets the system choose one, and a HOST other than loopback lets other machines in "
         "(default " LISTEN ")",
         &a.listen, 0, 0},
        {"token-file", ARGS_TEXT, "FILE",
         "the token; serve: the one for publishing (default WEFT_TOKEN, WEFT_TOKEN_FILE)", &a.token, 0, 0},
        {"read-token-file", ARGS_TEXT, "FILE", "serve: a second token, for clients that only read", &a.read_token, 0,
         0},
        {"keep", ARGS_TEXT, "FILE", "serve: keep the state in this file over restarts", &a.keep, 0, 0},
        {"metrics", ARGS_INT, "PORT",
         "serve: answer GET /metrics at this port of 127.0.0.1; 0 lets the system choose one", &a.metrics, 0, 65535},
        {"metrics-file", ARGS_TEXT, "FILE", "serve: write the metrics into this file every 5 seconds", &a.metrics_file,
         0, 0},
        {"json", ARGS_FLAG, NULL, "ls, watch, status: print JSON; watch prints an object a line", &a.json, 0, 0},
        {"after", ARGS_INT, "N", "watch: begin after this revision (default: now)", &a.after, 0, INT64_MAX},
        {"count", ARGS_INT, "N", "watch: end after N changes (default: never)", &a.count, 1, INT64_MAX},
        {"timeout", ARGS_INT, "SECONDS",
         "ls, watch, status: how long to wait for the directory, and with --count for a change", &a.timeout, 1, 86400},
        {0}};
    const struct args_verb verb = {
        "bus",
        "serve [--listen HOST:PORT] [--token-file FILE] [--read-token-file FILE] [--keep FILE] "
        "[--metrics PORT] [--metrics-file FILE]\n"
        "ls URL [PREFIX] [--json]\n"
        "watch URL [PREFIX] [--after N] [--count N] [--json]\n"
        "status URL [--json]",
        "Serves the directory in which jobs find each other that do not know each other, and shows what is in one. URL "
        "is\n"
        "tcp:HOST:PORT[/SPACE], file:DIR or etcd:http://HOST:PORT[/SPACE]. The server prints its URL when it is ready, "
        "and ends on INT, TERM or HUP.",
        rows, 3};
    const char *words[3];
    struct failure f = {0};
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    bool serves = n && !strcmp(words[0], "serve"), lists = n && !strcmp(words[0], "ls"),
         watches = n && !strcmp(words[0], "watch"), tells = n && !strcmp(words[0], "status");
    if (!serves && !lists && !watches && !tells)
        return args_complain(&verb, "expected serve, ls, watch or status");
    if (serves ? n > 1 : n < 2)
        return args_complain(&verb, serves ? "serve takes options only" : "the URL of the directory is missing");
    if (tells && n > 2)
        return args_complain(&verb, "status takes a URL only");
    if (serves ? a.json || a.after >= 0 || a.count
               : a.keep || a.read_token || a.metrics >= 0 || a.metrics_file || strcmp(a.listen, LISTEN) ||
                     (!watches && (a.after >= 0 || a.count)))
        return args_complain(&verb, "an option is not one of weft bus %s", words[0]);
    if (!serves) {
        a.url = words[1];
        a.prefix = n > 2 ? words[2] : "";
    }
    code = serves ? serve(&a, &f) : lists ? list(&a, &f) : tells ? status(&a, &f) : watch(&a, &f);
    return code ? failure_print(&f, "bus") : CLI_OK;
}
