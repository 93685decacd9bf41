/* A directory on etcd (version 3.4 or later), by the JSON gateway that every etcd server has. Keys, values and
 * revisions are etcd's own. A lease ends with its time and not with its owner's process; etcd has leases of whole
 * seconds, two at least as it is usually set up.
 *
 * The URL has one server or several: etcd:http://A:2379,B:2379/SPACE. If one cannot be reached, or says that it has no
 * leader, the next one is asked, within the time of the call. A transaction that was sent is not sent again. A watch is
 * one request whose reply goes on; when it ends it is asked for again from where it was. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "base/math.h"
#include "base/vec.h"
#include "bus/curl.h"
#include "bus/directory_items.h"
#include "rendezvous/deadline.h"

#define LEAST_NS INT64_C(100000000)
#define RETRY_NS INT64_C(10000000)
#define RETRY_MOST_NS INT64_C(500000000)
#define CLOSE_NS INT64_C(1000000000)
#define CONNECT_MS 2000L              /* for one server: the next one may answer */
#define REPLY_MAX ((size_t)128 << 20) /* of a reply, or of one line of a watch */
#define PROTOCOLS 3L                  /* http and https */
#define SERVERS 16

typedef VEC(char) text_vec;

struct etcd_directory {
    struct directory base; /* first */
    const struct curl *curl;
    char scheme[9];
    char servers[SERVERS][256]; /* HOST:PORT */
    int nservers, server;       /* the one that is asked */
    char *login;                /* NAME:PASSWORD; NULL: none */
    char *pass;                 /* the line of the header that etcd gave for it; NULL: none yet */
    void *easy;
    VEC(int64_t) own; /* leases that were granted here */
};

struct etcd_watch {
    struct directory_watch base; /* first */
    void *easy, *multi, *header; /* NULL: there is no request under way */
    text_vec sent, came;
    bool too_long;
};

/* ---- text ---- */

static bool add(text_vec *v, const char *s, size_t n)
{
    if (!vec_room(v, n + 1))
        return false;
    memcpy(v->v + v->n, s, n);
    v->n += n;
    v->v[v->n] = 0;
    return true;
}

static bool add_text(text_vec *v, const char *s)
{
    return add(v, s, strlen(s));
}

static bool add_number(text_vec *v, const char *name, int64_t number)
{
    char text[96];
    snprintf(text, sizeof text, "\"%s\":\"%lld\"", name, (long long)number);
    return add_text(v, text);
}

/* "name":"BASE64" */
static bool add_bytes(text_vec *v, const char *name, const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    bool fine = add_text(v, "\"") && add_text(v, name) && add_text(v, "\":\"");
    for (size_t i = 0; i < n && fine; i += 3) {
        uint32_t w = (uint32_t)in[i] << 16 | (uint32_t)(i + 1 < n ? in[i + 1] : 0) << 8 | (i + 2 < n ? in[i + 2] : 0);
        char four[4] = {digits[w >> 18], digits[w >> 12 & 63], (char)(i + 1 < n ? digits[w >> 6 & 63] : '='),
                        (char)(i + 2 < n ? digits[w & 63] : '=')};
        fine = add(v, four, 4);
    }
    return fine && add_text(v, "\"");
}

static int digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decodes in place; the result has a zero behind it. SIZE_MAX: it is not base64. */
static size_t from_base64(char *text)
{
    size_t n = 0, len = strlen(text);
    if (len % 4)
        return SIZE_MAX;
    for (size_t i = 0; i < len; i += 4) {
        int pad = i + 4 == len ? (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=') : 0;
        uint32_t w = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = (int)k >= 4 - pad ? 0 : digit(text[i + k]);
            if (d < 0)
                return SIZE_MAX;
            w = w << 6 | (uint32_t)d;
        }
        for (int k = 0; k < 3 - pad; k++)
            text[n++] = (char)(w >> (16 - 8 * k));
    }
    text[n] = 0;
    return n;
}

