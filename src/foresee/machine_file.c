#include "foresee/machine_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { COUNT, RATE, TIME, SIZE, INSIDE };
static const struct key {
    const char *name;
    enum kind kind;
    size_t at;
} keys[] = {
    {"ranks_per_host", COUNT, offsetof(struct machine_file, ranks_per_host)},
    {"cores", COUNT, offsetof(struct machine_file, cores)},
    {"hosts_on_cores", COUNT, offsetof(struct machine_file, hosts_on_cores)},
    {"copy", RATE, offsetof(struct machine_file, copy)},
    {"copy_host", RATE, offsetof(struct machine_file, copy_host)},
    {"copy_long", RATE, offsetof(struct machine_file, copy_long)},
    {"copy_long_host", RATE, offsetof(struct machine_file, copy_long_host)},
    {"copy_rows", RATE, offsetof(struct machine_file, copy_rows)},
    {"copy_rows_host", RATE, offsetof(struct machine_file, copy_rows_host)},
    {"fold", RATE, offsetof(struct machine_file, fold)},
    {"fold_host", RATE, offsetof(struct machine_file, fold_host)},
    {"cast", RATE, offsetof(struct machine_file, cast)},
    {"cast_host", RATE, offsetof(struct machine_file, cast_host)},
    {"inside", INSIDE, offsetof(struct machine_file, inside)},
    {"inside_rank", RATE, offsetof(struct machine_file, inside_rank)},
    {"inside_host", RATE, offsetof(struct machine_file, inside_host)},
    {"inside_latency", TIME, offsetof(struct machine_file, inside_latency)},
    {"nics", COUNT, offsetof(struct machine_file, nics)},
    {"nic", RATE, offsetof(struct machine_file, nic)},
    {"nic_crowd", RATE, offsetof(struct machine_file, nic_crowd)},
    {"nic_crowd_long", RATE, offsetof(struct machine_file, nic_crowd_long)},
    {"nic_latency", TIME, offsetof(struct machine_file, nic_latency)},
    {"nic_core", RATE, offsetof(struct machine_file, nic_core)},
    {"nic_path", RATE, offsetof(struct machine_file, nic_path)},
    {"nic_message", TIME, offsetof(struct machine_file, nic_message)},
    {"rails", COUNT, offsetof(struct machine_file, rails)},
    {"hosts_per_rack", COUNT, offsetof(struct machine_file, hosts_per_rack)},
    {"spine", RATE, offsetof(struct machine_file, spine)},
    {"spine_latency", TIME, offsetof(struct machine_file, spine_latency)},
    {"message", TIME, offsetof(struct machine_file, message)},
    {"part", TIME, offsetof(struct machine_file, part)},
    {"launch", TIME, offsetof(struct machine_file, launch)},
};
#define KEYS (sizeof keys / sizeof *keys)

/* Keys that come several times, and where the rates of more bytes are. */
static const struct {
    const char *name;
    size_t rank, host;
} works[MACHINE_FILE_WORKS] = {
    [MACHINE_FILE_COPY] = {"cached", offsetof(struct machine_file, copy), offsetof(struct machine_file, copy_host)},
    [MACHINE_FILE_LONG] = {"cached_long", offsetof(struct machine_file, copy_long),
                           offsetof(struct machine_file, copy_long_host)},
    [MACHINE_FILE_ROWS] = {"cached_rows", offsetof(struct machine_file, copy_rows),
                           offsetof(struct machine_file, copy_rows_host)},
    [MACHINE_FILE_FOLD] = {"cached_fold", offsetof(struct machine_file, fold),
                           offsetof(struct machine_file, fold_host)},
    [MACHINE_FILE_CAST] = {"cached_cast", offsetof(struct machine_file, cast),
                           offsetof(struct machine_file, cast_host)},
};

static const char *const inside_names[] = {"memory", "link"};

/* "plain" is first: its values stand for keys that a file does not have. They are those that the chooser of algorithms
 * has assumed from the start. */
