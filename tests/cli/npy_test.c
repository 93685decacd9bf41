/* Headers of .npy files: what is written reads back to the same, what numpy writes is understood, and everything else
 * is refused with a reason. Then whole files: checked, read, and written all together or not at all. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files/npy.h"
#include "cli/files/rank_files_out.h"
#include "support/suite.h"

/* Builds a header of a version around a dict; `n` is its length. */
static unsigned char *header(int version, const char *dict, size_t *n)
{
    size_t prelude = version == 1 ? 10 : 12, len = strlen(dict);
    unsigned char *p = malloc(prelude + len);
    memcpy(p, "\x93NUMPY", 6);
    p[6] = (unsigned char)version;
    p[7] = 0;
    for (size_t i = 8; i < prelude; i++)
        p[i] = (unsigned char)(len >> 8 * (i - 8) & 255);
    memcpy(p + prelude, dict, len);
    *n = prelude + len;
    return p;
}

static int parse(int version, const char *dict, struct npy *out, char *why)
{
    size_t n;
    unsigned char *p = header(version, dict, &n);
    int err = npy_parse(p, n, out, why);
    free(p);
    return err;
}

static void written_headers_read_back_equal(void **state)
{
    (void)state;
    static const int64_t shapes[][WEFT_MAX_DIMS] = {
        {0}, {5}, {3, 4}, {0, 7}, {1, 1, 1, 1, 1, 1, 1, 1}, {INT64_C(1) << 40, 1000}};
    static const int dims[] = {0, 1, 2, 2, 8, 2};
    int seen = 0;
    for (int dtype = 1; weft_dtype_name(dtype); dtype++)
        for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) {
            unsigned char buf[512];
            struct npy h;
            char why[NPY_WHY];
            int64_t length, bytes = (int64_t)weft_dtype_size(dtype);
            size_t n = npy_write_header(dtype, dims[k], shapes[k], buf, sizeof buf);
            if (!npy_descr(dtype)) {
                assert_int_equal(n, 0);
                continue;
            }
            seen++;
            assert_int_equal(n % 64, 0);
            assert_int_equal(buf[n - 1], '\n');
            assert_int_equal(npy_header_length(buf, NPY_PRELUDE, &length, why), 0);
            assert_int_equal(length, n);
            if (npy_parse(buf, n, &h, why))
                fail_msg("%s", why);
            for (int d = 0; d < dims[k]; d++)
                bytes *= shapes[k][d];
            assert_int_equal(h.dtype, dtype);
            assert_int_equal(h.ndim, dims[k]);
            assert_memory_equal(h.shape, shapes[k], sizeof(int64_t) * (size_t)dims[k]);
            assert_int_equal(h.data, n);
            assert_int_equal(h.bytes, bytes);
            assert_int_equal(npy_write_header(dtype, dims[k], shapes[k], buf, n - 1), 0);
        }
    assert_int_equal(seen, 14 * (int)(sizeof dims / sizeof *dims)); /* bf16 and f8 have none */
}

