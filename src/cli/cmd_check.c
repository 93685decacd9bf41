/* weft check: one pair of layouts, or a file of them, checked from lowering to the last bit. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/check_pair.h"
#include "cli/cli.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/readable.h"

/* Prints the line that checks the same again. */
static void print_reproduce(FILE *to, const char *src, const char *dst, const struct check_opts *o)
{
    fputs("weft check ", to);
    readable_shell_word(to, src);
    putc(' ', to);
    readable_shell_word(to, dst);
    fputs(" --on ", to);
    readable_shell_word(to, o->url ? o->url : "threads:");
    fprintf(to, " --seed %" PRId64, o->seed);
    if (o->repeat != 1)
        fprintf(to, " --repeat %" PRId64, o->repeat);
    if (o->bucket)
        fprintf(to, " --bucket %" PRId64, o->bucket);
    if (o->per_host)
        fprintf(to, " --per-host %" PRId64, o->per_host);
    if (o->algorithm) {
        fputs(" --algorithm ", to);
        readable_shell_word(to, o->algorithm);
    }
    if (o->values)
        fprintf(to, " --values %s", o->values == ORACLE_EXACT ? "exact" : "wild");
    fprintf(to, "%s%s%s", o->staged ? " --staged" : "", o->in_place ? " --in-place" : "",
            o->private ? " --private" : "");
}

static void json_reproduce(struct json *j, const char *src, const char *dst, const struct check_opts *o)
{
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);
    if (f) {
        print_reproduce(f, src, dst, o);
        fclose(f);
    }
    json_write_text(j, "reproduce", line);
    free(line);
}

static void json_result(struct json *j, const char *name, const char *src, const char *dst, const struct check_opts *o,
                        int code, const struct check_result *r, const struct failure *why)
{
    json_write_open(j, NULL, '{', name != NULL);
    if (name)
        json_write_text(j, "name", name);
    json_write_bool(j, "ok", !code);
    json_write_text(j, "src", src);
    json_write_text(j, "dst", dst);
    if (r->totals.kind) {
        json_write_int(j, "world", r->world);
        json_write_text(j, "kind", r->totals.kind);
        json_write_text(j, "algorithm", r->totals.algorithm);
        json_write_int(j, "moved", r->totals.sent);
        json_write_int(j, "bound", r->totals.bound);
        json_write_int(j, "elements", r->elements);
        json_write_int(j, "runs", r->runs);
    }
    if (code) {
        json_write_int(j, "exit", code);
        json_write_text(j, "error", why->text);
        if (code == CLI_WRONG)
            json_reproduce(j, src, dst, o);
    }
    json_write_close(j, '}');
}

static void print_right(const struct check_result *r)
{
    char a[64];
    printf("ok: %s by %s on %d ranks, %s moved, bound %" PRId64 " B, %" PRId64 " %s of %" PRId64 " elements right\n",
           r->totals.kind, r->totals.algorithm, r->world, readable_bytes(r->totals.sent, a, sizeof a), r->totals.bound,
           r->runs, r->runs == 1 ? "run" : "runs", r->elements);
}

static int check_one(const char *src, const char *dst, const struct check_opts *o, bool json)
{
    struct failure why;
    struct check_result result;
    int code = check_pair(src, dst, o, &result, &why);
    if (json) {
        struct json j = {.to = stdout};
        json_result(&j, NULL, src, dst, o, code, &result, &why);
    } else if (!code) {
        print_right(&result);
    }
    if (code)
        failure_print(&why, "check");
    if (code == CLI_WRONG) {
        fputs("reproduce: ", stderr);
        print_reproduce(stderr, src, dst, o);
        putc('\n', stderr);
    }
    return code;
}

/* ---- files of cases ---- */

struct cases {
    const char *path;
    const struct check_opts *opts;
    bool as_json;
    struct json json;
    int64_t line, passed, failed;
    int code; /* the worst so far; wrong is worse than bad */
};

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1]))
        s[--n] = 0;
    return s;
}

