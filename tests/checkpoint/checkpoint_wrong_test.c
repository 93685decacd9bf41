/* Checkpoints that go wrong: inputs that lie, rules that do not fit, outputs that are in the way, calls of the system
 * and allocations that fail. Each is refused in words that name what is to blame, and nothing is left behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint_files.h"
#include "support/nomem.h"
#include "support/suite.h"
#include "weft/checkpoint.h"

/* ---- calls that fail: the nth one of any thread, while a test says so ---- */

static atomic_long calls_until = -1;
static atomic_int calls_error;

static bool call_fails(void)
{
    if (atomic_load(&calls_until) < 0 || atomic_fetch_sub(&calls_until, 1) != 0)
        return false;
    errno = atomic_load(&calls_error);
    return true;
}

#define WRAP(type, name, params, ...)      \
    type __real_##name params;             \
    type __wrap_##name params;             \
    type __wrap_##name params              \
    {                                      \
        if (call_fails())                  \
            return (type)-1;               \
        return __real_##name(__VA_ARGS__); \
    }
WRAP(ssize_t, pread, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
WRAP(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), fd, from, n, at)
WRAP(int, fsync, (int fd), fd)
WRAP(int, ftruncate, (int fd, off_t n), fd, n)
WRAP(int, fallocate, (int fd, int mode, off_t at, off_t n), fd, mode, at, n)
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), a, from, b, to, flags)
WRAP(int, rename, (const char *from, const char *to), from, to)
WRAP(int, mkdir, (const char *path, mode_t mode), path, mode)

/* ---- a small model ---- */

static unsigned char bytes[4096];

static const char rules[] = "fuse qkv = q:4 + k:2 + v:2\n"
                            "l.{pp}.q [/tp, ]\n"
                            "l.{pp}.k [/tp<=2, ]\n"
                            "l.{pp}.v [/tp<=$kv, ]\n"
                            "l.{pp}.o [, /tp]\n"
                            "e [/tp, ] pp=first\n"
                            "n [...] pp=last\n";

static void write_model(const char *path)
{
    const struct naive_tensor t[] = {
        {"e", WEFT_F32, 2, {12, 4}, bytes},   {"l.0.qkv", WEFT_BF16, 2, {64, 4}, bytes},
        {"l.0.o", WEFT_U8, 2, {3, 8}, bytes}, {"l.1.qkv", WEFT_BF16, 2, {64, 4}, bytes},
        {"l.1.o", WEFT_U8, 2, {3, 8}, bytes}, {"n", WEFT_F64, 0, {0}, bytes},
    };
    naive_write(path, t, 6);
}

static char in[PATH], out[PATH], rules_path[PATH];
static const char *set[] = {"kv=2"};

static weft_checkpoint_opts options(void)
{
    return (weft_checkpoint_opts){.size = sizeof(weft_checkpoint_opts), .rules = rules_path, .set = set, .nset = 1};
}

static int begin(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 >> 3);
    write_model(scratch_place(in, "%s/in.safetensors", scratch));
    scratch_write_text(scratch_place(rules_path, "%s/rules", scratch), rules);
    scratch_place(out, "%s/out", scratch);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    atomic_store(&calls_until, -1);
    scratch_clear();
    return 0;
}

