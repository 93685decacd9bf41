/* The store file:DIR: keys and values as files.
 *
 * In a gather rank 0 reads the values of all ranks and writes them into a few files, in pieces as long as a value may
 * be. The other ranks read these. If rank 0 is gone, each rank that knows it does the same in its stead, also for those
 * that do not know it. A rank that has no watch to ask does so when its time is over. So whether a gather succeeds
 * depends on the values alone, and it succeeds for all ranks or for none. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/deadline.h"
#include "rendezvous/file.h"

#define POLL_NS INT64_C(200000)

/* ---- keys ---- */

static void name_of(char *name, const char *what, const char *key)
{
    int at = snprintf(name, FILE_NAME, "%s-%s", what, key);
    for (char *c = name; c < name + at; c++)
        if (*c == '/')
            *c = ','; /* no key has a comma */
}

static int room(const struct file_store *s, int *fd)
{
    int err = file_folder(s, s->room, fd);
    return err == FILE_NONE
               ? error_set(WEFT_ETRANSPORT, "file:%s: the folder %s of the store was removed", s->dir, s->room)
               : err;
}

static int set_value(struct store *base, const char *key, const void *value, size_t bytes, int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    char name[FILE_NAME];
    int folder, err = room(s, &folder);
    (void)until; /* if the folder does not answer, the system itself waits */
    if (err)
        return err;
    name_of(name, "v", key);
    err = file_write(s, folder, name, value, bytes);
    close(folder);
    return err;
}

/* Waits for a file of the store. */
static int await_file(struct file_store *s, const char *name, void *value, size_t cap, size_t *bytes, int64_t until)
{
    for (int64_t pause = POLL_NS;; deadline_pause(&pause, file_pause_most(s), until)) {
        bool last = deadline_now() >= until;
        int folder, err = room(s, &folder);
        if (err)
            return err;
        err = file_read(s, folder, name, value, cap, bytes);
        close(folder);
        if (err != FILE_NONE || last)
            return err;
    }
}

static int get_value(struct store *base, const char *key, void *value, size_t cap, size_t *bytes, int64_t until)
{
    char name[FILE_NAME];
    name_of(name, "v", key);
    int err = await_file((struct file_store *)base, name, value, cap, bytes, until);
    return err == FILE_NONE ? store_late(base, key) : err;
}

/* ---- gathers ---- */

static int changed(const struct store *base, const char *prefix)
{
    return error_set(WEFT_ETRANSPORT, "%s: somebody has changed values of '%s'", base->url, prefix);
}

/* Appends a value to what is packed. FILE_NONE: it does not fit. */
static int get_part(struct store *base, const char *prefix, int rank, unsigned char *packed, size_t *at, int64_t until)
{
    char key[STORE_KEY_MAX + 1];
    size_t n, cap = STORE_PARTS - *at;
    if (cap < 4)
        return FILE_NONE;
    int err = store_part_key(base, prefix, rank, key);
    if (!err)
        err = get_value(base, key, packed + *at + 4, cap - 4, &n, until);
    if (err)
        return err;
    if (n > STORE_VALUE_MAX)
        return changed(base, prefix);
    if (n > cap - 4)
        return FILE_NONE;
    memcpy(packed + *at, &(uint32_t){(uint32_t)n}, 4);
    *at += 4 + n;
    return 0;
}

static void piece_name(char *name, const char *prefix, int first)
{
    char key[STORE_KEY_MAX + 32];
    snprintf(key, sizeof key, "%s-%d", prefix, first);
    name_of(name, "g", key);
}

/* Reads values, and passes them on. It keeps those that have come, if time is over. All ranks that do this write the
 * same. */
static int collect(struct store *base, const char *prefix, int first, int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    struct file_piece *p = &s->piece;
    char name[FILE_NAME];
    int folder, err = 0;
    if (!p->packed && !(p->packed = malloc(STORE_PARTS)))
        return error_nomem();
    if (p->first != first || strcmp(p->prefix, prefix)) {
        snprintf(p->prefix, sizeof p->prefix, "%s", prefix);
        p->first = first;
        p->n = 0;
        p->bytes = 0;
    }
    while (!err && first + p->n < base->size) {
        err = get_part(base, prefix, first + p->n, p->packed, &p->bytes, until);
        p->n += !err;
    }
    err = err == FILE_NONE ? 0 : err;
    if (!err)
        err = room(s, &folder);
    if (err)
        return err;
    piece_name(name, prefix, first);
    err = file_write(s, folder, name, p->packed, p->bytes);
    close(folder);
    return err;
}

/* How many values these bytes are; 0: they are something else. */
static int count_packed(const unsigned char *packed, size_t bytes)
{
    int count = 0;
    for (size_t at = 0; at < bytes; count++) {
        uint32_t n;
        if (bytes - at < 4)
            return 0;
        memcpy(&n, packed + at, 4);
        if (n > bytes - at - 4)
            return 0;
        at += 4 + n;
    }
    return count;
}

/* Must this rank collect, since rank 0 is gone? */
static bool is_orphan(struct file_store *s)
{
    const struct store *base = &s->base;
    s->orphan |= base->watch.vain && base->rank && base->watch.vain(base->watch.arg, 0);
    return s->orphan;
}

static int get_parts(struct store *base, const char *prefix, int first, unsigned char *packed, int *count,
                     int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    char name[FILE_NAME];
    size_t n = 0;
    int err = FILE_NONE;
    piece_name(name, prefix, first);
    if (base->rank) /* an orphan looks once: another one may have collected */
        err = await_file(s, name, packed, STORE_PARTS, &n, s->orphan ? 0 : until);
    if (err == FILE_NONE && base->rank && base->watch.vain && !is_orphan(s))
        return store_late(base, prefix);
    if (err == FILE_NONE) {
        err = collect(base, prefix, first, until);
        if (!err)
            err = await_file(s, name, packed, STORE_PARTS, &n, until);
    }
    *count = !err && n <= STORE_PARTS ? count_packed(packed, n) : 0;
    if (err && err != FILE_NONE)
        return err;
    return *count < 1 || *count > base->size - first ? changed(base, prefix) : 0;
}

/* ---- opening and closing ---- */

static void close_store(struct store *base, int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    (void)until;
    file_join_leave(s);
    free(s->piece.packed);
    free(s->room);
    free(s->dir);
    store_free(base);
}

static int open_store(const char *place, const struct store_opts *o, int64_t until, struct store **out)
{
    if (!*place)
        return error_set(WEFT_EINVAL, "file: needs a folder that all ranks see, as in file:/shared/job");
    struct file_store *s = calloc(1, sizeof *s);
    if (!s)
        return error_nomem();
    s->ended = o->ended;
    s->dir = strdup(place);
    int err = s->dir ? store_init(&s->base, &store_file, place, o) : error_nomem();
    if (!err)
        err = file_join(s, until);
    if (err)
        close_store(&s->base, until);
    else
        *out = &s->base;
    return err;
}

static int again(struct store *base, const int *survivors, const struct store_opts *o, int64_t until,
                 struct store **out)
{
    (void)survivors;
    return open_store(((struct file_store *)base)->dir, o, until, out);
}

const struct store_kind store_file = {
    .scheme = "file",
    .form = "file:DIR",
    .open = open_store,
    .set = set_value,
    .get = get_value,
    .first_collects = true,
    .parts = get_parts,
    .again = again,
    .close = close_store,
};
