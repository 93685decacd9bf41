#include "bus/bus_message.h"

#include <string.h>

#include "rendezvous/store.h"

/* ---- writing ---- */

static unsigned char *put(unsigned char *out, const void *bytes, size_t n)
{
    if (n)
        memcpy(out, bytes, n);
    return out + n;
}

static unsigned char *put_key(unsigned char *out, const char *key)
{
    size_t n = strlen(key);
    *out++ = (unsigned char)n;
    return put(out, key, n + 1);
}

size_t bus_message_put_transaction(unsigned char *out, const struct directory_transaction *t)
{
    uint16_t counts[2] = {(uint16_t)t->ncompares, (uint16_t)t->nchanges};
    unsigned char *at = put(out, counts, sizeof counts);
    for (size_t i = 0; i < t->ncompares; i++) {
        at = put(at, &t->compares[i].revision, 8);
        at = put_key(at, t->compares[i].key);
    }
    for (size_t i = 0; i < t->nchanges; i++) {
        const struct directory_change *c = &t->changes[i];
        uint32_t bytes = c->erase ? 0 : (uint32_t)c->bytes;
        at = put(at, &c->lease, 8);
        *at++ = c->erase;
        at = put(at, &bytes, 4);
        at = put_key(at, c->key);
        at = put(at, c->value, bytes);
    }
    return (size_t)(at - out);
}

size_t bus_message_item_size(const struct directory_item *item)
{
    return 8 + 8 + 8 + 1 + 4 + 1 + strlen(item->key) + 1 + item->bytes;
}

size_t bus_message_put_item(unsigned char *out, const struct directory_item *item)
{
    uint32_t bytes = (uint32_t)item->bytes;
    unsigned char *at = put(out, &item->made, 8);
    at = put(at, &item->revision, 8);
    at = put(at, &item->lease, 8);
    *at++ = item->deleted;
    at = put(at, &bytes, 4);
    at = put_key(at, item->key);
    at = put(at, item->value, bytes);
    return (size_t)(at - out);
}

/* ---- reading ---- */

struct reader {
    const unsigned char *at;
    size_t left;
    bool wrong;
};

static const void *take(struct reader *r, size_t n)
{
    const unsigned char *at = r->at;
    r->wrong |= n > r->left;
    if (r->wrong)
        return NULL;
    r->at += n;
    r->left -= n;
    return at;
}

static void take_number(struct reader *r, void *number, size_t n)
{
    const void *at = take(r, n);
    if (at)
        memcpy(number, at, n);
}

static const char *take_key(struct reader *r)
{
    unsigned char n = 0;
    take_number(r, &n, 1);
    const char *key = take(r, (size_t)n + 1);
    r->wrong |= !key || key[n] || !store_word(key, n, DIRECTORY_KEY_MAX);
    return key;
}

static bool take_flag(struct reader *r)
{
    unsigned char flag = 0;
    take_number(r, &flag, 1);
    r->wrong |= flag > 1;
    return flag == 1;
}

static const void *take_value(struct reader *r, uint32_t bytes)
{
    r->wrong |= bytes > DIRECTORY_VALUE_MAX;
    return take(r, bytes);
}

static void take_change(struct reader *r, struct directory_change *c)
{
    uint32_t bytes = 0;
    take_number(r, &c->lease, 8);
    c->erase = take_flag(r);
    take_number(r, &bytes, 4);
    c->key = take_key(r);
    c->value = take_value(r, bytes);
    c->bytes = bytes;
    r->wrong |= c->lease < 0 || (c->erase && (bytes || c->lease));
}

bool bus_message_take_transaction(const unsigned char *in, size_t n, struct bus_message_transaction *out)
{
    struct reader r = {.at = in, .left = n};
    uint16_t counts[2] = {0, 0};
    take_number(&r, counts, sizeof counts);
    memset(out, 0, sizeof *out);
    if (r.wrong || n > DIRECTORY_BYTES_MAX || counts[0] > DIRECTORY_CHANGES_MAX || counts[1] > DIRECTORY_CHANGES_MAX)
        return false;
    for (size_t i = 0; i < counts[0] && !r.wrong; i++) {
        take_number(&r, &out->compares[i].revision, 8);
        out->compares[i].key = take_key(&r);
        r.wrong |= out->compares[i].revision < 0;
    }
    for (size_t i = 0; i < counts[1] && !r.wrong; i++) {
        take_change(&r, &out->changes[i]);
        for (size_t k = 0; k < i && !r.wrong; k++)
            r.wrong |= !strcmp(out->changes[k].key, out->changes[i].key);
    }
    out->t = (struct directory_transaction){out->compares, counts[0], out->changes, counts[1]};
    return !r.wrong && !r.left;
}

bool bus_message_take_item(const unsigned char *in, size_t n, size_t *at, struct directory_item *out)
{
    struct reader r = {.at = in + *at, .left = n - *at};
    uint32_t bytes = 0;
    *out = (struct directory_item){0};
    take_number(&r, &out->made, 8);
    take_number(&r, &out->revision, 8);
    take_number(&r, &out->lease, 8);
    out->deleted = take_flag(&r);
    take_number(&r, &bytes, 4);
    out->key = take_key(&r);
    out->value = take_value(&r, bytes);
    out->bytes = bytes;
    *at = n - r.left;
    return !r.wrong;
}
