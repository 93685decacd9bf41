/* weft plan: totals over all ranks, then what each rank sends to which rank, then the steps of the ranks that were
 * asked for; or a picture of what each rank sends to which rank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/move/layout_pair.h"
#include "foresee/page.h"
#include "foresee/traffic_picture.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/progress_line.h"
#include "tool/readable.h"

#define SHOWN 64 /* pairs of ranks in the text; --json has all */

struct options {
    int64_t rank, bucket, per_host;
    const char *algorithm, *html, *machine;
    bool all, json, svg;
};

struct survey {
    struct layout_pair pair;
    weft_lower_opts lower;
    struct layout_pair_totals totals;
    uint64_t digest;
    struct traffic *traffic;
    size_t ntraffic, cap;
};

/* ---- lowering on all ranks ---- */

static int add_traffic(struct survey *s, const weft_plan *plan, struct failure *why)
{
    size_t n = 0, got;
    if (weft_plan_peers(plan, NULL, 0, &n))
        return failure_set(why, CLI_WRONG, "%s", weft_errmsg());
    weft_peer *peers = malloc((n + 1) * sizeof *peers);
    size_t need = s->ntraffic + n, cap = s->cap > need ? s->cap : 2 * need;
    struct traffic *traffic =
        cap == s->cap && s->traffic ? s->traffic : realloc(s->traffic, (cap + 1) * sizeof *traffic);
    if (traffic) {
        s->traffic = traffic;
        s->cap = cap;
    }
    int code = CLI_OK;
    if (!peers || !traffic)
        code = failure_set(why, CLI_WRONG, "not enough memory for what %d ranks send", s->pair.world);
    else if (weft_plan_peers(plan, peers, n, &got))
        code = failure_set(why, CLI_WRONG, "%s", weft_errmsg());
    for (size_t i = 0; i < n && !code; i++)
        if (peers[i].sends)
            s->traffic[s->ntraffic++] =
                (struct traffic){weft_plan_rank(plan), peers[i].rank, peers[i].sent, peers[i].sends};
    free(peers);
    return code;
}

static int survey_all(struct survey *s, struct failure *why)
{
    layout_pair_totals_start(&s->totals);
    int code = CLI_OK;
    for (int r = 0; r < s->pair.world && !code; r++) {
        weft_plan *plan = NULL;
        progress_line("lowering rank", r, s->pair.world);
        code = layout_pair_lower_one(&s->pair, r, &s->lower, &plan, why);
        if (!code)
            code = layout_pair_totals_add(&s->totals, &s->pair, plan, why);
        if (!code)
            code = add_traffic(s, plan, why);
        if (!code)
            s->digest = weft_plan_digest(plan);
        weft_plan_free(plan);
    }
    progress_line_end();
    return code;
}

/* The plan of one rank as text or JSON; the caller frees it. */
static int explain_rank(const struct survey *s, int rank, bool json, char **out, struct failure *why)
{
    weft_plan *plan = NULL;
    size_t len = 0;
    int code = layout_pair_lower_one(&s->pair, rank, &s->lower, &plan, why);
    if (code)
        return code;
    *out = NULL;
    if (weft_plan_explain(plan, json, NULL, 0, &len) || !(*out = malloc(len + 1)) ||
        weft_plan_explain(plan, json, *out, len + 1, &len)) {
        code = failure_set(why, CLI_WRONG, "rank %d: %s", rank, *out ? weft_errmsg() : "not enough memory");
        free(*out);
    }
    weft_plan_free(plan);
    return code;
}

/* ---- printing ---- */

static double times_mean(int64_t most, int64_t total, int ranks)
{
    return total ? (double)most * ranks / (double)total : 1;
}