static void headers_of_numpy_are_accepted(void **state)
{
    (void)state;
    static const struct {
        int version;
        const char *dict;
        int dtype, ndim;
        int64_t bytes;
    } good[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n", WEFT_F32, 2, 48},
        {1, "{'descr': '<c16', 'fortran_order': False, 'shape': (3,), }\n", WEFT_C128, 1, 48},
        {2, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n", WEFT_F64, 1, 24},
        {3, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }\n", WEFT_BOOL, 0, 1},
        {1, "{\"shape\":(2,0,5),\"descr\":\"<i2\",\"fortran_order\":False}", WEFT_I16, 3, 0},
        {1, "{'descr': '=u8', 'fortran_order': False, 'shape': (2, 3)}\n", WEFT_U64, 2, 48},
        {1, "{'descr': '<i1', 'fortran_order': False, 'shape': (2L, 3L), }\n", WEFT_I8, 2, 6},
        {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (1,2,3,4,5,6,7,8), }", WEFT_F16, 8, 80640},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct npy h;
        char why[NPY_WHY] = "";
        if (parse(good[i].version, good[i].dict, &h, why))
            fail_msg("%s: %s", good[i].dict, why);
        assert_int_equal(h.dtype, good[i].dtype);
        assert_int_equal(h.ndim, good[i].ndim);
        assert_int_equal(h.bytes, good[i].bytes);
    }
}

/* Each with words of the message it gets. */
static void bad_headers_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }", "Fortran order; save np.ascontiguousarray(a)"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3, 4), }", "big-endian ('>f4')"},
        {"{'descr': '<c32', 'fortran_order': False, 'shape': (3, 4), }", "'<c32', which weft does not read"},
        {"{'descr': '|c16', 'fortran_order': False, 'shape': (3, 4), }", "'|c16', which weft does not read"},
        {"{'descr': '<V2', 'fortran_order': False, 'shape': (3, 4), }", "for bf16 and f8 use .bin"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (3, 4), }", "'|f4', which weft does not read"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (3,), }", "'<f16'"},
        {"{'descr': 'f4', 'fortran_order': False, 'shape': (3,), }", "'f4'"},
        {"{'descr': '', 'fortran_order': False, 'shape': (3,), }", "''"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "records"},
        {"{'descr': 4, 'fortran_order': False, 'shape': (3,), }", "'descr' is not understood"},
        {"{'descr': '<f4\\n', 'fortran_order': False, 'shape': (3,), }", "'descr' is not understood"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [3], }", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3), }", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", "not a tuple of numbers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3.5,), }", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (,), }", "not a tuple of numbers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4", "not a tuple of numbers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 2), }", "more than 2^63 bytes"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }", "more than 2^63 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", "more than 8 dims"},
        {"{'descr': '<f4', 'shape': (3,), }", "lacks 'fortran_order'"},
        {"{'fortran_order': False, 'shape': (3,), }", "lacks 'descr'"},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks 'shape'"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "'descr' twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'order': 'C'}", "'order' in it"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (3,), }", "not a dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } x", "something follows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), ", "not a dict"},
        {"['descr', '<f4']", "not a dict"},
        {"", "not a dict"},
        {"{", "not a dict"},
        {"{'descr", "not a dict"},
        {"{'descr\xff': 1}", "not a dict"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int version = 1; version <= 3; version++) {
            struct npy h;
            char why[NPY_WHY] = "";
            if (!parse(version, bad[i][0], &h, why))
                fail_msg("%s was accepted", bad[i][0]);
            if (!strstr(why, bad[i][1]))
                fail_msg("%s: '%s' lacks '%s'", bad[i][0], why, bad[i][1]);
        }
}

static void bad_preludes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *start;
        size_t n;
        const char *why;
    } bad[] = {
        {"", 0, "not a .npy file"},
        {"\x93NUMP", 5, "not a .npy file"},
        {"\x94NUMPY\1\0\0\0\0\0", 12, "not a .npy file"},
        {"PK\3\4aaaaaaaa", 12, "not a .npy file"},
        {"\x93NUMPY\1\0\x76", 9, "ends inside the header"},
        {"\x93NUMPY\2\0\x76\0\0", 11, "ends inside the header"},
        {"\x93NUMPY\0\0\x76\0\0\0", 12, "version 0"},
        {"\x93NUMPY\4\0\x76\0\0\0", 12, "version 4"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff", 12, "header has 4294967295 bytes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[NPY_WHY] = "";
        int64_t length;
        struct npy h;
        assert_int_equal(npy_header_length(bad[i].start, bad[i].n, &length, why), -1);
        if (!strstr(why, bad[i].why))
            fail_msg("'%s' lacks '%s'", why, bad[i].why);
        assert_int_equal(npy_parse(bad[i].start, bad[i].n, &h, why), -1);
    }
    /* every shorter piece of a right header is refused */
    size_t n;
    unsigned char *p = header(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", &n);
    for (size_t cut = 0; cut < n; cut++) {
        struct npy h;
        char why[NPY_WHY];
        unsigned char *copy = malloc(cut + 1); /* exactly that long, for the sanitizer */
        memcpy(copy, p, cut);
        copy = realloc(copy, cut ? cut : 1);
        assert_int_equal(npy_parse(copy, cut, &h, why), -1);
        free(copy);
    }
    free(p);
}

/* ---- files ---- */

static char folder[] = "/tmp/weft-npy-XXXXXX";

static int enter_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && !chdir(folder) ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") || system(command) ? -1 : 0;
}

