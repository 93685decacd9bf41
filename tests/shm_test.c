/* Processes that share memory: names and who may use them, window memory, what is left behind, and ranks that are killed or
 * stopped. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#include "random.h"
#include "ranks.h"
#include "share.h"
#include "tensors.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

static bool no_memfds; /* as on a system that has none */
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    if (!no_memfds)
        return __real_memfd_create(name, flags);
    errno = ENOSYS;
    return -1;
}

static int64_t below(struct random *r, int64_t n)
{
    return random_in(r, 0, n - 1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static int open_as(const char *url, int rank, int ranks, int64_t deadline_ns, weft_comm **out)
{
    return weft_comm_open(
        url,
        &(weft_comm_opts){.size = sizeof(weft_comm_opts), .rank = rank, .ranks = ranks, .deadline_ns = deadline_ns},
        out);
}

/* ---- what is left ---- */

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Lines of a file of /proc that have the text. */
static int lines_with(const char *path, const char *text)
{
    char line[1024];
    int n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    fclose(f);
    return n;
}

static int files_in_dev_shm(void)
{
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, "weft") != NULL;
    if (d)
        closedir(d);
    return n;
}

static void nothing_left(const char *name)
{
    assert_int_equal(lines_with("/proc/net/unix", name), 0);
    assert_int_equal(lines_with("/proc/self/maps", "memfd:weft"), 0);
    assert_int_equal(files_in_dev_shm(), 0);
}

/* ---- names ---- */

static void bad_names(void **state)
{
    (void)state;
    weft_comm *c;
    char name[120] = "shm:";
    memset(name + 4, 'n', 81);
    assert_int_equal(open_as(name, 0, 1, 0, &c), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "the name has more than 80 letters"));
    assert_int_equal(open_as("shm:", 0, 1, 0, &c), WEFT_EINVAL);
    assert_int_equal(open_as("shm:a", 0, 0, 0, &c), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "how many ranks there are is not known"));
    assert_int_equal(open_as("shm:a", 2, 2, 0, &c), WEFT_EINVAL);
    assert_int_equal(open_as("shm:a", -1, 2, 0, &c), WEFT_EINVAL);
    assert_int_equal(open_as("shm:a", 0, 5000, 0, &c), WEFT_EUNSUPPORTED);
    assert_int_equal(open_as("shm:a", 0, -2, 0, &c), WEFT_EINVAL);
    char url[64], text[120];
    snprintf(url, sizeof url, "shm:alone-%ld", (long)getpid());
    snprintf(text, sizeof text, "%s: ranks 0, 2 did not come within 20 ms", url);
    assert_int_equal(open_as(url, 1, 3, 20 * MS, &c), WEFT_ETIMEOUT);
    assert_string_equal(weft_errmsg(), text);
    nothing_left(url + 4);
}

