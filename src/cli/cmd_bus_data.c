#define _GNU_SOURCE
#include "cli/cmd_bus_data.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cmd_bus_open.h"
#include "cli/files/tensor_file.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/readable.h"
#include "tool/signals.h"
#include "tool/temp_folder.h"
#include "weft/bus.h"
#include "weft/checkpoint.h"

#define SECOND INT64_C(1000000000)
#define LAYOUT 320 /* bytes of the text of a whole tensor's layout */

static int library(struct failure *why, int err)
{
    return err ? failure_set(why, err == WEFT_EINVAL ? CLI_BAD : CLI_WRONG, "%s", weft_errmsg()) : CLI_OK;
}

/* makes: a folder that is not there is made. */
static int open_bus(const struct cmd_bus_data *a, bool makes, weft_bus **out, struct failure *why)
{
    if (!makes && !strncmp(a->url, "file:", 5) && access(a->url + 5, F_OK))
        return failure_set(why, CLI_BAD, "%s: there is no such folder", a->url);
    return library(why, cmd_bus_open(a->url, a->token_file, a->listen, a->timeout, out));
}

/* ---- layouts of whole tensors ---- */

static int dtype_named(const char *name)
{
    for (int d = 1; weft_dtype_name(d); d++)
        if (!strcmp(weft_dtype_name(d), name))
            return d;
    return 0;
}

/* What a tensor becomes with --dtype: floats of 16 bits and more are cast. */
static int cast_to(const struct cmd_bus_data *a, int dtype)
{
    const char *name = weft_dtype_name(dtype);
    bool is_float = (*name == 'f' || !strncmp(name, "bf", 2)) && weft_dtype_size(dtype) > 1;
    return a->dtype && is_float ? dtype_named(a->dtype) : dtype;
}

static int whole(int dtype, int ndim, const int64_t *shape, weft_layout **out)
{
    char text[LAYOUT];
    int n = snprintf(text, sizeof text, "%s[", weft_dtype_name(dtype));
    for (int d = 0; d < ndim; d++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%" PRId64, d ? "," : "", shape[d]);
    snprintf(text + n, sizeof text - (size_t)n, "] @x1");
    return weft_layout_parse(text, out);
}

/* A list of tensors with layouts of its own. */
struct list {
    weft_bus_tensor *v;
    weft_layout **layouts;
    size_t n;
};

static bool list_make(struct list *l, size_t n)
{
    *l = (struct list){calloc(n + 1, sizeof *l->v), calloc(n + 1, sizeof *l->layouts), n};
    return l->v && l->layouts;
}

static void list_free(struct list *l)
{
    for (size_t i = 0; i < l->n && l->layouts; i++)
        weft_layout_free(l->layouts[i]);
    free(l->layouts);
    free(l->v);
}

static void print_result(const struct cmd_bus_data *a, const char *what, const weft_epoch_step *v, size_t tensors,
                         int64_t bytes)
{
    char size[64];
    if (a->json) {
        struct json j = {.to = stdout};
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "set", a->set);
        json_write_int(&j, "epoch", v->epoch);
        json_write_int(&j, "step", v->step);
        json_write_int(&j, "tensors", (int64_t)tensors);
        json_write_int(&j, "bytes", bytes);
        json_write_close(&j, '}');
    } else
        printf("%s %s %" PRId64 ".%" PRId64 ": %zu %s, %s\n", what, a->set, v->epoch, v->step, tensors,
               tensors == 1 ? "tensor" : "tensors", readable_bytes(bytes, size, sizeof size));
    fflush(stdout);
}

/* ---- push ---- */

struct input {
    struct tensor_file *files;
    int n;
    struct temp_folder folder; /* of a checkpoint that had to be put together first */
};

static int ends_so(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 12 && !strcmp(e->d_name + n - 12, ".safetensors");
}

/* The files of ranks become one file, with whole tensors. */
static int join(const char *path, struct input *in, char *out, size_t cap, struct failure *why)
{
    char text[256], rules[300];
    weft_checkpoint_opts o = {.size = sizeof o, .rules = rules};
    if (!temp_folder_make(NULL, "bus-push", &in->folder, text, sizeof text))
        return failure_set(why, CLI_WRONG, "%s", text);
    snprintf(rules, sizeof rules, "%s/rules", in->folder.path);
    snprintf(out, cap, "%s/model.safetensors", in->folder.path);
    FILE *f = fopen(rules, "w");
    if (!f || fputs("* [...]\n", f) < 0 || fclose(f))
        return failure_set(why, CLI_WRONG, "%s cannot be written", rules);
    return library(why, weft_checkpoint_reshard(path, out, "tp1", &o, NULL));
}