static void report(struct cases *c, const char *name, const char *src, const char *dst, int code,
                   const struct check_result *r, const struct failure *why)
{
    *(code ? &c->failed : &c->passed) += 1;
    if (code == CLI_WRONG || !c->code)
        c->code = code ? code : c->code;
    if (c->as_json) {
        json_result(&c->json, name, src, dst, c->opts, code, r, why);
        return;
    }
    printf("%s: ", name);
    if (!code) {
        print_right(r);
    } else {
        printf("FAILED: %s\n", why->text);
    }
    if (code == CLI_WRONG) {
        fputs("  reproduce: ", stdout);
        print_reproduce(stdout, src, dst, c->opts);
        putchar('\n');
    }
    fflush(stdout);
}

/* One line of the file: nothing, or "name: SRC -> DST". */
static void check_line(struct cases *c, char *text)
{
    struct failure why;
    struct check_result result = {0};
    text[strcspn(text, "#")] = 0;
    char *name = trim(text);
    if (!*name)
        return;
    char *src = strchr(name, ':'), *dst = src ? strstr(src, "->") : NULL;
    if (!dst || src == name) {
        char where[64];
        snprintf(where, sizeof where, "line %" PRId64, c->line);
        failure_set(&why, CLI_BAD, "%s:%" PRId64 ": expected 'name: SRC -> DST', got '%.200s'", c->path, c->line, name);
        report(c, where, "", "", CLI_BAD, &result, &why);
        return;
    }
    *src++ = 0;
    *dst = 0;
    dst += 2;
    name = trim(name);
    src = trim(src);
    dst = trim(dst);
    int code = check_pair(src, dst, c->opts, &result, &why);
    report(c, name, src, dst, code, &result, &why);
}

static int check_cases(const char *path, const struct check_opts *o, bool as_json)
{
    struct cases c = {.path = path, .opts = o, .as_json = as_json, .json = {.to = stdout}};
    FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "r");
    if (!f) {
        fprintf(stderr, "weft check: %s: %s\n", path, strerror(errno));
        return CLI_BAD;
    }
    if (as_json) {
        json_write_open(&c.json, NULL, '{', false);
        json_write_open(&c.json, "cases", '[', false);
    }
    char *text = NULL;
    size_t cap = 0;
    while (getline(&text, &cap, f) >= 0) {
        c.line++;
        check_line(&c, text);
    }
    bool unread = ferror(f);
    free(text);
    if (f != stdin)
        fclose(f);
    if (as_json) {
        json_write_close(&c.json, ']');
        json_write_int(&c.json, "passed", c.passed);
        json_write_int(&c.json, "failed", c.failed);
        json_write_close(&c.json, '}');
    } else {
        printf("%" PRId64 " passed, %" PRId64 " failed\n", c.passed, c.failed);
    }
    if (unread || c.passed + c.failed == 0) {
        fprintf(stderr, "weft check: %s: %s\n", path,
                unread ? "could not be read to its end" : "there are no cases in it");
        return CLI_BAD;
    }
    return c.code;
}

/* In a job, the ranks for a URL without a name are the job's processes. All do the same and get the same result; rank 0
 * prints it. For shm: without a job, processes are started here. */
static int join_job(struct check_opts *o)
{
    weft_comm_opts opts = {.size = sizeof opts, .staged = o->staged};
    bool shm = o->url && !strcmp(o->url, "shm:"), mpi = o->url && !strncmp(o->url, "mpi:", 4);
    if (!shm && !mpi && (!o->url || (strcmp(o->url, "tcp:") && strcmp(o->url, "ucx:") && strcmp(o->url, "auto:"))))
        return CLI_OK;
    int err = weft_comm_open(shm ? NULL : o->url, &opts, &o->job);
    if (err == WEFT_EINVAL && shm && !getenv("WEFT_RANK") && !getenv("WEFT_SIZE")) /* there is no job */
        return CLI_OK;
    if (err) {
        fprintf(stderr, "weft check: %s\n", weft_errmsg());
        return err == WEFT_EINVAL ? CLI_BAD : CLI_WRONG;
    }
    if (weft_comm_rank(o->job) && (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)))
        return CLI_WRONG;
    return CLI_OK;
}