static const struct {
    const char *name, *about, *text;
} presets[] = {
    {"plain", "hosts of 8 ranks that share memory, one NIC of 100 Gbit/s",
     "ranks_per_host 8\ncores 0\nhosts_on_cores 1\ninside memory\ncopy 10 GB/s\ncopy_host 80 GB/s\n"
     "copy_long 0\ncopy_long_host 0\ncopy_rows 0\ncopy_rows_host 0\nfold 0\nfold_host 0\ncast 0\ncast_host "
     "0\ninside_rank 0\n"
     "inside_host 0\ninside_latency 500 ns\nnics 1\nnic 100 Gbit/s\nnic_crowd 0\nnic_crowd_long 0\nnic_latency 2 "
     "us\nnic_core 0\nnic_path "
     "0\nnic_message 0\nrails 0\n"
     "hosts_per_rack 0\nspine 0\nspine_latency 0\nmessage 100 ns\npart 0\nlaunch 0\n"},
    {"a100", "hosts of 8 A100: NVSwitch 300 GB/s, a NIC of 200 Gbit/s for each",
     "ranks_per_host 8\ninside link\ncopy 700 GB/s\ncopy_host 0\ninside_rank 300 GB/s\ninside_latency 3 us\nnics 8\n"
     "nic 200 Gbit/s\nnic_latency 5 us\nmessage 1 us\nlaunch 4 us\n"},
    {"h100", "hosts of 8 H100: NVSwitch 450 GB/s, a NIC of 400 Gbit/s for each",
     "ranks_per_host 8\ninside link\ncopy 1200 GB/s\ncopy_host 0\ninside_rank 450 GB/s\ninside_latency 3 us\nnics 8\n"
     "nic 400 Gbit/s\nnic_latency 5 us\nmessage 1 us\nlaunch 4 us\n"},
    {"h100-tapered", "the same in racks of 4 hosts, with half of the NICs' rate between racks",
     "ranks_per_host 8\ninside link\ncopy 1200 GB/s\ncopy_host 0\ninside_rank 450 GB/s\ninside_latency 3 us\nnics 8\n"
     "nic 400 Gbit/s\nnic_latency 5 us\nhosts_per_rack 4\nspine 800 GB/s\nspine_latency 2 us\nmessage 1 us\n"
     "launch 4 us\n"},
    {"gb200", "NVLink domains of 72 B200: 900 GB/s, a NIC of 400 Gbit/s for each",
     "ranks_per_host 72\ninside link\ncopy 3000 GB/s\ncopy_host 0\ninside_rank 900 GB/s\ninside_latency 3 us\nnics 72\n"
     "nic 400 Gbit/s\nnic_latency 5 us\nmessage 1 us\nlaunch 4 us\n"},
    {"pcie", "hosts of 8 GPUs that share one PCIe root of 128 GB/s, two NICs of 200 Gbit/s",
     "ranks_per_host 8\ninside link\ncopy 600 GB/s\ncopy_host 0\ninside_rank 25 GB/s\ninside_host 128 GB/s\n"
     "inside_latency 8 us\nnics 2\nnic 200 Gbit/s\nnic_latency 6 us\nmessage 1 us\nlaunch 4 us\n"},
};
#define PRESETS (sizeof presets / sizeof *presets)

const char *machine_file_preset(size_t i)
{
    return i < PRESETS ? presets[i].name : NULL;
}

const char *machine_file_about(size_t i)
{
    return i < PRESETS ? presets[i].about : NULL;
}

/* ---- values ---- */

static const struct {
    const char *name;
    enum kind kind;
    double factor;
} units[] = {
    {"GB/s", RATE, 1}, {"MB/s", RATE, 1e-3}, {"TB/s", RATE, 1e3}, {"Gbit/s", RATE, 0.125}, {"Mbit/s", RATE, 0.125e-3},
    {"ns", TIME, 1},   {"us", TIME, 1e3},    {"ms", TIME, 1e6},   {"B", SIZE, 1},          {"KB", SIZE, 1e3},
    {"MB", SIZE, 1e6}, {"GB", SIZE, 1e9},
};

