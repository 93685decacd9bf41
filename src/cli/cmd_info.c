/* weft info: what this build can do and what machine it runs on. */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/cli.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/readable.h"
#include "weft.h"

struct machine {
    struct utsname uname;
    char cpu[320];
    int64_t cores, memory;
};

/* The model as /proc/cpuinfo names it; AArch64 has numbers for maker and part instead. */
static void read_cpu(char *out, size_t cap)
{
    static const char *const names[] = {"model name", "CPU implementer", "CPU part"};
    char line[512], found[3][128] = {"", "", ""};
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; value && i < 3; i++)
            if (!found[i][0] && !strncmp(line, names[i], strlen(names[i])))
                snprintf(found[i], sizeof found[i], "%s", value + 1 + strspn(value + 1, " \t"));
    }
    if (f)
        fclose(f);
    if (found[0][0])
        snprintf(out, cap, "%s", found[0]);
    else if (found[1][0])
        snprintf(out, cap, "implementer %s, part %s", found[1], found[2]);
}

/* What auto: takes between hosts, if all machines are like this one. */
static const char *wire_here(void)
{
    const char *asked = getenv("WEFT_WIRE");
    bool module = false, rdma = false;
    for (size_t i = 0; weft_module_name(i); i++)
        module |= !strcmp(weft_module_name(i), "ucx:");
    DIR *d = opendir("/sys/class/infiniband");
    for (const struct dirent *e; d && (e = readdir(d));)
        rdma |= e->d_name[0] != '.';
    if (d)
        closedir(d);
    if (asked && *asked)
        return strcmp(asked, "ucx") ? "tcp:" : "ucx:";
    return module && rdma ? "ucx:" : "tcp:";
}

static void read_machine(struct machine *m)
{
    *m = (struct machine){.cores = sysconf(_SC_NPROCESSORS_ONLN)};
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        m->cores = CPU_COUNT(&set);
    uname(&m->uname);
    m->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    read_cpu(m->cpu, sizeof m->cpu);
}

static const char *dtype_at(size_t i)
{
    return weft_dtype_name(WEFT_BOOL + (int)i);
}

static const char *op_at(size_t i)
{
    return weft_op_name(WEFT_SUM + (int)i);
}

/* Lists of the library: from index 0 on, NULL after the last. */
struct list {
    const char *name;
    const char *(*get)(size_t i);
};
static const struct list lists[] = {{"dtypes", dtype_at},
                                    {"ops", op_at},
                                    {"algorithms", weft_algorithm_name},
                                    {"transports", weft_transport_name},
                                    {"ways", weft_way_name},
                                    {"modules", weft_module_name}};
#define LISTS (sizeof lists / sizeof *lists)

/* What the library says about devices, in memory that the caller frees; NULL: there is no memory. */
static char *devices(bool json)
{
    char *text = NULL;
    size_t cap = 0, len = 0;
    while (!weft_device_explain(json, text, cap, &len) && len >= cap) {
        free(text);
        cap = len + 1;
        text = malloc(cap);
        if (!text)
            break;
    }
    return text;
}

static void print_json(const struct machine *m, const char *version)
{
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "version", version);
    for (size_t k = 0; k < LISTS; k++) {
        json_write_open(&j, lists[k].name, '[', true);
        for (size_t i = 0; lists[k].get(i); i++)
            json_write_text(&j, NULL, lists[k].get(i));
        json_write_close(&j, ']');
    }
    json_write_text(&j, "between_hosts", wire_here());
    char *text = devices(true);
    if (text)
        text[strcspn(text, "\n")] = 0;
    json_write_raw(&j, "devices", text ? text : "null");
    free(text);
    json_write_open(&j, "limits", '{', true);
    json_write_int(&j, "dims", WEFT_MAX_DIMS);
    json_write_int(&j, "axes", WEFT_MAX_AXES);
    json_write_int(&j, "axis_name", WEFT_MAX_NAME);
    json_write_close(&j, '}');
    json_write_open(&j, "machine", '{', true);
    json_write_text(&j, "system", m->uname.sysname);
    json_write_text(&j, "architecture", m->uname.machine);
    json_write_text(&j, "cpu", m->cpu[0] ? m->cpu : NULL);
    json_write_int(&j, "cores", m->cores);
    json_write_int(&j, "memory", m->memory);
    json_write_close(&j, '}');
    json_write_close(&j, '}');
}

static void print_text(const struct machine *m, const char *version)
{
    char a[64];
    printf("%-12s%s\n", "version", version);
    for (size_t k = 0; k < LISTS; k++) {
        printf("%-12s", lists[k].name);
        for (size_t i = 0; lists[k].get(i); i++)
            printf("%s%s", i ? " " : "", lists[k].get(i));
        puts(lists[k].get(0) ? "" : "none");
    }
    printf("%-12s%s between hosts\n", "auto:", wire_here());
    char *all = devices(false), *rest = NULL;
    for (const char *line = all ? strtok_r(all, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        printf("%-12s%s\n", line == all ? "devices" : "", line);
    free(all);
    printf("%-12s%d dims, %d axes, %d letters an axis name\n", "limits", WEFT_MAX_DIMS, WEFT_MAX_AXES, WEFT_MAX_NAME);
    printf("%-12s%s %s%s%s\n", "cpu", m->uname.sysname, m->uname.machine, m->cpu[0] ? ", " : "", m->cpu);
    printf("%-12s%" PRId64 "\n", "cores", m->cores);
    printf("%-12s%s\n", "memory", readable_bytes(m->memory, a, sizeof a));
}

int cmd_info(int argc, char **argv)
{
    bool json = false;
    const struct args_option rows[] = {{"json", ARGS_FLAG, NULL, "print the same as JSON", &json, 0, 0}, {0}};
    const struct args_verb verb = {"info", "[--json]",
                                   "Shows what this build of weft can do, its limits, and the machine.", rows, 0};
    const char *words[1];
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct machine m;
    char version[32];
    uint32_t v = weft_version();
    read_machine(&m);
    snprintf(version, sizeof version, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    if (json)
        print_json(&m, version);
    else
        print_text(&m, version);
    return CLI_OK;
}