/* A file, a folder of them, or a folder that weft checkpoint has written. */
static int open_input(const char *path, struct input *in, struct failure *why)
{
    struct stat st;
    struct dirent **names = NULL;
    char one[4096];
    *in = (struct input){.folder.lock = -1};
    if (stat(path, &st))
        return failure_set(why, CLI_BAD, "%s: there is no such checkpoint", path);
    int n = S_ISDIR(st.st_mode) ? scandir(path, &names, ends_so, alphasort) : 0, code = CLI_OK;
    bool ranks = n > 0 && !strncmp(names[0]->d_name, "rank-", 5);
    if (S_ISDIR(st.st_mode) && n <= 0)
        code = failure_set(why, CLI_BAD, "%s: there is no file NAME.safetensors in it", path);
    snprintf(one, sizeof one, "%s", path);
    if (!code && ranks)
        code = join(path, in, one, sizeof one, why);
    int files = names && !ranks ? n : 1;
    in->files = code ? NULL : calloc((size_t)files, sizeof *in->files);
    if (!code && !in->files)
        code = failure_set(why, CLI_WRONG, "out of memory");
    for (int i = 0; i < files && !code; i++) {
        if (names && !ranks)
            snprintf(one, sizeof one, "%s/%s", path, names[i]->d_name);
        code = tensor_file_map(one, &in->files[i], why);
        in->n += !code;
    }
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return code;
}

static void close_input(struct input *in)
{
    for (int i = 0; i < in->n; i++)
        tensor_file_unmap(&in->files[i]);
    free(in->files);
    temp_folder_remove(&in->folder);
}

/* The array of a tensor, copied if it is not aligned in its file. */
static int take_array(const struct tensor_file *f, const struct safetensors_tensor *t, weft_view *out, void **copy)
{
    void *at = (void *)(uintptr_t)(f->data + t->begin);
    if ((uintptr_t)at % weft_dtype_size(t->dtype)) {
        *copy = malloc((size_t)t->bytes + 1);
        if (!*copy)
            return WEFT_ENOMEM;
        memcpy(*copy, at, (size_t)t->bytes);
        at = *copy;
    }
    *out = (weft_view)WEFT_VIEW(at, (size_t)t->bytes);
    return 0;
}

static int publish(const struct cmd_bus_data *a, weft_bus *b, const struct input *in, weft_publisher **out,
                   struct failure *why)
{
    struct list l = {0};
    size_t n = 0, k = 0;
    int64_t bytes = 0;
    for (int i = 0; i < in->n; i++)
        n += in->files[i].header.ntensors;
    weft_view *views = calloc(n + 1, sizeof *views);
    void **copies = calloc(n + 1, sizeof *copies);
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    o.keep = 1;
    int err = list_make(&l, n) && views && copies ? 0 : WEFT_ENOMEM;
    for (int i = 0; i < in->n; i++)
        for (size_t t = 0; t < in->files[i].header.ntensors && !err; t++, k++) {
            const struct safetensors_tensor *x = &in->files[i].header.tensors[t];
            int to = cast_to(a, x->dtype);
            err = whole(to, x->ndim, x->shape, &l.layouts[k]);
            l.v[k] = (weft_bus_tensor){.name = x->name, .layout = l.layouts[k], .dtype = x->dtype};
            bytes += x->bytes / (int64_t)weft_dtype_size(x->dtype) * (int64_t)weft_dtype_size(to);
            if (!err)
                err = take_array(&in->files[i], x, &views[k], &copies[k]);
        }
    int64_t step = a->step < 0 ? 0 : a->step;
    if (!err)
        err = weft_publish(b, a->set, l.v, n, &o, out);
    if (!err)
        err = weft_put(*out, step, views);
    if (!err)
        err = weft_commit(*out, step, a->meta, NULL);
    int code = library(why, err);
    if (!err)
        print_result(a, "serving", &(weft_epoch_step){weft_publisher_epoch(*out), step}, n, bytes);
    for (size_t i = 0; i < n && copies; i++)
        free(copies[i]);
    free(copies);
    free(views);
    list_free(&l);
    return code;
}