static bool read_real(enum kind kind, const char *value, const char *unit, double *out)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !(x >= 0) || x > 1e15)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units && *unit; i++)
        if (units[i].kind == kind && !strcmp(units[i].name, unit)) {
            *out = x * units[i].factor;
            return true;
        }
    *out = 0;
    return !*unit && x == 0;
}

static bool read_count(const char *value, const char *unit, int64_t *out)
{
    char *end;
    long long x = strtoll(value, &end, 10);
    *out = x;
    return end != value && !*end && !*unit && x >= 0 && x <= 1 << 24;
}

static bool read_inside(const char *value, const char *unit, int64_t *out)
{
    for (*out = 0; *out < 2; ++*out)
        if (!strcmp(inside_names[*out], value))
            return !*unit;
    return false;
}

static const char *wanted(enum kind kind)
{
    switch (kind) {
    case COUNT: return "a whole number";
    case RATE: return "a rate such as '50 GB/s' (also MB/s, TB/s, Gbit/s, Mbit/s), or 0 for no limit";
    case SIZE: return "a size such as '512 KB' (also B, MB, GB) and two rates such as '30 GB/s', one behind the other";
    case TIME: return "a time such as '2 us' (also ns, ms), or 0";
    default: return "'memory' or 'link'";
    }
}

/* "cached 512 KB 37 GB/s 70 GB/s" */
static int read_cached(struct machine_file *m, int work, const char *file, int number, const char *line,
                       struct failure *why)
{
    char text[3][40], unit[3][40], more[2];
    struct machine_file_cached x, *lines = m->cached[work];
    double *out[3] = {&x.bytes, &x.rank, &x.host};
    size_t *lines_n = &m->ncached[work];
    int n = sscanf(line, "%*s %39s %39s %39s %39s %39s %39s %1s", text[0], unit[0], text[1], unit[1], text[2], unit[2],
                   more);
    bool good = n == 6;
    for (int i = 0; i < 3 && good; i++)
        good = read_real(i ? RATE : SIZE, text[i], unit[i], out[i]) && *out[i] > 0;
    if (!good)
        return failure_set(why, CLI_BAD, "%s:%d: %s needs %s", file, number, works[work].name, wanted(SIZE));
    if (*lines_n == MACHINE_FILE_CACHED)
        return failure_set(why, CLI_BAD, "%s:%d: there are at most %d lines of %s", file, number, MACHINE_FILE_CACHED,
                           works[work].name);
    if (*lines_n && lines[*lines_n - 1].bytes >= x.bytes)
        return failure_set(why, CLI_BAD, "%s:%d: the sizes of %s must grow from line to line", file, number,
                           works[work].name);
    lines[(*lines_n)++] = x;
    return CLI_OK;
}

static int read_line(struct machine_file *m, const char *file, int number, const char *line, struct failure *why)
{
    char key[40], value[40], unit[40], more[2];
    int n = sscanf(line, "%39s %39s %39s %1s", key, value, unit, more);
    if (n <= 0)
        return CLI_OK;
    for (int w = 0; w < MACHINE_FILE_WORKS; w++)
        if (!strcmp(key, works[w].name))
            return read_cached(m, w, file, number, line, why);
    if (n < 3)
        *unit = 0;
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, key))
            continue;
        void *at = (char *)m + keys[i].at;
        bool real = keys[i].kind == RATE || keys[i].kind == TIME;
        if (n == 4 || n < 2 ||
            !(real                    ? read_real(keys[i].kind, value, unit, at)
              : keys[i].kind == COUNT ? read_count(value, unit, at)
                                      : read_inside(value, unit, at)))
            return failure_set(why, CLI_BAD, "%s:%d: %s needs %s", file, number, key, wanted(keys[i].kind));
        return CLI_OK;
    }
    return failure_set(why, CLI_BAD, "%s:%d: there is no key '%s' (docs/sim.md lists them)", file, number, key);
}

