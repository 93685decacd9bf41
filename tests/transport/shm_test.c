/* Processes that share memory: names and who may use them, the launchers' environments, window memory, what is left
 * behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"

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

/* ---- names ---- */

static void bad_names_are_refused(void **state)
{
    (void)state;
    weft_comm *c;
    char name[120] = "shm:";
    memset(name + 4, 'n', 81);
    assert_int_equal(process_open(name, 0, 1, 0, &c), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "the name has more than 80 letters"));
    assert_int_equal(process_open("shm:", 0, 1, 0, &c), WEFT_EINVAL);
    assert_int_equal(process_open("shm:a", 0, 0, 0, &c), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "the number of ranks is not known"));
    assert_int_equal(process_open("shm:a", 2, 2, 0, &c), WEFT_EINVAL);
    assert_int_equal(process_open("shm:a", -1, 2, 0, &c), WEFT_EINVAL);
    assert_int_equal(process_open("shm:a", 0, 5000, 0, &c), WEFT_EUNSUPPORTED);
    assert_int_equal(process_open("shm:a", 0, -2, 0, &c), WEFT_EINVAL);
}

/* ---- ranks that do not come ---- */

/* A rank of another job, which waits under another name. */
static int waits(void *url)
{
    weft_comm *c;
    return process_open(url, 0, 2, 20 * SECOND, &c) == WEFT_ETIMEOUT ? 0 : 1;
}

static void who_waits_in_vain_says_where(void **state)
{
    (void)state;
    weft_comm *c;
    char url[64], text[200], host[65] = "";
    snprintf(url, sizeof url, "shm:alone-%ld", (long)getpid());
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text,
             "%s: ranks 0, 2 did not come within 20 ms; this rank waited for 3 ranks on host %s, network namespace ",
             url, host);
    assert_int_equal(process_open(url, 1, 3, 20 * MS, &c), WEFT_ETIMEOUT);
    assert_memory_equal(weft_errmsg(), text, strlen(text));
    assert_non_null(
        strstr(weft_errmsg(), ": all ranks need the same name, number of ranks, machine and network namespace"));
    process_nothing_left(url + 4);
}

/* Names of other groups are told while their ranks wait for each other, and no longer. */
static void other_names_are_told(void **state)
{
    (void)state;
    weft_comm *c;
    char url[64], other[64], text[120];
    snprintf(url, sizeof url, "shm:sync-%ld", (long)getpid());
    snprintf(other, sizeof other, "shm:sink-%ld", (long)getpid());
    snprintf(text, sizeof text, " %s", other);
    pid_t pid = fork();
    if (!pid)
        _exit(waits(other));
    bool told = false;
    for (int i = 0; i < 200 && !told; i++) {
        assert_int_equal(process_open(url, 1, 2, 20 * MS, &c), WEFT_ETIMEOUT);
        told = strstr(weft_errmsg(), "other ranks wait there now under ") && strstr(weft_errmsg(), text);
    }
    assert_true(told);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(process_open(url, 1, 2, 20 * MS, &c), WEFT_ETIMEOUT);
    assert_null(strstr(weft_errmsg(), text));
    process_nothing_left(url + 4);
}

/* One job has opened the name with its own ranks alone: they are a group, and ranks of the other job wait in vain. */
static void a_group_of_another_size_is_told(void **state)
{
    (void)state;
    weft_comm *first, *c;
    char url[64];
    snprintf(url, sizeof url, "shm:small-%ld", (long)getpid());
    assert_int_equal(process_open(url, 0, 1, 0, &first), 0);
    assert_int_equal(process_open(url, 1, 3, 20 * MS, &c), WEFT_ETIMEOUT);
    assert_non_null(strstr(weft_errmsg(),
                           ": ranks 0, 2 did not come within 20 ms; rank 0 is in another group with this "
                           "name, perhaps of another size; this rank waited for 3 ranks on host "));
    weft_comm_close(first);
    assert_int_equal(process_open(url, 1, 3, 20 * MS, &c), WEFT_ETIMEOUT);
    assert_null(strstr(weft_errmsg(), "another group"));
    process_nothing_left(url + 4);
}