static void print_totals(const struct survey *s, const char *src, const char *dst)
{
    const struct layout_pair_totals *t = &s->totals;
    char a[64], b[64];
    printf("%-18s%s\n%-18s%s\n", "src", src, "dst", dst);
    printf("%-18s%s, by %s\n", "recognised as", t->kind, t->algorithm);
    printf("%-18s%s, lower bound %s", "moved", readable_bytes(t->sent, a, sizeof a),
           readable_bytes(t->bound, b, sizeof b));
    if (t->bound)
        printf(", %.3f times the bound", (double)t->sent / (double)t->bound);
    printf("\n%-18srank %d, %s, %.3f times the mean of the %d that hold the source\n", "busiest sender",
           t->busiest_sender, readable_bytes(t->busiest_sent, a, sizeof a),
           times_mean(t->busiest_sent, t->sent, t->holders), t->holders);
    printf("%-18srank %d, %s, %.3f times the mean of the %d that hold the destination\n", "busiest receiver",
           t->busiest_receiver, readable_bytes(t->busiest_received, a, sizeof a),
           times_mean(t->busiest_received, t->received, t->receivers), t->receivers);
    printf("%-18s%s\n", "local copies", readable_bytes(t->copied, a, sizeof a));
    printf("%-18s%s\n", "folded", readable_bytes(t->folded, a, sizeof a));
    printf("%-18s%" PRId64 ", on %d ranks\n", "steps", t->steps, s->pair.world);
    printf("%-18s%" PRId64 " with %" PRId64 " chunks\n", "buckets", t->buckets, t->chunks / 2);
    printf("%-18s%s\n", "scratch", readable_bytes(t->scratch, a, sizeof a));
    printf("%-18s0x%016" PRIx64 "\n", "digest", s->digest);
}

static void print_traffic(const struct survey *s)
{
    size_t shown = s->ntraffic > SHOWN ? SHOWN : s->ntraffic;
    if (s->ntraffic)
        printf("\n%7s    %-7s %16s %10s\n", "from", "to", "bytes", "messages");
    for (size_t i = 0; i < shown; i++)
        printf("%7d -> %-7d %16" PRId64 " %10" PRId64 "\n", s->traffic[i].from, s->traffic[i].to, s->traffic[i].bytes,
               s->traffic[i].messages);
    if (shown < s->ntraffic)
        printf("... %zu more, use --json\n", s->ntraffic - shown);
}

