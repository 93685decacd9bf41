/* Reading and writing whole ranges, and paths; see checkpoint.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

char *checkpoint_files_path(struct arena *arena, const char *folder, const char *name)
{
    size_t n = strlen(folder), k = strlen(name);
    char *path = arena_alloc(arena, n + k + 2);
    if (!path)
        return NULL;
    memcpy(path, folder, n);
    if (n && folder[n - 1] != '/')
        path[n++] = '/';
    memcpy(path + n, name, k + 1);
    return path;
}

char *checkpoint_files_keep(struct arena *arena, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = arena_alloc(arena, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

int checkpoint_files_read_all(int fd, void *to, size_t n, int64_t at, const char *path)
{
    char *p = to;
    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(WEFT_EIO, "%s: %s", path, strerror(errno));
        if (!got)
            return error_set(WEFT_EIO, "%s: it became shorter while it was read", path);
        p += got;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

int checkpoint_files_write_all(int fd, const void *from, size_t n, int64_t at, const char *path)
{
    const char *p = from;
    while (n) {
        ssize_t put = pwrite(fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return error_set(WEFT_EIO, "%s: %s", path, strerror(errno));
        p += put;
        at += put;
        n -= (size_t)put;
    }
    return 0;
}

int checkpoint_files_read_text(const char *path, size_t most, char **out, size_t *len)
{
    struct stat st;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block; it is refused below */
    char *text = NULL;
    if (fd < 0)
        return error_set(WEFT_EINVAL, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st))
        rc = error_set(WEFT_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = error_set(WEFT_EINVAL, "%s: it is not a regular file", path);
    else if ((uintmax_t)st.st_size > most)
        rc = error_set(WEFT_EUNSUPPORTED, "%s: it has %lld bytes, but at most %zu can be read", path,
                       (long long)st.st_size, most);
    else if (!(text = malloc((size_t)st.st_size + 1)))
        rc = error_nomem();
    else
        rc = checkpoint_files_read_all(fd, text, (size_t)st.st_size, 0, path);
    close(fd);
    if (rc) {
        free(text);
        return rc;
    }
    text[st.st_size] = 0;
    *out = text;
    *len = (size_t)st.st_size;
    return 0;
}