/* ---- names that are taken ---- */

static int refused(const char *url, int ranks, int code, const char *text)
{
    weft_comm *c;
    if (process_open(url, 0, ranks, 5 * SECOND, &c) != code)
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

/* While a group lives, its name is not to be had for another job, nor (only_user) for another user. */
static void refuse_names(bool only_user)
{
    weft_comm *c;
    char url[64];
    snprintf(url, sizeof url, "shm:taken-%ld", (long)getpid());
    int files = process_files();
    assert_int_equal(process_open(url, 0, 1, 0, &c), 0);
    assert_int_equal(process_do(only_user ? another_user : another_job, url), 0);
    weft_comm_close(c);
    assert_int_equal(process_open(url, 0, 1, 0, &c), 0); /* and then it is */
    weft_comm_close(c);
    assert_int_equal(process_files(), files);
    process_nothing_left(url + 4);
}

static void name_of_another_job_is_refused(void **state)
{
    (void)state;
    refuse_names(false);
}

static void other_users_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skip: only root can be another user\n");
        skip();
    }
    refuse_names(true);
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
        f->code = process_open(f->url, 1, 3, 10 * SECOND, &c);
    while (f->code == WEFT_ETIMEOUT);
    snprintf(f->text, sizeof f->text, "%s", weft_errmsg());
    return 0;
}

/* Ranks that do not agree, or do not belong together, while the group forms: the waiting one is found by its socket. */
static void rank_that_does_not_belong_is_refused_while_a_group_forms(void **state)
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
            process_open(f->url, 0, 2, 60 * SECOND, &c);
            _exit(0);
        }
        while (!process_lines("/proc/net/unix", f->url + 4)) /* "weft:NAME" follows the @ */
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        assert_int_equal(process_do(join_forming, f), 0);
        kill(waiting, SIGKILL);
        waitpid(waiting, NULL, 0);
        if (user) {
            assert_int_equal(f->code, WEFT_EBUSY);
            assert_non_null(strstr(f->text, "another user (uid 0)"));
        } else {
            assert_int_equal(f->code, WEFT_EMISMATCH);
            assert_non_null(strstr(f->text, "others have opened it with 2 ranks, not 3"));
        }
        process_nothing_left(f->url + 4);
        munmap(f, sizeof *f);
    }
}

struct disagreeing {
    char url[64];
    struct {
        int code;
        char text[256];
        int64_t ns;
    } of[4];
};

/* Four ranks, of which one says another number of ranks, whichever of them comes first: all are told at once. */
static void ranks_that_disagree_on_the_size_are_all_told(void **state)
{
    (void)state;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(8, 100)); i++) {
        struct random rnd = {(uint64_t)i};
        int odd = (int)process_below(&rnd, 4), size = odd < 3 && process_below(&rnd, 2) ? 3 : 5;
        struct disagreeing *d = ranks_shared(sizeof *d);
        pid_t pids[4];
        snprintf(d->url, sizeof d->url, "shm:disagree-%ld-%lld", (long)getpid(), (long long)i);
        fflush(NULL);
        for (int r = 0; r < 4; r++) {
            if ((pids[r] = fork()) != 0)
                continue;
            weft_comm *c;
            int64_t began = clock_now();
            d->of[r].code = process_open(d->url, r, r == odd ? size : 4, 60 * SECOND, &c);
            snprintf(d->of[r].text, sizeof d->of[r].text, "%s", weft_errmsg());
            d->of[r].ns = clock_now() - began;
            _exit(0);
        }
        for (int r = 0; r < 4; r++)
            waitpid(pids[r], NULL, 0);
        for (int r = 0; r < 4; r++) {
            if (d->of[r].code != WEFT_EMISMATCH || d->of[r].ns > 10 * SECOND)
                fail_msg("rank %d: %d after %lld ms: %s", r, d->of[r].code, (long long)(d->of[r].ns / MS),
                         d->of[r].text);
            assert_non_null(strstr(d->of[r].text, "ranks"));
        }
        process_nothing_left(d->url + 4);
        munmap(d, sizeof *d);
    }
}