/* The keys with the prefix, as etcd says a range. */
static bool add_range(text_vec *v, const char *prefix)
{
    char end[DIRECTORY_KEY_MAX + 1];
    size_t n = strlen(prefix);
    memcpy(end, prefix, n + 1);
    if (n)
        end[n - 1]++; /* letters of keys are below 127 */
    return add_bytes(v, "key", n ? prefix : "", n ? n : 1) && add_text(v, ",") &&
           add_bytes(v, "range_end", end, n ? n : 1);
}

/* ---- replies ---- */

/* A number, which etcd writes as a text; one that is zero is left out. */
static int64_t number_of(const struct json_doc *doc, const struct json_value *v, const char *name)
{
    const struct json_value *m = json_member(doc, v, name);
    return !m ? 0 : m->kind == JSON_INT ? m->number : m->kind == JSON_TEXT ? strtoll(m->text, NULL, 10) : 0;
}

static bool is_true(const struct json_doc *doc, const struct json_value *v, const char *name)
{
    const struct json_value *m = json_member(doc, v, name);
    return m && m->kind == JSON_TRUE;
}

static const char *text_of(const struct json_doc *doc, const struct json_value *v, const char *name)
{
    const struct json_value *m = json_member(doc, v, name);
    return m && m->kind == JSON_TEXT ? m->text : "";
}

static int strange(const struct etcd_directory *t, const char *what)
{
    return error_set(WEFT_ETRANSPORT, "%s: %s:%s does not answer as etcd does: %s", t->base.url, t->scheme,
                     t->servers[t->server], what);
}

/* Adds a key of etcd to the draft. */
static int take_key(const struct etcd_directory *t, const struct json_doc *doc, const struct json_value *kv,
                    bool deleted, struct directory_items_draft *draft)
{
    char *key = strdup(text_of(doc, kv, "key")), *value = strdup(text_of(doc, kv, "value"));
    int err = key && value ? 0 : error_nomem();
    size_t nkey = err ? 0 : from_base64(key), nvalue = err ? 0 : from_base64(value);
    if (!err && (nkey == SIZE_MAX || nvalue == SIZE_MAX || strlen(key) != nkey))
        err = strange(t, "a key or a value is not base64");
    struct directory_item item = {.key = key,
                                  .value = (unsigned char *)value,
                                  .bytes = nvalue,
                                  .made = deleted ? 0 : number_of(doc, kv, "create_revision"),
                                  .revision = number_of(doc, kv, "mod_revision"),
                                  .lease = number_of(doc, kv, "lease"),
                                  .deleted = deleted};
    if (!err && !directory_items_add(draft, &item))
        err = error_nomem();
    free(key);
    free(value);
    return err;
}

/* ---- requests ---- */

static size_t collect(char *bytes, size_t one, size_t n, void *arg)
{
    text_vec *v = arg;
    return v->n + one * n <= REPLY_MAX && add(v, bytes, one * n) ? one * n : 0;
}

static bool url_of(const struct etcd_directory *t, const char *path, char *url, size_t cap)
{
    return snprintf(url, cap, "%s://%s/v3/%s", t->scheme, t->servers[t->server], path) < (int)cap;
}

/* What the two kinds of request have in common. *header is freed by the caller after the request. */
static bool prepare(const struct etcd_directory *t, void *easy, const char *path, const text_vec *sent, void **header)
{
    char url[400];
    const struct curl *c = t->curl;
    *header = c->list(NULL, "Content-Type: application/json");
    void *both = *header && t->pass ? c->list(*header, t->pass) : *header;
    if (!both || !url_of(t, path, url, sizeof url))
        return false;
    return !c->set(easy, CURL_URL, url) && !c->set(easy, CURL_HTTPHEADER, *header) &&
           !c->set(easy, CURL_POSTFIELDS, sent->v) && !c->set(easy, CURL_POSTFIELDSIZE, (long)sent->n) &&
           !c->set(easy, CURL_NOSIGNAL, 1L) && !c->set(easy, CURL_NOPROXY, "*") &&
           !c->set(easy, CURL_PROTOCOLS, PROTOCOLS) && !c->set(easy, CURL_CONNECTTIMEOUT_MS, CONNECT_MS);
}