static void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static int count_files(void)
{
    DIR *d = opendir(".");
    int n = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static weft_local local_of(const char *text, int rank)
{
    weft_layout *l = NULL;
    weft_local out;
    assert_int_equal(weft_layout_parse(text, &l), 0);
    assert_int_equal(weft_layout_local(l, rank, &out), 0);
    weft_layout_free(l);
    return out;
}

static void bad_patterns_of_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int ranks, dtype;
        const char *why;
    } bad[] = {
        {"a.npy", 2, WEFT_F32, "needs a %r"},          {"a.%d.npy", 2, WEFT_F32, "after % comes r"},
        {"a.%r.npy%", 2, WEFT_F32, "after % comes r"}, {"a.%r.txt", 2, WEFT_F32, "end in .npy or .bin"},
        {"a.%r.npy", 2, WEFT_BF16, "use .bin"},        {".npy", 1, WEFT_F32, "end in .npy or .bin"},
        {"a.%%r.npy", 2, WEFT_F32, "needs a %r"},
    };
    struct rank_files_pattern p;
    struct failure why;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rank_files_pattern(&p, "--in", bad[i].text, bad[i].ranks, bad[i].dtype, &why), CLI_BAD);
        if (!strstr(why.text, bad[i].why) || !strstr(why.text, bad[i].text))
            fail_msg("'%s' lacks '%s'", why.text, bad[i].why);
    }
    assert_int_equal(rank_files_pattern(&p, "--in", "%r/a%%b.%r.bin", 20, WEFT_BF16, &why), CLI_OK);
    char *name = rank_files_name(&p, 17);
    assert_string_equal(name, "17/a%b.17.bin");
    free(name);
}

static void inputs_are_checked_and_read(void **state)
{
    (void)state;
    struct rank_files_pattern npy, bin;
    struct failure why;
    weft_local l = local_of("f32[5/x,3] @x2", 1);
    struct rank_files_piece piece = {.rank = 1, .dtype = WEFT_F32, .local = &l};
    assert_int_equal(rank_files_pattern(&npy, "--in", "in.%r.npy", 2, WEFT_F32, &why), CLI_OK);
    assert_int_equal(rank_files_pattern(&bin, "--in", "in.%r.bin", 2, WEFT_F32, &why), CLI_OK);
    unsigned char file[1024];
    float data[6] = {1, 2, 3, 4, 5, 6}, got[6];
    size_t n = npy_write_header(WEFT_F32, 2, l.shape, file, sizeof file);
    memcpy(file + n, data, sizeof data);

    assert_int_equal(rank_files_check(&npy, &piece, &why), CLI_BAD);
    assert_string_equal(why.text, "in.1.npy: No such file or directory");
    put("in.1.npy", file, n + sizeof data);
    assert_int_equal(rank_files_check(&npy, &piece, &why), CLI_OK);
    assert_int_equal(rank_files_read(&npy, &piece, got, &why), CLI_OK);
    assert_memory_equal(got, data, sizeof data);
    put("in.1.npy", file, n + sizeof data - 1);
    assert_int_equal(rank_files_read(&npy, &piece, got, &why), CLI_BAD);
    assert_string_equal(why.text,
                        "in.1.npy: 23 bytes follow its header, and shape (2, 3) of f32 has 24: it is cut short");
    put("in.1.npy", file, n + sizeof data + 1);
    assert_int_equal(rank_files_check(&npy, &piece, &why), CLI_BAD);
    assert_non_null(strstr(why.text, "more than the array"));
    put("in.1.npy", file, n - 1);
    assert_int_equal(rank_files_check(&npy, &piece, &why), CLI_BAD);
    assert_non_null(strstr(why.text, "its header alone should have 128"));
    put("in.1.npy", file, 3);
    assert_int_equal(rank_files_check(&npy, &piece, &why), CLI_BAD);
    assert_string_equal(why.text, "in.1.npy: it is not a .npy file");
    /* another shape, another dtype: both are named */
    n = npy_write_header(WEFT_I32, 1, (const int64_t[]){6}, file, sizeof file);
    put("in.1.npy", file, n + sizeof data);
    assert_int_equal(rank_files_check(&npy, &piece, &why), CLI_BAD);
    assert_string_equal(why.text, "in.1.npy: it has shape (6,) of i32; rank 1 of the layout has (2, 3) of f32");

    put("in.1.bin", data, sizeof data);
    assert_int_equal(rank_files_read(&bin, &piece, got, &why), CLI_OK);
    assert_memory_equal(got, data, sizeof data);
    put("in.1.bin", data, sizeof data - 4);
    assert_int_equal(rank_files_check(&bin, &piece, &why), CLI_BAD);
    assert_string_equal(why.text, "in.1.bin: it has 20 bytes; rank 1 of the layout has (2, 3) of f32, 24 bytes");
    unlink("in.1.bin");
    assert_int_equal(mkdir("in.1.bin", 0777), 0);
    assert_int_equal(rank_files_check(&bin, &piece, &why), CLI_BAD);
    assert_string_equal(why.text, "in.1.bin: it is not a regular file");
    rmdir("in.1.bin");
    unlink("in.1.npy");
    /* an empty piece has a file, with a 0 in its shape */
    l = local_of("f32[2/x,3] @x3", 2);
    piece.rank = 2;
    n = npy_write_header(WEFT_F32, 2, (const int64_t[]){0, 3}, file, sizeof file);
    put("in.2.npy", file, n);
    assert_int_equal(rank_files_read(&npy, &piece, got, &why), CLI_OK);
    unlink("in.2.npy");
}