/* A name is free as soon as the process that had it was killed, also while the kernel still takes it apart: before it
 * closes its sockets it gives back its memory. */
static void name_of_a_process_that_is_ending_is_waited_for(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "shm:ending-%ld", (long)getpid());
    for (int64_t i = 0; suite_seed(&i, 0, test_share(5, 300)); i++) {
        weft_comm *c;
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            size_t bytes = (size_t)256 << 20;
            char *much = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise(much, bytes, MADV_NOHUGEPAGE);
            for (size_t at = 0; at < bytes; at += 4096)
                much[at] = 1;
            if (process_open(url, 0, 1, 60 * SECOND, &c) || write(ready[1], "", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        kill(pid, SIGKILL);
        int err = process_open(url, 0, 1, 60 * SECOND, &c);
        if (err)
            print_message("%s\n", weft_errmsg());
        assert_int_equal(err, 0);
        weft_comm_close(c);
        waitpid(pid, NULL, 0);
    }
    process_nothing_left(url + 4);
}

/* A group may have a name that ends like that of a rank of another one. */
static int hold_rank_1(void *url)
{
    weft_comm *c;
    int err = process_open(url, 1, 2, 60 * SECOND, &c);
    return err ? -err : -weft_comm_barrier(c, 60 * SECOND);
}

static void name_of_a_rank_does_not_collide_with_a_job(void **state)
{
    (void)state;
    weft_comm *c[2];
    char url[64], other[80];
    snprintf(url, sizeof url, "shm:pair-%ld", (long)getpid());
    snprintf(other, sizeof other, "%s:1", url);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(hold_rank_1(url));
    assert_int_equal(process_open(url, 0, 2, 60 * SECOND, &c[0]), 0);
    int status, err = process_open(other, 0, 1, 2 * SECOND, &c[1]);
    if (err)
        print_message("%s\n", weft_errmsg());
    assert_int_equal(weft_comm_barrier(c[0], 60 * SECOND), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(err, 0);
    weft_comm_close(c[1]);
    weft_comm_close(c[0]);
    process_nothing_left(url + 4);
}

/* ---- no more files ---- */

/* Leaves this process `n` files that it can still open. */
static void leave_files(int n)
{
    int highest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd < 200;)
        highest = fd;
    for (int i = 0; i < n; i++)
        close(highest - i);
    struct rlimit limit = {.rlim_cur = (rlim_t)highest + 1, .rlim_max = (rlim_t)highest + 1};
    setrlimit(RLIMIT_NOFILE, &limit);
}

struct fewer {
    char url[64];
    int files;      /* that the first rank may open */
    _Atomic int up; /* it is there */
    int code[2];
    char text[2][256];
};

static int open_with_few(struct fewer *f, int rank)
{
    weft_comm *c;
    if (!rank)
        leave_files(f->files);
    f->code[rank] = process_open(f->url, rank, 2, 20 * SECOND, &c);
    snprintf(f->text[rank], sizeof f->text[rank], "%s", weft_errmsg());
    if (!f->code[rank])
        weft_comm_close(c);
    return 0;
}

/* Whatever file a rank lacks, it says so at once: nobody else is to blame, and nobody waits for it until time runs out.
 */
static void rank_without_file_descriptors_says_so_at_once(void **state)
{
    (void)state;
    bool enough = false;
    for (int files = 0; files < 12 && !enough; files++)
        for (int first = 0; first < 2; first++) {
            struct fewer *f = ranks_shared(sizeof *f);
            pid_t pids[2];
            snprintf(f->url, sizeof f->url, "shm:few-%ld-%d-%d", (long)getpid(), files, first);
            f->files = files;
            int64_t began = clock_now();
            fflush(NULL);
            for (int i = 0; i < 2; i++) {
                int rank = i ? !first : first;
                if ((pids[i] = fork()) == 0)
                    _exit(open_with_few(f, rank));
                if (!i) /* it may be over, too */
                    for (int k = 0; k < 2000 && !process_lines("/proc/net/unix", f->url + 4) && !f->code[rank]; k++)
                        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            }
            int64_t ends = clock_now() + 10 * SECOND;
            waitpid(pids[first], NULL, 0); /* rank 0 */
            if (f->code[0]) {
                if (!strstr(f->text[0], "Too many open files") && !strstr(f->text[0], "files open, and needs"))
                    fail_msg("%d files, rank %d first: %s", files, first, f->text[0]);
                if (clock_now() >= ends)
                    fail_msg("%d files, rank %d first: %lld ms until it said so", files, first,
                             (long long)((clock_now() - began) / MS));
                kill(pids[!first], SIGKILL);
            }
            waitpid(pids[!first], NULL, 0);
            enough |= first && !f->code[0] && !f->code[1];
            munmap(f, sizeof *f);
        }
    assert_true(enough);
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

static void launchers_environments_are_understood(void **state)
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
        {{"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "1", "WEFT_URL",
          "shm:"},
         -WEFT_EUNSUPPORTED},
        {{"SLURM_PROCID", "0", "SLURM_NTASKS", "2", "SLURM_STEP_NUM_NODES", "2", "WEFT_URL", "shm:"},
         -WEFT_EUNSUPPORTED},
        {{"PMI_RANK", "0", "PMI_SIZE", "1", "WEFT_URL", "shm:env-e-%ld"}, 101},
        {{"PMI_RANK", "0", "PMI_SIZE", "1", "WEFT_URL", "nowhere"}, -WEFT_EINVAL},
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
        int code = process_do(open_job, (void *)(uintptr_t)jobs[i].set);
        if (code != jobs[i].code)
            fail_msg("job %zu: %d, not %d", i, code, jobs[i].code);
    }
}