static int read_lines(struct machine_file *m, const char *file, const char *text, struct failure *why)
{
    int code = CLI_OK;
    for (int number = 1; *text && !code; number++) {
        char line[256];
        size_t whole = strcspn(text, "\n"), n = strcspn(text, "#\n");
        if (n >= sizeof line)
            return failure_set(why, CLI_BAD, "%s:%d: the line is too long", file, number);
        memcpy(line, text, n);
        line[n] = 0;
        code = read_line(m, file, number, line, why);
        text += whole + (text[whole] != 0);
    }
    return code;
}

static int check(const struct machine_file *m, const char *file, struct failure *why)
{
    const char *what = NULL;
    if (m->nics < 1)
        what = "nics must be at least 1";
    else if (m->hosts_on_cores < 1)
        what = "hosts_on_cores must be at least 1";
    else if (m->inside == MACHINE_FILE_MEMORY && m->copy <= 0)
        what = "with 'inside memory' a core copies: copy must not be 0";
    else if (m->rails > 1)
        what = "rails is 0 or 1";
    else if (m->rails && m->ranks_per_host && m->nics > m->ranks_per_host)
        what = "with rails there are at most as many nics as ranks_per_host";
    return what ? failure_set(why, CLI_BAD, "%s: %s", file, what) : CLI_OK;
}

int machine_file_parse(const char *name, const char *text, struct machine_file *out, struct failure *why)
{
    struct machine_file m = {.nics = 1};
    int code = read_lines(&m, "plain", presets[0].text, why);
    if (!code)
        code = read_lines(&m, name, text, why);
    if (!code)
        code = check(&m, name, why);
    if (code)
        return code;
    const char *slash = strrchr(name, '/');
    snprintf(m.name, sizeof m.name, "%s", slash ? slash + 1 : name);
    *out = m;
    return CLI_OK;
}

int machine_file_open(const char *what, struct machine_file *out, struct failure *why)
{
    for (size_t i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, what))
            return machine_file_parse(what, presets[i].text, out, why);
    FILE *f = fopen(what, "r");
    if (!f)
        return failure_set(why, CLI_BAD, "'%s' is neither a machine that weft knows (weft sim --list) nor a file",
                           what);
    static const size_t most = 1 << 16;
    char *text = malloc(most);
    size_t n = text ? fread(text, 1, most, f) : 0;
    int code = CLI_OK;
    if (!text)
        code = failure_set(why, CLI_WRONG, "%s: not enough memory", what);
    else if (ferror(f))
        code = failure_set(why, CLI_BAD, "%s: cannot be read", what);
    else if (n == most || memchr(text, 0, n))
        code = failure_set(why, CLI_BAD, "%s: is no machine file", what);
    if (!code) {
        text[n] = 0;
        code = machine_file_parse(what, text, out, why);
    }
    free(text);
    fclose(f);
    return code;
}

void machine_file_print(FILE *to, const struct machine_file *m)
{
    for (size_t i = 0; i < KEYS; i++) {
        const void *at = (const char *)m + keys[i].at;
        double real;
        int64_t count;
        memcpy(&real, at, sizeof real);
        memcpy(&count, at, sizeof count);
        fprintf(to, "%-15s ", keys[i].name);
        if (keys[i].kind == INSIDE)
            fprintf(to, "%s\n", inside_names[count]);
        else if (keys[i].kind == COUNT)
            fprintf(to, "%" PRId64 "\n", count);
        else
            fprintf(to, "%.17g %s\n", real, keys[i].kind == RATE ? "GB/s" : "ns");
    }
    for (int w = 0; w < MACHINE_FILE_WORKS; w++)
        for (size_t i = 0; i < m->ncached[w]; i++)
            fprintf(to, "%-15s %.17g B %.17g GB/s %.17g GB/s\n", works[w].name, m->cached[w][i].bytes,
                    m->cached[w][i].rank, m->cached[w][i].host);
}