enum answer {
    ANSWERED,
    UNREACHED, /* it was not sent */
    LOST,      /* it may have been done */
    NO_LOGIN,  /* the login has expired */
    REFUSED,   /* the error is set */
    NO_LEASE
};

/* What etcd's error means. */
static enum answer judge(const struct etcd_directory *t, const struct json_doc *doc, char *why, size_t cap)
{
    const struct json_value *top = &doc->values[1];
    const char *text = text_of(doc, top, "error");
    if (!*text)
        text = text_of(doc, top, "message");
    snprintf(why, cap, "%.200s", *text ? text : "it has refused");
    if (strstr(text, "lease not found"))
        return NO_LEASE;
    if (strstr(text, "invalid auth token") || strstr(text, "token is not provided") ||
        strstr(text, "user name is empty"))
        return NO_LOGIN;
    if (number_of(doc, top, "code") == 14 || strstr(text, "leader changed") || strstr(text, "no leader") ||
        strstr(text, "timed out"))
        return LOST;
    error_set(WEFT_ETRANSPORT, "%s: etcd at %s: %s", t->base.url, t->servers[t->server], why);
    return REFUSED;
}

/* One request to one server. The caller frees the document. */
static enum answer ask_once(struct etcd_directory *t, const char *path, const text_vec *sent, int64_t until,
                            struct json_doc *doc, char *why, size_t cap)
{
    const struct curl *c = t->curl;
    text_vec came = {0};
    void *header = NULL;
    char wrong[JSON_WRONG];
    long code = 0;
    bool fine = prepare(t, t->easy, path, sent, &header) && add_text(&came, "") &&
                !c->set(t->easy, CURL_WRITEFUNCTION, collect) && !c->set(t->easy, CURL_WRITEDATA, &came) &&
                !c->set(t->easy, CURL_TIMEOUT_MS, (long)max64(deadline_left_ms(until), 1));
    int result = fine ? c->perform(t->easy) : -1;
    c->list_end(header);
    if (!fine || result) {
        free(came.v);
        snprintf(why, cap, "%s", fine ? c->text(result) : "memory is out");
        return result == CURL_NO_CONNECTION || result == CURL_NO_HOST || !fine ? UNREACHED : LOST;
    }
    c->info(t->easy, CURL_RESPONSE_CODE, &code);
    const char *bad = json_read(doc, came.v, came.n, wrong);
    if (bad && code == 200) {
        strange(t, bad);
        return REFUSED;
    }
    if (bad) {
        snprintf(why, cap, "it answers with HTTP %ld", code);
        return code == 503 || code == 502 ? LOST : (strange(t, why), REFUSED);
    }
    return code == 200 ? ANSWERED : judge(t, doc, why, cap);
}

static int log_in(struct etcd_directory *t, int64_t until);

/* `again`: the request may be sent twice. `lease` is for the text. Without an error the caller frees the document. */
static int ask(struct etcd_directory *t, const char *path, const text_vec *sent, bool again, int64_t lease,
               int64_t until, struct json_doc *doc)
{
    char why[256] = "";
    bool logged_in = false;
    until = max64(until, deadline_in(LEAST_NS));
    for (int64_t pause = RETRY_NS;; deadline_pause(&pause, RETRY_MOST_NS, until)) {
        *doc = (struct json_doc){0};
        enum answer a = ask_once(t, path, sent, until, doc, why, sizeof why);
        if (a == ANSWERED)
            return 0;
        json_free(doc);
        if (a == REFUSED)
            return WEFT_ETRANSPORT;
        if (a == NO_LEASE)
            return directory_gone(&t->base, lease);
        if (a == NO_LOGIN && t->login && !logged_in) {
            int err = log_in(t, until);
            if (err)
                return err;
            logged_in = true;
            continue;
        }
        if (a == NO_LOGIN)
            return error_set(WEFT_ETRANSPORT, "%s: etcd wants a login (WEFT_TOKEN=NAME:PASSWORD): %s", t->base.url,
                             why);
        bool over = deadline_now() >= until;
        if (a == LOST && (!again || over))
            return error_set(over ? WEFT_ETIMEOUT : WEFT_ETRANSPORT, "%s: etcd at %s: %s%s", t->base.url,
                             t->servers[t->server], why,
                             again ? "" : "; it is not known whether it has done what it was asked for");
        if (over)
            return error_set(WEFT_ETIMEOUT, "%s: the directory cannot be reached in time: %s: %s", t->base.url,
                             t->servers[t->server], why);
        t->server = (t->server + 1) % t->nservers;
    }
}