static void outputs_replace_old_files_when_committed(void **state)
{
    (void)state;
    struct rank_files_pattern p;
    struct failure why;
    weft_local l = local_of("i16[6/x] @x3", 0);
    int16_t data[2] = {7, -9}, got[2] = {0};
    struct rank_files_out out = {0};
    struct stat st;
    assert_int_equal(rank_files_pattern(&p, "--out", "out.%r.npy", 3, WEFT_I16, &why), CLI_OK);
    put("out.1.npy", "old", 3);
    for (int r = 0; r < 3; r++) {
        struct rank_files_piece piece = {.rank = r, .dtype = WEFT_I16, .local = &l};
        assert_int_equal(rank_files_out_check(&p, r, &why), CLI_OK);
        assert_int_equal(rank_files_out_add(&out, &p, &piece, data, &why), CLI_OK);
    }
    /* nothing has appeared yet */
    assert_int_not_equal(stat("out.0.npy", &st), 0);
    assert_int_equal(stat("out.1.npy", &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(rank_files_out_commit(&out, &why), CLI_OK);
    rank_files_out_free(&out);
    assert_int_equal(count_files(), 3);
    for (int r = 0; r < 3; r++) {
        struct rank_files_piece piece = {.rank = r, .dtype = WEFT_I16, .local = &l};
        assert_int_equal(rank_files_read(&p, &piece, got, &why), CLI_OK);
        assert_memory_equal(got, data, sizeof data);
    }
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat("out.2.npy", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);

    /* given up: no trace */
    struct rank_files_piece piece = {.rank = 0, .dtype = WEFT_I16, .local = &l};
    assert_int_equal(rank_files_out_add(&out, &p, &piece, data, &why), CLI_OK);
    assert_int_equal(count_files(), 4);
    rank_files_out_free(&out);
    assert_int_equal(count_files(), 3);
    for (int r = 0; r < 3; r++) {
        char *name = rank_files_name(&p, r);
        unlink(name);
        free(name);
    }
}

/* The last of three cannot be put in its place: the first two are as before. */
static void failed_commit_restores_the_old_files(void **state)
{
    (void)state;
    struct rank_files_pattern p;
    struct failure why;
    weft_local l = local_of("u8[3/x] @x3", 0);
    struct rank_files_out out = {0};
    struct stat st;
    assert_int_equal(rank_files_pattern(&p, "--out", "out.%r.bin", 3, WEFT_U8, &why), CLI_OK);
    put("out.0.bin", "before", 6);
    for (int r = 0; r < 3; r++) {
        struct rank_files_piece piece = {.rank = r, .dtype = WEFT_U8, .local = &l};
        assert_int_equal(rank_files_out_add(&out, &p, &piece, "x", &why), CLI_OK);
    }
    assert_int_equal(mkdir("out.2.bin", 0777), 0);
    put("out.2.bin/inside", "", 0);
    assert_int_equal(rank_files_out_check(&p, 2, &why), CLI_BAD);
    assert_non_null(strstr(why.text, "out.2.bin: it exists and is not a regular file"));
    assert_int_equal(rank_files_out_commit(&out, &why), CLI_WRONG);
    assert_non_null(strstr(why.text, "out.2.bin: "));
    rank_files_out_free(&out);
    assert_int_equal(stat("out.0.bin", &st), 0);
    assert_int_equal(st.st_size, 6);
    assert_int_not_equal(stat("out.1.bin", &st), 0);
    assert_int_equal(stat("out.2.bin/inside", &st), 0);
    assert_int_equal(count_files(), 2);
    assert_int_equal(rank_files_pattern(&p, "--out", "nowhere/out.%r.bin", 3, WEFT_U8, &why), CLI_OK);
    assert_int_equal(rank_files_out_check(&p, 0, &why), CLI_BAD);
    assert_non_null(strstr(why.text, "nowhere/out.0.bin: "));
    unlink("out.2.bin/inside");
    rmdir("out.2.bin");
    unlink("out.0.bin");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_headers_read_back_equal),
        cmocka_unit_test(headers_of_numpy_are_accepted),
        cmocka_unit_test(bad_headers_are_refused_with_the_reason),
        cmocka_unit_test(bad_preludes_are_refused),
        cmocka_unit_test(bad_patterns_of_names_are_refused),
        cmocka_unit_test(inputs_are_checked_and_read),
        cmocka_unit_test(outputs_replace_old_files_when_committed),
        cmocka_unit_test(failed_commit_restores_the_old_files),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, enter_folder, leave_folder));
}