/* 0: no limit, which for other work than copies means that it is as fast as these. */
static double in_memory(const struct machine_file *m, enum machine_file_work work, bool host)
{
    double rate;
    memcpy(&rate, (const char *)m + (host ? works[work].host : works[work].rank), sizeof rate);
    return rate > 0 || work == MACHINE_FILE_COPY ? rate : in_memory(m, MACHINE_FILE_COPY, host);
}

/* Between two sizes the time of a byte grows with the logarithm of the size. So it does from the last one to its
 * double, where it is that of memory. */
static double cached_rate(const struct machine_file *m, enum machine_file_work work, bool host, double bytes)
{
    const struct machine_file_cached *lines = m->cached[work];
    double size = 0, each = 0, memory = in_memory(m, work, host);
    for (size_t i = 0; i <= m->ncached[work]; i++) {
        bool last = i == m->ncached[work];
        double rate = last ? memory : host ? lines[i].host : lines[i].rank, next = last ? 2 * size : lines[i].bytes;
        double then = rate > 0 ? 1 / rate : 0;
        if (bytes < next) {
            double mixed = i ? each + (then - each) * log(bytes / size) / log(next / size) : then;
            return mixed > 0 ? 1 / mixed : 0;
        }
        size = next;
        each = then;
    }
    return memory;
}

double machine_file_rate(const struct machine_file *m, enum machine_file_work work, bool host, double bytes)
{
    if (m->ncached[work])
        return cached_rate(m, work, host, bytes);
    double copies = in_memory(m, MACHINE_FILE_COPY, host), memory = in_memory(m, work, host);
    double here = cached_rate(m, MACHINE_FILE_COPY, host, bytes);
    return copies > 0 && memory > 0 ? here * memory / copies : here;
}

int machine_file_hosts(const struct machine_file *m, int world)
{
    return m->ranks_per_host ? (int)((world + m->ranks_per_host - 1) / m->ranks_per_host) : 1;
}

/* A file may say more than fits into 64 bits, such as 1e15 ms. */
static int64_t whole(double x)
{
    return (int64_t)fmin(x, 0x1p60);
}

/* Bytes a microsecond. 0 is no limit. */
static int64_t rate_of(double bytes_per_ns)
{
    return bytes_per_ns > 0 ? whole(fmax(1, bytes_per_ns * 1e3)) : 0;
}

static int64_t time_of(double ns)
{
    return whole(fmax(1, ns));
}

weft_machine machine_file_lower(const struct machine_file *m)
{
    static const int64_t free_of_cost = INT64_C(1) << 40;
    bool device = m->inside == MACHINE_FILE_LINK;
    int64_t link = rate_of((double)m->nics * m->nic), port = rate_of(m->inside_rank), copy = rate_of(m->copy);
    bool carries = m->cores && m->nic_path > 0; /* lowering knows no path: each end has half of it */
    double core = carries ? 1 / ((m->nic_core > 0 ? 1 / m->nic_core : 0) + 0.5 / m->nic_path) : m->nic_core;
    return (weft_machine){.size = sizeof(weft_machine),
                          .ranks_per_host = (int)m->ranks_per_host,
                          .latency_ns = time_of(m->nic_latency),
                          .bytes_per_us = link ? link : free_of_cost,
                          .inside_latency_ns = time_of(m->inside_latency),
                          .inside_bytes_per_us = !device ? 0
                                                 : port  ? port
                                                         : free_of_cost,
                          .copy_bytes_per_us = copy ? copy : free_of_cost,
                          .host_copy_bytes_per_us = rate_of(m->copy_host),
                          .core_bytes_per_us = rate_of(core),
                          .message_ns = time_of(m->message),
                          .launch_ns = whole(m->launch),
                          .links = (int)m->nics,
                          .cores = (int)fmin((double)m->cores, ceil((double)m->cores / (double)m->hosts_on_cores))};
}