/* Gets a pass for the name and the password. */
static int log_in(struct etcd_directory *t, int64_t until)
{
    text_vec v = {0};
    struct json_doc doc;
    char quoted[2][600], why[256] = "";
    const char *colon = strchr(t->login, ':');
    size_t at[2] = {0, 0};
    for (int k = 0; k < 2; k++)
        for (const char *s = k ? colon + 1 : t->login; *s && (k || s < colon) && at[k] < sizeof quoted[k] - 8; s++) {
            if (*s == '"' || *s == '\\')
                quoted[k][at[k]++] = '\\';
            quoted[k][at[k]++] = *s;
        }
    quoted[0][at[0]] = quoted[1][at[1]] = 0;
    free(t->pass);
    t->pass = NULL;
    bool fine = add_text(&v, "{\"name\":\"") && add_text(&v, quoted[0]) && add_text(&v, "\",\"password\":\"") &&
                add_text(&v, quoted[1]) && add_text(&v, "\"}");
    doc = (struct json_doc){0};
    enum answer a = fine ? ask_once(t, "auth/authenticate", &v, until, &doc, why, sizeof why) : UNREACHED;
    const char *pass = a == ANSWERED ? text_of(&doc, &doc.values[1], "token") : "";
    size_t n = strlen(pass) + 32;
    int err = 0;
    if (a == ANSWERED && *pass && (t->pass = malloc(n)))
        snprintf(t->pass, n, "Authorization: %s", pass);
    else
        err =
            error_set(WEFT_ETRANSPORT, "%s: etcd at %s refuses the login: %s", t->base.url, t->servers[t->server], why);
    explicit_bzero(quoted, sizeof quoted);
    if (v.v)
        explicit_bzero(v.v, v.n);
    free(v.v);
    json_free(&doc);
    return err;
}

/* ---- calls ---- */

static int64_t revision_of(const struct json_doc *doc, const struct json_value *v)
{
    return number_of(doc, json_member(doc, v, "header"), "revision");
}

static int get(struct directory *d, const char *prefix, int64_t until, struct directory_items *out)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    struct directory_items_draft draft = {0};
    struct json_doc doc;
    text_vec v = {0};
    bool fine = add_text(&v, "{") && add_range(&v, prefix) && add_text(&v, "}");
    int err = fine ? ask(t, "kv/range", &v, true, 0, until, &doc) : error_nomem();
    free(v.v);
    if (err)
        return err;
    const struct json_value *kvs = json_member(&doc, &doc.values[1], "kvs");
    for (const struct json_value *kv = kvs ? json_first(&doc, kvs) : NULL; kv && !err; kv = json_next(&doc, kv))
        err = take_key(t, &doc, kv, false, &draft);
    if (err)
        directory_items_discard(&draft);
    else
        directory_items_finish(&draft, revision_of(&doc, &doc.values[1]), out);
    json_free(&doc);
    return err;
}

