/* Whole files in a folder. A file is written under another name and then renamed, so that a reader that sees it sees
 * all of it. It is synced before the rename, so that the writer learns of a full disk or a lost file server. */
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

bool file_aside_of(const char *name, struct process_id *writer)
{
    long long pid;
    unsigned long long start, space;
    *writer = (struct process_id){.pid = 0};
    if (sscanf(name, "t-%39[^,],%llu,%lld,%llu,", writer->boot, &space, &pid, &start) != 4)
        return false;
    writer->space = space;
    writer->pid = pid;
    writer->start = start;
    return true;
}

void file_aside(struct file_store *s, char name[FILE_NAME])
{
    const struct process_id *p = &s->self;
    snprintf(name, FILE_NAME, "t-%s,%llu,%lld,%llu,%s-%u", p->boot[0] ? p->boot : "-", (unsigned long long)p->space,
             (long long)p->pid, (unsigned long long)p->start, s->id, s->temporaries++);
}

/* Writes and syncs a file under a name that no reader looks for. */
static int write_aside(struct file_store *s, int folder, const void *bytes, size_t n, char *name)
{
    file_aside(s, name);
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
        err = error_set(WEFT_ETRANSPORT, "file:%s: %s is not a file of this user", s->dir, name);
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
