/* Outputs that appear together; see rank_files_out.h. Each file is written under a name of its own beside its place,
 * and renamed when all are complete. The file that it replaces is kept under a third name until the last file is in
 * place. */
#define _GNU_SOURCE
#include "cli/files/rank_files_out.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files/npy.h"

/* ---- an interrupt removes what has not appeared ---- */

static struct rank_files_out *volatile pending;
static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

static void interrupted(int number)
{
    struct rank_files_out *o = pending;
    for (size_t i = 0; o && i < o->n; i++)
        if (o->temp[i])
            unlink(o->temp[i]);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch(struct rank_files_out *o)
{
    static bool watching;
    pending = o;
    struct sigaction act = {.sa_handler = interrupted}, old;
    for (size_t i = 0; i < sizeof signals / sizeof *signals && !watching; i++)
        if (!sigaction(signals[i], NULL, &old) && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &act, NULL);
    watching = true;
}

/* Signals are blocked while the set changes, so that the handler sees a consistent set. */
static void hold_signals(bool hold)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* ---- one file ---- */

static int check_target(const char *name, struct failure *why)
{
    struct stat st;
    char *copy = strdup(name);
    if (!copy)
        return failure_set(why, CLI_WRONG, "not enough memory");
    int code = CLI_OK;
    if (!lstat(name, &st)) {
        if (!S_ISREG(st.st_mode))
            code = failure_set(why, CLI_BAD, "%s: it exists and is not a regular file", name);
    } else if (errno != ENOENT) {
        code = failure_set(why, CLI_BAD, "%s: %s", name, strerror(errno));
    }
    if (!code && access(dirname(copy), W_OK | X_OK))
        code = failure_set(why, CLI_BAD, "%s: its folder: %s", name, strerror(errno));
    free(copy);
    return code;
}

int rank_files_out_check(const struct rank_files_pattern *p, int rank, struct failure *why)
{
    char *name = rank_files_name(p, rank);
    if (!name)
        return failure_set(why, CLI_WRONG, "not enough memory");
    int code = check_target(name, why);
    free(name);
    return code;
}

static bool write_all(int fd, const void *data, size_t n)
{
    const unsigned char *p = data;
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

static bool write_piece(int fd, const struct rank_files_pattern *p, const struct rank_files_piece *piece,
                        const void *data)
{
    const weft_local *l = piece->local;
    unsigned char header[512];
    size_t n =
        p->format == RANK_FILES_NPY ? npy_write_header(piece->dtype, l->ndim, l->shape, header, sizeof header) : 0;
    mode_t mask = umask(0);
    umask(mask);
    return !fchmod(fd, 0666 & ~mask) && write_all(fd, header, n) && write_all(fd, data, (size_t)l->bytes) && !fsync(fd);
}

static bool make_room(struct rank_files_out *o)
{
    if (o->n < o->cap)
        return true;
    size_t cap = o->cap ? 2 * o->cap : 16;
    char ***lists[] = {&o->target, &o->temp, &o->backup};
    for (int i = 0; i < 3; i++) {
        char **v = realloc(*lists[i], cap * sizeof *v);
        if (!v)
            return false;
        *lists[i] = v;
    }
    o->cap = cap;
    return true;
}

int rank_files_out_add(struct rank_files_out *o, const struct rank_files_pattern *p,
                       const struct rank_files_piece *piece, const void *data, struct failure *why)
{
    int fd = -1, code = CLI_OK;
    char *target = rank_files_name(p, piece->rank), *temp = NULL;
    watch(o);
    hold_signals(true);
    bool room = target && make_room(o) && asprintf(&temp, "%s.weft-XXXXXX", target) >= 0;
    if (room && (fd = mkostemp(temp, O_CLOEXEC)) >= 0) {
        o->target[o->n] = target;
        o->temp[o->n] = temp;
        o->backup[o->n++] = NULL;
    }
    hold_signals(false);
    if (!room)
        code = failure_set(why, CLI_WRONG, "not enough memory");
    else if (fd < 0)
        code = failure_set(why, CLI_WRONG, "%s: %s", target, strerror(errno));
    if (code) {
        free(target);
        free(temp);
        return code;
    }
    bool written = write_piece(fd, p, piece, data);
    int err = errno;
    if (close(fd) && written) {
        written = false;
        err = errno;
    }
    return written ? CLI_OK : failure_set(why, CLI_WRONG, "%s: %s", target, strerror(err));
}

/* ---- all of them ---- */

/* Keeps the file in the target's place under another name. False: errno says why. */
static bool keep_old(struct rank_files_out *o, size_t i)
{
    struct stat st;
    if (lstat(o->target[i], &st))
        return errno == ENOENT;
    if (!S_ISREG(st.st_mode)) { /* it was put there after the check */
        errno = EEXIST;
        return false;
    }
    if (asprintf(&o->backup[i], "%s.old", o->temp[i]) < 0) {
        o->backup[i] = NULL;
        errno = ENOMEM;
        return false;
    }
    if (!link(o->target[i], o->backup[i]) || !rename(o->target[i], o->backup[i]))
        return true;
    int err = errno;
    free(o->backup[i]);
    o->backup[i] = NULL;
    errno = err;
    return false;
}

static void sync_folder(const char *name)
{
    char *copy = strdup(name);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd); /* some file systems cannot sync a folder; the files themselves are on disk */
        close(fd);
    }
    free(copy);
}

int rank_files_out_commit(struct rank_files_out *o, struct failure *why)
{
    size_t done = 0;
    int err = 0;
    hold_signals(true);
    for (; done < o->n; done++)
        if (!keep_old(o, done) || rename(o->temp[done], o->target[done])) {
            err = errno;
            break;
        }
    if (err) {
        failure_set(why, CLI_WRONG, "%s: %s", o->target[done], strerror(err));
        for (size_t i = 0; i <= done; i++) {
            if (o->backup[i])
                rename(o->backup[i], o->target[i]);
            else if (i < done)
                unlink(o->target[i]);
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        if (o->backup[i])
            unlink(o->backup[i]);
        if (i < done) {
            free(o->temp[i]);
            o->temp[i] = NULL;
        }
        if (!err)
            sync_folder(o->target[i]);
    }
    hold_signals(false);
    return err ? CLI_WRONG : CLI_OK;
}

void rank_files_out_free(struct rank_files_out *o)
{
    hold_signals(true);
    for (size_t i = 0; i < o->n; i++) {
        if (o->temp[i])
            unlink(o->temp[i]);
        free(o->temp[i]);
        free(o->target[i]);
        free(o->backup[i]);
    }
    pending = NULL;
    hold_signals(false);
    free(o->target);
    free(o->temp);
    free(o->backup);
    *o = (struct rank_files_out){0};
}
