/* Reading JSON; see json_read.h. Texts are decoded in place, since that never makes them longer. */
#include "base/json_read.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

struct reader {
    struct json_doc *doc;
    char *at, *end;
    int depth;
    const char *wrong;
};

static bool fails(struct reader *r, const char *why)
{
    if (!r->wrong)
        r->wrong = why;
    return false;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
}

static bool skip(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool add(struct reader *r, uint32_t *out)
{
    struct json_doc *d = r->doc;
    if (d->n == d->cap) {
        if (d->cap > UINT32_MAX / 2)
            return fails(r, "it has too many values");
        uint32_t cap = d->cap ? 2 * d->cap : 64;
        struct json_value *more = realloc(d->values, cap * sizeof *more);
        if (!more)
            return fails(r, "out of memory");
        d->values = more;
        d->cap = cap;
    }
    d->values[d->n] = (struct json_value){.kind = JSON_NULL};
    *out = d->n++;
    return true;
}

/* ---- texts ---- */

static bool hex4(struct reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = (char)(r->at < r->end ? *r->at : 0);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return fails(r, "\\u without four digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *to++ = (char)((0xf00 >> (more + 1) & 0xff) | c >> 6 * more);
    while (more--)
        *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return to;
}

/* After the backslash. */
static bool escaped(struct reader *r, char **to)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char c = (char)(r->at < r->end ? *r->at++ : 0);
    const char *found = c ? strchr(letters, c) : NULL;
    uint32_t u, low;
    if (found) {
        *(*to)++ = means[found - letters];
        return true;
    }
    if (c != 'u')
        return fails(r, "a backslash before a character that cannot be escaped");
    if (!hex4(r, &u))
        return false;
    if (u >= 0xd800 && u < 0xdc00) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fails(r, "half of a pair of surrogates");
        r->at += 2;
        if (!hex4(r, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fails(r, "half of a pair of surrogates");
        u = 0x10000 + ((u - 0xd800) << 10 | (low - 0xdc00));
    } else if (u >= 0xdc00 && u < 0xe000) {
        return fails(r, "half of a pair of surrogates");
    }
    if (!u)
        return fails(r, "a zero byte in a string");
    *to = put_utf8(*to, u);
    return true;
}

/* The first quote has been read. */
static bool text(struct reader *r, const char **out)
{
    char *to = r->at;
    *out = to;
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < 0x20)
            return fails(r, "a control character in a string");
        if (*r->at == '\\') {
            r->at++;
            if (!escaped(r, &to))
                return false;
            continue;
        }
        size_t n = utf8_length((const unsigned char *)r->at); /* the zero behind the end keeps it inside */
        if (!n)
            return fails(r, "bytes that are not UTF-8");
        memmove(to, r->at, n);
        to += n;
        r->at += n;
    }
    if (r->at == r->end)
        return fails(r, "a string that does not end");
    r->at++;
    *to = 0;
    return true;
}

/* ---- values ---- */

static bool digits(struct reader *r)
{
    char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > from;
}

static bool number(struct reader *r, struct json_value *v)
{
    char *from = r->at;
    r->at += *r->at == '-';
    char *first = r->at;
    if (!digits(r) || (*first == '0' && r->at > first + 1))
        return fails(r, "no JSON value");
    v->kind = JSON_INT;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        v->kind = JSON_REAL;
        if (!digits(r))
            return fails(r, "a number without digits");
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        v->kind = JSON_REAL;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        if (!digits(r))
            return fails(r, "a number without digits");
    }
    if (v->kind == JSON_INT) {
        errno = 0;
        v->number = strtoll(from, NULL, 10);
        v->kind = errno ? JSON_REAL : JSON_INT;
    }
    v->text = v->kind == JSON_REAL ? from : NULL;
    return true;
}

static bool word(struct reader *r, struct json_value *v)
{
    static const char *const words[] = {[JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};
    for (int k = JSON_NULL; k <= JSON_TRUE; k++) {
        size_t n = strlen(words[k]);
        if ((size_t)(r->end - r->at) >= n && !memcmp(r->at, words[k], n)) {
            r->at += n;
            v->kind = (enum json_kind)k;
            return true;
        }
    }
    return number(r, v);
}

static bool value(struct reader *r, uint32_t self);

/* The values of an array or an object, whose bracket has been read. */
static bool inside(struct reader *r, uint32_t self, char close)
{
    uint32_t last = 0, v;
    if (r->depth == JSON_READ_DEPTH)
        return fails(r, "it is nested too deeply");
    r->depth++;
    for (bool more = !skip(r, close); more; more = skip(r, ',')) {
        const char *key = NULL;
        if (close == '}' && (!skip(r, '"') || !text(r, &key) || !skip(r, ':')))
            return fails(r, "an object whose member has no name");
        if (!add(r, &v))
            return false;
        r->doc->values[v].key = key;
        *(last ? &r->doc->values[last].next : &r->doc->values[self].first) = v;
        last = v;
        if (!value(r, v))
            return false;
    }
    r->depth--;
    if (last && !skip(r, close))
        return fails(r, close == '}' ? "an object that does not end" : "an array that does not end");
    return true;
}

static bool value(struct reader *r, uint32_t self)
{
    struct json_value *v = &r->doc->values[self];
    if (skip(r, '{')) {
        v->kind = JSON_OBJECT;
        return inside(r, self, '}');
    }
    if (skip(r, '[')) {
        v->kind = JSON_ARRAY;
        return inside(r, self, ']');
    }
    if (skip(r, '"')) {
        v->kind = JSON_TEXT;
        return text(r, &v->text);
    }
    return r->at == r->end ? fails(r, "it ends where a value should be") : word(r, v);
}

const char *json_read(struct json_doc *doc, char *bytes, size_t len, char *wrong)
{
    *doc = (struct json_doc){.bytes = bytes};
    struct reader r = {doc, bytes, bytes + len, 0, NULL};
    uint32_t none, all;
    if (!add(&r, &none) || !add(&r, &all) || !value(&r, all)) {
        snprintf(wrong, JSON_WRONG, "byte %zu: %s", (size_t)(r.at - bytes), r.wrong);
        return wrong;
    }
    skip_space(&r);
    if (r.at == r.end)
        return NULL;
    snprintf(wrong, JSON_WRONG, "byte %zu: something follows the value", (size_t)(r.at - bytes));
    return wrong;
}

void json_free(struct json_doc *doc)
{
    free(doc->values);
    free(doc->bytes);
    *doc = (struct json_doc){.bytes = NULL};
}

const struct json_value *json_first(const struct json_doc *doc, const struct json_value *v)
{
    return v->first ? &doc->values[v->first] : NULL;
}

const struct json_value *json_next(const struct json_doc *doc, const struct json_value *v)
{
    return v->next ? &doc->values[v->next] : NULL;
}

const struct json_value *json_member(const struct json_doc *doc, const struct json_value *v, const char *key)
{
    if (!v || v->kind != JSON_OBJECT)
        return NULL;
    for (v = json_first(doc, v); v && strcmp(v->key, key); v = json_next(doc, v)) {
    }
    return v;
}
