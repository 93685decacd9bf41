/* weft reshard: a move between files, one for each rank on either side. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/files/rank_files_out.h"
#include "cli/move/layout_pair.h"
#include "cli/move/runner.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/readable.h"

/* One side: what each rank holds, and its file and buffer. */
struct side_files {
    struct rank_files_pattern pattern;
    int dtype;
    weft_local *local;
    weft_view *view; /* data is owned */
    int64_t files, bytes;
};

struct job {
    struct layout_pair pair;
    struct runner_place place;
    struct side_files in, out;
    struct layout_pair_totals totals;
    bool staged;
};

static int open_side(struct side_files *s, const weft_layout *l, int ranks, const char *option, const char *pattern,
                     struct failure *why)
{
    weft_layout_desc desc = {.size = sizeof desc};
    s->local = calloc((size_t)ranks, sizeof *s->local);
    s->view = calloc((size_t)ranks, sizeof *s->view);
    if (!s->local || !s->view || weft_layout_describe(l, &desc))
        return failure_set(why, CLI_WRONG, "not enough memory");
    s->dtype = (int)desc.dtype;
    for (int r = 0; r < ranks; r++) {
        if (weft_layout_local(l, r, &s->local[r]))
            return failure_set(why, CLI_WRONG, "rank %d: %s", r, weft_errmsg());
        s->files += s->local[r].holds;
        s->bytes += s->local[r].bytes;
    }
    return rank_files_pattern(&s->pattern, option, pattern, s->files, s->dtype, why);
}

static void close_side(struct side_files *s, int ranks)
{
    for (int r = 0; s->view && r < ranks; r++)
        free(s->view[r].data);
    free(s->view);
    free(s->local);
}

static struct rank_files_piece piece_of(const struct side_files *s, int rank)
{
    return (struct rank_files_piece){.rank = rank, .dtype = s->dtype, .local = &s->local[rank]};
}

/* Reports all that is wrong with names and headers before anything is read or moved. */
static int check_files(const struct job *j, struct failure *why)
{
    int code = CLI_OK;
    for (int r = 0; r < j->pair.world && !code; r++) {
        struct rank_files_piece piece = piece_of(&j->in, r);
        if (j->in.local[r].holds)
            code = rank_files_check(&j->in.pattern, &piece, why);
        if (!code && j->out.local[r].holds)
            code = rank_files_out_check(&j->out.pattern, r, why);
    }
    return code;
}

static int allocate(struct side_files *s, int rank, struct failure *why)
{
    size_t bytes = (size_t)s->local[rank].bytes;
    if (!bytes)
        return CLI_OK;
    s->view[rank] = (weft_view){.data = calloc(1, bytes), .bytes = bytes}; /* ghosts that nothing fills are 0 */
    if (!s->view[rank].data)
        return failure_set(why, CLI_WRONG, "rank %d: not enough memory for %zu bytes", rank, bytes);
    return CLI_OK;
}

static int read_files(struct job *j, struct failure *why)
{
    int code = CLI_OK;
    for (int r = 0; r < j->pair.world && !code; r++) {
        progress_line("reading rank", r, j->pair.world);
        code = allocate(&j->in, r, why);
        if (!code)
            code = allocate(&j->out, r, why);
        struct rank_files_piece piece = piece_of(&j->in, r);
        if (!code && j->in.local[r].holds)
            code = rank_files_read(&j->in.pattern, &piece, j->in.view[r].data, why);
    }
    progress_line_end();
    return code;
}

static int lower(struct job *j, const weft_lower_opts *opts, struct failure *why)
{
    int code = layout_pair_lower(&j->pair, opts, why);
    layout_pair_totals_start(&j->totals);
    for (int r = 0; r < j->pair.world && !code; r++)
        code = layout_pair_totals_add(&j->totals, &j->pair, j->pair.plans[r], why);
    if (!code && weft_plan_verify((const weft_plan *const *)j->pair.plans, (size_t)j->pair.world))
        code = failure_set(why, CLI_WRONG, "the plans are not right: %s", weft_errmsg());
    return code;
}

static int move(struct job *j, struct failure *why)
{
    struct runner runner = {
        .place = &j->place, .plans = j->pair.plans, .src = j->in.view, .dst = j->out.view, .staged = j->staged};
    int code = runner_begin(&runner, why);
    if (!code)
        code = worker_threads_open(j->place.ranks, &runner.threads, why);
    if (!code)
        code = runner_open(&runner, why);
    if (!code)
        code = runner_run(&runner, why);
    runner_close(&runner);
    worker_threads_close(runner.threads);
    return code;
}

