/* weft checkpoint: safetensors files from one parallelism to another. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/readable.h"
#include "tool/signals.h"
#include "weft/checkpoint.h"

/* ---- after an interrupt the work stops and removes what is not complete ---- */

#define BAR 40

static int show_progress(void *arg, int64_t done, int64_t bytes)
{
    (void)arg;
    char bar[BAR + 1], text[160];
    int full = bytes ? (int)((double)done / (double)bytes * BAR) : BAR;
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)full);
    bar[BAR] = 0;
    snprintf(text, sizeof text, "[%s] %.2f of %.2f GB", bar, (double)done / 1e9, (double)bytes / 1e9);
    progress_line_text(text);
    return signals_caught() ? WEFT_EIO : 0;
}

/* ---- numbers for the rules ---- */

/* "a=1,b=2": cut in place. */
static int cut_list(char *text, const char ***out)
{
    int n = 1, i = 0;
    for (const char *s = text; *s; s++)
        n += *s == ',';
    const char **v = malloc((size_t)n * sizeof *v);
    for (char *s = v ? strtok(text, ",") : NULL; s; s = strtok(NULL, ","))
        v[i++] = s;
    *out = v;
    return v ? i : -1;
}

static int dtype_named(const char *name)
{
    for (int d = 1; weft_dtype_name(d); d++)
        if (!strcmp(weft_dtype_name(d), name))
            return d;
    return 0;
}

/* ---- the verb ---- */

static void print_result(const char *in, const char *out, const char *to, const weft_checkpoint_info *info, bool json)
{
    char a[64], b[64];
    if (!json) {
        printf("%" PRId64 " %s, %s -> %" PRId64 " %s, %s: %" PRId64 " %s on %s\n", info->files_in,
               info->files_in == 1 ? "file" : "files", readable_bytes(info->bytes_in, a, sizeof a), info->files_out,
               info->files_out == 1 ? "file" : "files", readable_bytes(info->bytes_out, b, sizeof b), info->tensors,
               info->tensors == 1 ? "tensor" : "tensors", to);
        return;
    }
    struct json w = {.to = stdout};
    json_write_open(&w, NULL, '{', false);
    json_write_text(&w, "in", in);
    json_write_text(&w, "out", out);
    json_write_text(&w, "to", to);
    json_write_int(&w, "tensors", info->tensors);
    json_write_int(&w, "files_in", info->files_in);
    json_write_int(&w, "bytes_in", info->bytes_in);
    json_write_int(&w, "files_out", info->files_out);
    json_write_int(&w, "bytes_out", info->bytes_out);
    json_write_close(&w, '}');
}

static int reshard(const char *in, const char *out, const char *to, weft_checkpoint_opts *opts, bool json)
{
    weft_checkpoint_info info = {.size = sizeof info};
    opts->progress = show_progress;
    signals_watch();
    int err = weft_checkpoint_reshard(in, out, to, opts, &info);
    progress_line_end();
    if (signals_caught() && err)
        fprintf(stderr, "weft checkpoint: interrupted; nothing was written\n");
    signals_obey();
    if (err) {
        struct failure why;
        failure_set(&why, err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED ? CLI_BAD : CLI_WRONG, "%s", weft_errmsg());
        return failure_print(&why, "checkpoint");
    }
    print_result(in, out, to, &info, json);
    return CLI_OK;
}

static int show_rules(const struct args_verb *verb, const char *name)
{
    const char *text = weft_checkpoint_rules(name);
    if (!text)
        return args_complain(verb, "there are no rules '%s' in the library", name);
    fputs(text, stdout);
    return CLI_OK;
}

int cmd_checkpoint(int argc, char **argv)
{
    const char *to = NULL, *dtype = NULL, *set = NULL, *show = NULL;
    bool json = false, fuse = false, split = false;
    int64_t threads = 0;
    weft_checkpoint_opts opts = {.size = sizeof opts};
    const struct args_option rows[] = {
        {"to", ARGS_TEXT, "MESH", "mesh of the output, e.g. tp4.pp2; tp1: not sharded", &to, 0, 0},
        {"rules", ARGS_TEXT, "RULES",
         "how tensors are split, by their names: gpt2, gpt_oss, llama, megatron, moe, or a file; by default by "
         "model_type",
         &opts.rules, 0, 0},
        {"from", ARGS_TEXT, "MESH", "mesh of the input, if its files do not contain it", &opts.from, 0, 0},
        {"set", ARGS_TEXT, "NAME=N,...", "numbers that the rules need; by default those of the input's config.json",
         &set, 0, 0},
        {"dtype", ARGS_TEXT, "DTYPE", "cast floats of 16 bits and more to f16, bf16, f32 or f64", &dtype, 0, 0},
        {"fuse", ARGS_FLAG, NULL, "join tensors that the rules can join: q, k and v; gate and up", &fuse, 0, 0},
        {"separate", ARGS_FLAG, NULL, "write the parts of fused tensors under their own names", &split, 0, 0},
        {"memory", ARGS_BYTES, "BYTES", "memory for all buffers (256M)", &opts.memory, 1 << 20, INT64_MAX / 4},
        {"threads", ARGS_INT, "N", "threads that read and write (4)", &threads, 1, 64},
        {"shard", ARGS_BYTES, "BYTES", "largest file if the output of one rank is a folder (5 GB)", &opts.shard, 1,
         INT64_MAX},
        {"force", ARGS_FLAG, NULL, "replace an existing checkpoint", &opts.force, 0, 0},
        {"show-rules", ARGS_TEXT, "NAME", "print the rules of the library with this name", &show, 0, 0},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &json, 0, 0},
        {0}};
    const struct args_verb verb = {
        "checkpoint", "IN OUT --to MESH [--rules RULES] [options]",
        "Reads safetensors files and writes what the ranks of another mesh hold. Memory is bounded, whatever the size. "
        "IN is a\n"
        "file, a folder with an index, a folder that this verb wrote, or one file for each rank, with %r for the rank\n"
        "('ckpt/rank%r.safetensors', with --from). OUT is a folder with a file for each rank; for one rank it may be a "
        "file\n"
        "NAME.safetensors. It appears complete or not at all.",
        rows, 2};
    const char *words[2];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    if (show)
        return show_rules(&verb, show);
    if (n < 2)
        return args_complain(&verb, "two places are needed, IN and OUT");
    if (!to)
        return args_complain(&verb, "--to is missing");
    if (fuse && split)
        return args_complain(&verb, "--fuse and --separate exclude each other");
    if (dtype && !(opts.dtype = (enum weft_dtype)dtype_named(dtype)))
        return args_complain(&verb, "there is no dtype '%s'", dtype);
    opts.fused = fuse ? WEFT_FUSED_JOIN : split ? WEFT_FUSED_SPLIT : WEFT_FUSED_KEEP;
    opts.threads = (int)threads;
    const char **list = NULL;
    char *text = set ? strdup(set) : NULL;
    int nset = text ? cut_list(text, &list) : set ? -1 : 0;
    opts.nset = nset > 0 ? (size_t)nset : 0;
    opts.set = list;
    code = nset < 0 ? args_complain(&verb, "not enough memory") : reshard(words[0], words[1], to, &opts, json);
    free(list);
    free(text);
    return code;
}
