/* Files for tests of checkpoints: a folder of the test's own, safetensors files written by a few lines that share
 * nothing with the library's, and read back. */
#ifndef WEFT_TESTS_CHECKPOINT_FILES_H
#define WEFT_TESTS_CHECKPOINT_FILES_H
#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"
#include "weft.h"

enum { PATH = 600 };
static char scratch[64];

__attribute__((format(printf, 2, 3))) static inline char *place(char path[PATH], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    assert_true(vsnprintf(path, PATH, fmt, ap) < PATH);
    va_end(ap);
    return path;
}

static inline void make_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

static inline int make_scratch(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%.40s/weft-ckpt-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

/* All files below a folder, however deep; how many there were. */
static inline int empty_folder(const char *path)
{
    char at[PATH];
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        n++;
        if (unlink(place(at, "%s/%s", path, e->d_name))) {
            n += empty_folder(at);
            rmdir(at);
        }
    }
    if (d)
        closedir(d);
    return n;
}

static inline int clear_scratch(void)
{
    return empty_folder(scratch);
}

static inline int drop_scratch(void **state)
{
    (void)state;
    clear_scratch();
    return rmdir(scratch);
}

/* ---- writing ---- */

struct naive_tensor {
    const char *name;
    int dtype, ndim;
    int64_t shape[WEFT_MAX_DIMS];
    void *data;
};

static inline int64_t naive_bytes(const struct naive_tensor *t)
{
    int64_t n = (int64_t)weft_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

static inline void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

/* A header as it is given, and data behind it. */
static inline void write_raw(const char *path, const char *header, uint64_t length, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        putc((int)(length >> 8 * i & 255), f);
    fputs(header, f);
    fwrite(data, 1, n, f);
    assert_int_equal(fclose(f), 0);
}

static inline void naive_write(const char *path, const struct naive_tensor *t, int n)
{
    static const char *const names[] = {"",    "BOOL", "U8",  "I8",   "U16", "I16", "U32",     "I32",
                                        "U64", "I64",  "F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2"};
    char *header = NULL;
    size_t len;
    FILE *f = open_memstream(&header, &len);
    int64_t at = 0;
    fputs("{\"__metadata__\": {\"format\": \"pt\"}", f);
    for (int i = 0; i < n; i++) {
        fprintf(f, ", \"%s\": {\"shape\": [", t[i].name);
        for (int d = 0; d < t[i].ndim; d++)
            fprintf(f, "%s%lld", d ? ", " : "", (long long)t[i].shape[d]);
        fprintf(f, "], \"dtype\": \"%s\", \"data_offsets\": [%lld, %lld]}", names[t[i].dtype], (long long)at,
                (long long)(at + naive_bytes(&t[i])));
        at += naive_bytes(&t[i]);
    }
    fputs("}", f);
    fclose(f);
    write_raw(path, header, len, "", 0);
    free(header);
    f = fopen(path, "a");
    for (int i = 0; i < n; i++)
        fwrite(t[i].data, 1, (size_t)naive_bytes(&t[i]), f);
    assert_int_equal(fclose(f), 0);
}

/* ---- reading ---- */

struct loaded {
    struct arena arena;
    struct safetensors_header header;
    unsigned char *all, *data;
};

static inline void load(const char *path, struct loaded *out)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s is not there", path);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    *out = (struct loaded){.all = malloc(n + 1)};
    assert_int_equal(fread(out->all, 1, n, f), n);
    fclose(f);
    int64_t length;
    assert_int_equal(safetensors_length(path, out->all, (int64_t)n, &length), 0);
    char *bytes = malloc((size_t)length + 1);
    memcpy(bytes, out->all + 8, (size_t)length);
    bytes[length] = 0;
    out->data = out->all + 8 + length;
    if (safetensors_read(path, bytes, (size_t)length, (int64_t)n - 8 - length, &out->arena, &out->header))
        fail_msg("%s", weft_errmsg());
}

static inline void unload(struct loaded *f)
{
    arena_free(&f->arena);
    free(f->all);
}

/* The index of part0.safetensors, part1.safetensors, ... in a folder. */
static inline void naive_index(const char *folder, int files)
{
    char path[PATH];
    const char *between = "";
    FILE *f = fopen(place(path, "%s/model.safetensors.index.json", folder), "w");
    assert_non_null(f);
    fputs("{\"metadata\": {}, \"weight_map\": {", f);
    for (int i = 0; i < files; i++) {
        struct loaded part;
        load(place(path, "%s/part%d.safetensors", folder, i), &part);
        for (size_t k = 0; k < part.header.ntensors; k++, between = ", ")
            fprintf(f, "%s\"%s\": \"part%d.safetensors\"", between, part.header.tensors[k].name, i);
        unload(&part);
    }
    fputs("}}", f);
    assert_int_equal(fclose(f), 0);
}
#endif