/* Runs f in a child and gives its exit code. */
static int in_child(int (*f)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(f(arg));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int refused(const char *url, int ranks, int code, const char *text)
{
    weft_comm *c;
    if (open_as(url, 0, ranks, 5 * SECOND, &c) != code)
        return 1;
    return strstr(weft_errmsg(), text) ? 0 : 2;
}

static int another_job(void *url)
{
    return refused(url, 1, WEFT_EBUSY, "rank 0 is open already, in process ");
}

static int another_user(void *url)
{
    if (setuid(65534))
        return 3;
    return refused(url, 1, WEFT_EBUSY, "the name is in use by another user (uid 0)");
}

/* While a group lives, its name is not to be had for another job, nor for another user. */
static void names_are_refused(void **state)
{
    (void)state;
    weft_comm *c;
    char url[64];
    snprintf(url, sizeof url, "shm:taken-%ld", (long)getpid());
    int files = open_files();
    assert_int_equal(open_as(url, 0, 1, 0, &c), 0);
    assert_int_equal(in_child(another_job, url), 0);
    if (geteuid() == 0)
        assert_int_equal(in_child(another_user, url), 0);
    weft_comm_close(c);
    assert_int_equal(open_as(url, 0, 1, 0, &c), 0); /* and then it is */
    weft_comm_close(c);
    assert_int_equal(open_files(), files);
    nothing_left(url + 4);
}

struct forming {
    char url[64];
    int code, user;
    char text[256];
};

static int join_forming(void *arg)
{
    struct forming *f = arg;
    weft_comm *c;
    if (f->user && setuid(65534))
        return 3;
    do
        f->code = open_as(f->url, 1, 3, 10 * SECOND, &c);
    while (f->code == WEFT_ETIMEOUT);
    snprintf(f->text, sizeof f->text, "%s", weft_errmsg());
    return 0;
}

/* Ranks that do not agree, or do not belong together, while the group forms: the waiting one is found by its socket. */
static void forming_groups_refuse(void **state)
{
    (void)state;
    for (int user = 0; user < (geteuid() == 0 ? 2 : 1); user++) {
        struct forming *f = ranks_shared(sizeof *f);
        snprintf(f->url, sizeof f->url, "shm:forming-%ld-%d", (long)getpid(), user);
        f->user = user;
        weft_comm *c;
        fflush(NULL);
        pid_t waiting = fork();
        if (waiting == 0) {
            open_as(f->url, 0, 2, 60 * SECOND, &c);
            _exit(0);
        }
        while (!lines_with("/proc/net/unix", f->url + 4)) /* "weft:NAME" follows the @ */
            sched_yield();
        assert_int_equal(in_child(join_forming, f), 0);
        kill(waiting, SIGKILL);
        waitpid(waiting, NULL, 0);
        if (user) {
            assert_int_equal(f->code, WEFT_EBUSY);
            assert_non_null(strstr(f->text, "another user (uid 0)"));
        } else {
            assert_int_equal(f->code, WEFT_EMISMATCH);
            assert_non_null(strstr(f->text, "others have opened it with 2 ranks, not 3"));
        }
        nothing_left(f->url + 4);
        munmap(f, sizeof *f);
    }
}

/* ---- the launcher's environment ---- */

static int open_job(void *arg)
{
    const char *const *set = arg;
    weft_comm *c;
    for (int i = 0; set[i]; i += 2) {
        char value[128];
        snprintf(value, sizeof value, set[i + 1], (long)getppid());
        setenv(set[i], value, 1);
    }
    if (weft_comm_open(NULL, NULL, &c))
        return -weft_comm_open(NULL, NULL, &c);
    int size = weft_comm_size(c);
    weft_comm_close(c);
    return 100 + size;
}

static void jobs_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *set[12];
        int code;
    } jobs[] = {
        {{"WEFT_RANK", "0", "WEFT_SIZE", "1", "WEFT_URL", "shm:env-a-%ld"}, 101},
        {{"WEFT_RANK", "0", "WEFT_SIZE", "1", "WEFT_NAME", "env-b-%ld"}, 101},
        {{"WEFT_RANK", "0", "WEFT_SIZE", "1"}, -WEFT_EINVAL},
        {{"WEFT_RANK", "1", "WEFT_SIZE", "1", "WEFT_URL", "shm:env-c-%ld"}, -WEFT_EINVAL},
        {{"WEFT_RANK", "x", "WEFT_SIZE", "1", "WEFT_URL", "shm:env-d-%ld"}, -WEFT_EINVAL},
        {{"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1", "PMIX_NAMESPACE", "env.%ld@/x y"}, 101},
        {{"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
         -WEFT_EUNSUPPORTED},
        {{"PMI_RANK", "0", "PMI_SIZE", "1"}, 101},
        {{"SLURM_PROCID", "0", "SLURM_NTASKS", "1", "SLURM_JOB_ID", "%ld", "SLURM_STEP_ID", "3"}, 101},
        {{"RANK", "0", "WORLD_SIZE", "1", "MASTER_PORT", "%ld", "TORCHELASTIC_RUN_ID", "none"}, 101},
        {{"RANK", "0", "WORLD_SIZE", "1", "TORCHELASTIC_RUN_ID",
          "%ld-a-name-that-is-much-longer-than-any-that-a-group-could-ever-have-and-still-is-one-job"},
         101},
        {{"RANK", "0"}, -WEFT_EINVAL},
        {{NULL}, -WEFT_EINVAL},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        int code = in_child(open_job, (void *)(uintptr_t)jobs[i].set);
        if (code != jobs[i].code)
            fail_msg("job %zu: %d, not %d", i, code, jobs[i].code);
    }
}