static int count_files(void)
{
    int n = -2;
    DIR *d = opendir(scratch);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void refused(const char *from, const char *to, const weft_checkpoint_opts *opts, int code, const char *says)
{
    int before = count_files(), rc = weft_checkpoint_reshard(from, out, to, opts, NULL);
    if (rc != code || !strstr(weft_errmsg(), says))
        fail_msg("%s to %s: %d, '%s' instead of %d, '%s'", from, to, rc, rc ? weft_errmsg() : "", code, says);
    assert_int_equal(count_files(), before);
}

static void taken(const char *from, const char *to, const weft_checkpoint_opts *opts)
{
    if (weft_checkpoint_reshard(from, out, to, opts, NULL))
        fail_msg("%s to %s: %s", from, to, weft_errmsg());
}

/* ---- inputs ---- */

static void files_that_lie_are_refused(void **state)
{
    (void)state;
    static const char ok[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    static const struct {
        const char *header;
        uint64_t length;
        size_t data;
        const char *says;
    } rows[] = {
        {ok, sizeof ok - 1, 3, "x.safetensors: tensor 'a': its data lies beyond the end of the file"},
        {ok, sizeof ok - 1, 5, "x.safetensors: its tensors have 4 bytes, but its data has 5"},
        {ok, 1000, 4, "x.safetensors: its header would have 1000 bytes"},
        {ok, UINT64_C(1) << 63, 4, "x.safetensors: its header would have 9223372036854775808 bytes"},
        {ok, sizeof ok - 2, 5, "x.safetensors: its header is not JSON"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807,9],\"data_offsets\":[0,4]}}", 73, 4,
         "x.safetensors: tensor 'a': its shape"},
    };
    char path[PATH];
    scratch_place(path, "%s/x.safetensors", scratch);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scratch_write_raw(path, rows[i].header, rows[i].length, bytes, rows[i].data);
        refused(path, "tp1", NULL, WEFT_EINVAL, rows[i].says);
    }
    scratch_write_text(path, "short");
    refused(path, "tp1", NULL, WEFT_EINVAL, "x.safetensors: it has 5 bytes");
    unlink(path);
    refused(path, "tp1", NULL, WEFT_EINVAL, "x.safetensors: No such file");
    refused("/dev/null", "tp1", NULL, WEFT_EINVAL, "/dev/null: it is not a regular file");
}

