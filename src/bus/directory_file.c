/* A directory in a folder, for processes of one machine. Each process has the whole state in its memory, as a book, and
 * brings it up to date from the journal before it does anything:
 *
 *   lock          a process holds its lock (flock) while it reads or writes the journal
 *   journal       the state and its changes (journal.h)
 *   leases/ID     a lease: when it ends, in ns of CLOCK_BOOTTIME. Its owner has the file open and locked
 *
 * A lease has ended if its time is over or if its file is not locked: the system unlocks it when the owner's process
 * ends, however that happens. Whichever process next uses the directory sees that, deletes the keys of the lease, and
 * writes so into the journal. A watch sleeps on inotify: the journal has grown or was written anew, or the owner of a
 * lease has closed its file. The first process that opens the folder makes these files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "base/vec.h"
#include "bus/directory_items.h"
#include "bus/journal.h"
#include "rendezvous/deadline.h"

#define LEAST_NS INT64_C(100000000) /* for which a process waits for the lock, whatever the timeout is */
#define RETRY_NS INT64_C(50000)
#define RETRY_MOST_NS INT64_C(5000000)
#define CLOSE_NS INT64_C(1000000000)
#define LOOKS 8 /* after a lease's file was closed: the system unlocks it a little later than it says so */

struct own {
    int64_t id;
    int fd;
};

struct file_directory {
    struct directory base; /* first */
    char *folder;
    int lock, leases; /* the file, and the folder of leases */
    struct book book;
    struct journal journal;
    bool has_book;
    int64_t next_end; /* when the next lease ends, in ns of CLOCK_BOOTTIME; INT64_MAX: none */
    VEC(struct own) own;
};

struct file_watch {
    struct directory_watch base; /* first */
    int inotify, leases;         /* the file, and the number by which it tells of the folder of leases */
};

static int64_t boot_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int failed(const struct file_directory *f, const char *what)
{
    return error_set(errno == ENOMEM ? WEFT_ENOMEM : WEFT_ETRANSPORT, "%s: %s: %s", f->base.url, what, strerror(errno));
}

/* ---- leases ---- */

static void lease_name(int64_t id, char name[24])
{
    snprintf(name, 24, "%lld", (long long)id);
}