/* ---- memory ---- */

static void run_windows(struct ranks_rank *r)
{
    static const size_t sizes[] = {1, 100, 4096, 70000, 1 << 20, (2 << 20) + 5, 9 << 20, 33 << 20, 40 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int round = 0; round < 3; round++) {
        unsigned char *p[N];
        for (int i = 0; i < N; i++) {
            void *memory;
            RANKS_OK(r, weft_comm_alloc(r->comm, sizes[i], WEFT_MEMORY_HOST, 0, &memory));
            p[i] = memory;
            RANKS_CHECK(r, (uintptr_t)p[i] % 128 == 0);
            RANKS_CHECK(r, sizes[i] < (2 << 20) || sizes[i] >= (32 << 20) || (uintptr_t)p[i] % (2 << 20) == 0);
            RANKS_CHECK(r, !values_bytes(p[i], sizes[i], 0));
            memset(p[i], r->rank + 1, sizes[i]); /* for the next round, and for the others */
        }
        RANKS_CHECK(r, (uintptr_t)p[N - 2] % (2 << 20) != (uintptr_t)p[N - 1] % (2 << 20)); /* large ones differ */
        for (int i = 0; i < N; i++)
            RANKS_CHECK(r, !values_bytes(p[i], sizes[i], r->rank + 1));
        for (int i = 0; i < N; i++)
            weft_comm_free(r->comm, p[(i * 3 + 1) % N]);
    }
    weft_comm_free(r->comm, NULL);
    void *kept, *none = &kept;
    RANKS_OK(r, weft_comm_alloc(r->comm, 5000, WEFT_MEMORY_HOST, 0, &kept)); /* freed with the comm */
    RANKS_CHECK(r, weft_comm_alloc(r->comm, SIZE_MAX / 2, WEFT_MEMORY_HOST, 0, &none) == WEFT_ENOMEM && none == &kept);
    RANKS_CHECK(r, weft_comm_alloc(r->comm, (size_t)1 << 46, WEFT_MEMORY_HOST, 0, &none) == WEFT_ENOMEM);
    RANKS_CHECK(r, weft_comm_alloc(NULL, 8, WEFT_MEMORY_HOST, 0, &none) == WEFT_EINVAL);
}

static void window_memory_is_zeroed_aligned_and_returned(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        ranks_on = i ? "shm" : "threads";
        ranks_forked = i == 2;
        ranks_run(3, NULL, run_windows, NULL, NULL);
    }
    char name[64];
    snprintf(name, sizeof name, "test-%ld-", (long)getpid());
    process_nothing_left(name);
}