static void bad_folders_are_refused(void **state)
{
    (void)state;
    char folder[PATH], path[PATH], index[PATH];
    scratch_folder(scratch_place(folder, "%s/f", scratch));
    refused(folder, "tp1", NULL, WEFT_EINVAL, "the folder has no model.safetensors.index.json");
    write_model(scratch_place(path, "%s/a.safetensors", folder));
    scratch_place(index, "%s/model.safetensors.index.json", folder);
    static const struct {
        const char *index, *says;
    } rows[] = {
        {"{", "index.json: it is not JSON"},
        {"{}", "no object \"weight_map\""},
        {"{\"weight_map\": {\"e\": 7}}", "tensor 'e' is mapped to something other than a file of this folder"},
        {"{\"weight_map\": {\"e\": \"../a.safetensors\"}}",
         "tensor 'e' is mapped to something other than a file of this folder"},
        {"{\"weight_map\": {\"e\": \"/etc/passwd\"}}",
         "tensor 'e' is mapped to something other than a file of this folder"},
        {"{\"weight_map\": {\"e\": \"..\"}}", "tensor 'e' is mapped to something other than a file of this folder"},
        {"{\"weight_map\": {\"e\": \"b.safetensors\"}}", "b.safetensors: No such file"},
        {"{\"weight_map\": {\"e\": \"a.safetensors\", \"e\": \"a.safetensors\"}}", "tensor 'e' is there twice"},
        {"{\"weight_map\": {\"e\": \"a.safetensors\"}}", "a.safetensors: tensor 'l.0.o' is not in"},
        {"{\"weight_map\": {\"a\": \"a.safetensors\", \"e\": \"a.safetensors\"}}",
         "a.safetensors: tensor 'a' is missing, although"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scratch_write_text(index, rows[i].index);
        refused(folder, "tp1", NULL, WEFT_EINVAL, rows[i].says);
    }
}

static void incomplete_sets_are_refused(void **state)
{
    (void)state;
    char folder[PATH], path[PATH], other[PATH];
    weft_checkpoint_opts opts = options();
    taken(in, "tp2.pp2", &opts);
    rename(out, scratch_place(folder, "%s/set", scratch));
    refused(scratch_place(path, "%s/rank-00001-of-00004.safetensors", folder), "tp1", &opts, WEFT_EINVAL,
            "the file of one rank of a set over 'tp2.pp2'");
    opts.from = "tp4";
    refused(folder, "tp1", &opts, WEFT_EINVAL, "sharded over 'tp2.pp2', not over 'tp4'");
    opts.from = NULL;
    rename(path, scratch_place(other, "%s/away", scratch));
    refused(folder, "tp1", &opts, WEFT_EINVAL, "rank-00001-of-00004.safetensors: No such file");
    char first[PATH];
    struct loaded f;
    naive_load(scratch_place(first, "%s/rank-00000-of-00004.safetensors", folder), &f);
    scratch_write(path, f.all,
                  (size_t)(f.data - f.all + f.header.tensors[f.header.ntensors - 1].begin +
                           f.header.tensors[f.header.ntensors - 1].bytes));
    naive_unload(&f);
    refused(folder, "tp1", &opts, WEFT_EINVAL, "it is not rank 1's file of a set over 'tp2.pp2'");
    unlink(path);
    rename(other, path);
    opts.rules = NULL; /* fused parts need no names where all of them are whole */
    taken(folder, "tp1", &opts);
    struct loaded a, b;
    naive_load(in, &a);
    naive_load(scratch_place(path, "%s/model.safetensors", out), &b);
    assert_int_equal(a.header.ntensors, b.header.ntensors);
    for (size_t i = 0; i < a.header.ntensors; i++)
        for (size_t k = 0; k < b.header.ntensors; k++)
            if (!strcmp(a.header.tensors[i].name, b.header.tensors[k].name))
                assert_memory_equal(a.data + a.header.tensors[i].begin, b.data + b.header.tensors[k].begin,
                                    (size_t)a.header.tensors[i].bytes);
    assert_string_equal(safetensors_note(&b.header, "format"), "pt");
    assert_null(safetensors_note(&b.header, "weft.mesh"));
    naive_unload(&a);
    naive_unload(&b);
}

/* Notes that do not tell the truth. */
static void wrong_notes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *note, *says;
    } rows[] = {
        {"u8[4/tp] @tp2", NULL},
        {"u8[4/tp", "does not parse"},
        {"cat 1: u8[4/tp] @tp2", "does not parse"},
        {"cat x", "does not parse"},
        {"cat 0: u8[2/tp] @tp2 | u8[2/tp] @tp2", NULL},
        {"cat 0: u8[2] @tp2 | u8[2/tp] @tp2", "its shape is [2], and the layout gives rank 0 [3]"},
        {"cat 0: u8[4000000000000000000] @tp2 | u8[4000000000000000000] @tp2 | u8[4000000000000000000] @tp2",
         "its shape is [2], and the layout gives rank 0 [4000000000000000000]"},
        {"i8[4/tp] @tp2", "not that of a checkpoint's tensor"},
        {"u8[4/tp~1] @tp2", "not that of a checkpoint's tensor"},
        {"u8[4/tp] @tp2.x2", "not that of a checkpoint's tensor"},
        {"u8[4] @tp2 +sum(tp)", "not that of a checkpoint's tensor"},
        {"u8[5/tp] @tp2", "its shape is [2], and the layout gives rank 0 [3]"},
        {"u8[2] @tp1", "rank 1 has it, but its layout does not include that rank"},
        {"u8[4/tp,1] @tp2", "not that of a checkpoint's tensor"},
    };
    char folder[PATH], path[PATH], header[600];
    scratch_folder(scratch_place(folder, "%s/set", scratch));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int r = 0; r < 2; r++) {
            int n = snprintf(header, sizeof header,
                             "{\"__metadata__\":{\"weft.mesh\":\"tp2\",\"weft.rank\":\"%d\",\"weft.layout:a\":\"%s\"},"
                             "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                             r, rows[i].note);
            scratch_write_raw(scratch_place(path, "%s/rank-0000%d-of-00002.safetensors", folder, r), header,
                              (uint64_t)n, bytes, 2);
        }
        if (rows[i].says) {
            refused(folder, "tp1", NULL, WEFT_EINVAL, rows[i].says);
        } else {
            taken(folder, "tp1", NULL);
            scratch_empty(out);
            rmdir(out);
        }
    }
}

/* ---- what is asked for ---- */

