/* Options of the benchmarks; see bench_options.h. */
#define _POSIX_C_SOURCE 200809L
#include "bench/harness/bench_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft.h"

/* Reads "16M" as bytes; *end is what follows. -1: it is not a size. */
static int64_t read_size(const char *text, char **end)
{
    errno = 0;
    long long v = strtoll(text, end, 10);
    if (errno || *end == text || v < 0)
        return -1;
    int64_t n = v;
    const char *letters = "KMG", *letter = **end ? strchr(letters, **end) : NULL;
    for (const char *l = letters; letter && l <= letter; l++)
        if (__builtin_mul_overflow(n, 1024, &n))
            return -1;
    *end += letter != NULL;
    return n;
}

/* Reads one item: a size, or first:last and an optional factor (otherwise 2). Returns how many there are in out, or
 * -1. */
static int read_range(const char **text, int64_t *out, int n, int cap)
{
    char *end;
    int64_t first = read_size(*text, &end), last = first, factor = 2;
    if (*end == ':')
        last = read_size(end + 1, &end);
    if (*end == ':')
        factor = read_size(end + 1, &end);
    if (first < 1 || last < first || factor < 2)
        return -1;
    for (int64_t v = first; v <= last; v *= factor) {
        if (n == cap)
            return -1;
        out[n++] = v;
        if (v > INT64_MAX / factor)
            break;
    }
    *text = end;
    return n;
}

static int read_list(const char *text, int64_t *out, int cap)
{
    int n = 0;
    for (;;) {
        n = read_range(&text, out, n, cap);
        if (n < 0 || !*text)
            return n;
        if (*text++ != ',')
            return -1;
    }
}

static bool transport_here(const char *scheme)
{
    const char *name;
    for (size_t i = 0; (name = weft_transport_name(i)); i++)
        if (!strncmp(name, scheme, strlen(scheme)))
            return true;
    return false;
}

static bool algorithm_here(const char *wanted)
{
    const char *name;
    for (size_t i = 0; (name = weft_algorithm_name(i)); i++)
        if (!strcmp(name, wanted))
            return true;
    return false;
}

/* Notes the drivers and ways that a list names, each to be switched off in turn; "all": each that the library has. */
static int read_without(const struct args_verb *verb, const char *list, struct bench_options *o)
{
    const char *name;
    bool all = !strcmp(list, "all");
    for (const char *p = list; p;) {
        size_t n = strcspn(p, ",");
        bool found = false;
        for (size_t i = 0; (name = weft_way_name(i)); i++)
            if (all || (strlen(name) == n && !strncmp(name, p, n))) {
                found = true;
                if (o->nwithout == BENCH_WITHOUT_MAX)
                    return args_complain(verb, "--without takes up to %d names", BENCH_WITHOUT_MAX);
                o->without[o->nwithout] = o->weft;
                o->without[o->nwithout++].without = name;
            }
        if (!found)
            return args_complain(verb, "--without: weft has no driver or way '%.*s'; weft info lists them", (int)n, p);
        p = p[n] ? p + n + 1 : NULL;
    }
    return 0;
}

/* Is the name, of n letters, in a list that is separated by commas? */
static bool among(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, name, n))
            return true;
    return false;
}

int bench_options_check_only(const struct args_verb *verb, const char *only, const char *names)
{
    for (const char *p = only; p;) {
        size_t n = strcspn(p, ",");
        if (!among(names, p, n))
            return args_complain(verb, "--only takes some of %s, not '%.*s'", names, (int)n, p);
        p = p[n] ? p + n + 1 : NULL;
    }
    return 0;
}