static bool add_transaction(text_vec *v, const struct directory_transaction *x)
{
    bool fine = add_text(v, "{\"compare\":[");
    for (size_t i = 0; i < x->ncompares && fine; i++)
        fine = add_text(v, i ? ",{" : "{") && add_text(v, "\"target\":\"MOD\",\"result\":\"EQUAL\",") &&
               add_number(v, "mod_revision", x->compares[i].revision) && add_text(v, ",") &&
               add_bytes(v, "key", x->compares[i].key, strlen(x->compares[i].key)) && add_text(v, "}");
    fine = fine && add_text(v, "],\"success\":[");
    for (size_t i = 0; i < x->nchanges && fine; i++) {
        const struct directory_change *c = &x->changes[i];
        fine = add_text(v, i ? "," : "") &&
               add_text(v, c->erase ? "{\"request_delete_range\":{" : "{\"request_put\":{") &&
               add_bytes(v, "key", c->key, strlen(c->key));
        if (fine && !c->erase)
            fine = add_text(v, ",") && add_bytes(v, "value", c->value, c->bytes) && add_text(v, ",") &&
                   add_number(v, "lease", c->lease);
        fine = fine && add_text(v, "}}");
    }
    return fine && add_text(v, "]}");
}

static int transact(struct directory *d, const struct directory_transaction *x, int64_t until,
                    struct directory_outcome *out)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    struct json_doc doc;
    text_vec v = {0};
    int64_t lease = 0;
    for (size_t i = 0; i < x->nchanges && !lease; i++)
        lease = x->changes[i].lease;
    int err = add_transaction(&v, x) ? ask(t, "kv/txn", &v, false, lease, until, &doc) : error_nomem();
    free(v.v);
    if (err)
        return err;
    *out = (struct directory_outcome){.done = is_true(&doc, &doc.values[1], "succeeded"),
                                      .revision = revision_of(&doc, &doc.values[1])};
    json_free(&doc);
    return 0;
}

/* Asks about a lease. *number is the number `name` of the reply. */
static int about_lease(struct etcd_directory *t, const char *path, const char *ask_name, int64_t value,
                       const char *name, int64_t until, int64_t *number)
{
    struct json_doc doc;
    text_vec v = {0};
    bool fine = add_text(&v, "{") && add_number(&v, ask_name, value) && add_text(&v, "}");
    int err = fine ? ask(t, path, &v, true, value, until, &doc) : error_nomem();
    free(v.v);
    if (err)
        return err;
    const struct json_value *top = &doc.values[1], *inner = json_member(&doc, top, "result");
    *number = number_of(&doc, inner ? inner : top, name);
    json_free(&doc);
    return 0;
}

/* A lease whose grant was asked for twice, because the first reply was lost, ends with its time. */
static int grant(struct directory *d, int64_t ttl_ns, int64_t until, int64_t *lease)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    int64_t *own = vec_push(&t->own);
    int err = own ? about_lease(t, "lease/grant", "TTL", (ttl_ns + 999999999) / 1000000000, "ID", until, lease)
                  : error_nomem();
    if (!err && !*lease)
        err = strange(t, "a lease has no number");
    if (err && own)
        t->own.n--;
    else if (!err)
        *own = *lease;
    return err;
}

static int renew(struct directory *d, int64_t lease, int64_t until)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    int64_t left = 0;
    int err = about_lease(t, "lease/keepalive", "ID", lease, "TTL", until, &left);
    return err ? err : left > 0 ? 0 : directory_gone(d, lease);
}

static int revoke_lease(struct directory *d, int64_t lease, int64_t until)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    int64_t none;
    int err = about_lease(t, "lease/revoke", "ID", lease, "", until, &none);
    for (size_t i = 0; i < t->own.n && !err; i++)
        if (t->own.v[i] == lease) {
            t->own.v[i] = t->own.v[--t->own.n];
            break;
        }
    return err;
}

/* ---- watches ---- */

static int watch(struct directory_watch *w)
{
    (void)w;
    return 0;
}

static size_t collect_watch(char *bytes, size_t one, size_t n, void *arg)
{
    struct etcd_watch *w = arg;
    w->too_long |= w->came.n + one * n > REPLY_MAX;
    return !w->too_long && add(&w->came, bytes, one * n) ? one * n : 0;
}

