/* The header of a .npy file: a magic text, a version, a length, and a Python dict with 'descr', 'fortran_order' and
 * 'shape'. A scanner reads only this dict; everything else is refused with a reason. */
#include "cli/files/npy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";
#define MAGIC 6

static const struct {
    int dtype;
    const char *descr;
} types[] = {{WEFT_BOOL, "|b1"}, {WEFT_U8, "|u1"},  {WEFT_I8, "|i1"},  {WEFT_U16, "<u2"},  {WEFT_I16, "<i2"},
             {WEFT_U32, "<u4"},  {WEFT_I32, "<i4"}, {WEFT_U64, "<u8"}, {WEFT_I64, "<i8"},  {WEFT_F16, "<f2"},
             {WEFT_F32, "<f4"},  {WEFT_F64, "<f8"}, {WEFT_C64, "<c8"}, {WEFT_C128, "<c16"}};

const char *npy_descr(int dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype)
            return types[i].descr;
    return NULL;
}

static int refuse(char *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(char *why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, NPY_WHY, fmt, ap);
    va_end(ap);
    return -1;
}

int npy_header_length(const void *start, size_t n, int64_t *length, char why[NPY_WHY])
{
    const unsigned char *p = start;
    if (n < MAGIC || memcmp(p, magic, MAGIC))
        return refuse(why, "it is not a .npy file");
    if (n < MAGIC + 4)
        return refuse(why, "it ends inside the header");
    int major = p[MAGIC];
    if (major < 1 || major > 3)
        return refuse(why, "version %d of the format is not known (1, 2 and 3 are)", major);
    size_t prelude = major == 1 ? 10 : 12;
    if (n < prelude)
        return refuse(why, "it ends inside the header");
    int64_t len = p[8] | p[9] << 8;
    if (major > 1)
        len |= (int64_t)p[10] << 16 | (int64_t)p[11] << 24;
    if (len > NPY_HEADER_MAX)
        return refuse(why, "its header has %" PRId64 " bytes, and at most %d are read", len, NPY_HEADER_MAX);
    *length = (int64_t)prelude + len;
    return 0;
}

/* ---- the dict ---- */

struct scan {
    const char *p, *end;
    char *why;
};

static void skip(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take(struct scan *s, char c)
{
    skip(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

static bool take_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    skip(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n))
        return false;
    s->p += n;
    return true;
}

/* A quoted text without escapes, cut where buf ends (no text that matters is that long). */
static bool take_string(struct scan *s, char *buf, size_t cap)
{
    skip(s);
    if (s->p == s->end || (*s->p != '\'' && *s->p != '"'))
        return false;
    char quote = *s->p++;
    size_t n = 0;
    for (; s->p < s->end && *s->p != quote; s->p++) {
        if (*s->p == '\\' || (unsigned char)*s->p < ' ' || (unsigned char)*s->p > '~')
            return false;
        if (n + 1 < cap)
            buf[n++] = *s->p;
    }
    buf[n] = 0;
    if (s->p == s->end)
        return false;
    s->p++;
    return true;
}

static int take_descr(struct scan *s, struct npy *out)
{
    char text[24];
    skip(s);
    if (s->p < s->end && *s->p == '[')
        return refuse(s->why, "its elements are records, not numbers");
    if (!take_string(s, text, sizeof text))
        return refuse(s->why, "its 'descr' is not understood");
    if (text[0] == '>')
        return refuse(s->why, "its elements are big-endian ('%s'); convert it: a.astype(a.dtype.newbyteorder('<'))",
                      text);
    if (text[0] == '=' || text[0] == '<' || text[0] == '|')
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            bool one_byte = types[i].descr[0] == '|';
            if (!strcmp(text + 1, types[i].descr + 1) && (one_byte || text[0] != '|')) {
                out->dtype = types[i].dtype;
                return 0;
            }
        }
    return refuse(s->why, "its elements are '%s', which weft does not read from .npy; for bf16 and f8 use .bin", text);
}

static int take_order(struct scan *s)
{
    if (take_word(s, "True"))
        return refuse(s->why, "it is in Fortran order; save np.ascontiguousarray(a) instead");
    if (!take_word(s, "False"))
        return refuse(s->why, "its 'fortran_order' is neither True nor False");
    return 0;
}