int bench_options_check_file(const struct args_verb *verb, const char *option, const char *path)
{
    struct stat st;
    if (!path)
        return 0;
    if (!stat(path, &st)) {
        if (S_ISDIR(st.st_mode))
            return args_complain(verb, "%s %s: it is a folder", option, path);
        return access(path, W_OK) ? args_complain(verb, "%s %s: %s", option, path, strerror(errno)) : 0;
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int code = 0;
    if (!folder || access(folder, W_OK))
        code = args_complain(verb, "%s %s: its folder: %s", option, path, strerror(errno));
    free(folder);
    return code;
}

static int check(const struct args_verb *verb, const char *ranks, const char *sizes, const char *names,
                 const char *without, struct bench_options *o, bool window)
{
    int64_t n[BENCH_RANKS_MAX];
    o->nranks = read_list(ranks, n, BENCH_RANKS_MAX);
    for (int i = 0; i < o->nranks; i++) {
        if (n[i] > ORDERS_RANKS)
            return args_complain(verb, "-n takes up to %d ranks", ORDERS_RANKS);
        o->ranks[i] = (int)n[i];
    }
    if (o->nranks < 1)
        return args_complain(verb, "-n takes numbers of ranks such as 2,4,8, not '%s'", ranks);
    o->nsizes = sizes ? read_list(sizes, o->sizes, BENCH_SIZES_MAX) : 0;
    if (sizes && o->nsizes < 1)
        return args_complain(verb, "--sizes takes sizes such as 8,4K,1M or 8:16M (at most %d), not '%s'",
                             BENCH_SIZES_MAX, sizes);
    if (strcmp(o->weft.on, "threads:") && strcmp(o->weft.on, "shm:"))
        return args_complain(verb, "--on takes threads: or shm:, not '%s'", o->weft.on);
    if (!transport_here(o->weft.on))
        return args_complain(verb, "this build has no %s", o->weft.on);
    if (o->weft.algorithm && !algorithm_here(o->weft.algorithm))
        return args_complain(verb, "there is no algorithm '%s'; weft info lists them", o->weft.algorithm);
    if (window && o->weft.private_)
        return args_complain(verb, "--window and --private exclude each other");
    if (o->json && o->csv)
        return args_complain(verb, "--json and --csv exclude each other");
    if (without && o->peers)
        return args_complain(verb, "--without and --peers exclude each other");
    int code = without ? read_without(verb, without, o) : 0;
    if (!code)
        code = bench_options_check_only(verb, o->only, names);
    if (!code)
        code = bench_options_check_file(verb, "--save", o->save);
    return code ? code : bench_options_check_file(verb, "--plot", o->plot);
}

int bench_options(const char *name, const char *about, const char *ranks, const char *sizes, const char *names,
                  int argc, char **argv, struct bench_options *out)
{
    int64_t ms = 100, rounds = 5;
    bool window = false;
    const char *without = NULL;
    *out = (struct bench_options){.weft.on = transport_here("shm:") ? "shm:" : "threads:"};
    char numbers[64], lengths[128], some[128] = "";
    snprintf(numbers, sizeof numbers, "ranks (%s)", ranks);
    snprintf(lengths, sizeof lengths, "bytes: 8,4K,1M, or 8:16M (doubling), or 8:16M:4 (%s)", sizes ? sizes : "");
    if (names)
        snprintf(some, sizeof some, "only some of %s", names);
    const struct args_option all[] = {
        {"sizes", ARGS_TEXT, "LIST", lengths, &sizes, 0, 0},
        {"n", ARGS_TEXT, "N,N", numbers, &ranks, 0, 0},
        {"only", ARGS_TEXT, "NAMES", some, &out->only, 0, 0},
        {"peers", ARGS_FLAG, NULL, "measure the installed MPI libraries, too", &out->peers, 0, 0},
        {"window", ARGS_FLAG, NULL, "tensors in window memory (default)", &window, 0, 0},
        {"private", ARGS_FLAG, NULL, "tensors in private memory", &out->weft.private_, 0, 0},
        {"on", ARGS_TEXT, "URL", "threads: or shm: (default: processes if this build has them)", &out->weft.on, 0, 0},
        {"algorithm", ARGS_TEXT, "NAME", "force one of weft's algorithms", &out->weft.algorithm, 0, 0},
        {"without", ARGS_TEXT, "NAMES", "also weft without each of these drivers and ways; all: each of them", &without,
         0, 0},
        {"explain", ARGS_FLAG, NULL, "print how weft runs each line: driver, and the ways on rank 0",
         &out->measure.explain, 0, 0},
        {"ms", ARGS_INT, "N", "milliseconds for each contender in each line (100)", &ms, 1, 60000},
        {"rounds", ARGS_INT, "N", "rounds in which the contenders take turns (5); repeated if they differ much",
         &rounds, 1, MEASURE_ROUNDS},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &out->json, 0, 0},
        {"csv", ARGS_FLAG, NULL, "print the result as CSV", &out->csv, 0, 0},
        {"save", ARGS_TEXT, "FILE", "also save the result as JSON", &out->save, 0, 0},
        {"plot", ARGS_TEXT, "FILE", "also save a picture as SVG", &out->plot, 0, 0},
        {0}};
    bool sized = sizes != NULL;
    struct args_option rows[sizeof all / sizeof *all];
    int nrows = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) { /* a benchmark without names moves nothing between ranks */
        const void *to = all[i].out;
        bool moves = to == &out->only || to == &out->peers || to == &without || to == &out->measure.explain;
        if ((sized || to != &sizes) && (names || !moves))
            rows[nrows++] = all[i];
    }
    char usage[160];
    snprintf(usage, sizeof usage, "[-n N,N]%s%s [--window|--private] [--json|--csv] [--plot out.svg]",
             sized ? " [--sizes LIST]" : "", names ? " [--peers]" : "");
    const struct args_verb verb = {name, usage, about, rows, 0};
    const char *words[1];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code;
    out->measure =
        (struct measure){.seconds = (double)ms * 1e-3, .rounds = (int)rounds, .explain = out->measure.explain};
    return check(&verb, ranks, sizes, names, without, out, window);
}

bool bench_options_wants(const struct bench_options *o, const char *name)
{
    return !o->only || among(o->only, name, strlen(name));
}

void bench_options_add_weft(const struct bench_options *o, struct contenders *f, int ranks)
{
    contenders_add_weft(f, &o->weft, ranks);
    for (int i = 0; i < o->nwithout; i++)
        contenders_add_weft(f, &o->without[i], ranks);
}