static int write_files(const struct job *j, struct failure *why)
{
    struct rank_files_out out = {0};
    int code = CLI_OK;
    for (int r = 0; r < j->pair.world && !code; r++) {
        struct rank_files_piece piece = piece_of(&j->out, r);
        progress_line("writing rank", r, j->pair.world);
        if (j->out.local[r].holds)
            code = rank_files_out_add(&out, &j->out.pattern, &piece, j->out.view[r].data, why);
    }
    progress_line_end();
    if (!code)
        code = rank_files_out_commit(&out, why);
    rank_files_out_free(&out);
    return code;
}

static void print_result(const struct job *j, const char *src, const char *dst, bool json)
{
    char a[64], b[64], c[64];
    if (!json) {
        printf("%" PRId64 " %s, %s -> %" PRId64 " %s, %s: %s by %s, %s moved\n", j->in.files,
               j->in.files == 1 ? "file" : "files", readable_bytes(j->in.bytes, a, sizeof a), j->out.files,
               j->out.files == 1 ? "file" : "files", readable_bytes(j->out.bytes, b, sizeof b), j->totals.kind,
               j->totals.algorithm, readable_bytes(j->totals.sent, c, sizeof c));
        return;
    }
    struct json w = {.to = stdout};
    json_write_open(&w, NULL, '{', false);
    json_write_text(&w, "src", src);
    json_write_text(&w, "dst", dst);
    json_write_text(&w, "kind", j->totals.kind);
    json_write_text(&w, "algorithm", j->totals.algorithm);
    json_write_int(&w, "moved", j->totals.sent);
    json_write_int(&w, "bound", j->totals.bound);
    json_write_int(&w, "files_in", j->in.files);
    json_write_int(&w, "bytes_in", j->in.bytes);
    json_write_int(&w, "files_out", j->out.files);
    json_write_int(&w, "bytes_out", j->out.bytes);
    json_write_close(&w, '}');
}

static int reshard(const char *src, const char *dst, const char *in, const char *out, weft_lower_opts *lower_opts,
                   bool staged, bool json)
{
    struct failure why;
    struct job j = {.staged = staged};
    int code = layout_pair_parse(&j.pair, src, dst, &why);
    if (!code)
        code = layout_pair_unscaled(&j.pair, "reshard", &why);
    if (!code)
        code = runner_place(NULL, j.pair.world, &j.place, &why);
    if (!code)
        code = open_side(&j.in, j.pair.src, j.pair.world, "--in", in, &why);
    if (!code)
        code = open_side(&j.out, j.pair.dst, j.pair.world, "--out", out, &why);
    if (!code)
        code = lower(&j, lower_opts, &why);
    if (!code)
        code = check_files(&j, &why);
    if (!code)
        code = read_files(&j, &why);
    if (!code)
        code = move(&j, &why);
    if (!code)
        code = write_files(&j, &why);
    if (code)
        failure_print(&why, "reshard");
    else
        print_result(&j, src, dst, json);
    close_side(&j.in, j.pair.world);
    close_side(&j.out, j.pair.world);
    layout_pair_free(&j.pair);
    return code;
}

int cmd_reshard(int argc, char **argv)
{
    const char *in = NULL, *out = NULL;
    bool json = false, staged = false;
    weft_lower_opts lower_opts = {.size = sizeof lower_opts};
    const struct args_option rows[] = {
        {"in", ARGS_TEXT, "NAME", "input files, one for each rank of SRC's mesh; %r in the name is the rank", &in, 0,
         0},
        {"out", ARGS_TEXT, "NAME", "output files, one for each rank of DST's mesh", &out, 0, 0},
        {"bucket", ARGS_BYTES, "BYTES",
         "bytes of a message: small pieces share one, larger ones are cut; 1: each piece alone", &lower_opts.bucket, 1,
         INT64_MAX},
        {"algorithm", ARGS_TEXT, "NAME", "force an algorithm (weft info lists them)", &lower_opts.algorithm, 0, 0},
        {"staged", ARGS_FLAG, NULL, "move all data through staging memory, as if ranks shared no memory", &staged, 0,
         0},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &json, 0, 0},
        {0}};
    const struct args_verb verb = {
        "reshard", "SRC DST --in 'a/src.%r.npy' --out 'a/out.%r.npy' [options]",
        "Reads the local buffer of every source rank from a file, moves the data, and writes one file for every "
        "destination\n"
        "rank. A name ends in .npy (numpy, C order, little-endian) or in .bin (the bare elements, for any dtype). A "
        "rank with an\n"
        "empty piece has a file, too. The outputs appear all together or not at all. Ghosts that nothing fills are 0.",
        rows, 2};
    const char *words[2];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    if (n < 2)
        return args_complain(&verb, "two layouts are needed, SRC and DST");
    if (!in || !out)
        return args_complain(&verb, "%s is missing", in ? "--out" : "--in");
    return reshard(words[0], words[1], in, out, &lower_opts, staged, json);
}
