/* Names and inputs; see rank_files.h. */
#define _GNU_SOURCE
#include "cli/files/rank_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files/npy.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

int rank_files_pattern(struct rank_files_pattern *out, const char *option, const char *text, int64_t ranks, int dtype,
                       struct failure *why)
{
    bool has_rank = false;
    *out = (struct rank_files_pattern){.option = option, .text = text};
    for (const char *p = text; *p; p++) {
        if (*p != '%')
            continue;
        p++;
        if (*p != 'r' && *p != '%')
            return failure_set(why, CLI_BAD, "%s %s: after %% comes r (the rank) or another %%", option, text);
        has_rank = has_rank || *p == 'r';
    }
    if (!has_rank && ranks > 1)
        return failure_set(why, CLI_BAD, "%s %s: the mesh has %" PRId64 " ranks, so the name needs a %%r", option, text,
                           ranks);
    if (ends_with(text, ".npy"))
        out->format = RANK_FILES_NPY;
    else if (ends_with(text, ".bin"))
        out->format = RANK_FILES_BIN;
    else
        return failure_set(why, CLI_BAD, "%s %s: the name must end in .npy or .bin", option, text);
    if (out->format == RANK_FILES_NPY && !npy_descr(dtype))
        return failure_set(why, CLI_BAD, "%s %s: .npy has no %s; use .bin", option, text, weft_dtype_name(dtype));
    return CLI_OK;
}

char *rank_files_name(const struct rank_files_pattern *p, int rank)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    for (const char *c = p->text; *c; c++) {
        if (*c != '%')
            putc(*c, f);
        else if (*++c == 'r')
            fprintf(f, "%d", rank);
        else
            putc('%', f);
    }
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

/* Reads n bytes at an offset; false with errno, 0 for an early end. */
static bool read_all(int fd, void *data, size_t n, int64_t at)
{
    unsigned char *p = data;
    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got ? errno : 0;
            return false;
        }
        p += got;
        n -= (size_t)got;
        at += got;
    }
    return true;
}

static const char *reason(void)
{
    return errno ? strerror(errno) : "it ended early";
}

/* The header of an .npy file of `size` bytes, checked by itself. */
static int read_header(int fd, const char *name, int64_t size, struct npy *out, struct failure *why)
{
    unsigned char start[NPY_PRELUDE];
    char words[NPY_WHY];
    int64_t length;
    size_t n = size < NPY_PRELUDE ? (size_t)size : NPY_PRELUDE;
    if (!read_all(fd, start, n, 0))
        return failure_set(why, CLI_BAD, "%s: %s", name, reason());
    if (npy_header_length(start, n, &length, words))
        return failure_set(why, CLI_BAD, "%s: %s", name, words);
    if (length > size)
        return failure_set(why, CLI_BAD, "%s: it has %" PRId64 " bytes, and its header alone should have %" PRId64,
                           name, size, length);
    unsigned char *header = malloc((size_t)length);
    int code = CLI_OK;
    if (!header)
        code = failure_set(why, CLI_WRONG, "%s: not enough memory", name);
    else if (!read_all(fd, header, (size_t)length, 0))
        code = failure_set(why, CLI_BAD, "%s: %s", name, reason());
    else if (npy_parse(header, (size_t)length, out, words))
        code = failure_set(why, CLI_BAD, "%s: %s", name, words);
    free(header);
    return code;
}

static bool same_shape(const struct npy *h, const weft_local *l)
{
    bool same = h->ndim == l->ndim;
    for (int d = 0; same && d < l->ndim; d++)
        same = h->shape[d] == l->shape[d];
    return same;
}

/* Compares what the file has with what the layout says; *data is where the elements start. */
static int check_open(int fd, const char *name, const struct rank_files_pattern *p,
                      const struct rank_files_piece *piece, int64_t *data, struct failure *why)
{
    const weft_local *l = piece->local;
    struct stat st;
    struct npy h;
    char has[256], needs[256];
    if (fstat(fd, &st))
        return failure_set(why, CLI_BAD, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return failure_set(why, CLI_BAD, "%s: it is not a regular file", name);
    npy_shape_text(l->ndim, l->shape, needs, sizeof needs);
    if (p->format == RANK_FILES_BIN) {
        *data = 0;
        if (st.st_size != l->bytes)
            return failure_set(why, CLI_BAD,
                               "%s: it has %" PRId64 " bytes; rank %d of the layout has %s of %s, %" PRId64 " bytes",
                               name, (int64_t)st.st_size, piece->rank, needs, weft_dtype_name(piece->dtype), l->bytes);
        return CLI_OK;
    }
    int code = read_header(fd, name, st.st_size, &h, why);
    if (code)
        return code;
    if (h.dtype != piece->dtype || !same_shape(&h, l))
        return failure_set(why, CLI_BAD, "%s: it has shape %s of %s; rank %d of the layout has %s of %s", name,
                           npy_shape_text(h.ndim, h.shape, has, sizeof has), weft_dtype_name(h.dtype), piece->rank,
                           needs, weft_dtype_name(piece->dtype));
    if (st.st_size - h.data != h.bytes)
        return failure_set(
            why, CLI_BAD, "%s: %" PRId64 " bytes follow its header, and shape %s of %s has %" PRId64 ": it %s", name,
            (int64_t)st.st_size - h.data, npy_shape_text(h.ndim, h.shape, has, sizeof has), weft_dtype_name(h.dtype),
            h.bytes, st.st_size - h.data < h.bytes ? "is cut short" : "has more than the array in it");
    *data = h.data;
    return CLI_OK;
}

static int open_piece(const struct rank_files_pattern *p, const struct rank_files_piece *piece, void *data,
                      struct failure *why)
{
    char *name = rank_files_name(p, piece->rank);
    if (!name)
        return failure_set(why, CLI_WRONG, "not enough memory");
    int64_t at = 0;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code; /* does not wait for a pipe, which is refused */
    if (fd < 0)
        code = failure_set(why, CLI_BAD, "%s: %s", name, strerror(errno));
    else
        code = check_open(fd, name, p, piece, &at, why);
    if (!code && data && !read_all(fd, data, (size_t)piece->local->bytes, at))
        code = failure_set(why, CLI_BAD, "%s: %s", name, reason());
    if (fd >= 0)
        close(fd);
    free(name);
    return code;
}

int rank_files_check(const struct rank_files_pattern *p, const struct rank_files_piece *piece, struct failure *why)
{
    return open_piece(p, piece, NULL, why);
}

int rank_files_read(const struct rank_files_pattern *p, const struct rank_files_piece *piece, void *data,
                    struct failure *why)
{
    return open_piece(p, piece, data, why);
}
