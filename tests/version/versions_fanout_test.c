/* One publisher and subscribers on other hosts, which are network namespaces here: each byte crosses to a host once,
 * hosts serve each other, changed elements cross alone, and peers that die or lie are passed over. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "bench/ranks/link.h"
#include "bus/directories.h"
#include "support/processes.h"
#include "support/share.h"
#include "weft/bus.h"

#define MOST 16
#define TENSORS 8
#define MIB (INT64_C(1) << 20)
#define STEPS 3

static const weft_want latest = {WEFT_WANT_LATEST, 0};

enum fault { NONE, DIES /* in the middle of the first version */, LIES /* gives other hosts wrong bytes */ };

struct run {
    int hosts, ranks;  /* of subscribers; ranks of each host */
    int64_t bytes;     /* of the set */
    const char *rate;  /* NULL: no limit */
    int64_t changed;   /* of 1,000 elements, from the second version on; 0: there is one version */
    bool alone, whole; /* no relay; no deltas */
    enum fault fault;  /* of host 1 */
};

/* What the processes tell each other. */
struct shared {
    _Atomic int ready, go, fetched[STEPS + 1], done[STEPS + 1], ended, failed;
    _Atomic int64_t sent[STEPS + 1], ns[STEPS + 1][MOST],
        cpu[STEPS + 1]; /* cpu: ns of all processes while they fetch */
    char text[512];
};
static struct shared *shared;
static struct bench_link net;
static char url[300];

static void await(_Atomic int *word, int value)
{
    int64_t until = clock_now() + LONG;
    while (atomic_load(word) < value && !atomic_load(&shared->failed) && clock_now() < until)
        usleep(500);
}

static void complain(const char *what)
{
    if (!atomic_exchange(&shared->failed, 1))
        snprintf(shared->text, sizeof shared->text, "%s: %s", what, weft_errmsg());
    _exit(1);
}
#define must(call)           \
    do {                     \
        if (call)            \
            complain(#call); \
    } while (0)

static uint16_t element(const struct run *r, int64_t step, int64_t i)
{
    uint64_t h = hash_u64(7, (uint64_t)i);
    bool changed = step > 1 && (int64_t)(h % 1000) < r->changed;
    return (uint16_t)((h >> 20) ^ (changed ? 0x5a5a + (uint64_t)step : 0));
}

/* Bytes that this host has sent. */
static int64_t sent_here(void)
{
    char line[512];
    int64_t bytes = -1;
    FILE *f = fopen("/proc/self/net/dev", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "eth0:");
        if (at)
            sscanf(at + 5, "%*d %*d %*d %*d %*d %*d %*d %*d %ld", &bytes);
    }
    if (f)
        fclose(f);
    return bytes;
}

/* Processor time of this process, in ns. */
static int64_t spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static weft_bus *open_here(int host, const char *job)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    char listen[64], address[32];
    weft_bus *b;
    if (!link_enter(&net, host))
        complain("link_enter");
    snprintf(listen, sizeof listen, "%s:0", link_address(host, address, sizeof address));
    o.token = PUBLISH_TOKEN;
    o.job = job;
    o.listen = listen;
    o.deadline_ns = LONG;
    must(weft_bus_open(url, &o, &b));
    return b;
}

static void make_tensors(const struct run *r, char names[TENSORS][8], weft_bus_tensor *t)
{
    char text[64];
    weft_layout *l;
    snprintf(text, sizeof text, "bf16[%lld] @x1", (long long)(r->bytes / 2 / TENSORS));
    must(weft_layout_parse(text, &l));
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], 8, "w%d", i);
        t[i] = (weft_bus_tensor){.name = names[i], .layout = l};
    }
}

static void be_publisher(const struct run *r, int readers)
{
    char names[TENSORS][8];
    weft_bus_tensor t[TENSORS];
    weft_view views[TENSORS];
    weft_publisher *p;
    weft_bus *b = open_here(0, "trainer");
    int64_t each = r->bytes / 2 / TENSORS;
    uint16_t *data = malloc((size_t)r->bytes);
    make_tensors(r, names, t);
    must(weft_publish(b, "fan", t, TENSORS, NULL, &p));
    for (int64_t step = 1; step <= (r->changed ? STEPS : 1); step++) {
        for (int64_t i = 0; i < TENSORS * each; i++)
            data[i] = element(r, step, i);
        for (int i = 0; i < TENSORS; i++)
            views[i] = (weft_view)WEFT_VIEW(data + i * each, (size_t)each * 2);
        must(weft_put(p, step, views));
        must(weft_commit(p, step, NULL, NULL));
        await(&shared->ready, readers);
        int64_t before = sent_here(), cpu = spent();
        atomic_store(&shared->go, (int)step);
        await(&shared->fetched[step], r->fault ? 0 : readers);
        atomic_fetch_add(&shared->cpu[step], spent() - cpu);
        await(&shared->done[step], readers - (r->fault == DIES));
        atomic_store(&shared->sent[step], sent_here() - before);
    }
    atomic_fetch_add(&shared->ended, 1);
    await(&shared->ended, readers + 1);
    weft_publisher_close(p);
    must(weft_bus_close(b));
    free(data);
}