/* ---- memory ---- */

static void run_windows(struct ranks_rank *r)
{
    static const size_t sizes[] = {1, 100, 4096, 70000, 1 << 20, (2 << 20) + 5, 9 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int round = 0; round < 3; round++) {
        unsigned char *p[N];
        for (int i = 0; i < N; i++) {
            void *memory;
            RANKS_OK(r, weft_comm_alloc(r->comm, sizes[i], &memory));
            p[i] = memory;
            RANKS_CHECK(r, (uintptr_t)p[i] % 128 == 0);
            RANKS_CHECK(r, sizes[i] < (2 << 20) || (uintptr_t)p[i] % (2 << 20) == 0);
            for (size_t k = 0; k < sizes[i]; k++)
                RANKS_CHECK(r, p[i][k] == 0);
            memset(p[i], r->rank + 1, sizes[i]); /* for the next round, and for the others */
        }
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < sizes[i]; k++)
                RANKS_CHECK(r, p[i][k] == r->rank + 1);
        for (int i = 0; i < N; i++)
            weft_comm_dealloc(r->comm, p[(i * 3 + 1) % N]);
    }
    weft_comm_dealloc(r->comm, NULL);
    void *kept, *none = &kept;
    RANKS_OK(r, weft_comm_alloc(r->comm, 5000, &kept)); /* freed with the comm */
    RANKS_CHECK(r, weft_comm_alloc(r->comm, SIZE_MAX / 2, &none) == WEFT_ENOMEM && none == &kept);
    RANKS_CHECK(r, weft_comm_alloc(r->comm, (size_t)1 << 46, &none) == WEFT_ENOMEM);
    RANKS_CHECK(r, weft_comm_alloc(NULL, 8, &none) == WEFT_EINVAL);
}

static void window_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        ranks_on = i ? "shm" : "threads";
        ranks_forked = i == 2;
        ranks_run(3, NULL, run_windows, NULL, NULL);
    }
    char name[64];
    snprintf(name, sizeof name, "weft:test-%ld-", (long)getpid());
    nothing_left(name);
}

/* More than the machine has is refused, not killed for. */
static void run_too_much(struct ranks_rank *r)
{
    void *memory = NULL;
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    RANKS_CHECK(r, weft_comm_alloc(r->comm, all + all / 2, &memory) == WEFT_ENOMEM);
    RANKS_CHECK(r, strstr(weft_errmsg(), "no memory for ") && !memory);
    RANKS_OK(r, weft_comm_alloc(r->comm, 1 << 20, &memory));
}

static void more_than_there_is(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run(2, NULL, run_too_much, NULL, NULL);
}

/* Without memfds the file is in /dev/shm, which may be small: then memory is refused, and nobody gets a SIGBUS. */
static int on_small_dev_shm(void *arg)
{
    const char *url = arg;
    weft_comm *c;
    void *memory;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4m"))
        return 77;
    no_memfds = true;
    if (open_as(url, 0, 1, 0, &c))
        return 1;
    if (weft_comm_alloc(c, 1 << 20, &memory) || files_in_dev_shm())
        return 2;
    memset(memory, 1, 1 << 20);
    if (weft_comm_alloc(c, 8 << 20, &memory) != WEFT_ENOMEM)
        return 3;
    if (weft_comm_alloc(c, 100000, &memory)) /* what is there can still be had */
        return 4;
    memset(memory, 1, 100000);
    weft_comm_close(c);
    int fd = open("/dev/shm/fill", O_CREAT | O_RDWR, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (4 << 20) - 8192))
        return 5;
    int code = open_as(url, 0, 1, 0, &c);
    return code == WEFT_ENOMEM || code == 0 ? 0 : 6;
}