static void json_totals(struct json *j, const struct survey *s, const char *src, const char *dst)
{
    const struct layout_pair_totals *t = &s->totals;
    char digest[32];
    snprintf(digest, sizeof digest, "0x%016" PRIx64, s->digest);
    json_write_text(j, "src", src);
    json_write_text(j, "dst", dst);
    json_write_int(j, "world", s->pair.world);
    json_write_text(j, "digest", digest);
    json_write_text(j, "kind", t->kind);
    json_write_text(j, "algorithm", t->algorithm);
    json_write_int(j, "moved", t->sent);
    json_write_int(j, "bound", t->bound);
    json_write_int(j, "stated", t->stated);
    json_write_open(j, "busiest_sender", '{', true);
    json_write_int(j, "rank", t->busiest_sender);
    json_write_int(j, "bytes", t->busiest_sent);
    json_write_int(j, "mean", t->holders ? t->sent / t->holders : 0);
    json_write_int(j, "of", t->holders);
    json_write_close(j, '}');
    json_write_open(j, "busiest_receiver", '{', true);
    json_write_int(j, "rank", t->busiest_receiver);
    json_write_int(j, "bytes", t->busiest_received);
    json_write_int(j, "mean", t->receivers ? t->received / t->receivers : 0);
    json_write_int(j, "of", t->receivers);
    json_write_close(j, '}');
    json_write_int(j, "copied", t->copied);
    json_write_int(j, "folded", t->folded);
    json_write_int(j, "steps", t->steps);
    json_write_int(j, "buckets", t->buckets);
    json_write_int(j, "chunks", t->chunks / 2);
    json_write_int(j, "scratch", t->scratch);
    json_write_open(j, "traffic", '[', false);
    for (size_t i = 0; i < s->ntraffic; i++) {
        json_write_open(j, NULL, '{', true);
        json_write_int(j, "from", s->traffic[i].from);
        json_write_int(j, "to", s->traffic[i].to);
        json_write_int(j, "bytes", s->traffic[i].bytes);
        json_write_int(j, "messages", s->traffic[i].messages);
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
}

static int print_all(const struct survey *s, const struct options *o, const char *src, const char *dst,
                     struct failure *why)
{
    struct json j = {.to = stdout};
    int first = o->all ? 0 : (int)o->rank, last = o->all ? s->pair.world - 1 : (int)o->rank, code = CLI_OK;
    if (o->json) {
        json_write_open(&j, NULL, '{', false);
        json_totals(&j, s, src, dst);
        json_write_open(&j, "plans", '[', false);
    } else {
        print_totals(s, src, dst);
        print_traffic(s);
    }
    for (int r = first; r >= 0 && r <= last && !code; r++) {
        char *text = NULL;
        code = explain_rank(s, r, o->json, &text, why);
        if (code)
            break;
        if (o->json)
            json_write_raw(&j, NULL, text);
        else
            printf("\n%s", text);
        free(text);
    }
    if (o->json && !code) {
        json_write_close(&j, ']');
        json_write_close(&j, '}');
    }
    return code;
}

static int write_page(const struct options *o, const struct machine_file *machine, const char *src, const char *dst,
                      struct failure *why)
{
    struct scene scene = {0};
    struct scene_run run = {0};
    struct scene_how how = {.machine = *machine, .bucket = o->bucket, .algorithm = o->algorithm};
    int code = scene_add(&scene, src, dst, why);
    if (!code)
        code = scene_lower(&scene, &how, &run, why);
    if (!code)
        code = page_write(o->html, &(struct page){src, dst, &scene, &run, NULL}, why);
    scene_run_free(&run);
    scene_free(&scene);
    return code;
}

int cmd_plan(int argc, char **argv)
{
    struct options o = {.rank = -1};
    const struct args_option rows[] = {
        {"rank", ARGS_INT, "R", "print the steps of rank R, too", &o.rank, 0, INT32_MAX},
        {"all", ARGS_FLAG, NULL, "print the steps of every rank, too", &o.all, 0, 0},
        {"bucket", ARGS_BYTES, "BYTES",
         "bytes of a message: small pieces share one, larger ones are cut; 1: each piece alone", &o.bucket, 1,
         INT64_MAX},
        {"algorithm", ARGS_TEXT, "NAME", "force an algorithm (weft info lists them)", &o.algorithm, 0, 0},
        {"per-host", ARGS_INT, "N", "plan for hosts of N ranks each (default: one host)", &o.per_host, 1, INT32_MAX},
        {"machine", ARGS_TEXT, "FILE", "plan for a machine file, or a machine of weft sim --list", &o.machine, 0, 0},
        {"json", ARGS_FLAG, NULL, "print everything as JSON", &o.json, 0, 0},
        {"svg", ARGS_FLAG, NULL, "print a picture of the bytes between each pair of ranks instead, as SVG", &o.svg, 0,
         0},
        {"html", ARGS_TEXT, "FILE", "also write a page with pictures to FILE", &o.html, 0, 0},
        {0}};
    const struct args_verb verb = {
        "plan",
        "SRC DST [--rank R | --all] [--bucket BYTES] [--algorithm NAME] [--per-host N | --machine FILE] [--json | "
        "--svg] "
        "[--html FILE]",
        "Lowers a pair of layouts for all ranks, without data. Shows how many bytes move, the fewest possible, how "
        "evenly\n"
        "the ranks share the work, and the bytes between each pair of ranks. BYTES may end in K, M, G or T.",
        rows, 2};
    const char *words[2];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    if (n < 2)
        return args_complain(&verb, "two layouts are needed, SRC and DST");
    if (o.all && o.rank >= 0)
        return args_complain(&verb, "--rank and --all exclude each other");
    if (o.machine && o.per_host)
        return args_complain(&verb, "--machine and --per-host exclude each other");
    if (o.svg && (o.json || o.all || o.rank >= 0))
        return args_complain(&verb, "--svg excludes --json, --rank and --all");

    struct failure why;
    struct machine_file file;
    weft_machine machine = {.size = sizeof machine, .ranks_per_host = (int)o.per_host};
    struct survey s = {
        .lower = {.size = sizeof s.lower, .bucket = o.bucket, .algorithm = o.algorithm, .machine = &machine}};
    code = machine_file_open(o.machine ? o.machine : "plain", &file, &why);
    if (o.machine && !code)
        machine = machine_file_lower(&file);
    else
        file.ranks_per_host = o.per_host;
    if (!code)
        code = layout_pair_parse(&s.pair, words[0], words[1], &why);
    if (!code && o.rank >= s.pair.world)
        code =
            failure_set(&why, CLI_BAD, "--rank %" PRId64 ": the layouts use ranks 0 to %d", o.rank, s.pair.world - 1);
    if (!code && o.svg && s.pair.world > TRAFFIC_PICTURE_RANKS)
        code = failure_set(&why, CLI_BAD, "--svg draws up to %d ranks, and the layouts use %d: --json has all pairs",
                           TRAFFIC_PICTURE_RANKS, s.pair.world);
    if (!code)
        code = survey_all(&s, &why);
    if (!code && o.html)
        code = write_page(&o, &file, words[0], words[1], &why);
    if (!code && o.svg)
        traffic_picture_print(stdout, s.traffic, s.ntraffic, s.pair.world, "bytes from rank to rank");
    else if (!code)
        code = print_all(&s, &o, words[0], words[1], &why);
    if (code)
        failure_print(&why, "plan");
    free(s.traffic);
    layout_pair_free(&s.pair);
    return code;
}
