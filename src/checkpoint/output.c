/* The output on the disk. It is written under a name beside its place and renamed when it is complete, so that it is
 * complete or absent. If it replaces something, the two are exchanged in one step. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "layout/layout.h"

static int failed(const char *path)
{
    return error_set(WEFT_EIO, "%s: %s", path, strerror(errno));
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* ---- may the output be put there? ---- */

static bool is_checkpoint_name(const char *name)
{
    return ends_with(name, ".safetensors") || !strcmp(name, CHECKPOINT_INDEX) || !strcmp(name, CHECKPOINT_CONFIG);
}

/* A folder is replaced only if it has nothing in it except a checkpoint. */
static int check_folder(const char *path, bool force, bool *empty)
{
    DIR *d = opendir(path);
    if (!d)
        return failed(path);
    int rc = 0;
    *empty = true;
    for (struct dirent *e = readdir(d); e && !rc; e = readdir(d)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        *empty = false;
        if (!force)
            rc = error_set(WEFT_EINVAL, "%s: it exists and is not empty (force replaces a checkpoint)", path);
        else if (!is_checkpoint_name(e->d_name))
            rc = error_set(WEFT_EINVAL,
                           "%s: it is not replaced, because it contains '%.100s', which is not part of a checkpoint",
                           path, e->d_name);
    }
    closedir(d);
    return rc;
}

/* Checks the parent folder of the output before the work begins, so that the error names that folder. */
static int check_parent(const struct checkpoint_output *o)
{
    struct stat st;
    char *slash = strrchr(o->place, '/');
    if (!slash || slash == o->place)
        return 0;
    *slash = 0;
    int rc = 0;
    if (stat(o->place, &st))
        rc = error_set(WEFT_EINVAL, "%s: %s", o->place, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        rc = error_set(WEFT_EINVAL, "%s: it is not a folder", o->place);
    *slash = '/';
    return rc;
}

int checkpoint_output_check(struct checkpoint *c, struct checkpoint_output *o, const char *out)
{
    struct stat st;
    bool force = c->opts->force, empty = false;
    *o = (struct checkpoint_output){.place = checkpoint_files_keep(&c->arena, out),
                                    .one = ends_with(out, ".safetensors")};
    size_t n = strlen(out);
    o->aside = arena_alloc(&c->arena, n + 64);
    if (!o->place || !o->aside)
        return error_nomem();
    while (n > 1 && o->place[n - 1] == '/')
        o->place[--n] = 0;
    if (!n)
        return error_set(WEFT_EINVAL, "the output has no name");
    const char *slash = strrchr(o->place, '/'), *name = slash ? slash + 1 : o->place;
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) /* these cannot be replaced */
        return error_set(WEFT_EINVAL, "%s: give the output by its own name", o->place);
    if (o->one && c->dst.mesh->mesh > 1)
        return error_set(WEFT_EINVAL, "%s: the output has several ranks, so it must be a folder, not a file", out);
    if (lstat(o->place, &st))
        return errno == ENOENT || errno == ENOTDIR ? check_parent(o) : failed(o->place);
    if (o->one ? !S_ISREG(st.st_mode) : !S_ISDIR(st.st_mode))
        return error_set(WEFT_EINVAL, "%s: it exists and is %s", o->place,
                         S_ISLNK(st.st_mode) ? "a symbolic link: name the file or folder that it points to"
                         : o->one            ? "not a regular file"
                                             : "not a folder");
    if (o->one && !force)
        return error_set(WEFT_EINVAL, "%s: it exists (force replaces it)", o->place);
    int rc = o->one ? 0 : check_folder(o->place, force, &empty);
    o->there = !empty;
    return rc;
}

/* ---- writing aside ---- */

/* Makes a file or folder with an unused name beside the place. mkdir and open make it, so that the user's umask counts.
 */
