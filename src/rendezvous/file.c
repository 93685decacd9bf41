/* Keys and values as files. A file is written under another name and renamed, so that it is whole when it is seen, and
 * it is synced before, so that a full disk or a lost server is known to the writer. */
#define _GNU_SOURCE
#include "rendezvous/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define POLL_NS INT64_C(200000)
#define POLL_MOST_NS INT64_C(20000000)

/* ---- files ---- */

int file_failed(const struct file_store *s, const char *what, const char *name)
{
    return error_set(errno == ENOMEM ? WEFT_ENOMEM : WEFT_ETRANSPORT, "file:%s: %s %s: %s", s->dir, what, name,
                     strerror(errno));
}

int file_folder(const struct file_store *s, const char *path, int *fd)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return errno == ENOENT ? FILE_NONE : file_failed(s, "cannot open", path);
    if (path == s->room && (fstat(*fd, &st) || st.st_uid != geteuid())) {
        close(*fd);
        return error_set(WEFT_ETRANSPORT, "file:%s: %s belongs to another user", s->dir, path);
    }
    return 0;
}

static int write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t wrote = write(fd, bytes, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return 0;
}

/* A whole and synced file under a name that nobody looks for. */
static int write_aside(struct file_store *s, int folder, const void *bytes, size_t n, char *name)
{
    snprintf(name, FILE_NAME, "t-%s-%u", s->id, s->temporaries++);
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return file_failed(s, "cannot create", name);
    bool failed = write_all(fd, bytes, n) || fsync(fd);
    if (close(fd) || failed) {
        int err = file_failed(s, "cannot write", name);
        unlinkat(folder, name, 0);
        return err;
    }
    return 0;
}

int file_write(struct file_store *s, int folder, const char *name, const void *bytes, size_t n)
{
    char aside[FILE_NAME];
    int err = write_aside(s, folder, bytes, n, aside);
    if (!err && renameat(folder, aside, folder, name)) {
        err = file_failed(s, "cannot write", name);
        unlinkat(folder, aside, 0);
    }
    return err;
}

int file_read(const struct file_store *s, int folder, const char *name, void *bytes, size_t cap, size_t *n)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESTALE ? FILE_NONE : file_failed(s, "cannot open", name);
    struct stat st;
    int err = 0;
    if (fstat(fd, &st))
        err = errno == ESTALE ? FILE_NONE : file_failed(s, "cannot look at", name);
    else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        err = error_set(WEFT_ETRANSPORT, "file:%s: %s is no file of this user's", s->dir, name);
    size_t want = err ? 0 : (size_t)st.st_size < cap ? (size_t)st.st_size : cap;
    for (size_t at = 0; at < want && !err;) {
        ssize_t got = read(fd, (char *)bytes + at, want - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            err = got < 0 && errno != ESTALE ? file_failed(s, "cannot read", name) : FILE_NONE;
        else
            at += (size_t)got;
    }
    close(fd);
    if (!err)
        *n = (size_t)st.st_size;
    return err;
}

/* ---- keys ---- */

static void name_of(char *name, const char *what, const char *key)
{
    int at = snprintf(name, FILE_NAME, "%s-%s", what, key);
    for (char *c = name; c < name + at; c++)
        if (*c == '/')
            *c = ','; /* no key has one */
}

static int room(const struct file_store *s, int *fd)
{
    int err = file_folder(s, s->room, fd);
    return err == FILE_NONE
               ? error_set(WEFT_ETRANSPORT, "file:%s: somebody has removed the store's folder %s", s->dir, s->room)
               : err;
}

static int set_value(struct store *base, const char *key, const void *value, size_t bytes, int64_t until)
{
    struct file_store *s = (struct file_store *)base;
    char name[FILE_NAME];
    int folder, err = room(s, &folder);
    (void)until; /* a folder that does not answer is waited for by the system itself */
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
    for (int64_t pause = POLL_NS;; store_pause(&pause, POLL_MOST_NS, until)) {
        bool last = store_now() >= until;
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
        return err;
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
    file_leave(s);
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