static void stop(struct etcd_watch *w)
{
    const struct curl *c = ((struct etcd_directory *)w->base.directory)->curl;
    if (w->multi && w->easy)
        c->remove(w->multi, w->easy);
    if (w->easy)
        c->easy_end(w->easy);
    if (w->multi)
        c->multi_end(w->multi);
    if (w->header)
        c->list_end(w->header);
    w->easy = w->multi = w->header = NULL;
    w->came.n = 0;
}

static int begin(struct etcd_directory *t, struct etcd_watch *w)
{
    const struct curl *c = t->curl;
    w->sent.n = 0;
    w->easy = c->easy();
    w->multi = c->multi();
    bool fine = w->easy && w->multi && add_text(&w->sent, "{\"create_request\":{") &&
                add_range(&w->sent, w->base.prefix) && add_text(&w->sent, ",") &&
                add_number(&w->sent, "start_revision", w->base.after + 1) && add_text(&w->sent, "}}") &&
                prepare(t, w->easy, "watch", &w->sent, &w->header) &&
                !c->set(w->easy, CURL_WRITEFUNCTION, collect_watch) && !c->set(w->easy, CURL_WRITEDATA, w) &&
                !c->set(w->easy, CURL_TCP_KEEPALIVE, 1L) && !c->add(w->multi, w->easy);
    if (!fine)
        stop(w);
    return fine ? 0 : error_nomem();
}

/* The first line that came, without it; NULL: there is no whole one. */
static char *take_line(struct etcd_watch *w, size_t *n)
{
    char *end = w->came.n ? memchr(w->came.v, '\n', w->came.n) : NULL;
    if (!end)
        return NULL;
    *n = (size_t)(end - w->came.v);
    char *line = malloc(*n + 1);
    if (!line)
        return NULL;
    memcpy(line, w->came.v, *n);
    line[*n] = 0;
    w->came.n -= *n + 1;
    memmove(w->came.v, end + 1, w->came.n);
    return line;
}

/* Takes one line of the reply. *some: there are items, or that changes are lost. */
static int take_changes(struct etcd_directory *t, struct etcd_watch *w, char *line, size_t n,
                        struct directory_items *out, bool *some)
{
    struct directory_items_draft draft = {0};
    struct json_doc doc;
    char wrong[JSON_WRONG];
    const char *bad = json_read(&doc, line, n, wrong);
    const struct json_value *result = bad ? NULL : json_member(&doc, &doc.values[1], "result");
    const struct json_value *events = json_member(&doc, result, "events");
    int64_t last = w->base.after;
    int err = bad ? strange(t, bad) : 0;
    /* Forgotten, or a cluster that was made anew and is not as far yet. */
    bool lost = number_of(&doc, result, "compact_revision") > 0 ||
                (is_true(&doc, result, "created") && revision_of(&doc, result) < w->base.after);
    for (const struct json_value *e = events ? json_first(&doc, events) : NULL; e && !err; e = json_next(&doc, e)) {
        const struct json_value *kv = json_member(&doc, e, "kv");
        last = max64(last, number_of(&doc, kv, "mod_revision"));
        err = take_key(t, &doc, kv, !strcmp(text_of(&doc, e, "type"), "DELETE"), &draft);
    }
    if (!err && !result)
        stop(w); /* an error, such as that there is no leader: it is asked for again */
    *some = !err && (lost || draft.items.n);
    if (*some) {
        directory_items_finish(&draft, last, out);
        out->lost = lost;
    } else {
        directory_items_discard(&draft);
    }
    if (lost)
        stop(w);
    json_free(&doc);
    return err;
}

/* The login may have expired: a get sees that, and logs in again. That it cannot be reached is no error here. */
static int renew_login(struct etcd_directory *t, int64_t until)
{
    struct directory_items got;
    int err = get(&t->base, "weft", until, &got);
    if (!err)
        directory_items_free(&got);
    return err == WEFT_ETIMEOUT ? 0 : err;
}