static void bad_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *to, *from, *rules, *set, *says;
    } rows[] = {
        {"4", NULL, "* [/tp, ...]", NULL, "to: '4' is not a mesh"},
        {"tp2=0..1", NULL, "* [/tp, ...]", NULL, "to: 'tp2=0..1' is not a mesh"},
        {"", NULL, "* [/tp, ...]", NULL, "to: '' is not a mesh"},
        {"tp2.dp2", NULL, "* [/tp, ...]", NULL, "no rule of RULES splits or places anything over 'dp'"},
        {"tp2", NULL, "e [/tp, ]", NULL, "no rule of RULES matches its name"},
        {"tp2", NULL, "* [/tp, ]", NULL, "tensor 'n': it has another number of dims than its rule (RULES:1)"},
        {"tp2", NULL, "e [/tp]\n* [...]", NULL, "tensor 'e': it has another number of dims than its rule (RULES:1)"},
        {"tp2", NULL, "e [/tp<=$h, ]\n* [...]", NULL, "RULES:1: $h has no value: there is no config.json"},
        {"tp2", NULL, "e [/tp<=$h, ]\n* [...]", "h=x", "'h=x': a number"},
        {"tp2", NULL, "e [/tp<=$h, ]\n* [...]", "h=3",
         "tensor 'e': 3 pieces and tp of 2: neither number divides the other"},
        {"tp2", NULL, "e [/tp<=$h, ]\n* [...]", "hh=2", "'hh=2': no rule of RULES asks for that number"},
        {"tp3", NULL, "e [/tp<=2, ]\n* [...]", NULL,
         "tensor 'e': 2 pieces and tp of 3: neither number divides the other"},
        {"tp2", NULL, "l.0.o [/tp<=2, ]\n* [...]", NULL, "tensor 'l.0.o': a dim of 3 is not 2 pieces of whole heads"},
        {"tp2", NULL, "e [/tp, ] pp=3\n* [...]", NULL, NULL},
        {"tp2.pp2", NULL, "e [/tp, ] pp=3\n* [...]", NULL, "tensor 'e': it is placed beyond the end of an axis"},
        {"tp2", NULL, "fuse e = f:5 + g:2\n* [/tp, ...]", NULL, "tensor 'e': dim 0 does not divide into the shares"},
        {"tp2", NULL, "fuse n = f:5 + g:2\n* [...]\nx [/tp]", NULL, "tensor 'n': it has fewer dims"},
        {"tp2", NULL, "fuse e = f + g\nf [/tp, ]\ng [, /tp]\n* [...]", NULL,
         "tensor 'e': its parts are split in different ways"},
        {"pp2", NULL, "fuse e = f + g\nf [...] pp=0\ng [...] pp=1\n* [...]", NULL,
         "tensor 'e': its parts are on different ranks"},
        {"tp2", "tp4", "* [/tp, ...]", NULL, "it is the file of one rank, but 'tp4' has several"},
        {"tp70000", NULL, "* [/tp, ...]", NULL, "65536 ranks at most"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_checkpoint_opts opts = options();
        char says[PATH] = "", *at = says;
        scratch_write_text(rules_path, rows[i].rules);
        opts.from = rows[i].from;
        opts.set = &rows[i].set;
        opts.nset = rows[i].set != NULL;
        for (const char *s = rows[i].says ? rows[i].says : ""; *s; s++) /* RULES is the path */
            at += strncmp(s, "RULES", 5) ? sprintf(at, "%c", *s) : (s += 4, sprintf(at, "%s", rules_path));
        if (rows[i].says) {
            refused(in, rows[i].to, &opts, i == sizeof rows / sizeof *rows - 1 ? WEFT_EUNSUPPORTED : WEFT_EINVAL, says);
        } else {
            taken(in, rows[i].to, &opts);
            scratch_empty(out);
            rmdir(out);
        }
    }
    scratch_write_text(rules_path, rules);
    weft_checkpoint_opts opts = options();
    opts.rules = "no-such-rules";
    refused(
        in, "tp2", &opts, WEFT_EINVAL,
        "no-such-rules: there are no rules of this name (weft has gpt2, gpt_oss, llama, megatron, moe), and there is "
        "no such file");
    opts.rules = NULL;
    refused(in, "tp2", &opts, WEFT_EINVAL, "no rules say");
    opts.size = 3;
    refused(in, "tp1", &opts, WEFT_EINVAL, "the size in weft_checkpoint_opts is 3");
    opts = options();
    opts.memory = 1000;
    refused(in, "tp1", &opts, WEFT_EINVAL, "memory is 1000 bytes");
    opts = options();
    opts.threads = 65;
    refused(in, "tp1", &opts, WEFT_EINVAL, "threads is 65");
    opts = options();
    opts.dtype = WEFT_I8;
    refused(in, "tp1", &opts, WEFT_EINVAL, "not to i8");
    refused(NULL, "tp1", NULL, WEFT_EINVAL, "in is NULL");
}