static int make_aside(struct checkpoint_output *o, int *fd)
{
    for (int i = 0; i < 1000; i++) {
        snprintf(o->aside, strlen(o->place) + 64, "%s.weft-%ld-%d", o->place, (long)getpid(), i);
        *fd = o->one ? open(o->aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : mkdir(o->aside, 0777);
        if (*fd >= 0) {
            o->made = true;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return failed(o->aside);
}

static int create_file(struct checkpoint_file *f)
{
    char *head = NULL;
    size_t len = 0;
    const struct safetensors_tensor *last = f->header.ntensors ? &f->header.tensors[f->header.ntensors - 1] : NULL;
    if (f->fd < 0)
        f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return failed(f->path);
    int rc = safetensors_write(&f->header, &head, &len);
    if (rc)
        return rc;
    f->data = (int64_t)len;
    off_t size = (off_t)(f->data + (last ? last->begin + last->bytes : 0));
    rc = checkpoint_files_write_all(f->fd, head, len, 0, f->path);
    free(head);
    /* Disk space is reserved now, so that a full disk is noticed before the work. */
    if (!rc && fallocate(f->fd, 0, 0, size) && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
        rc = failed(f->path);
    if (!rc && ftruncate(f->fd, size))
        rc = failed(f->path);
    return rc;
}

static void put_index(struct text *t, const struct checkpoint *c)
{
    int64_t total = 0;
    const char *between = "";
    for (size_t f = 0; f < c->dst.files.n; f++)
        for (size_t i = 0; i < c->dst.files.v[f].header.ntensors; i++)
            total += c->dst.files.v[f].header.tensors[i].bytes;
    text_printf(t, "{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {", (long long)total);
    for (size_t f = 0; f < c->dst.files.n; f++)
        for (size_t i = 0; i < c->dst.files.v[f].header.ntensors; i++, between = ",") {
            const char *path = c->dst.files.v[f].path;
            text_put(t, between);
            text_put(t, "\n    ");
            text_json(t, c->dst.files.v[f].header.tensors[i].name);
            text_put(t, ": ");
            text_json(t, strrchr(path, '/') + 1);
        }
    text_put(t, "\n  }\n}\n");
}

static int write_text(struct checkpoint *c, const struct checkpoint_output *o, const char *name, const char *text,
                      size_t n)
{
    char *path = checkpoint_files_path(&c->arena, o->aside, name);
    if (!path)
        return error_nomem();
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return failed(path);
    int rc = checkpoint_files_write_all(fd, text, n, 0, path);
    if (!rc && fsync(fd))
        rc = failed(path);
    close(fd);
    return rc;
}

static int write_index(struct checkpoint *c, const struct checkpoint_output *o)
{
    struct text t = text_start(NULL, 0);
    put_index(&t, c);
    size_t n = t.len;
    char *text = malloc(n + 1);
    if (!text)
        return error_nomem();
    t = text_start(text, n + 1);
    put_index(&t, c);
    int rc = write_text(c, o, CHECKPOINT_INDEX, text, n);
    free(text);
    return rc;
}

/* Copies the model's config.json, so that the output can be an input. */
static int copy_config(struct checkpoint *c, const struct checkpoint_output *o)
{
    char *text;
    size_t n;
    int rc = checkpoint_files_read_text(c->config, CHECKPOINT_CONFIG_MOST, &text, &n);
    if (rc)
        return rc;
    rc = write_text(c, o, CHECKPOINT_CONFIG, text, n);
    free(text);
    return rc;
}

int checkpoint_output_begin(struct checkpoint *c, struct checkpoint_output *o)
{
    int fd, rc = make_aside(o, &fd);
    if (!rc)
        rc = checkpoint_target_name_files(c, o->aside, o->one);
    if (!rc && o->one)
        c->dst.files.v[0].fd = fd;
    for (size_t i = 0; i < c->dst.files.n && !rc; i++)
        rc = create_file(&c->dst.files.v[i]);
    if (!rc && c->dst.mesh->mesh == 1 && c->dst.files.n > 1)
        rc = write_index(c, o);
    if (!rc && c->config && !o->one)
        rc = copy_config(c, o);
    return rc;
}

/* ---- into its place ---- */

static void sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* some file systems cannot sync a folder; the files themselves are on the disk */
        close(fd);
    }
}

static void sync_parent(const struct checkpoint_output *o)
{
    char *slash = strrchr(o->place, '/');
    if (!slash) {
        sync_folder(".");
    } else {
        char first = slash == o->place ? 0 : '/';
        slash[first ? 0 : 1] = 0;
        sync_folder(o->place);
    }
}

/* *swapped: what was there is aside now. Not all file systems know the flags of renameat2. */
static int put_in_place(const struct checkpoint_output *o, bool *swapped)
{
    *swapped = o->there && !o->one;
    if (*swapped) {
        if (!renameat2(AT_FDCWD, o->aside, AT_FDCWD, o->place, RENAME_EXCHANGE))
            return 0;
        if (errno == EINVAL || errno == ENOSYS)
            return error_set(WEFT_EUNSUPPORTED, "%s: this file system cannot replace a folder at once: remove it first",
                             o->place);
        return failed(o->place);
    }
    if (o->one && !o->there) {
        if (!renameat2(AT_FDCWD, o->aside, AT_FDCWD, o->place, RENAME_NOREPLACE))
            return 0;
        if (errno == EINVAL || errno == ENOSYS)
            return link(o->aside, o->place) || unlink(o->aside) ? failed(o->place) : 0;
        return failed(o->place);
    }
    /* A folder that was made there meanwhile stays, unless it is empty. */
    return rename(o->aside, o->place) ? failed(o->place) : 0;
}

int checkpoint_output_commit(struct checkpoint *c, struct checkpoint_output *o)
{
    for (size_t i = 0; i < c->dst.files.n; i++)
        if (fsync(c->dst.files.v[i].fd))
            return failed(c->dst.files.v[i].path);
    if (!o->one)
        sync_folder(o->aside);
    bool swapped;
    int rc = put_in_place(o, &swapped);
    if (rc)
        return rc;
    o->made = swapped;
    sync_parent(o);
    return 0;
}

void checkpoint_output_end(struct checkpoint_output *o)
{
    if (!o->made)
        return;
    DIR *d = o->one ? NULL : opendir(o->aside);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (is_checkpoint_name(e->d_name))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    if (o->one)
        unlink(o->aside);
    else
        rmdir(o->aside);
    o->made = false;
}