static int next(struct directory_watch *base, int64_t until, struct directory_items *out)
{
    struct etcd_watch *w = (struct etcd_watch *)base;
    struct etcd_directory *t = (struct etcd_directory *)base->directory;
    const struct curl *c = t->curl;
    int64_t pause = RETRY_NS;
    for (bool some = false;;) {
        size_t n;
        int running = 0, ready, err = w->easy ? 0 : begin(t, w);
        if (err)
            return err;
        c->go_on(w->multi, &running);
        for (char *line; !err && !some && (line = take_line(w, &n));)
            err = take_changes(t, w, line, n, out, &some);
        if (err || some)
            return err;
        if (deadline_now() >= until)
            return directory_late(base->directory, "there was no change in time");
        if (!w->easy || !running) { /* the reply has ended, or it did not begin */
            stop(w);
            t->server = (t->server + 1) % t->nservers;
            deadline_pause(&pause, RETRY_MOST_NS, until);
            if (t->login && (err = renew_login(t, until)))
                return err;
        } else {
            c->wait(w->multi, NULL, 0, (int)min64(deadline_left_ms(until), 1000), &ready);
        }
    }
}

static void unwatch(struct directory_watch *base)
{
    struct etcd_watch *w = (struct etcd_watch *)base;
    stop(w);
    free(w->sent.v);
    free(w->came.v);
}

/* ---- opening and closing ---- */

/* "http://A:2379,B:2379" */
static int parse(struct etcd_directory *t, const char *place)
{
    const char *hosts = strstr(place, "://");
    size_t n = hosts ? (size_t)(hosts - place) : 0;
    if (n >= sizeof t->scheme || (strncmp(place, "http", 4) || (n != 4 && strncmp(place, "https", 5))) || n < 4 ||
        n > 5)
        return error_set(WEFT_EINVAL, "%s: expected %s", t->base.url, directory_etcd.form);
    memcpy(t->scheme, place, n);
    for (hosts += 3; *hosts && t->nservers < SERVERS;) {
        size_t len = strcspn(hosts, ",");
        if (!len || len >= sizeof t->servers[0])
            break;
        memcpy(t->servers[t->nservers++], hosts, len);
        hosts += len + (hosts[len] == ',');
    }
    return *hosts || !t->nservers ? error_set(WEFT_EINVAL, "%s: expected %s, with %d servers at most", t->base.url,
                                              directory_etcd.form, SERVERS)
                                  : 0;
}

static int open_directory(struct directory *d, const char *place, const struct directory_opts *opts, int64_t until)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    struct directory_items got;
    int err = parse(t, place);
    if (!err && !(t->curl = curl_find()))
        err = WEFT_EUNSUPPORTED;
    if (!err && !(t->easy = t->curl->easy()))
        err = error_nomem();
    if (!err && opts->token && strchr(opts->token, ':') && !(t->login = strdup(opts->token)))
        err = error_nomem();
    if (!err && !(err = get(d, "weft", until, &got))) /* reaches it, and logs in if that is needed */
        directory_items_free(&got);
    return err;
}

static void close_directory(struct directory *d)
{
    struct etcd_directory *t = (struct etcd_directory *)d;
    int64_t until = deadline_in(CLOSE_NS);
    while (t->own.n && deadline_now() < until)
        if (revoke_lease(d, t->own.v[t->own.n - 1], until))
            t->own.n--; /* it has ended, or ends with its time */
    if (t->login)
        explicit_bzero(t->login, strlen(t->login));
    if (t->easy)
        t->curl->easy_end(t->easy);
    free(t->own.v);
    free(t->login);
    free(t->pass);
}

const struct directory_kind directory_etcd = {
    .scheme = "etcd",
    .form = "etcd:http://HOST:PORT[,HOST:PORT...][/SPACE]",
    .spaces = true,
    .size = sizeof(struct etcd_directory),
    .watch_size = sizeof(struct etcd_watch),
    .open = open_directory,
    .get = get,
    .transact = transact,
    .grant = grant,
    .renew = renew,
    .revoke = revoke_lease,
    .watch = watch,
    .next = next,
    .unwatch = unwatch,
    .close = close_directory,
};