/* When does the lease end? A time that is over: it has ended. */
static int64_t lease_end(const struct file_directory *f, int64_t id)
{
    char name[24];
    int64_t end = 0;
    lease_name(id, name);
    int fd = openat(f->leases, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (!flock(fd, LOCK_SH | LOCK_NB) || pread(fd, &end, sizeof end, 0) != sizeof end)
        end = 0; /* its owner is gone */
    close(fd);
    return end;
}

static void disown(struct file_directory *f, int64_t id)
{
    for (size_t i = 0; i < f->own.n; i++)
        if (f->own.v[i].id == id) {
            forks_close(f->own.v[i].fd);
            f->own.v[i] = f->own.v[--f->own.n];
            return;
        }
}

static int end_lease(struct file_directory *f, int64_t id)
{
    char name[24];
    struct book_lease *l = book_lease(&f->book, id);
    int err = journal_revoke(&f->journal, id);
    if (!err && !book_revoke(&f->book, l)) {
        f->has_book = false; /* the journal has more than the book: it is read anew */
        err = error_nomem();
    }
    if (err)
        return err;
    lease_name(id, name);
    unlinkat(f->leases, name, 0);
    disown(f, id);
    return 0;
}

/* Ends the leases that are over. */
static int sweep(struct file_directory *f)
{
    int64_t now = boot_now();
    VEC(int64_t) over = {0};
    int err = 0;
    f->next_end = INT64_MAX;
    for (size_t i = 0; i < f->book.leases.nbuckets && !err; i++)
        for (struct table_node *n = f->book.leases.buckets[i]; n && !err; n = n->next) {
            const struct book_lease *l = LIST_OF(n, struct book_lease, node);
            int64_t end = lease_end(f, l->id), *one;
            if (end > now)
                f->next_end = min64(f->next_end, end);
            else if ((one = vec_push(&over)))
                *one = l->id;
            else
                err = error_nomem();
        }
    for (size_t i = 0; i < over.n && !err; i++)
        err = end_lease(f, over.v[i]);
    free(over.v);
    return err;
}

/* ---- the state ---- */

static void forget_book(struct file_directory *f)
{
    book_end(&f->book, NULL, NULL);
    if (f->journal.path)
        journal_close(&f->journal);
    f->has_book = false;
}

/* Brings the book up to date. The lock is held. */
static int catch_up(struct file_directory *f)
{
    char path[PATH_MAX];
    int err = 0;
    if (f->has_book && !journal_is_current(&f->journal))
        f->has_book = false;
    if (f->has_book)
        err = journal_read(&f->journal, &f->book);
    if (err || !f->has_book) {
        struct timespec t;
        forget_book(f);
        clock_gettime(CLOCK_REALTIME, &t);
        snprintf(path, sizeof path, "%s/journal", f->folder);
        book_begin(&f->book, 0, sizeof(struct book_lease));
        err = journal_open(&f->journal, path, &f->book, (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000, false, false);
        f->has_book = !err;
    }
    return err;
}

static void unlock(struct file_directory *f)
{
    flock(f->lock, LOCK_UN);
}

/* Another process that died while it wrote has left an entry that is not whole: the next one is written over it. */
static int lock(struct file_directory *f, int64_t until)
{
    until = max64(until, deadline_in(LEAST_NS));
    for (int64_t pause = RETRY_NS; flock(f->lock, LOCK_EX | LOCK_NB); deadline_pause(&pause, RETRY_MOST_NS, until)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return failed(f, "the directory cannot be locked");
        if (deadline_now() >= until)
            return error_set(WEFT_ETIMEOUT,
                             "%s: another process has held the lock of the directory for all that time: is it stopped? "
                             "(fuser %s/lock names it)",
                             f->base.url, f->folder);
    }
    int err = catch_up(f);
    if (!err)
        err = sweep(f);
    if (err)
        unlock(f);
    return err;
}

/* ---- calls ---- */

static bool add(struct directory_items_draft *draft, const struct book_record *r)
{
    struct directory_item item = book_item(r);
    return directory_items_add(draft, &item);
}

static int get(struct directory *d, const char *prefix, int64_t until, struct directory_items *out)
{
    struct file_directory *f = (struct file_directory *)d;
    struct directory_items_draft draft = {0};
    size_t first, end;
    int err = lock(f, until);
    if (err)
        return err;
    book_range(&f->book, prefix, &first, &end);
    for (size_t i = first; i < end && !err; i++)
        err = add(&draft, f->book.keys[i]) ? 0 : error_nomem();
    unlock(f);
    if (err)
        directory_items_discard(&draft);
    else
        directory_items_finish(&draft, f->book.revision, out);
    return err;
}

static int64_t ended_lease(struct file_directory *f, const struct directory_transaction *t)
{
    for (size_t i = 0; i < t->nchanges; i++)
        if (t->changes[i].lease && !book_lease(&f->book, t->changes[i].lease))
            return t->changes[i].lease;
    return 0;
}

static int transact(struct directory *d, const struct directory_transaction *t, int64_t until,
                    struct directory_outcome *out)
{
    struct file_directory *f = (struct file_directory *)d;
    const char *why = NULL;
    int err = lock(f, until);
    if (err)
        return err;
    int64_t before = f->book.revision;
    enum book_result result = book_transact(&f->book, t, &why);
    if (result == BOOK_NO_LEASE)
        err = directory_gone(d, ended_lease(f, t));
    else if (result == BOOK_FULL)
        err = error_set(WEFT_ENOMEM, "%s: %s", d->url, why);
    else if (result == BOOK_NOMEM)
        err = error_nomem();
    else if (f->book.revision > before) {
        err = journal_change(&f->journal, t);
        f->has_book = !err; /* the book has more than the journal: it is read anew */
    }
    if (!err && f->has_book)
        (void)journal_tidy(&f->journal, &f->book); /* it can wait */
    *out = (struct directory_outcome){.done = result == BOOK_DONE, .revision = f->book.revision};
    unlock(f);
    return err;
}

/* Makes the lease's file, with its end in it, locked. */
static int make_lease(struct file_directory *f, int64_t id, int64_t ttl_ns)
{
    char name[24];
    int64_t end = boot_now() + ttl_ns;
    struct own *mine = vec_push(&f->own);
    if (!mine)
        return error_nomem();
    lease_name(id, name);
    *mine =
        (struct own){id, forks_own(openat(f->leases, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600))};
    if (mine->fd < 0 || flock(mine->fd, LOCK_EX | LOCK_NB) || pwrite(mine->fd, &end, sizeof end, 0) != sizeof end) {
        int err = failed(f, "the file of a lease cannot be made");
        unlinkat(f->leases, name, 0);
        disown(f, id);
        return err;
    }
    return 0;
}

static int grant(struct directory *d, int64_t ttl_ns, int64_t until, int64_t *lease)
{
    struct file_directory *f = (struct file_directory *)d;
    int err = lock(f, until);
    if (err)
        return err;
    struct book_lease *l = book_grant(&f->book, 0, ttl_ns);
    err = l ? make_lease(f, l->id, ttl_ns)
            : error_set(WEFT_ENOMEM, "%s: the directory has no room for another lease", d->url);
    if (!err)
        err = journal_grant(&f->journal, l->id, ttl_ns);
    if (err && l) {
        disown(f, l->id);
        f->has_book = false;
    }
    if (!err)
        *lease = l->id;
    unlock(f);
    return err;
}

/* The file is opened once more: the lease may be one that another directory of this process, or another process, has
 * been granted. */
static int renew(struct directory *d, int64_t lease, int64_t until)
{
    struct file_directory *f = (struct file_directory *)d;
    char name[24];
    int err = lock(f, until);
    if (err)
        return err;
    const struct book_lease *l = book_lease(&f->book, lease);
    lease_name(lease, name);
    if (!l) {
        err = directory_gone(d, lease);
    } else {
        int64_t end = boot_now() + l->ttl_ns;
        int fd = openat(f->leases, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || pwrite(fd, &end, sizeof end, 0) != sizeof end)
            err = failed(f, "the lease cannot be renewed");
        if (fd >= 0)
            close(fd);
    }
    unlock(f);
    return err;
}

static int revoke_lease(struct directory *d, int64_t lease, int64_t until)
{
    struct file_directory *f = (struct file_directory *)d;
    int err = lock(f, until);
    if (err)
        return err;
    err = book_lease(&f->book, lease) ? end_lease(f, lease) : directory_gone(d, lease);
    unlock(f);
    return err;
}

/* ---- watches ---- */

static int watch(struct directory_watch *base)
{
    struct file_watch *w = (struct file_watch *)base;
    const struct file_directory *f = (const struct file_directory *)base->directory;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/leases", f->folder);
    w->inotify = forks_own(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (w->inotify < 0 || inotify_add_watch(w->inotify, f->folder, IN_MODIFY | IN_MOVED_TO) < 0 ||
        (w->leases = inotify_add_watch(w->inotify, path, IN_CLOSE_WRITE)) < 0)
        return failed(f, "the folder cannot be watched");
    return 0;
}

/* Reads what inotify has to say. Was a lease's file closed? */
static bool drain(const struct file_watch *w)
{
    union {
        struct inotify_event align;
        char bytes[4096];
    } buffer;
    bool closed = false;
    for (ssize_t n; (n = read(w->inotify, &buffer, sizeof buffer)) > 0;)
        for (const char *at = buffer.bytes; at < buffer.bytes + n;) {
            struct inotify_event e;
            memcpy(&e, at, sizeof e);
            closed |= e.wd == w->leases || (e.mask & IN_Q_OVERFLOW);
            at += sizeof e + e.len;
        }
    return closed;
}

/* The changes after w->after, or that some are lost. False: there are none. */
static int changes(struct file_directory *f, const struct directory_watch *w, struct directory_items *out, bool *some)
{
    struct directory_items_draft draft = {0};
    const struct book *b = &f->book;
    bool fine = true, lost = !book_remembers(b, w->after);
    for (size_t i = lost ? b->log_n : book_log_after(b, w->after); i < b->log_n && fine; i++)
        if (!strncmp(book_key(book_logged(b, i)), w->prefix, strlen(w->prefix)))
            fine = add(&draft, book_logged(b, i));
    *some = fine && (lost || draft.items.n);
    if (!*some) {
        directory_items_discard(&draft);
        return fine ? 0 : error_nomem();
    }
    directory_items_finish(&draft, b->revision, out);
    out->lost = lost;
    return 0;
}

static int next(struct directory_watch *base, int64_t until, struct directory_items *out)
{
    struct file_watch *w = (struct file_watch *)base;
    struct file_directory *f = (struct file_directory *)base->directory;
    bool some = false;
    for (int looks = 0;;) {
        int err = lock(f, until);
        if (err)
            return err;
        err = changes(f, base, out, &some);
        if (!some)
            base->after = f->book.revision;
        unlock(f);
        if (err || some)
            return err;
        int64_t now = deadline_now(), wake = until;
        if (now >= until)
            return directory_late(&f->base, "there was no change in time");
        if (f->next_end < INT64_MAX)
            wake = min64(wake, now + max64(f->next_end - boot_now(), 0) + 1000000);
        if (looks)
            wake = min64(wake, now + (INT64_C(500000) << (LOOKS - looks--)));
        poll(&(struct pollfd){.fd = w->inotify, .events = POLLIN}, 1, deadline_left_ms(wake));
        if (drain(w))
            looks = LOOKS;
    }
}

static void unwatch(struct directory_watch *w)
{
    forks_close(((struct file_watch *)w)->inotify);
}

/* ---- opening and closing ---- */

static int make_folder(const struct file_directory *f, const char *path)
{
    struct stat st;
    if (mkdir(path, 0700) && errno != EEXIST)
        return failed(f, "the folder cannot be made");
    if (stat(path, &st))
        return failed(f, "the folder cannot be used");
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return error_set(WEFT_ETRANSPORT, "%s: %s is not a folder of this user", f->base.url, path);
    return 0;
}

static int open_directory(struct directory *d, const char *place, const struct directory_opts *opts, int64_t until)
{
    struct file_directory *f = (struct file_directory *)d;
    char path[PATH_MAX];
    (void)opts;
    f->lock = f->leases = -1;
    f->journal.fd = -1;
    f->folder = strdup(place);
    if (!f->folder)
        return error_nomem();
    if (!*place || strlen(place) > sizeof path - 64)
        return error_set(WEFT_EINVAL, "%s: expected file:DIR", d->url);
    int err = make_folder(f, place);
    snprintf(path, sizeof path, "%s/leases", place);
    if (!err)
        err = make_folder(f, path);
    if (!err && (f->leases = forks_own(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))) < 0)
        err = failed(f, "the folder of leases cannot be opened");
    snprintf(path, sizeof path, "%s/lock", place);
    if (!err && (f->lock = forks_own(open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600))) < 0)
        err = failed(f, "the lock cannot be opened");
    if (!err)
        err = lock(f, until);
    if (!err)
        unlock(f);
    return err;
}

static void close_directory(struct directory *d)
{
    struct file_directory *f = (struct file_directory *)d;
    int64_t until = deadline_in(CLOSE_NS);
    /* What cannot be revoked now ends when its file is closed. */
    while (f->own.n && deadline_now() < until) {
        int64_t id = f->own.v[0].id;
        if (revoke_lease(d, id, until))
            disown(f, id);
    }
    while (f->own.n)
        disown(f, f->own.v[0].id);
    free(f->own.v);
    forget_book(f);
    forks_close(f->lock);
    forks_close(f->leases);
    free(f->folder);
}

const struct directory_kind directory_file = {
    .scheme = "file",
    .form = "file:DIR",
    .size = sizeof(struct file_directory),
    .watch_size = sizeof(struct file_watch),
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
