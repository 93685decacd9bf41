#define _GNU_SOURCE
#include "checkpoint_files.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/suite.h"
#include "weft.h"

char scratch[64];

__attribute__((format(printf, 2, 3))) char *scratch_place(char path[PATH], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    assert_true(vsnprintf(path, PATH, fmt, ap) < PATH);
    va_end(ap);
    return path;
}

void scratch_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

int scratch_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%.40s/weft-ckpt-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

int scratch_empty(const char *path)
{
    char at[PATH];
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        n++;
        if (unlink(scratch_place(at, "%s/%s", path, e->d_name))) {
            n += scratch_empty(at);
            rmdir(at);
        }
    }
    if (d)
        closedir(d);
    return n;
}

int scratch_clear(void)
{
    return scratch_empty(scratch);
}

int scratch_drop(void **state)
{
    (void)state;
    scratch_clear();
    return rmdir(scratch);
}

/* ---- writing ---- */

static int64_t naive_bytes(const struct naive_tensor *t)
{
    int64_t n = (int64_t)weft_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

void scratch_write(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void scratch_write_text(const char *path, const char *text)
{
    scratch_write(path, text, strlen(text));
}

void scratch_write_raw(const char *path, const char *header, uint64_t length, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        putc((int)(length >> 8 * i & 255), f);
    fputs(header, f);
    fwrite(data, 1, n, f);
    assert_int_equal(fclose(f), 0);
}

void naive_write(const char *path, const struct naive_tensor *t, int n)
{
    static const char *const names[] = {"",        "BOOL",    "U8",  "I8",  "U16",     "I16", "U32",
                                        "I32",     "U64",     "I64", "F16", "BF16",    "F32", "F64",
                                        "F8_E4M3", "F8_E5M2", "",    "",    "F8_E8M0", "C64"};
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
    scratch_write_raw(path, header, len, "", 0);
    free(header);
    f = fopen(path, "a");
    for (int i = 0; i < n; i++)
        fwrite(t[i].data, 1, (size_t)naive_bytes(&t[i]), f);
    assert_int_equal(fclose(f), 0);
}

/* ---- reading ---- */

void naive_load(const char *path, struct loaded *out)
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

void naive_unload(struct loaded *f)
{
    arena_free(&f->arena);
    free(f->all);
}

void naive_index(const char *folder, int files)
{
    char path[PATH];
    const char *between = "";
    FILE *f = fopen(scratch_place(path, "%s/model.safetensors.index.json", folder), "w");
    assert_non_null(f);
    fputs("{\"metadata\": {}, \"weight_map\": {", f);
    for (int i = 0; i < files; i++) {
        struct loaded part;
        naive_load(scratch_place(path, "%s/part%d.safetensors", folder, i), &part);
        for (size_t k = 0; k < part.header.ntensors; k++, between = ", ")
            fprintf(f, "%s\"%s\": \"part%d.safetensors\"", between, part.header.tensors[k].name, i);
        naive_unload(&part);
    }
    fputs("}}", f);
    assert_int_equal(fclose(f), 0);
}
