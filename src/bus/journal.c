#define _GNU_SOURCE
#include "bus/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/hash.h"
#include "base/vec.h"
#include "bus/bus_message.h"

#define MAGIC "weft-jn1"
#define MAGIC_SIZE 8
#define HEAD 16 /* the length and the checks */
#define BODY_MAX (DIRECTORY_BYTES_MAX + DIRECTORY_VALUE_MAX)
#define GROWN ((size_t)1 << 20) /* a file is written anew when it has this much more than twice what it began with */

enum kind { BASE = 1, LEASE, KEY, LOGGED, LOGGED_KEY, CHANGE, REVOKE };

typedef VEC(unsigned char) bytes_vec;

static int failed(const struct journal *j, const char *what)
{
    return error_set(errno == ENOMEM ? WEFT_ENOMEM : WEFT_EIO, "%s: %s: %s", j->path, what, strerror(errno));
}

/* ---- writing ---- */

static bool put(bytes_vec *v, const void *bytes, size_t n)
{
    if (!vec_room(v, n))
        return false;
    if (n)
        memcpy(v->v + v->n, bytes, n);
    v->n += n;
    return true;
}

static uint32_t guard_of(uint32_t length)
{
    return (uint32_t)hash_u64(19, length);
}

/* Appends an entry; the body is a and b. */
static bool put_entry(bytes_vec *v, enum kind kind, const void *a, size_t na, const void *b, size_t nb)
{
    unsigned char one = (unsigned char)kind;
    uint32_t length = (uint32_t)(1 + na + nb);
    uint32_t guard = guard_of(length);
    uint64_t check = 0;
    size_t at = v->n;
    if (!put(v, &length, 4) || !put(v, &guard, 4) || !put(v, &check, 8) || !put(v, &one, 1) || !put(v, a, na) ||
        !put(v, b, nb))
        return false;
    check = hash_bytes(length, v->v + at + HEAD, length);
    memcpy(v->v + at + 8, &check, 8);
    return true;
}

static bool put_item(bytes_vec *v, enum kind kind, const struct book_record *r)
{
    struct directory_item item = book_item(r);
    unsigned char *packed = malloc(bus_message_item_size(&item));
    bool fine = packed && put_entry(v, kind, packed, bus_message_put_item(packed, &item), NULL, 0);
    free(packed);
    return fine;
}

static int write_all(int fd, const unsigned char *bytes, size_t n, size_t at)
{
    while (n) {
        ssize_t wrote = pwrite(fd, bytes, n, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        bytes += wrote;
        at += (size_t)wrote;
        n -= (size_t)wrote;
    }
    return 0;
}

/* Cuts off what another writer left that died. */
static int cut(const struct journal *j)
{
    struct stat st;
    return fstat(j->fd, &st) || ((size_t)st.st_size > j->bytes && ftruncate(j->fd, (off_t)j->bytes));
}

static int append(struct journal *j, enum kind kind, const void *a, size_t na, const void *b, size_t nb)
{
    bytes_vec v = {0};
    int err = put_entry(&v, kind, a, na, b, nb) ? 0 : error_nomem();
    if (!err && (cut(j) || write_all(j->fd, v.v, v.n, j->bytes) || (j->durable && fdatasync(j->fd)))) {
        err = failed(j, "the directory's state cannot be written");
        (void)!ftruncate(j->fd, (off_t)j->bytes);
    }
    if (!err)
        j->bytes += v.n;
    free(v.v);
    return err;
}

int journal_grant(struct journal *j, int64_t id, int64_t ttl_ns)
{
    return append(j, LEASE, &id, 8, &ttl_ns, 8);
}

int journal_revoke(struct journal *j, int64_t id)
{
    return append(j, REVOKE, &id, 8, NULL, 0);
}

int journal_change(struct journal *j, const struct directory_transaction *t)
{
    struct directory_transaction alone = {.changes = t->changes, .nchanges = t->nchanges};
    unsigned char *packed = malloc(DIRECTORY_BYTES_MAX);
    if (!packed)
        return error_nomem();
    int err = append(j, CHANGE, packed, bus_message_put_transaction(packed, &alone), NULL, 0);
    free(packed);
    return err;
}

/* The whole state, as a file begins. */
static bool put_state(bytes_vec *v, struct book *b)
{
    bool fine = put(v, MAGIC, MAGIC_SIZE) && put_entry(v, BASE, &b->revision, 8, &b->forgotten, 8);
    for (size_t i = 0; i < b->leases.nbuckets && fine; i++)
        for (struct table_node *n = b->leases.buckets[i]; n && fine; n = n->next) {
            const struct book_lease *l = LIST_OF(n, struct book_lease, node);
            fine = put_entry(v, LEASE, &l->id, 8, &l->ttl_ns, 8);
        }
    for (size_t i = 0; i < b->nkeys && fine; i++)
        fine = put_item(v, KEY, b->keys[i]);
    for (size_t i = 0; i < b->log_n && fine; i++) {
        const struct book_record *r = book_logged(b, i);
        fine = r == book_find(b, book_key(r)) ? put_entry(v, LOGGED_KEY, book_key(r), r->key_len + 1, NULL, 0)
                                              : put_item(v, LOGGED, r);
    }
    return fine;
}

static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int bad = fd < 0 || fsync(fd);
    if (fd >= 0)
        close(fd);
    free(folder);
    return bad ? -1 : 0;
}