static void a_small_dev_shm(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "shm:small-%ld", (long)getpid());
    int code = in_child(on_small_dev_shm, url);
    if (code == 77) {
        print_message("skip: no right to mount a small /dev/shm\n");
        skip();
    }
    assert_int_equal(code, 0);
}

static void run_mode(struct ranks_rank *r)
{
    (void)r;
    struct stat s;
    int found = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], to[300];
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, to, sizeof to - 1);
        to[n > 0 ? n : 0] = 0;
        if (!strstr(to, "memfd:weft"))
            continue;
        found++;
        RANKS_CHECK(r, !stat(path, &s) && (s.st_mode & 07777) == 0600);
    }
    closedir(d);
    RANKS_CHECK(r, found == 1);
}

static void segments_are_private(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run(2, NULL, run_mode, NULL, NULL);
}

/* ---- moves ---- */

struct pair {
    weft_layout *src, *dst;
    weft_plan *plan;
    void *in, *out;
    bool window;
    weft_comm *comm;
    weft_exec *x;
};

static int pair_make(struct pair *p, const char *src, const char *dst, bool window, weft_comm *c)
{
    weft_lower_opts o = {.size = sizeof o, .world = weft_comm_size(c)};
    weft_local a, b;
    int rank = weft_comm_rank(c);
    *p = (struct pair){.window = window, .comm = c};
    int err = weft_layout_parse(src, &p->src);
    if (!err)
        err = weft_layout_parse(dst, &p->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", p->src, p->dst}, 1, rank, &o, &p->plan);
    if (err || (err = weft_layout_local(p->src, rank, &a)) || (err = weft_layout_local(p->dst, rank, &b)))
        return err;
    if (window) {
        err = weft_comm_alloc(c, (size_t)a.bytes, &p->in);
        if (!err)
            err = weft_comm_alloc(c, (size_t)b.bytes, &p->out);
    } else {
        p->in = calloc(1, (size_t)a.bytes + 1);
        p->out = calloc(1, (size_t)b.bytes + 1);
    }
    weft_view in = {p->in, (size_t)a.bytes, NULL}, out = {p->out, (size_t)b.bytes, NULL};
    return err ? err : weft_bind(p->plan, c, &in, &out, NULL, &p->x);
}

static void pair_free(struct pair *p)
{
    weft_exec_free(p->x);
    weft_plan_free(p->plan);
    weft_layout_free(p->src);
    weft_layout_free(p->dst);
    if (p->window) {
        weft_comm_dealloc(p->comm, p->in);
        weft_comm_dealloc(p->comm, p->out);
    } else {
        free(p->in);
        free(p->out);
    }
}

static void run_kinds(struct ranks_rank *r)
{
    bool window = *(bool *)r->arg;
    struct pair p;
    weft_exec_info info = {.size = sizeof info};
    RANKS_OK(r, pair_make(&p, "f32[64/x,300] @x4", "f32[64,300/x] @x4", window, r->comm));
    for (int seed = 0; seed < 5; seed++) {
        tensors_fill(p.src, r->rank, p.in, seed);
        RANKS_OK(r, weft_exec_run(p.x));
        RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, p.out, seed));
    }
    RANKS_OK(r, weft_exec_stats(p.x, &info));
    RANKS_CHECK(r, window == (info.staging_peak == 0));
    pair_free(&p);
}

/* Window memory is read where it is; private memory comes through staging. */
static void window_and_private(void **state)
{
    (void)state;
    ranks_on = "shm";
    for (int mode = 0; mode < 4; mode++) {
        bool window = mode & 1;
        ranks_forked = mode & 2;
        ranks_run(4, NULL, run_kinds, &window, NULL);
    }
}

/* ---- ranks that are killed ---- */

