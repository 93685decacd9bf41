/* The store file:DIR: keys and values as files. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/deadline.h"
#include "rendezvous/file.h"

#define POLL_NS INT64_C(200000)
#define POLL_MOST_NS INT64_C(20000000)

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

static int get_value(struct store *base, const char *key, void *value, size_t cap, size_t *bytes, int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    char name[FILE_NAME];
    name_of(name, "v", key);
    for (int64_t pause = POLL_NS;; deadline_pause(&pause, POLL_MOST_NS, until)) {
        bool last = deadline_now() >= until;
        int folder, err = room(s, &folder);
        if (err)
            return err;
        err = file_read(s, folder, name, value, cap, bytes);
        close(folder);
        if (err != FILE_NONE)
            return err;
        if (last)
            return store_late(base, key);
    }
}

static int get_part(struct store *base, const char *prefix, int rank, unsigned char *packed, int *count, int64_t until)
{
    char key[STORE_KEY_MAX + 1];
    size_t n;
    int err = store_part_key(base, prefix, rank, key);
    if (!err)
        err = get_value(base, key, packed + 4, STORE_VALUE_MAX, &n, until);
    if (err)
        return err == WEFT_ETIMEOUT ? store_parts_late(base, prefix) : err;
    if (n > STORE_VALUE_MAX)
        return error_set(WEFT_ETRANSPORT, "%s: somebody has changed the value of '%s'", base->url, key);
    memcpy(packed, &(uint32_t){(uint32_t)n}, 4);
    *count = 1;
    return 0;
}

/* ---- opening and closing ---- */

static void close_store(struct store *base, int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    (void)until;
    file_join_leave(s);
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
    .parts = get_part,
    .again = again,
    .close = close_store,
};