static int write_anew(struct journal *j, struct book *b)
{
    bytes_vec v = {0};
    size_t n = strlen(j->path) + 8;
    char *aside = malloc(n);
    int fd = -1, err = aside && put_state(&v, b) ? 0 : error_nomem();
    if (!err) {
        snprintf(aside, n, "%s.new", j->path);
        fd = forks_own(open(aside, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
        /* Locked before it has the name, so that no other process finds it free. */
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || write_all(fd, v.v, v.n, 0) || (j->durable && fsync(fd)) ||
            rename(aside, j->path) || (j->durable && sync_folder(j->path)))
            err = failed(j, "the directory's state cannot be written");
    }
    if (!err) {
        forks_close(j->fd);
        j->fd = fd;
        j->bytes = j->base = v.n;
    } else if (fd >= 0) {
        forks_close(fd);
        unlink(aside);
    }
    free(aside);
    free(v.v);
    return err;
}

int journal_tidy(struct journal *j, struct book *b)
{
    if (j->bytes <= 2 * j->base + GROWN)
        return 0;
    int err = write_anew(j, b);
    if (err)
        j->base = j->bytes; /* not again at every change */
    return err;
}

/* ---- reading ---- */

static int damaged(const struct journal *j, size_t at)
{
    return error_set(WEFT_EIO, "%s: the directory's state is damaged at byte %zu; remove the file to begin anew",
                     j->path, at);
}

static bool apply_transaction(struct book *b, const unsigned char *body, size_t n)
{
    struct bus_message_transaction m;
    const char *why;
    return bus_message_take_transaction(body, n, &m) && book_transact(b, &m.t, &why) == BOOK_DONE;
}

static bool apply_item(struct book *b, enum kind kind, const unsigned char *body, size_t n)
{
    struct directory_item item;
    size_t at = 0;
    return bus_message_take_item(body, n, &at, &item) && at == n && book_restore(b, &item, kind == LOGGED);
}

static bool apply(struct book *b, const unsigned char *entry, size_t n)
{
    const unsigned char *body = entry + 1;
    int64_t number[2];
    size_t bytes = n - 1;
    if (bytes == 16)
        memcpy(number, body, 16);
    else if (bytes == 8)
        memcpy(number, body, 8);
    switch (entry[0]) {
    case BASE:
        if (bytes != 16 || number[1] > number[0])
            return false;
        b->revision = number[0];
        b->forgotten = number[1];
        return true;
    case LEASE: return bytes == 16 && book_grant(b, number[0], number[1]);
    case KEY:
    case LOGGED: return apply_item(b, (enum kind)entry[0], body, bytes);
    case LOGGED_KEY: return bytes && !body[bytes - 1] && book_restore_log(b, (const char *)body);
    case CHANGE: return apply_transaction(b, body, bytes);
    case REVOKE: {
        struct book_lease *l = bytes == 8 ? book_lease(b, number[0]) : NULL;
        return l && book_revoke(b, l);
    }
    default: return false;
    }
}

static bool all_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Applies whole entries. What is behind the last of them is not an error if it is what a writer left that died: it is
 * shorter than its length, it is the last one and its check is wrong, or the system has given the file its length and
 * nothing else. */
static int apply_all(struct journal *j, struct book *b, const unsigned char *bytes, size_t n)
{
    size_t at = 0;
    while (n - at >= HEAD + 1) {
        uint32_t length, guard;
        uint64_t check;
        memcpy(&length, bytes + at, 4);
        memcpy(&guard, bytes + at + 4, 4);
        memcpy(&check, bytes + at + 8, 8);
        if (!length && all_zero(bytes + at, n - at))
            return 0;
        if (!length || length > BODY_MAX || guard != guard_of(length))
            return damaged(j, j->bytes);
        if (length > n - at - HEAD)
            return 0;
        if (check != hash_bytes(length, bytes + at + HEAD, length))
            return at + HEAD + length == n ? 0 : damaged(j, j->bytes);
        if (!apply(b, bytes + at + HEAD, length))
            return damaged(j, j->bytes);
        at += HEAD + length;
        j->bytes += HEAD + length;
    }
    return 0;
}

static int read_rest(const struct journal *j, size_t from, unsigned char **out, size_t *n)
{
    struct stat st;
    if (fstat(j->fd, &st))
        return failed(j, "the directory's state cannot be read");
    *n = (size_t)st.st_size > from ? (size_t)st.st_size - from : 0;
    *out = malloc(*n + 1);
    if (!*out)
        return error_nomem();
    for (size_t got = 0; got < *n;) {
        ssize_t some = pread(j->fd, *out + got, *n - got, (off_t)(from + got));
        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return failed(j, "the directory's state cannot be read");
        if (!some)
            *n = got;
        got += (size_t)some;
    }
    return 0;
}

int journal_read(struct journal *j, struct book *b)
{
    unsigned char *rest = NULL;
    size_t n = 0;
    int err = read_rest(j, j->bytes, &rest, &n);
    if (!err)
        err = apply_all(j, b, rest, n);
    free(rest);
    return err;
}

bool journal_is_current(const struct journal *j)
{
    struct stat named, mine;
    return !stat(j->path, &named) && !fstat(j->fd, &mine) && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev;
}

/* A file that has begun: reads its magic and all entries, and cuts off what is torn. */
static int begin_from(struct journal *j, struct book *b)
{
    char magic[MAGIC_SIZE];
    if (pread(j->fd, magic, MAGIC_SIZE, 0) != MAGIC_SIZE || memcmp(magic, MAGIC, MAGIC_SIZE))
        return error_set(WEFT_EIO, "%s: this is not the state of a directory, or that of another version of weft",
                         j->path);
    j->bytes = MAGIC_SIZE;
    int err = journal_read(j, b);
    if (!err && j->bytes == MAGIC_SIZE)
        err = damaged(j, j->bytes);
    j->base = j->bytes;
    if (!err && cut(j))
        err = failed(j, "the directory's state cannot be written");
    return err;
}

int journal_open(struct journal *j, const char *path, struct book *b, int64_t fresh, bool alone, bool durable)
{
    struct stat st;
    *j = (struct journal){.path = strdup(path), .fd = -1, .durable = durable};
    if (!j->path)
        return error_nomem();
    j->fd = forks_own(open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    int err = j->fd < 0 || fstat(j->fd, &st) ? failed(j, "the directory's state cannot be opened") : 0;
    if (!err && (!S_ISREG(st.st_mode) || st.st_uid != geteuid()))
        err = error_set(WEFT_EIO, "%s: this is not a file of this user", path);
    if (!err && alone && flock(j->fd, LOCK_EX | LOCK_NB))
        err = errno == EWOULDBLOCK ? error_set(WEFT_EBUSY, "%s: another process keeps a directory in this file", path)
                                   : failed(j, "the directory's state cannot be locked");
    if (!err && st.st_size)
        err = begin_from(j, b);
    else if (!err) {
        b->revision = b->forgotten = fresh;
        err = write_anew(j, b);
    }
    if (err)
        journal_close(j);
    return err;
}

void journal_close(struct journal *j)
{
    forks_close(j->fd);
    free(j->path);
    *j = (struct journal){.fd = -1};
}