static void bad_configs_are_refused(void **state)
{
    (void)state;
    char config[PATH];
    weft_checkpoint_opts opts = options();
    opts.nset = 0;
    scratch_place(config, "%s/config.json", scratch);
    scratch_write_text(config, "{");
    refused(in, "tp2", &opts, WEFT_EINVAL, "config.json: it is not JSON");
    scratch_write_text(config, "{\"kv\": \"2\"}");
    refused(in, "tp2", &opts, WEFT_EINVAL, "$kv has no value: the input's config.json does not say it");
    scratch_write_text(config, "{\"text_config\": {\"kv\": 2}}");
    taken(in, "tp2", &opts);
    char copy[PATH];
    assert_int_equal(access(scratch_place(copy, "%s/config.json", out), R_OK), 0);
}

/* ---- outputs ---- */

static void outputs_in_the_way_are_refused(void **state)
{
    (void)state;
    char path[PATH];
    weft_checkpoint_opts opts = options();
    scratch_write_text(out, "a file");
    refused(in, "tp2", &opts, WEFT_EINVAL, "out: it exists and is not a folder");
    unlink(out);
    scratch_folder(out);
    taken(in, "tp2", &opts); /* an empty folder is no obstacle */
    refused(in, "tp2", &opts, WEFT_EINVAL, "out: it exists and is not empty");
    opts.force = true;
    taken(in, "tp4", &opts);
    assert_int_equal(access(scratch_place(path, "%s/rank-00003-of-00004.safetensors", out), R_OK), 0);
    assert_int_not_equal(access(scratch_place(path, "%s/rank-00001-of-00002.safetensors", out), F_OK), 0);
    taken(out, "tp2", &opts); /* onto itself */
    assert_int_equal(access(scratch_place(path, "%s/rank-00001-of-00002.safetensors", out), R_OK), 0);
    scratch_write_text(scratch_place(path, "%s/thesis.tex", out), "all of it");
    refused(in, "tp2", &opts, WEFT_EINVAL, "it contains 'thesis.tex'");
    assert_int_equal(count_files(), 3);
    scratch_place(out, "%s/sub/none/x", scratch);
    refused(in, "tp2", &opts, WEFT_EINVAL, "sub/none: No such file");
    scratch_place(out, "%s/one.safetensors", scratch);
    refused(in, "tp2", &opts, WEFT_EINVAL, "so it must be a folder");
    opts.force = false;
    taken(in, "tp1", &opts);
    refused(in, "tp1", &opts, WEFT_EINVAL, "one.safetensors: it exists");
    opts.force = true;
    taken(in, "tp1", &opts);
    assert_int_equal(count_files(), 4);
}

static void shards_are_written_and_read_again(void **state)
{
    (void)state;
    char path[PATH], again[PATH];
    weft_checkpoint_opts opts = options();
    opts.shard = 560;
    taken(in, "tp1", &opts);
    assert_int_equal(access(scratch_place(path, "%s/model-00003-of-00003.safetensors", out), R_OK), 0);
    rename(out, scratch_place(path, "%s/shards", scratch));
    taken(path, "tp2", &opts); /* by its index */
    rename(out, scratch_place(again, "%s/two", scratch));
    taken(again, "tp1", &opts);
}

static int stop(void *arg, int64_t done, int64_t all)
{
    (void)arg;
    assert_true(done <= all);
    return WEFT_EBUSY;
}

