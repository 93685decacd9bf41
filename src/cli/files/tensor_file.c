#define _GNU_SOURCE
#include "cli/files/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading ---- */

static int read_header(const char *path, struct tensor_file *f, struct failure *why)
{
    int64_t length;
    if (f->size < SAFETENSORS_PRELUDE)
        return failure_set(why, CLI_BAD, "%s is no safetensors file: it has %zu bytes", path, f->size);
    int err = safetensors_length(path, f->map, (int64_t)f->size, &length);
    char *bytes = err ? NULL : malloc((size_t)length + 1);
    if (!err && !bytes)
        return failure_set(why, CLI_WRONG, "out of memory");
    if (!err) {
        memcpy(bytes, (char *)f->map + SAFETENSORS_PRELUDE, (size_t)length);
        bytes[length] = 0;
        f->data = (unsigned char *)f->map + SAFETENSORS_PRELUDE + length;
        err = safetensors_read(path, bytes, (size_t)length, (int64_t)f->size - SAFETENSORS_PRELUDE - length, &f->arena,
                               &f->header);
    }
    return err ? failure_set(why, CLI_BAD, "%s", weft_errmsg()) : CLI_OK;
}

int tensor_file_map(const char *path, struct tensor_file *out, struct failure *why)
{
    struct stat st;
    *out = (struct tensor_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC), code = CLI_OK;
    if (fd < 0 || fstat(fd, &st))
        code = failure_set(why, CLI_BAD, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || !st.st_size)
        code = failure_set(why, CLI_BAD, "%s is no safetensors file", path);
    else {
        out->size = (size_t)st.st_size;
        out->map = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (out->map == MAP_FAILED) {
            out->map = NULL;
            code = failure_set(why, CLI_WRONG, "%s cannot be mapped: %s", path, strerror(errno));
        } else
            code = read_header(path, out, why);
    }
    if (fd >= 0)
        close(fd);
    if (code)
        tensor_file_unmap(out);
    return code;
}

void tensor_file_unmap(struct tensor_file *f)
{
    if (f->map)
        munmap(f->map, f->size);
    arena_free(&f->arena);
    *f = (struct tensor_file){0};
}

/* ---- writing ---- */

static bool write_all(int fd, const void *from, size_t n)
{
    const char *at = from;
    while (n) {
        ssize_t did = write(fd, at, n < (size_t)1 << 30 ? n : (size_t)1 << 30);
        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return false;
        at += did;
        n -= (size_t)did;
    }
    return true;
}

int tensor_file_write(const char *path, const struct safetensors_header *h, const void *const *arrays, bool force,
                      struct failure *why)
{
    char *head = NULL, aside[4096];
    size_t len = 0;
    if (!force && !access(path, F_OK))
        return failure_set(why, CLI_BAD, "%s exists: --force replaces it", path);
    if (snprintf(aside, sizeof aside, "%s.weft-%ld", path, (long)getpid()) >= (int)sizeof aside)
        return failure_set(why, CLI_BAD, "the name of the file is too long");
    if (safetensors_write(h, &head, &len))
        return failure_set(why, CLI_WRONG, "%s", weft_errmsg());
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), code = CLI_OK;
    bool fine = fd >= 0 && write_all(fd, head, len);
    for (size_t i = 0; i < h->ntensors && fine; i++)
        fine = write_all(fd, arrays[i], (size_t)h->tensors[i].bytes);
    fine = fine && !fsync(fd);
    if (fd >= 0 && close(fd))
        fine = false;
    if (!fine || rename(aside, path)) {
        code = failure_set(why, CLI_WRONG, "%s cannot be written: %s", path, strerror(errno));
        unlink(aside);
    }
    free(head);
    return code;
}
