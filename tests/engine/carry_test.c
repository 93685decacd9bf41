/* Execs on the simulated device whose ranks cannot share it: messages go through pinned slots, between ranks of a host
 * and over a wire. The copies out of the device and into it overlap; pairs of layouts with mixed memory give the bits
 * of the same pair in host memory; a rank that dies in mid-run ends the others' run, and nothing is left. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "device_places.h"
#include "device_side.h"
#include "support/clock.h"
#include "support/ranks.h"
#include "support/simulated.h"
#include "support/suite.h"

enum { RANKS = 4 };

/* ---- copies overlap ---- */

#define BYTES (4 << 20)
#define BUCKET (256 << 10)
#define FROM "u8[4194304] @x1=0"
#define TO "u8[4194304] @x1=1"

struct overlap {
    int64_t copying_ns, overlap_ns;
};

/* Rank 0 sends 16 messages to rank 1. */
static void send_many(struct ranks_rank *r)
{
    struct side s = {.device = NULL};
    struct overlap *out = r->arg;
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    weft_lower_opts how = WEFT_LOWER_OPTS_INIT;
    float *memory;
    opts.ways = "-launcher";
    how.bucket = BUCKET;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &s.device));
    RANKS_OK(r, weft_layout_parse(FROM, &s.from));
    RANKS_OK(r, weft_layout_parse(TO, &s.to));
    weft_move move = {.src = s.from, .dst = s.to};
    RANKS_OK(r, weft_lower(&move, 1, r->rank, &how, &s.plan));
    RANKS_OK(r, device_memory(r->comm, BYTES, &memory));
    *(r->rank ? &s.dst : &s.src) = memory;
    weft_view v = view_of(memory, BYTES / sizeof *memory);
    RANKS_OK(r, weft_bind(s.plan, r->comm, r->rank ? NULL : &v, r->rank ? &v : NULL, &opts, &s.exec));
    struct sim_use before, after;
    simulated_calls()->use(s.device, &before);
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    simulated_calls()->use(s.device, &after);
    if (r->rank == 0)
        *out = (struct overlap){after.copying_ns - before.copying_ns, after.overlap_ns - before.overlap_ns};
    close_side(&s, r->comm);
}

/* Do copies overlap for a third of the time? On a busy machine threads wake late, and more so than copies take: then
 * copies are slower the next time. */
static bool overlaps(const char *place, struct overlap *out)
{
    bool enough = false;
    for (int rate = 64; rate && !enough; rate /= 2) {
        char text[16];
        snprintf(text, sizeof text, "%d", rate);
        simulated_set("WEFT_SIM_RATE", text);
        run_at(place, 2, NULL, send_many, out);
        enough = out->overlap_ns > out->copying_ns / 3;
    }
    simulated_set("WEFT_SIM_RATE", "64");
    return enough;
}

/* A message takes 4 ms out of the device and 4 ms into it: 128 ms one after the other, and 68 ms if all overlap. With
 * one slot a message is packed when the one before has been unpacked. */
static void copies_out_of_a_device_and_into_another_overlap(void **state)
{
    (void)state;
    simulated_set("WEFT_SIM_SEED", "0");
    for (size_t i = 0; i < DEVICE_PLACES; i++) {
        struct overlap many, one;
        weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
        bool enough = overlaps(device_places[i], &many);
        opts.channel_buckets = 1;
        run_at(device_places[i], 2, &opts, send_many, &one);
        print_message("%s: copies for %lld ms, two at once %lld ms; with one slot %lld and %lld ms\n", device_places[i],
                      (long long)many.copying_ns / 1000000, (long long)many.overlap_ns / 1000000,
                      (long long)one.copying_ns / 1000000, (long long)one.overlap_ns / 1000000);
        assert_true(enough);
        if (strcmp(device_places[i], "tcp")) /* each end of a wire has a slot of its own, so that two are at work */
            assert_true(one.overlap_ns < one.copying_ns / 20);
    }
    simulated_set("WEFT_SIM_RATE", NULL);
    simulated_set("WEFT_SIM_SEED", NULL);
}

/* ---- pairs of layouts ---- */

static const struct {
    const char *from, *to;
} pairs[] = {
    {ROWS, SHIFT},
    {"f32[32/x,48] @x4", "bf16[32,48/x] @x4"},
    {"f32[8,40] @x4 +sum(x)", "f32[8,40] @x4"},
    {"bf16[33,7] @x4 +max(x)", "f32[33/x,7] @x4"},
    {"f64[6,4,10/x] @x4", "f64[6/x,4,10] @x4"},
    {"i32[17] @x1=2", "i64[17] @x4"},
    {"f32[64,64/x] @x4", "f32[64,64] @x2=3,0"},
};