/* More than the machine has is refused, not killed for. */
static void run_too_much(struct ranks_rank *r)
{
    void *memory = NULL;
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    RANKS_CHECK(r, weft_comm_alloc(r->comm, all + all / 2, WEFT_MEMORY_HOST, 0, &memory) == WEFT_ENOMEM);
    RANKS_CHECK(r, strstr(weft_errmsg(), "no memory for ") && !memory);
    RANKS_OK(r, weft_comm_alloc(r->comm, 1 << 20, WEFT_MEMORY_HOST, 0, &memory));
}

static void more_memory_than_the_machine_has_is_refused(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run(2, NULL, run_too_much, NULL, NULL);
}

/* ---- a small /dev/shm ---- */

/* A /dev/shm of its own for this process and its children. */
static bool small_dev_shm(const char *size)
{
    return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("tmpfs", "/dev/shm", "tmpfs", 0, size);
}

static bool says(const char *text)
{
    return strstr(weft_errmsg(), text) != NULL;
}

/* Files of /dev/shm that this process has open; -1 if others may read one. */
static int private_files(const char *where)
{
    struct stat s;
    int found = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], to[300];
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, to, sizeof to - 1);
        to[n > 0 ? n : 0] = 0;
        if (strncmp(to, where, strlen(where)))
            continue;
        if (stat(path, &s) || (s.st_mode & 07777) != 0600) {
            found = -1;
            break;
        }
        found++;
    }
    closedir(d);
    return found;
}

/* Without memfds the file is in /dev/shm: what does not fit is refused, and nobody gets a SIGBUS. */
static int on_small_dev_shm(void *arg)
{
    const char *url = arg;
    weft_comm *c;
    void *memory;
    if (!small_dev_shm("size=4m"))
        return 77;
    no_memfds = true;
    if (process_open(url, 0, 1, 0, &c))
        return 1;
    if (weft_comm_alloc(c, 1 << 20, WEFT_MEMORY_HOST, 0, &memory) || process_dev_shm("weft") ||
        private_files("/dev/shm/") != 1)
        return 2;
    memset(memory, 1, 1 << 20);
    if (weft_comm_alloc(c, 8 << 20, WEFT_MEMORY_HOST, 0, &memory) != WEFT_ENOMEM ||
        !says("no memory for 8388608 bytes"))
        return 3;
    if (weft_comm_alloc(c, 100000, WEFT_MEMORY_HOST, 0, &memory)) /* what is there can still be had */
        return 4;
    memset(memory, 1, 100000);
    weft_comm_close(c);
    int fd = open("/dev/shm/fill", O_CREAT | O_RDWR, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, 4 << 20))
        return 5;
    return process_open(url, 0, 1, 0, &c) == WEFT_ENOMEM && says("no memory for the group: No space left") ? 0 : 6;
}

/* With memfds it does not matter how small and full it is. */
static int beside_small_dev_shm(void *arg)
{
    weft_comm *c;
    void *memory;
    if (!small_dev_shm("size=64k"))
        return 77;
    int fd = open("/dev/shm/fill", O_CREAT | O_RDWR, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, 64 << 10))
        return 1;
    if (process_open(arg, 0, 1, 0, &c) || weft_comm_alloc(c, 8 << 20, WEFT_MEMORY_HOST, 0, &memory))
        return 2;
    memset(memory, 1, 8 << 20);
    weft_comm_close(c);
    return 0;
}

/* Moves of two ranks: one that has no room, in window memory and through staging, and one that has. */
static int rank_on_small(const char *url, int rank)
{
    weft_comm *c;
    struct pair p;
    if (process_open(url, rank, 2, 10 * SECOND, &c))
        return 1;
    if (pair_bind(&p, "f32[8388608/x] @x2", "f32[8388608] @x2", true, c) != WEFT_ENOMEM || !says("no memory for "))
        return 2;
    pair_release(&p);
    if (weft_comm_barrier(c, WEFT_DEADLINE))
        return 3;
    int err = pair_bind(&p, "f32[8388608/x] @x2", "f32[8388608] @x2", false, c);
    if (err && (err != WEFT_ENOMEM || !says("rank ") || !says("no memory for ")))
        return 4;
    if (!err && weft_exec_run(p.x)) /* it found another way */
        return 5;
    pair_release(&p);
    if (pair_bind(&p, "f32[64/x,64] @x2", "f32[64,64/x] @x2", false, c))
        return 6;
    tensors_fill(p.src, rank, p.in, 1);
    if (weft_exec_run(p.x) || tensors_wrong(p.src, p.dst, rank, p.out, 1))
        return 7;
    pair_release(&p);
    weft_comm_close(c);
    return 0;
}