/* The version lives as long as this process. */
static void stay(int64_t seconds)
{
    struct timespec pause = {.tv_nsec = 100000000};
    for (int64_t left = seconds * 10; !signals_caught() && (!seconds || left > 0); left--)
        nanosleep(&pause, NULL);
}

int cmd_bus_data_push(const struct cmd_bus_data *a, struct failure *why)
{
    struct input in;
    weft_bus *b = NULL;
    weft_publisher *p = NULL;
    int code = open_input(a->path, &in, why);
    if (!code)
        code = open_bus(a, true, &b, why);
    signals_watch(); /* what was done so far can end at once */
    if (!code)
        code = publish(a, b, &in, &p, why);
    close_input(&in); /* the snapshot has all of it */
    if (!code)
        stay(a->seconds);
    weft_publisher_close(p);
    weft_bus_close(b);
    return code;
}

/* ---- pull ---- */

static int show_progress(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    progress_line("bytes", done, total);
    return 0;
}

static int look_for_signals(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return signals_caught() ? WEFT_EIO : 0;
}

/* The tensors of the set, each whole, on one rank. */
static int whole_list(const struct cmd_bus_data *a, const weft_bus_set *set, struct list *out, struct failure *why)
{
    size_t n;
    const weft_bus_tensor *theirs = weft_bus_set_tensors(set, &n);
    int err = list_make(out, n) ? 0 : WEFT_ENOMEM;
    for (size_t i = 0; i < n && !err; i++) {
        weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
        int64_t shape[WEFT_MAX_DIMS];
        err = weft_layout_describe(theirs[i].layout, &d);
        for (int k = 0; k < d.ndim && !err; k++)
            shape[k] = d.dims[k].extent;
        if (!err)
            err = whole(cast_to(a, (int)d.dtype), d.ndim, shape, &out->layouts[i]);
        out->v[i] = (weft_bus_tensor){.name = theirs[i].name, .layout = out->layouts[i]};
    }
    return library(why, err);
}

/* The live version as a file. */
static int write_file(const struct cmd_bus_data *a, const struct list *l, weft_pin *pin, const char *path, bool force,
                      int64_t *bytes, struct failure *why)
{
    char version[64], meta[WEFT_BUS_META + 1];
    size_t len = 0;
    weft_epoch_step v = weft_pin_version(pin);
    struct safetensors_tensor *t = calloc(l->n + 1, sizeof *t);
    const void **arrays = calloc(l->n + 1, sizeof *arrays);
    int err = t && arrays ? weft_pin_meta(pin, meta, sizeof meta, &len) : WEFT_ENOMEM;
    for (size_t i = 0; i < l->n && !err; i++) {
        weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
        err = weft_layout_describe(l->layouts[i], &d);
        t[i] = (struct safetensors_tensor){.name = l->v[i].name, .dtype = (int)d.dtype, .ndim = d.ndim};
        for (int k = 0; k < d.ndim; k++)
            t[i].shape[k] = d.dims[k].extent;
        if (!err)
            err = weft_pin_data(pin, i, &arrays[i], &t[i].bytes);
        *bytes += t[i].bytes;
    }
    snprintf(version, sizeof version, "%" PRId64 ".%" PRId64, v.epoch, v.step);
    struct safetensors_note notes[] = {{"weft.meta", meta}, {"weft.set", a->set}, {"weft.version", version}};
    struct safetensors_header h = {.tensors = t, .ntensors = l->n, .notes = notes, .nnotes = 3};
    int code = err ? library(why, err) : tensor_file_write(path, &h, arrays, force, why);
    free(arrays);
    free(t);
    return code;
}

static bool is_file_name(const char *path)
{
    size_t n = strlen(path);
    return n > 12 && !strcmp(path + n - 12, ".safetensors");
}