static void stopped_reshard_leaves_nothing(void **state)
{
    (void)state;
    /* Beats come when threads end or 50 ms are over: with this much to do some beat comes before the end. */
    enum { N = 1 << 23 };
    void *large = calloc(N, 8);
    const struct naive_tensor t = {"a", WEFT_U8, 2, {N, 8}, large};
    naive_write(in, &t, 1);
    free(large);
    weft_checkpoint_opts opts = options();
    opts.progress = stop;
    opts.nset = 0;
    opts.threads = 1;
    opts.memory = 1 << 20;
    scratch_write_text(rules_path, "* [, /tp]");
    int rc = weft_checkpoint_reshard(in, out, "tp8", &opts, NULL);
    if (rc) {
        assert_int_equal(rc, WEFT_EBUSY);
        assert_string_equal(weft_errmsg(), "stopped by the caller");
        assert_int_equal(count_files(), 2);
    }
}

/* ---- failing calls ---- */

static int once(bool force, const char *from, const char *to, long *reached, int error, bool calls)
{
    weft_checkpoint_opts opts = options();
    opts.force = force;
    opts.threads = 1;
    opts.memory = 1 << 20;
    atomic_store(&calls_error, error);
    if (calls)
        atomic_store(&calls_until, *reached);
    else
        nomem_until = *reached;
    int rc = weft_checkpoint_reshard(from, out, to, &opts, NULL);
    *reached = calls ? atomic_load(&calls_until) : nomem_until;
    atomic_store(&calls_until, -1);
    nomem_until = -1;
    return rc;
}

/* Every call fails once; then the output is absent, or what it was before. fallocate alone may fail without harm. */
static void failed_system_calls_leave_nothing(void **state)
{
    (void)state;
    char set_path[PATH], path[PATH];
    weft_checkpoint_opts opts = options();
    taken(in, "tp2", &opts);
    rename(out, scratch_place(set_path, "%s/set", scratch));
    for (int form = 0; form < 3; form++) {
        const char *from = form == 1 ? set_path : in, *to = form == 2 ? "tp1" : "tp2.pp2";
        long failures = 0;
        for (long n = 0;; n++) {
            int before = count_files();
            long reached = n;
            int rc = once(form == 1, from, to, &reached, ENOSPC, true);
            if (reached >= 0) { /* none failed */
                assert_int_equal(rc, 0);
                break;
            }
            if (!rc) { /* the sync of a folder */
                assert_int_equal(count_files(), before + 1);
                scratch_empty(out);
                rmdir(out);
                continue;
            }
            failures++;
            assert_int_equal(rc, WEFT_EIO);
            assert_non_null(strstr(weft_errmsg(), "No space left"));
            if (count_files() != before)
                fail_msg("form %d, call %ld: %s, and something is left", form, n, weft_errmsg());
        }
        assert_true(failures > 15);
        assert_int_equal(access(scratch_place(path, "%s/%s", out,
                                              form == 2 ? "model.safetensors" : "rank-00003-of-00004.safetensors"),
                                R_OK),
                         0);
        scratch_empty(out);
        rmdir(out);
    }
}

static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    long n = 0;
    for (;; n++) {
        int before = count_files();
        long reached = n;
        int rc = once(false, in, "tp2.pp2", &reached, 0, false);
        if (reached >= 0) {
            assert_int_equal(rc, 0);
            break;
        }
        if (!rc) { /* libc's own: a folder is then not synced */
            scratch_empty(out);
            rmdir(out);
            continue;
        }
        assert_int_equal(count_files(), before);
    }
    assert_true(n > 30);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(files_that_lie_are_refused),       TEST(bad_folders_are_refused),
        TEST(incomplete_sets_are_refused),      TEST(wrong_notes_are_refused),
        TEST(bad_requests_are_refused),         TEST(bad_configs_are_refused),
        TEST(outputs_in_the_way_are_refused),   TEST(shards_are_written_and_read_again),
        TEST(stopped_reshard_leaves_nothing),   TEST(failed_system_calls_leave_nothing),
        TEST(failed_allocations_leave_nothing),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, scratch_make, scratch_drop));
}
