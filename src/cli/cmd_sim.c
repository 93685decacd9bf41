/* weft sim: how long a move will take on a machine that need not be there, and why. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "comm/environment.h"
#include "foresee/bus_scene.h"
#include "foresee/calibrate.h"
#include "foresee/changes.h"
#include "foresee/models.h"
#include "foresee/page.h"
#include "foresee/story.h"
#include "foresee/time_picture.h"
#include "tool/args.h"

struct options {
    const char *machine, *table, *plan, *model, *from, *to, *dtype, *html, *delta;
    struct scene_how how;
    int64_t bus;    /* subscribers; 0: no bus */
    double changed; /* part of the elements; negative: no deltas */
    bool json, svg, machines, show, calibrate, what_if, apart, no_peers;
};

static int list(void)
{
    for (size_t i = 0; machine_file_preset(i); i++)
        printf("machine %-16s %s\n", machine_file_preset(i), machine_file_about(i));
    for (size_t i = 0; models_name(i); i++)
        printf("model   %-16s %s\n", models_name(i), models_about(i));
    return CLI_OK;
}

/* Started by weft run or another launcher it measures the network, too. */
static int calibrate(struct machine_file *m, bool *prints, struct failure *why)
{
    struct environment_job job;
    bool in_job;
    if (environment_job(&job, &in_job))
        return failure_set(why, CLI_WRONG, "the job: %s", weft_errmsg());
    int hosts = 1, code = in_job ? calibrate_job(m, &hosts, why) : calibrate_measure(m, why);
    *prints = hosts > 0;
    if (!code && hosts == 1)
        printf("# This machine, measured by weft sim --calibrate. NICs and spines were not: set them, and "
               "ranks_per_host.\n");
    else if (!code && hosts > 1)
        printf("# A job on %d hosts%s, measured by weft sim --calibrate: one NIC, between two of them. Spines were not "
               "measured: set them.\n",
               hosts, m->hosts_on_cores > 1 ? " that are played on one machine" : "");
    return code;
}

static int show(const struct options *o, struct failure *why)
{
    struct machine_file m;
    bool prints = true;
    int code = o->calibrate ? calibrate(&m, &prints, why) : machine_file_open(o->machine, &m, why);
    if (!code && prints)
        machine_file_print(stdout, &m);
    return code;
}

static void print(const struct options *o, const char *src, const char *dst, const struct scene *s,
                  const struct scene_run *r, const struct changes *c)
{
    if (!o->json) {
        if (src)
            printf("%-18s%s\n%-18s%s\n", "src", src, "dst", dst);
        else
            printf("%-18s%zu, of which %zu have layouts of their own\n", "tensors", s->tensors, s->moves.n);
        story_print(stdout, &r->graph, &r->events);
        changes_print(stdout, c, r->events.total);
        return;
    }
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    if (src) {
        json_write_text(&j, "src", src);
        json_write_text(&j, "dst", dst);
    }
    json_write_int(&j, "tensors", (int64_t)s->tensors);
    story_json(&j, &r->graph, &r->events);
    if (o->what_if)
        changes_json(&j, c);
    json_write_close(&j, '}');
}

static int read_scene(const struct options *o, const char *src, const char *dst, struct scene *s, struct failure *why)
{
    return o->table   ? scene_table(s, o->table, why)
           : o->plan  ? scene_plan(s, o->plan, why)
           : o->model ? models_add(s, o->model, o->from, o->to, o->dtype ? o->dtype : "bf16", why)
                      : scene_add(s, src, dst, why);
}

static int simulate_bus(const struct options *o, const char *src, const char *dst, struct failure *why)
{
    struct scene s = {0};
    struct bus_scene_run r;
    struct bus_scene_how how = {.subscribers = (int)o->bus, .peers = !o->no_peers, .changed = o->changed};
    int code = machine_file_open(o->machine, &how.machine, why);
    if (!code)
        code = read_scene(o, src, dst, &s, why);
    if (!code)
        code = bus_scene_simulate(&s, &how, &r, why);
    if (!code && o->json) {
        struct json j = {.to = stdout};
        json_write_open(&j, NULL, '{', false);
        json_write_int(&j, "tensors", (int64_t)s.tensors);
        bus_scene_json(&j, &r);
        json_write_close(&j, '}');
    } else if (!code) {
        printf("%-18s%zu\n", "tensors", s.tensors);
        bus_scene_print(stdout, &r);
    }
    if (!code)
        bus_scene_free(&r);
    scene_free(&s);
    return code;
}

static int simulate(struct options *o, const char *src, const char *dst, struct failure *why)
{
    struct scene s = {.apart = o->apart};
    struct scene_run r = {0};
    struct changes c = {0};
    int code = machine_file_open(o->machine, &o->how.machine, why);
    if (!code)
        code = read_scene(o, src, dst, &s, why);
    if (!code)
        code = scene_simulate(&s, &o->how, &r, why);
    if (!code && o->what_if)
        code = changes_try(&c, &s, &o->how, &r, why);
    if (!code && o->html)
        code = page_write(o->html, &(struct page){src, dst, &s, &r, &c}, why);
    if (!code && o->svg)
        time_picture_print(stdout, &r.graph, &r.events);
    else if (!code)
        print(o, src, dst, &s, &r, &c);
    changes_free(&c);
    scene_run_free(&r);
    scene_free(&s);
    return code;
}