#define MOST 4
struct killing {
    char url[64];
    int ranks;
    uint64_t seed;
    int64_t deadline_ns;
    atomic_int joined;
    struct {
        int code;
        int64_t from, at;
        char text[512];
    } end[MOST];
};

/* Opens, and then binds, runs and frees until something fails. All ranks do the same things. */
static int work_until_failure(struct killing *k, int rank)
{
    static const char *const moves[][2] = {{"f32[64/x,64] @x%d", "f32[64,64/x] @x%d"},
                                           {"f32[5000] @x%d +sum(x)", "f32[5000] @x%d"},
                                           {"f32[70000/x] @x%d", "f32[70000] @x%d"},
                                           {"f32[64/x] @x%d", "f32[64/x~1o] @x%d"}};
    struct random rng = {k->seed};
    weft_comm *c;
    int err = open_as(k->url, rank, k->ranks, k->deadline_ns, &c);
    if (err)
        return err;
    atomic_fetch_add(&k->joined, 1);
    while (!err) {
        struct pair p;
        char src[64], dst[64];
        size_t m = (size_t)below(&rng, 4);
        int runs = (int)below(&rng, 30), window = (int)below(&rng, 2);
        snprintf(src, sizeof src, moves[m][0], k->ranks);
        snprintf(dst, sizeof dst, moves[m][1], k->ranks);
        err = pair_make(&p, src, dst, window, c);
        for (int i = 0; i < runs && !err; i++)
            err = weft_exec_run(p.x);
        if (!err && below(&rng, 2))
            err = weft_comm_barrier(c, -1);
        if (err)
            return err; /* as it stands: the process ends with it */
        pair_free(&p);
    }
    return err;
}

static void rank_of_killing(struct killing *k, int rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    k->end[rank].from = now_ns();
    k->end[rank].code = work_until_failure(k, rank);
    k->end[rank].at = now_ns();
    snprintf(k->end[rank].text, sizeof k->end[rank].text, "%s", weft_errmsg());
    _exit(0);
}

/* Does the text name the rank, in "rank 2" or "ranks 0, 2"? */
static bool names(const char *text, int rank)
{
    for (const char *at = strstr(text, "rank"); at; at = strstr(at + 4, "rank")) {
        const char *p = at + 4 + (at[4] == 's');
        for (char *end; *p == ' ' || *p == ','; p = end) {
            p += *p == ',';
            if (strtol(p, &end, 10) == rank && end != p)
                return true;
            if (end == p)
                break;
        }
    }
    return false;
}

static void pause_ns(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
    nanosleep(&t, NULL);
}

/* Kills one of the ranks at a random moment: as they join, or as they work. */
static void kill_one(struct random *rng, int number)
{
    struct killing *k = ranks_shared(sizeof *k);
    pid_t pids[MOST];
    bool early = below(rng, 4) == 0;
    k->ranks = 2 + (int)below(rng, MOST - 1);
    k->seed = random_next(rng);
    k->deadline_ns = early ? 1500 * MS : 30 * SECOND;
    int victim = (int)below(rng, k->ranks);
    int64_t delay = (int64_t)below(rng, early ? 2 * MS : 20 * MS);
    snprintf(k->url, sizeof k->url, "shm:kill-%ld-%d", (long)getpid(), number);
    fflush(NULL);
    for (int r = 0; r < k->ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            rank_of_killing(k, r);
    }
    while (!early && atomic_load(&k->joined) < k->ranks)
        sched_yield();
    pause_ns(delay);
    int64_t killed = now_ns();
    kill(pids[victim], SIGKILL);
    for (int r = 0; r < k->ranks; r++)
        assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
    for (int r = 0; r < k->ranks; r++) {
        int code = k->end[r].code;
        const char *text = k->end[r].text;
        if (r == victim)
            continue;
        int64_t since = k->end[r].from > killed ? k->end[r].from : killed;
        if ((code != WEFT_EPEER && (!early || code != WEFT_ETIMEOUT)) || !names(text, victim) ||
            k->end[r].at - since > 2 * SECOND)
            fail_msg("kill %d: rank %d of %d was killed, rank %d got %d after %lld ms: %s", number, victim, k->ranks, r,
                     code, (long long)((k->end[r].at - since) / MS), text);
    }
    nothing_left(k->url + 4);
    munmap(k, sizeof *k);
}

