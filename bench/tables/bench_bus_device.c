#include "bench/tables/bench_bus_device.h"

#include <stdio.h>

#include "bench/ranks/rank_bus_device.h"
#include "tool/json_write.h"
#include "tool/readable.h"
#include "weft.h"

static const struct {
    const char *name, *to, *want;
    bool half;
} ways[] = {
    {"f32", "f32", "f32", false},
    {"f32, cast to bf16 at put", "bf16", "bf16", false},
    {"f32, cast to bf16 at fetch", "f32", "bf16", false},
    {"f32, cast at put, half of the columns", "bf16", "bf16", true},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void print_head(const struct bench_bus_device_options *o)
{
    char size[32];
    printf("%s of f32 in %lld tensors in memory of CUDA device %lld, over the bus and back; medians of %lld rounds.\n"
           "GB/s: bytes of the version that cross between device and host. first: the first version, whose memory is "
           "pinned meanwhile.\n\n",
           readable_bytes(o->rows * o->columns * o->tensors * 4, size, sizeof size), (long long)o->tensors,
           (long long)o->device, (long long)o->rounds);
    printf("%-38s %-6s %9s %9s %9s %9s %9s %9s  %s\n", "what", "digest", "put ms", "GB/s", "fetch ms", "GB/s",
           "first put", "first f.", "read");
}

static void print_line(const char *name, bool digest, const struct rank_bus_device_line *l)
{
    printf("%-38s %-6s %9.2f %9.1f %9.2f %9.1f %9.1f %9.1f  %s\n", name, digest ? "yes" : "no", l->put * 1e3,
           l->put_GBps, l->fetch * 1e3, l->fetch_GBps, l->first_put * 1e3, l->first_fetch * 1e3, l->way);
    fflush(stdout);
}

static void json_line(struct json *j, const char *name, bool digest, const struct rank_bus_device_line *l)
{
    json_write_open(j, NULL, '{', true);
    json_write_text(j, "what", name);
    json_write_bool(j, "digest", digest);
    json_write_real(j, "put_ms", l->put * 1e3);
    json_write_real(j, "put_GBps", l->put_GBps);
    json_write_real(j, "fetch_ms", l->fetch * 1e3);
    json_write_real(j, "fetch_GBps", l->fetch_GBps);
    json_write_real(j, "first_put_ms", l->first_put * 1e3);
    json_write_real(j, "first_fetch_ms", l->first_fetch * 1e3);
    json_write_text(j, "read", l->way);
    json_write_close(j, '}');
}

int bench_bus_device(const struct bench_bus_device_options *o, const char *folder, struct failure *why)
{
    struct json j = {.to = stdout};
    int code = CLI_OK;
    if (o->json) {
        json_write_open(&j, NULL, '{', false);
        json_write_text(&j, "bench", "bus");
        json_write_int(&j, "device", o->device);
        json_write_int(&j, "bytes", o->rows * o->columns * o->tensors * 4);
        json_write_int(&j, "tensors", o->tensors);
        json_write_open(&j, "lines", '[', false);
    } else
        print_head(o);
    for (int i = 0; i < WAYS && !code; i++)
        for (int digest = 0; digest < 2 && !code; digest++) {
            struct rank_bus_device_job job = {.device = (int)o->device,
                                              .tensors = (int)o->tensors,
                                              .rounds = (int)o->rounds,
                                              .rows = o->rows,
                                              .columns = o->columns,
                                              .to = ways[i].to,
                                              .want = ways[i].want,
                                              .half = ways[i].half,
                                              .digest = digest};
            struct rank_bus_device_line line;
            snprintf(job.url, sizeof job.url, "file:%s/bus", folder);
            int err = rank_bus_device(&job, &line);
            if (err)
                code = failure_set(why, CLI_WRONG, "%s: %s", ways[i].name,
                                   err == WEFT_EMISMATCH ? "elements are wrong" : weft_errmsg());
            else if (o->json)
                json_line(&j, ways[i].name, digest, &line);
            else
                print_line(ways[i].name, digest, &line);
        }
    if (o->json) {
        json_write_close(&j, ']');
        json_write_text(&j, "incomplete", code ? why->text : NULL);
        json_write_close(&j, '}');
        putchar('\n');
    }
    return code;
}