/* Changes a byte in what this process has mapped for writing and gives to others. */
static void lie(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strstr(line, "memfd:weft-bus") && rights[1] == 'w')
            for (unsigned long at = from + 4096 + 77; at < to - 4096; at += 65536)
                *(unsigned char *)at ^= 4;
    }
    fclose(maps);
}

/* Ends this process in the middle of its fetch. The publisher waits for that, since others may be faster. */
static int die(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    if (done * 4 > total) {
        atomic_fetch_add(&shared->ended, 1);
        raise(SIGKILL);
    }
    return 0;
}

static void be_subscriber(const struct run *r, int host, int index)
{
    char names[TENSORS][8], job[16];
    weft_bus_tensor t[TENSORS];
    weft_subscriber *s;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_epoch_step v;
    snprintf(job, sizeof job, "server%d", index);
    weft_bus *b = open_here(host, job);
    int64_t each = r->bytes / 2 / TENSORS;
    o.alone = r->alone;
    o.no_delta = r->whole;
    o.progress = r->fault == DIES && host == 1 ? die : NULL;
    make_tensors(r, names, t);
    must(weft_subscribe(b, "fan", t, TENSORS, &o, &s));
    atomic_fetch_add(&shared->ready, 1);
    for (int64_t step = 1; step <= (r->changed ? STEPS : 1); step++) {
        weft_pin *pin;
        int64_t wrong = 0;
        await(&shared->go, (int)step);
        if (r->fault == LIES && host != 1)
            await(&shared->done[step], 1);
        int64_t began = clock_now(), cpu = spent();
        must(weft_fetch(s, &latest, LONG, &v));
        atomic_store(&shared->ns[step][index], clock_now() - began);
        atomic_fetch_add(&shared->fetched[step], 1);
        if (!r->fault) /* nobody compares while others fetch */
            await(&shared->fetched[step], r->hosts * r->ranks);
        atomic_fetch_add(&shared->cpu[step], spent() - cpu); /* it has served others, too */
        if (r->fault == LIES && host == 1)
            lie();
        must(weft_swap(s, &v, LONG));
        must(weft_use(s, &pin));
        for (int i = 0; i < TENSORS; i++) {
            const void *at;
            must(weft_pin_data(pin, (size_t)i, &at, NULL));
            for (int64_t k = 0; k < each; k++)
                wrong += ((const uint16_t *)at)[k] != element(r, v.step, i * each + k);
        }
        weft_unuse(pin);
        must(v.step != step);
        must(wrong != 0);
        atomic_fetch_add(&shared->done[step], 1);
    }
    atomic_fetch_add(&shared->ended, 1);
    await(&shared->ended, r->hosts * r->ranks + 1);
    weft_subscriber_close(s);
    must(weft_bus_close(b));
}

/* Plays it. ns: the longest fetch of each version. */
static void play(const struct run *r, int64_t ns[STEPS + 1])
{
    char why[256];
    int readers = r->hosts * r->ranks;
    pid_t pids[MOST + 1];
    directories_forks();
    if (!link_make(r->hosts + 1, &net, why, sizeof why)) {
        print_message("skip: %s\n", why);
        skip();
    }
    if (r->rate && !link_limit(&net, r->rate, why, sizeof why)) {
        link_remove(&net);
        print_message("skip: %s\n", why);
        skip();
    }
    snprintf(url, sizeof url, "file:%s/bus", net.folder.path);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i <= readers; i++) {
        pids[i] = process_fork(120);
        if (!pids[i]) {
            if (i == readers)
                be_publisher(r, readers);
            else
                be_subscriber(r, 1 + i / r->ranks, i);
            _exit(0);
        }
    }
    int bad = 0;
    for (int i = 0; i <= readers; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        bool killed = r->fault == DIES && i < r->ranks;
        bad += killed ? !WIFSIGNALED(status) : status != 0;
    }
    link_remove(&net);
    if (bad || shared->failed)
        fail_msg("%d processes failed: %s", bad, shared->text);
    for (int k = 1; k <= STEPS; k++) {
        ns[k] = 0;
        for (int i = 0; i < readers; i++)
            ns[k] = shared->ns[k][i] > ns[k] ? shared->ns[k][i] : ns[k];
    }
}

static void end_play(void)
{
    munmap(shared, sizeof *shared);
}