static int two_on_small_dev_shm(void *arg)
{
    pid_t pids[2];
    int status, code = 0;
    if (!small_dev_shm("size=4m"))
        return 77;
    no_memfds = true;
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(60);
            _exit(rank_on_small(arg, r));
        }
    }
    for (int r = 0; r < 2; r++) {
        waitpid(pids[r], &status, 0);
        if (status && !code)
            code = WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return code;
}

static void allocations_beyond_a_small_dev_shm_are_refused(void **state)
{
    (void)state;
    int (*const all[])(void *) = {on_small_dev_shm, beside_small_dev_shm, two_on_small_dev_shm};
    for (int i = 0; i < 3; i++) {
        char url[64];
        snprintf(url, sizeof url, "shm:small-%ld-%d", (long)getpid(), i);
        int code = process_do(all[i], url);
        if (code == 77) {
            print_message("skip: no right to mount a small /dev/shm\n");
            skip();
        }
        if (code)
            fail_msg("part %d of the test ended with %d", i, code);
    }
}

static void run_mode(struct ranks_rank *r)
{
    RANKS_CHECK(r, private_files("/memfd:weft") == 1);
}

static void segment_is_readable_by_its_owner_only(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run(2, NULL, run_mode, NULL, NULL);
}

/* ---- moves ---- */

static void run_kinds(struct ranks_rank *r)
{
    bool window = *(bool *)r->arg;
    struct pair p;
    weft_exec_info info = {.size = sizeof info};
    RANKS_OK(r, pair_bind(&p, "f32[64/x,300] @x4", "f32[64,300/x] @x4", window, r->comm));
    for (int seed = 0; seed < 5; seed++) {
        tensors_fill(p.src, r->rank, p.in, seed);
        RANKS_OK(r, weft_exec_run(p.x));
        RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, p.out, seed));
    }
    RANKS_OK(r, weft_exec_stats(p.x, &info));
    RANKS_CHECK(r, window == (info.staging_peak == 0));
    pair_release(&p);
}

/* Window memory is read where it is; private memory comes through staging. */
static void window_memory_is_read_in_place_and_private_memory_staged(void **state)
{
    (void)state;
    ranks_on = "shm";
    for (int mode = 0; mode < 4; mode++) {
        bool window = mode & 1;
        ranks_forked = mode & 2;
        ranks_run(4, NULL, run_kinds, &window, NULL);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(who_waits_in_vain_says_where),
        cmocka_unit_test(other_names_are_told),
        cmocka_unit_test(a_group_of_another_size_is_told),
        cmocka_unit_test(name_of_another_job_is_refused),
        cmocka_unit_test(other_users_are_refused),
        cmocka_unit_test(rank_that_does_not_belong_is_refused_while_a_group_forms),
        cmocka_unit_test(ranks_that_disagree_on_the_size_are_all_told),
        cmocka_unit_test(name_of_a_process_that_is_ending_is_waited_for),
        cmocka_unit_test(name_of_a_rank_does_not_collide_with_a_job),
        cmocka_unit_test(rank_without_file_descriptors_says_so_at_once),
        cmocka_unit_test(launchers_environments_are_understood),
        cmocka_unit_test(window_memory_is_zeroed_aligned_and_returned),
        cmocka_unit_test(more_memory_than_the_machine_has_is_refused),
        cmocka_unit_test(allocations_beyond_a_small_dev_shm_are_refused),
        cmocka_unit_test(segment_is_readable_by_its_owner_only),
        cmocka_unit_test(window_memory_is_read_in_place_and_private_memory_staged),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
