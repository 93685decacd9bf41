/* weft bus: serves a directory, shows what is in one, and moves versions to and from files. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/utf8.h"
#include "bus/bus_metrics.h"
#include "bus/bus_server.h"
#include "bus/directory.h"
#include "cli/cli.h"
#include "cli/cmd_bus_agent.h"
#include "cli/cmd_bus_data.h"
#include "cli/cmd_bus_status.h"
#include "cli/notify.h"
#include "comm/environment.h"
#include "rendezvous/address.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "weft.h"
#include "weft/bus.h"

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
    struct metrics_http *metrics = NULL;
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
    notify_send("READY=1");
    int code = stay(server, a, f);
    notify_send("STOPPING=1");
    metrics_http_stop(metrics);
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

/* Which options a word takes, by their letters below. */
static const struct {
    const char *name, *options;
    int least, most; /* words behind it */
    const char *missing;
} verbs[] = {
    {"serve", "lrkmf", 0, 0, ""},
    {"ls", "jt", 1, 2, "the URL of the directory is missing"},
    {"watch", "jtac", 1, 2, "the URL of the directory is missing"},
    {"status", "jt", 1, 1, "the URL of the directory is missing"},
    {"push", "jtlsdex", 3, 3, "push takes a URL, the name of a set and a checkpoint"},
    {"pull", "jtsdop", 3, 3, "pull takes a URL, the name of a set and where to write it"},
    {"doctor", "jt", 1, 1, "the URL of the directory is missing"},
    {"agent", "tlvy", 1, 1, "the URL of the directory is missing"},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* The first option that was given and that the word does not take. */
static bool strange(const struct asked *a, const struct cmd_bus_data *d, const struct cmd_bus_agent *g,
                    const char *options)
{
    const struct {
        char letter;
        bool given;
    } all[] = {{'l', a->listen != NULL},
               {'r', a->read_token != NULL},
               {'k', a->keep != NULL},
               {'m', a->metrics >= 0},
               {'f', a->metrics_file != NULL},
               {'j', a->json},
               {'t', a->timeout != TIMEOUT_S},
               {'a', a->after >= 0},
               {'c', a->count != 0},
               {'s', d->step >= 0},
               {'d', d->dtype != NULL},
               {'e', d->meta != NULL},
               {'x', d->seconds != 0},
               {'o', d->to || d->rules},
               {'p', d->force},
               {'v', g->versions != 0},
               {'y', g->memory != 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !strchr(options, all[i].letter))
            return true;
    return false;
}

int cmd_bus(int argc, char **argv)
{
    struct asked a = {.metrics = -1, .after = -1, .timeout = TIMEOUT_S, .prefix = ""};
    struct cmd_bus_data d = {.step = -1};
    struct cmd_bus_agent g = {0};
    const struct args_option rows[] = {
        {"listen", ARGS_TEXT, "HOST:PORT",
         "serve: where; port 0 lets the system choose one, and a HOST other than loopback lets other machines in "
         "(default " LISTEN "); push, agent: where other hosts read versions",
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
        {"json", ARGS_FLAG, NULL, "print JSON; watch prints an object a line", &a.json, 0, 0},
        {"after", ARGS_INT, "N", "watch: begin after this revision (default: now)", &a.after, 0, INT64_MAX},
        {"count", ARGS_INT, "N", "watch: end after N changes (default: never)", &a.count, 1, INT64_MAX},
        {"timeout", ARGS_INT, "SECONDS",
         "how long to wait for the directory (30), with --count for a change, and in pull for a version", &a.timeout, 1,
         86400},
        {"step", ARGS_INT, "N", "push: the step of the version (0); pull: the version with this step (the newest one)",
         &d.step, 0, INT64_MAX},
        {"dtype", ARGS_TEXT, "DTYPE", "push, pull: cast floats of 16 bits and more to f16, bf16, f32 or f64", &d.dtype,
         0, 0},
        {"meta", ARGS_TEXT, "TEXT", "push: a text for readers", &d.meta, 0, 0},
        {"seconds", ARGS_INT, "N", "push: end after N seconds (default: on INT, TERM or HUP)", &d.seconds, 1,
         INT32_MAX},
        {"to", ARGS_TEXT, "MESH", "pull: write a checkpoint for the ranks of this mesh, as weft checkpoint does", &d.to,
         0, 0},
        {"rules", ARGS_TEXT, "RULES",
         "pull: with --to, how tensors are split: a file, or a name, as for weft checkpoint", &d.rules, 0, 0},
        {"force", ARGS_FLAG, NULL, "pull: replace what is there", &d.force, 0, 0},
        {"versions", ARGS_INT, "N",
         "agent: versions of a set that are kept after their publisher has gone, newer ones counted (1)", &g.versions,
         1, WEFT_BUS_KEEP},
        {"memory", ARGS_BYTES, "BYTES", "agent: memory of all snapshots that it holds (half of the machine's)",
         &g.memory, 1, INT64_MAX / 4},
        {0}};
    const struct args_verb verb = {
        "bus",
        "serve [--listen HOST:PORT] [--token-file FILE] [--read-token-file FILE] [--keep FILE] "
        "[--metrics PORT] [--metrics-file FILE]\n"
        "ls URL [PREFIX] [--json]\n"
        "watch URL [PREFIX] [--after N] [--count N] [--json]\n"
        "status URL [--json]\n"
        "push URL SET CHECKPOINT [--step N] [--dtype DTYPE] [--meta TEXT] [--seconds N] [--listen HOST:PORT] [--json]\n"
        "pull URL SET OUT [--step N] [--dtype DTYPE] [--to MESH --rules RULES] [--force] [--json]\n"
        "doctor URL [--json]\n"
        "agent URL [--versions N] [--memory BYTES] [--listen HOST:PORT]",
        "Serves the directory in which jobs find each other that do not know each other, and shows what is in one. URL "
        "is\n"
        "tcp:HOST:PORT[/SPACE], file:DIR or etcd:http://HOST:PORT[/SPACE]. The server prints its URL when it is ready, "
        "and ends on INT, TERM or HUP.\n"
        "push serves a checkpoint (a safetensors file, a folder of them, or one of weft checkpoint) as a version, as "
        "long as it runs.\n"
        "pull writes a version into OUT, a file NAME.safetensors or a folder. doctor says what is wrong, and ends with "
        "1 if something is.\n"
        "agent holds the snapshots of the publishers on its host and of its user, so that versions outlive them, until "
        "INT, TERM or HUP.",
        rows, 4};
    const char *words[4];
    struct failure f = {0};
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    int verb_of = 0;
    while (verb_of < VERBS && (!n || strcmp(words[0], verbs[verb_of].name)))
        verb_of++;
    if (verb_of == VERBS)
        return args_complain(&verb, "expected serve, ls, watch, status, push, pull, doctor or agent");
    if (n - 1 < verbs[verb_of].least)
        return args_complain(&verb, "%s", verbs[verb_of].missing);
    if (n - 1 > verbs[verb_of].most)
        return args_complain(&verb, n > 2 || verb_of ? "%s takes %d words at most" : "%s takes options only", words[0],
                             verbs[verb_of].most);
    if (strange(&a, &d, &g, verbs[verb_of].options))
        return args_complain(&verb, "an option is not one of weft bus %s", words[0]);
    if (d.dtype && strcmp(d.dtype, "f16") && strcmp(d.dtype, "bf16") && strcmp(d.dtype, "f32") &&
        strcmp(d.dtype, "f64"))
        return args_complain(&verb, "--dtype is f16, bf16, f32 or f64, not '%s'", d.dtype);
    if (d.rules && !d.to)
        return args_complain(&verb, "--rules is for --to");
    d.listen = g.listen = a.listen;
    a.listen = a.listen ? a.listen : LISTEN;
    a.url = d.url = g.url = n > 1 ? words[1] : NULL;
    a.prefix = d.set = n > 2 ? words[2] : "";
    d.path = n > 3 ? words[3] : NULL;
    d.token_file = g.token_file = a.token;
    d.timeout = g.timeout = a.timeout;
    d.json = a.json;
    switch (verb_of) {
    case 0: code = serve(&a, &f); break;
    case 1: code = list(&a, &f); break;
    case 2: code = watch(&a, &f); break;
    case 3: code = status(&a, &f); break;
    case 4: code = cmd_bus_data_push(&d, &f); break;
    case 5: code = cmd_bus_data_pull(&d, &f); break;
    case 6: code = cmd_bus_data_doctor(&d, &f); break;
    default: code = cmd_bus_agent(&g, &f);
    }
    return code && *f.text ? failure_print(&f, "bus") : code;
}