static void killed_at_random(void **state)
{
    (void)state;
    struct random rng = {7};
    int64_t n = test_share(40, 500);
    for (int i = 0; i < n; i++)
        kill_one(&rng, i);
}

/* ---- ranks that are stopped ---- */

struct stopping {
    char url[64];
    bool in_time;
    int64_t deadline_ns;
    atomic_int told; /* the rank that waits has seen that the other one is late */
    int code, after;
    int64_t wrong;
    char text[512];
};

static void stopped_rank(struct stopping *s, int rank)
{
    weft_comm *c;
    struct pair p;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (open_as(s->url, rank, 2, s->deadline_ns, &c) || pair_make(&p, "f32[128/x,128] @x2", "f32[128,128/x] @x2", true, c))
        _exit(1);
    tensors_fill(p.src, rank, p.in, 3);
    if (weft_exec_start(p.x))
        _exit(2);
    if (rank == 1)
        raise(SIGSTOP);
    if (rank == 0 && s->in_time) {
        s->code = weft_exec_wait(p.x, 100 * MS);
        snprintf(s->text, sizeof s->text, "%s", weft_errmsg());
        atomic_store(&s->told, 1);
    }
    int err = weft_exec_wait(p.x, -1);
    if (rank == 0) {
        s->after = err;
        if (!s->in_time)
            snprintf(s->text, sizeof s->text, "%s", weft_errmsg());
        s->wrong = err ? 0 : tensors_wrong(p.src, p.dst, rank, p.out, 3);
        atomic_store(&s->told, 1);
    }
    int bad = !err && tensors_wrong(p.src, p.dst, rank, p.out, 3);
    pair_free(&p);
    weft_comm_close(c);
    _exit(bad ? 3 : 0);
}

static void stop_one(struct stopping *s, bool in_time)
{
    pid_t pids[2];
    int status;
    s->in_time = in_time;
    s->deadline_ns = in_time ? 30 * SECOND : 500 * MS;
    snprintf(s->url, sizeof s->url, "shm:stop-%ld-%d", (long)getpid(), in_time);
    fflush(NULL);
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            stopped_rank(s, r);
    }
    assert_int_equal(waitpid(pids[1], &status, WUNTRACED), pids[1]);
    assert_true(WIFSTOPPED(status));
    while (!atomic_load(&s->told))
        sched_yield();
    kill(pids[1], SIGCONT);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
}

static void stopped_and_continued(void **state)
{
    (void)state;
    struct stopping *s = ranks_shared(sizeof *s);
    stop_one(s, true);
    assert_int_equal(s->code, WEFT_ETIMEOUT);
    assert_string_equal(s->text, "time ran out: waiting for rank 1");
    assert_int_equal(s->after, 0);
    assert_int_equal(s->wrong, 0);
    munmap(s, sizeof *s);
}

static void stopped_for_too_long(void **state)
{
    (void)state;
    struct stopping *s = ranks_shared(sizeof *s);
    stop_one(s, false);
    assert_int_equal(s->after, WEFT_EPEER);
    assert_non_null(strstr(s->text, "rank 1 started a run and made no progress for 500 ms"));
    munmap(s, sizeof *s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_names),
        cmocka_unit_test(names_are_refused),
        cmocka_unit_test(forming_groups_refuse),
        cmocka_unit_test(jobs_are_found),
        cmocka_unit_test(window_memory),
        cmocka_unit_test(more_than_there_is),
        cmocka_unit_test(a_small_dev_shm),
        cmocka_unit_test(segments_are_private),
        cmocka_unit_test(window_and_private),
        cmocka_unit_test(killed_at_random),
        cmocka_unit_test(stopped_and_continued),
        cmocka_unit_test(stopped_for_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