int cmd_check(int argc, char **argv)
{
    struct check_opts o = {.seed = 1, .repeat = 1};
    const char *cases = NULL, *values = NULL;
    bool json = false;
    const struct args_option rows[] = {
        {"cases", ARGS_TEXT, "FILE", "check each line 'name: SRC -> DST' of FILE ('-': standard input)", &cases, 0, 0},
        {"on", ARGS_TEXT, "URL",
         "where the ranks run: threads: (the default, as many as needed),\n"
         "threads:N, self:, or shm: (processes). In a job of weft run or MPI the\n"
         "ranks of the job, with shm:, tcp:, ucx:, auto: or mpi:",
         &o.url, 0, 0},
        {"seed", ARGS_INT, "N", "seed of the data (1)", &o.seed, 0, INT64_MAX / 2},
        {"repeat", ARGS_INT, "K", "number of runs (1); their data have seeds N to N+K-1", &o.repeat, 1, 1000000000},
        {"values", ARGS_TEXT, "KIND",
         "exact: small numbers, whose folds have the same bits in any order;\n"
         "wild: any bits. Default: exact, but wild for even seeds with the algorithm direct",
         &values, 0, 0},
        {"bucket", ARGS_BYTES, "BYTES",
         "bytes of a message: small pieces share one, larger ones are cut; 1: each piece alone", &o.bucket, 1,
         INT64_MAX},
        {"algorithm", ARGS_TEXT, "NAME", "force an algorithm (weft info lists them)", &o.algorithm, 0, 0},
        {"per-host", ARGS_INT, "N", "plan for hosts of N ranks each (default: one host)", &o.per_host, 1, INT32_MAX},
        {"staged", ARGS_FLAG, NULL, "move all data through staging memory, as if ranks shared no memory", &o.staged, 0,
         0},
        {"in-place", ARGS_FLAG, NULL, "put source and destination into one buffer if one lies inside the other",
         &o.in_place, 0, 0},
        {"private", ARGS_FLAG, NULL, "on shm: use private memory instead of window memory", &o.private, 0, 0},
        {"explain", ARGS_FLAG, NULL, "print which driver and ways bind has chosen on rank 0, and why", &o.explain, 0,
         0},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &json, 0, 0},
        {0}};
    const struct args_verb verb = {
        "check", "SRC DST [options]\n--cases FILE [options]",
        "Lowers a pair of layouts on all ranks, verifies the plans, runs them on real data, and compares every element "
        "with\n"
        "a brute-force computation. The ranks are threads or processes that it starts. Exit code 0: right; 1: wrong;\n"
        "2: bad usage or layout.",
        rows, 2};
    const char *words[2];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    if (values && strcmp(values, "exact") && strcmp(values, "wild"))
        return args_complain(&verb, "--values is exact or wild, not '%s'", values);
    if (values)
        o.values = *values == 'e' ? ORACLE_EXACT : ORACLE_WILD;
    if (o.explain && json)
        return args_complain(&verb, "--explain prints text: leave out --json");
    if (cases && n)
        return args_complain(&verb, "--cases takes its layouts from the file: '%s' is one argument too many", words[0]);
    if (!cases && n < 2)
        return args_complain(&verb, "two layouts are needed, SRC and DST, or --cases FILE");
    code = join_job(&o);
    if (code)
        return code;
    code = cases ? check_cases(cases, &o, json) : check_one(words[0], words[1], &o, json);
    fflush(NULL);
    /* A launcher ends the others when a rank fails, so no rank ends before rank 0 has said why. */
    if (o.job)
        weft_comm_barrier(o.job, WEFT_DEADLINE);
    weft_comm_close(o.job);
    return code;
}