/* A file, or by way of one a folder, as weft checkpoint writes it. */
static int write_output(const struct cmd_bus_data *a, const struct list *l, weft_pin *pin, int64_t *bytes,
                        struct failure *why)
{
    struct temp_folder folder = {.lock = -1};
    char text[256], one[300];
    weft_checkpoint_opts o = {.size = sizeof o, .force = a->force, .rules = a->rules, .progress = look_for_signals};
    if (is_file_name(a->path) && !a->to)
        return write_file(a, l, pin, a->path, a->force, bytes, why);
    if (!temp_folder_make(NULL, "bus-pull", &folder, text, sizeof text))
        return failure_set(why, CLI_WRONG, "%s", text);
    snprintf(one, sizeof one, "%s/model.safetensors", folder.path);
    int code = write_file(a, l, pin, one, false, bytes, why);
    if (!code)
        code = library(why, weft_checkpoint_reshard(one, a->path, a->to ? a->to : "tp1", &o, NULL));
    temp_folder_remove(&folder);
    return code;
}

static int fetch(const struct cmd_bus_data *a, weft_bus *b, struct failure *why)
{
    const weft_want want = {a->step < 0 ? WEFT_WANT_LATEST : WEFT_WANT_STEP, a->step < 0 ? 0 : a->step};
    weft_bus_set *set = NULL;
    weft_subscriber *s = NULL;
    weft_pin *pin = NULL;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_epoch_step v;
    struct list l = {0};
    int64_t bytes = 0;
    o.progress = show_progress;
    int code = library(why, weft_bus_describe(b, a->set, &want, a->timeout * SECOND, &set));
    if (!code)
        code = whole_list(a, set, &l, why);
    int err = code ? 0 : weft_subscribe(b, a->set, l.v, l.n, &o, &s);
    if (!code && !err)
        err = weft_fetch(s, &want, a->timeout * SECOND, &v);
    progress_line_end();
    if (!code && !err)
        err = weft_swap(s, &v, a->timeout * SECOND);
    if (!code && !err)
        err = weft_use(s, &pin);
    if (!code)
        code = library(why, err);
    signals_watch(); /* from here on there are files to be cleaned up; a wait for a version ends at once */
    if (!code)
        code = write_output(a, &l, pin, &bytes, why);
    if (!code)
        print_result(a, "pulled", &v, l.n, bytes);
    weft_unuse(pin);
    weft_subscriber_close(s);
    list_free(&l);
    weft_bus_set_free(set);
    return code;
}

int cmd_bus_data_pull(const struct cmd_bus_data *a, struct failure *why)
{
    weft_bus *b = NULL;
    if (is_file_name(a->path) && !a->force && !access(a->path, F_OK))
        return failure_set(why, CLI_BAD, "%s exists: --force replaces it", a->path);
    int code = open_bus(a, false, &b, why);
    if (!code)
        code = fetch(a, b, why);
    weft_bus_close(b);
    signals_obey();
    return code;
}

/* ---- doctor ---- */

struct findings {
    struct json json;
    bool as_json;
    int64_t wrong, notes;
};

static void found(void *arg, bool wrong, const char *text)
{
    struct findings *f = arg;
    f->wrong += wrong;
    f->notes += !wrong;
    if (!f->as_json) {
        printf("%-5s  %s\n", wrong ? "wrong" : "note", text);
        return;
    }
    json_write_open(&f->json, NULL, '{', true);
    json_write_bool(&f->json, "wrong", wrong);
    json_write_text(&f->json, "text", text);
    json_write_close(&f->json, '}');
}

int cmd_bus_data_doctor(const struct cmd_bus_data *a, struct failure *why)
{
    struct findings f = {.json.to = stdout, .as_json = a->json};
    weft_bus *b;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    int code = open_bus(a, false, &b, why);
    if (code)
        return code;
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
    if (a->json) {
        json_write_open(&f.json, NULL, '{', false);
        json_write_text(&f.json, "url", a->url);
        json_write_real(&f.json, "answer_ms", ms);
        json_write_open(&f.json, "found", '[', false);
    } else
        printf("%s answers in %.1f ms\n", a->url, ms);
    code = library(why, weft_bus_check(b, a->timeout * SECOND, found, &f));
    if (a->json) {
        json_write_close(&f.json, ']');
        json_write_int(&f.json, "wrong", f.wrong);
        json_write_close(&f.json, '}');
    } else if (!code)
        printf(f.wrong ? "%" PRId64 " wrong\n" : "nothing is wrong\n", f.wrong);
    weft_bus_close(b);
    return code ? code : f.wrong ? CLI_WRONG : CLI_OK;
}