/* --delta PERCENT, and what does not go together with --bus; NULL: all is well. */
static const char *check_bus(struct options *o)
{
    char *end = NULL;
    double percent = o->delta ? strtod(o->delta, &end) : 0;
    if (o->delta && (end == o->delta || *end || !(percent >= 0 && percent <= 100)))
        return "--delta needs the percentage of elements that change, from 0 to 100";
    o->changed = o->delta ? percent / 100 : -1;
    if (!o->bus && (o->delta || o->no_peers))
        return "--delta and --no-peers are for --bus";
    if (o->bus && (o->html || o->svg || o->what_if || o->apart || o->how.bucket || o->how.algorithm))
        return "--bus excludes --html, --svg, --what-if, --apart, --bucket and --algorithm";
    return NULL;
}

int cmd_sim(int argc, char **argv)
{
    struct options o = {.machine = "plain"};
    const struct args_option rows[] = {
        {"machine", ARGS_TEXT, "FILE", "a machine file, or the name of a machine (default: plain)", &o.machine, 0, 0},
        {"table", ARGS_TEXT, "FILE",
         "all tensors of FILE, with a line 'name: SRC -> DST' for each ('-': standard input)", &o.table, 0, 0},
        {"plan", ARGS_TEXT, "FILE", "the tensors of a plan that weft_plan_save or plan.save wrote", &o.plan, 0, 0},
        {"model", ARGS_TEXT, "MODEL", "all tensors of a model, from one parallelism to another", &o.model, 0, 0},
        {"from", ARGS_TEXT, "MESH", "of the model, for example fsdp64 or pp4.ep8.tp2", &o.from, 0, 0},
        {"to", ARGS_TEXT, "MESH", "the same, on further ranks", &o.to, 0, 0},
        {"dtype", ARGS_TEXT, "TYPE[:TYPE]",
         "of the model's matrices at both ends, for example bf16:f8e4m3 (default: bf16)", &o.dtype, 0, 0},
        {"bucket", ARGS_BYTES, "BYTES", "bytes of a message: small pieces share one, larger ones are cut",
         &o.how.bucket, 1, INT64_MAX},
        {"algorithm", ARGS_TEXT, "NAME", "force an algorithm (weft info lists them)", &o.how.algorithm, 0, 0},
        {"what-if", ARGS_FLAG, NULL, "also other algorithms, bucket sizes, placements, and one more replica",
         &o.what_if, 0, 0},
        {"apart", ARGS_FLAG, NULL, "lower tensors with the same layouts one by one, which takes longer", &o.apart, 0,
         0},
        {"bus", ARGS_INT, "N", "over the bus: SRC publishes, and N jobs of ranks DST on hosts of their own read it",
         &o.bus, 1, BUS_SCENE_HOSTS},
        {"no-peers", ARGS_FLAG, NULL, "with --bus: hosts take everything from the publisher", &o.no_peers, 0, 0},
        {"delta", ARGS_TEXT, "PERCENT", "with --bus: all hosts have the version before; this share of it changed",
         &o.delta, 0, 0},
        {"json", ARGS_FLAG, NULL, "print everything as JSON", &o.json, 0, 0},
        {"html", ARGS_TEXT, "FILE", "also write a page with pictures to FILE", &o.html, 0, 0},
        {"svg", ARGS_FLAG, NULL, "print a picture of the time line instead, as SVG", &o.svg, 0, 0},
        {"list", ARGS_FLAG, NULL, "list the machines and models that weft knows", &o.machines, 0, 0},
        {"show", ARGS_FLAG, NULL, "print the machine as a file, to begin one's own with", &o.show, 0, 0},
        {"calibrate", ARGS_FLAG, NULL, "measure this machine's memory, caches and messages, and print it as a file",
         &o.calibrate, 0, 0},
        {0}};
    const struct args_verb verb = {
        "sim",
        "SRC DST [options]\n--table FILE [options]\n--plan FILE [options]\n--model MODEL --from MESH --to MESH "
        "[options]\n... --bus N [--no-peers] [--delta PERCENT]\n--list\n--machine FILE --show\n--calibrate",
        "Foresees how long a move takes on a machine that need not be there: runs the plans of all ranks through a "
        "simulation of\nits cores, memory, ports, NICs and spines. Shows the time, the lower bound, the busiest links "
        "and the critical path.",
        rows, 2};
    const char *words[2] = {0};
    int n, code = args_parse(&verb, argc, argv, words, &n);
    if (code)
        return code < 0 ? CLI_OK : code;
    int inputs = (n > 0) + !!o.table + !!o.plan + !!o.model;
    if ((o.machines || o.show || o.calibrate) && inputs)
        return args_complain(&verb, "--list, --show and --calibrate take no tensors");
    if (o.machines)
        return list();
    if (!o.show && !o.calibrate && (inputs != 1 || n == 1))
        return args_complain(&verb, "two layouts are needed, SRC and DST, or one of --table, --plan and --model");
    if (o.model ? !o.from || !o.to : o.from || o.to || o.dtype)
        return args_complain(&verb, "--model, --from and --to go together, and --dtype with them");
    if (o.json && o.svg)
        return args_complain(&verb, "--json and --svg exclude each other");
    const char *wrong = check_bus(&o);
    if (wrong)
        return args_complain(&verb, "%s", wrong);
    struct failure why;
    code = o.show || o.calibrate ? show(&o, &why)
           : o.bus               ? simulate_bus(&o, words[0], words[1], &why)
                                 : simulate(&o, words[0], words[1], &why);
    if (code)
        failure_print(&why, "sim");
    return code;
}