static int take_shape(struct scan *s, struct npy *out)
{
    if (!take(s, '('))
        return refuse(s->why, "its 'shape' is not a tuple");
    out->ndim = 0;
    while (!take(s, ')')) {
        int64_t v = 0;
        skip(s);
        const char *digits = s->p;
        for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s->p - '0', &v))
                return refuse(s->why, "a number in its 'shape' is too large");
        if (s->p == digits)
            return refuse(s->why, "its 'shape' is not a tuple of numbers");
        if (s->p < s->end && *s->p == 'L') /* Python 2 wrote it */
            s->p++;
        if (out->ndim == WEFT_MAX_DIMS)
            return refuse(s->why, "it has more than %d dims", WEFT_MAX_DIMS);
        out->shape[out->ndim++] = v;
        if (!take(s, ',')) {
            if (out->ndim == 1) /* (3) is a number in Python, not a tuple */
                return refuse(s->why, "its 'shape' is not a tuple");
            if (!take(s, ')'))
                return refuse(s->why, "its 'shape' is not a tuple of numbers");
            break;
        }
    }
    return 0;
}

/* Elements times their size, for shapes with zeros too. */
static int count_bytes(struct npy *out, char *why)
{
    int64_t bytes = (int64_t)weft_dtype_size(out->dtype);
    bool empty = false;
    for (int d = 0; d < out->ndim; d++) {
        if (!out->shape[d])
            empty = true;
        else if (__builtin_mul_overflow(bytes, out->shape[d], &bytes))
            return refuse(why, "its shape has more than 2^63 bytes");
    }
    out->bytes = empty ? 0 : bytes;
    return 0;
}

int npy_parse(const void *header, size_t n, struct npy *out, char why[NPY_WHY])
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    int64_t length;
    if (npy_header_length(header, n, &length, why))
        return -1;
    if ((size_t)length > n)
        return refuse(why, "its header should have %" PRId64 " bytes and has %zu", length, n);
    *out = (struct npy){.data = length};
    const char *text = header;
    struct scan s = {text + (text[MAGIC] == 1 ? 10 : 12), text + length, why};
    if (!take(&s, '{'))
        return refuse(why, "its header is not a dict");
    int seen = 0;
    while (!take(&s, '}')) {
        char key[24];
        if (!take_string(&s, key, sizeof key) || !take(&s, ':'))
            return refuse(why, "its header is not a dict of texts");
        int which = !strcmp(key, "descr")           ? DESCR
                    : !strcmp(key, "fortran_order") ? ORDER
                    : !strcmp(key, "shape")         ? SHAPE
                                                    : 0;
        if (!which || seen & which)
            return refuse(why, "its header has '%s' %s", key, which ? "twice" : "in it, which is not known");
        seen |= which;
        int err = which == DESCR ? take_descr(&s, out) : which == ORDER ? take_order(&s) : take_shape(&s, out);
        if (err)
            return err;
        if (!take(&s, ',')) {
            if (!take(&s, '}'))
                return refuse(why, "its header is not a dict");
            break;
        }
    }
    skip(&s);
    if (s.p != s.end)
        return refuse(why, "something follows the dict in its header");
    if (seen != (DESCR | ORDER | SHAPE))
        return refuse(why, "its header lacks '%s'",
                      !(seen & DESCR)   ? "descr"
                      : !(seen & ORDER) ? "fortran_order"
                                        : "shape");
    return count_bytes(out, why);
}

/* ---- writing ---- */

char *npy_shape_text(int ndim, const int64_t *shape, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "(");
    for (int d = 0; d < ndim && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (n < cap)
        snprintf(buf + n, cap - n, "%s)", ndim == 1 ? "," : "");
    return buf;
}

size_t npy_write_header(int dtype, int ndim, const int64_t *shape, void *buf, size_t cap)
{
    char tuple[256], dict[400];
    const char *descr = npy_descr(dtype);
    if (!descr)
        return 0;
    int n = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr,
                     npy_shape_text(ndim, shape, tuple, sizeof tuple));
    size_t all = (10 + (size_t)n + 1 + 63) / 64 * 64;
    if (all > cap)
        return 0;
    unsigned char *p = buf;
    memset(p, ' ', all);
    memcpy(p, magic, MAGIC);
    p[6] = 1;
    p[7] = 0;
    p[8] = (unsigned char)((all - 10) & 255);
    p[9] = (unsigned char)((all - 10) >> 8);
    memcpy(p + 10, dict, (size_t)n);
    p[all - 1] = '\n';
    return all;
}