static double times_sent(const struct run *r, int step)
{
    return (double)shared->sent[step] / (double)r->bytes;
}

/* No percentage of 1 is that much: it is the campaign of `make soak`. */
static bool is_full(void)
{
    return test_share(1, 1000) == 1000;
}

/* Two ranks on each of three hosts. Without sharing, the set would leave the publisher six times. */
static void once(void **state)
{
    (void)state;
    struct run r = {.hosts = 3, .ranks = 2, .bytes = (is_full() ? 8 : 4) * MIB};
    int64_t ns[STEPS + 1];
    play(&r, ns);
    print_message("%.2f times the set left the publisher, for 6 ranks on 3 hosts\n", times_sent(&r, 1));
    assert_true(times_sent(&r, 1) < 1.8); /* 1.0; a machine that is busy makes relays insist */
    end_play();
}

static void changes(void **state)
{
    (void)state;
    struct run r = {.hosts = 2, .ranks = 1, .bytes = (is_full() ? 8 : 4) * MIB, .changed = 20};
    int64_t ns[STEPS + 1];
    play(&r, ns);
    print_message("%.3f times the set for 2 %% of its elements\n", times_sent(&r, 2));
    assert_true(times_sent(&r, 2) < 0.2);
    end_play();
}

static void peer_dies(void **state)
{
    (void)state;
    struct run r = {.hosts = 3, .ranks = 1, .bytes = (is_full() ? 8 : 4) * MIB, .fault = DIES};
    int64_t ns[STEPS + 1];
    play(&r, ns);
    end_play();
}

static void peer_lies(void **state)
{
    (void)state;
    struct run r = {.hosts = 2, .ranks = 1, .bytes = (is_full() ? 4 : 2) * MIB, .fault = LIES};
    int64_t ns[STEPS + 1];
    play(&r, ns);
    end_play();
}

static void need_full(void)
{
    if (is_full())
        return;
    print_message("skip: figures are for make soak\n");
    skip();
}

/* The figures of docs/bus.md; they mean something on a machine that does nothing else. The first version comes into
 * fresh memory, the third one into memory that was used before. */
static void figures(void **state)
{
    (void)state;
    static const char *const names[STEPS + 1] = {[1] = "first version", [STEPS] = "memory used before"};
    int64_t ns[STEPS + 1], one[STEPS + 1] = {0};
    need_full();
    const char *rate = getenv("WEFT_FANOUT_RATE"), *size = getenv("WEFT_FANOUT_MIB");
    const char *only = getenv("WEFT_FANOUT_HOSTS");
    for (int hosts = only ? atoi(only) : 1; hosts <= (only ? atoi(only) : 8); hosts *= 2) {
        struct run r = {.hosts = hosts,
                        .ranks = 1,
                        .bytes = (size ? atol(size) : 128) * MIB,
                        .rate = rate ? rate : "1gbit",
                        .changed = 1000,
                        .whole = true};
        play(&r, ns);
        for (int k = 1; k <= STEPS; k++) {
            if (!names[k])
                continue;
            one[k] = one[k] ? one[k] : ns[k];
            print_message(
                "%d hosts, %s, %s: %.3f s, %.2f times one host's time; %.3f times the set left the publisher; %.2f ns "
                "of processor time for each byte and host\n",
                hosts, r.rate, names[k], (double)ns[k] / 1e9, (double)ns[k] / (double)one[k], times_sent(&r, k),
                (double)shared->cpu[k] / (double)(hosts * r.bytes));
            assert_true(times_sent(&r, k) <= 1.1);
        }
        end_play();
    }
}

static void delta_figures(void **state)
{
    (void)state;
    int64_t ns[STEPS + 1], whole[STEPS + 1]; /* of the third version: all memory was used before */
    need_full();
    struct run r = {.hosts = 1, .ranks = 1, .bytes = 512 * MIB, .rate = "10gbit", .changed = 20};
    play(&r, ns);
    double times = times_sent(&r, 3);
    int64_t cpu = shared->cpu[3];
    end_play();
    r.whole = true;
    play(&r, whole);
    print_message(
        "512 MiB, 2 %% changed, 10 Gbit/s: %.3f s as a delta (%.3f times the set), %.3f s whole: %.1f; %.3f and "
        "%.3f s of processor time\n",
        (double)ns[3] / 1e9, times, (double)whole[3] / 1e9, (double)whole[3] / (double)ns[3], (double)cpu / 1e9,
        (double)shared->cpu[3] / 1e9);
    end_play();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(once),      cmocka_unit_test(changes),
                                       cmocka_unit_test(peer_dies), cmocka_unit_test(peer_lies),
                                       cmocka_unit_test(figures),   cmocka_unit_test(delta_figures)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