/* Which sides are on the device: bits of ranks, in four ways. */
static bool is_placed(int mix, int rank, int side)
{
    static const unsigned masks[][2] = {{15, 15}, {15, 0}, {5, 10}, {1, 7}};
    return masks[mix][side] >> rank & 1;
}

static void one_pair(struct ranks_rank *r, int pair, int mix, struct where *want)
{
    struct side s = {.device = NULL};
    struct where sides[2] = {{.host = NULL}};
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    opts.ways = "-launcher";
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &s.device));
    RANKS_OK(r, s.device->ops->stream_open(s.device, &s.stream));
    RANKS_OK(r, lower(&s, r->comm, pairs[pair].from, pairs[pair].to));
    RANKS_OK(r, place_side(&sides[0], r, s.from, want && is_placed(mix, r->rank, 0) ? 0 : -1));
    RANKS_OK(r, place_side(&sides[1], r, s.to, want && is_placed(mix, r->rank, 1) ? 0 : -1));
    RANKS_OK(r, weft_bind(s.plan, r->comm, &sides[0].view, &sides[1].view, &opts, &s.exec));
    RANKS_OK(r, move_side(&s, &sides[0], true));
    for (int run = 0; run < 3; run++)
        RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, move_side(&s, &sides[1], false));
    if (want)
        RANKS_CHECK(r, !memcmp(sides[1].host, want->host, (size_t)want->local.bytes));
    weft_exec_close(s.exec);
    s.exec = NULL;
    if (!want) /* the caller's, which frees it */
        *(struct where *)r->arg = sides[1];
    for (int side = 0; side < 2; side++) {
        weft_comm_free(r->comm, sides[side].device);
        if (want || side == 0)
            free(sides[side].host);
    }
    close_side(&s, r->comm);
}

static void all_pairs(struct ranks_rank *r)
{
    struct where expected;
    for (int pair = 0; pair < (int)(sizeof pairs / sizeof *pairs); pair++) {
        r->arg = &expected;
        one_pair(r, pair, 0, NULL);
        for (int mix = 0; mix < 4 && !r->failed[0]; mix++)
            one_pair(r, pair, mix, &expected);
        if (r->failed[0])
            return;
        free(expected.host);
    }
    struct device *d;
    struct sim_use use;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d));
    ranks_meet(r);
    simulated_calls()->use(d, &use);
    RANKS_CHECK(r, !use.allocations && !use.maps && !use.pins && !use.streams);
    ranks_meet(r);
    d->ops->close(d);
}

static void pairs_of_mixed_memory_give_the_bits_of_host_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEVICE_PLACES; i++)
        run_at(device_places[i], RANKS, NULL, all_pairs, NULL);
}

/* ---- deaths ---- */

/* Rank 2 starts a run and dies. */
static void lose_a_rank(struct ranks_rank *r)
{
    struct side s;
    struct sim_use use;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, "-launcher"));
    for (int run = 0; run < 2; run++)
        RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    int err = weft_exec_start(s.exec);
    if (r->rank == 2)
        kill(getpid(), SIGKILL);
    err = err ? err : weft_exec_wait(s.exec, WEFT_DEADLINE);
    for (int run = 0; run < 1000000 && !err; run++) /* a rank that does not hear from it may go on for some runs */
        err = weft_exec_run(s.exec);
    RANKS_CHECK(r, err == WEFT_EPEER && strstr(weft_errmsg(), "rank 2"));
    struct device *d = s.device;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d));
    close_side(&s, r->comm);
    simulated_calls()->use(d, &use);
    RANKS_CHECK(r, !use.allocations && !use.maps && !use.pins && !use.streams);
    d->ops->close(d);
}

static void a_death_ends_a_run_and_leaves_nothing(void **state)
{
    (void)state;
    const char *before = ranks_on;
    ranks_on = "shm";
    ranks_forked = true;
    for (int i = 0; i < 3; i++)
        ranks_run_but(RANKS, NULL, lose_a_rank, NULL, 2);
    ranks_on = before;
    ranks_forked = false;
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEVICE", "sim", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_out_of_a_device_and_into_another_overlap),
        cmocka_unit_test(pairs_of_mixed_memory_give_the_bits_of_host_memory),
        cmocka_unit_test(a_death_ends_a_run_and_leaves_nothing),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
