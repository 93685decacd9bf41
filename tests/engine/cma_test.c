/* Private memory that the receiver reads by cross-memory attach: it is read so where that is permitted, and staged
 * where it is switched off or refused. The values are right in either case. A rank that dies while others read from it
 * is named. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "support/tensors.h"

static const struct {
    const char *src, *dst;
    bool casts;
} cases[] = {
    {"f32[40000/x] @x4", "f32[40000/x~9000] @x4", false},    /* in one piece */
    {"f32[96/x,400] @x4", "f32[96,400/x] @x4", false},       /* in rows */
    {"u8[64/x,64,33] @x4", "u8[64,64,33/x] @x4", false},     /* in rows of 8 bytes and 9 */
    {"f64[30000] @x4 +sum(x)", "f64[30000/x] @x4", false},   /* that are folded */
    {"i32[20000/x] @x4", "i32[20000/x] @x4=2,3,0,1", false}, /* in pairs */
    {"f32[60000/x] @x4", "bf16[60000/x] @x4=1,2,3,0", true}, /* cast: stays staged */
    {"f32[90000/x:50] @x4", "f32[90000/x:70] @x4", false},   /* blocks */
    {"f32[400000/x] @x4", "f32[400000/x] @x4=1,2,3,0", false},
};
enum { TO_THE_NEXT = 7 };

struct job {
    int number;
    int64_t least; /* as weft_comm.cma_least */
    bool refuse;   /* the system refuses some of the ranks */
};

/* From here on the system answers EPERM. */
static bool refuse_reads(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* Is a process that the parent has started permitted to read another one? */
static bool permitted(void)
{
    static int word = 7;
    int fd[2], status = 0;
    char byte;
    assert_int_equal(pipe(fd), 0);
    pid_t first = fork();
    if (!first) {
        close(fd[1]);
        _exit(read(fd[0], &byte, 1) < 0); /* until the parent closes it */
    }
    pid_t second = fork();
    if (!second) {
        int got = 0;
        struct iovec to = {&got, sizeof got}, from = {&word, sizeof word};
        _exit(process_vm_readv(first, &to, 1, &from, 1, 0) != sizeof got || got != word);
    }
    assert_int_equal(waitpid(second, &status, 0), second);
    close(fd[0]);
    close(fd[1]);
    assert_int_equal(waitpid(first, NULL, 0), first);
    return status == 0;
}

static void run_pair(struct ranks_rank *r)
{
    const struct job *job = r->arg;
    struct pair b;
    weft_exec_info info = {.size = sizeof info};
    if (job->refuse && r->rank % 2)
        RANKS_CHECK(r, refuse_reads());
    r->comm->cma_least = job->least;
    RANKS_OK(r, pair_bind(&b, cases[job->number].src, cases[job->number].dst, false, r->comm));
    for (int seed = 0; seed < 4; seed++) {
        tensors_fill(b.src, r->rank, b.in, seed);
        RANKS_OK(r, weft_exec_run(b.x));
        RANKS_CHECK(r, !tensors_wrong(b.src, b.dst, r->rank, b.out, seed));
    }
    RANKS_OK(r, weft_exec_stats(b.x, &info));
    r->code = info.staging_peak > 0;
    pair_release(&b);
}

/* How many of four ranks have staged something. */
static int staging_ranks(int number, int64_t least, bool refuse)
{
    struct job job = {number, least, refuse};
    struct ranks_rank r[4];
    int n = 0;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run(4, &(weft_comm_opts){.staged = false}, run_pair, &job, r);
    for (int i = 0; i < 4; i++)
        n += r[i].code;
    return n;
}

#define CASES ((int)(sizeof cases / sizeof *cases))

static void private_memory_is_read_where_permitted(void **state)
{
    (void)state;
    bool may = permitted();
    if (!may)
        print_message("reading other processes is not permitted here: everything is staged\n");
    for (int i = 0; i < CASES; i++)
        assert_int_equal(staging_ranks(i, 1, false), may && !cases[i].casts ? 0 : 4);
}

static void memory_that_is_not_worth_reading_is_staged(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        assert_int_equal(staging_ranks(i, INT64_MAX, false), 4);
}

static void reads_that_are_switched_off_are_staged(void **state)
{
    (void)state;
    setenv("WEFT_WAYS", "-cma", 1);
    for (int i = 0; i < CASES; i++)
        assert_int_equal(staging_ranks(i, 1, false), 4);
    unsetenv("WEFT_WAYS");
}

/* Where it is measured either way may be chosen. */
static void measured_choice_gives_right_values(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        staging_ranks(i, 0, false);
}

/* Ranks 1 and 3 are refused, and what is sent to them is staged. */
static void refused_ranks_get_staged_data(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        assert_true(staging_ranks(i, 1, true) >= 2);
    /* A rank that is refused cannot measure, and asks no peer to read its memory. */
    assert_int_equal(staging_ranks(TO_THE_NEXT, 0, true), 4);
}

/* ---- death ---- */

struct stage {
    char url[64];
    _Atomic int sender; /* its process, when it lets its memory be read */
    _Atomic int code;
    char text[200];
};

static void send_and_die(struct stage *s, struct pair *b)
{
    if (!weft_exec_start(b->x))
        atomic_store(&s->sender, getpid());
    raise(SIGKILL);
}

/* Reads when the sender has ended, but was not seen to. */
static void outlive(struct stage *s, struct pair *b)
{
    while (!atomic_load(&s->sender))
        sched_yield();
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)atomic_load(&s->sender), 0);
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    poll(&ask, 1, -1);
    close(fd);
    atomic_store(&s->code, weft_exec_run(b->x));
    snprintf(s->text, sizeof s->text, "%s", weft_errmsg());
}

static void play(struct stage *s, int rank)
{
    weft_comm *c;
    struct pair b;
    weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = 2};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (weft_comm_open(s->url, &o, &c))
        _exit(1);
    c->cma_least = 1;
    if (pair_bind(&b, "f32[500000] @x1=1", "f32[500000] @x1=0", false, c))
        _exit(1);
    if (rank)
        send_and_die(s, &b);
    outlive(s, &b);
    pair_release(&b);
    weft_comm_close(c);
    _exit(0);
}

static void rank_that_dies_while_read_is_named(void **state)
{
    (void)state;
    struct stage *s = ranks_shared(sizeof *s);
    pid_t pids[2];
    int status;
    snprintf(s->url, sizeof s->url, "shm:cma-%ld", (long)getpid());
    fflush(NULL);
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (!pids[rank])
            play(s, rank);
    }
    assert_int_equal(waitpid(pids[0], &status, 0), pids[0]);
    assert_int_equal(status, 0);
    waitpid(pids[1], &status, 0);
    assert_int_equal(atomic_load(&s->code), WEFT_EPEER);
    assert_non_null(strstr(s->text, "rank 1"));
    munmap(s, sizeof *s);
}

/* ---- binding again ---- */

static int measured; /* reads of this process's own memory, by which bind measures */
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto, const struct iovec *from,
                                unsigned long nfrom, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto, const struct iovec *from,
                                unsigned long nfrom, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto, const struct iovec *from,
                                unsigned long nfrom, unsigned long flags)
{
    measured += pid == getpid();
    return __real_process_vm_readv(pid, to, nto, from, nfrom, flags);
}

enum { BINDS = 64, FLOATS = 100000 };

static void bind_again(struct ranks_rank *r)
{
    struct pair b;
    float *other = malloc(FLOATS * sizeof *other);
    RANKS_CHECK(r, other);
    RANKS_OK(r, pair_bind(&b, "f32[400000/x] @x4", "f32[400000/x] @x4=1,2,3,0", false, r->comm));
    tensors_fill(b.src, r->rank, b.in, 0);
    tensors_fill(b.src, r->rank, other, 1);
    int once = measured; /* 0 if the memory was not touched before */
    for (int i = 1; i < BINDS; i++) {
        weft_view from = WEFT_VIEW(i % 2 ? other : b.in, FLOATS * sizeof *other);
        weft_view to = WEFT_VIEW(b.out, FLOATS * sizeof *other);
        RANKS_OK(r, weft_exec_rebind(b.x, &from, &to));
        RANKS_OK(r, weft_exec_run(b.x));
        RANKS_CHECK(r, !tensors_wrong(b.src, b.dst, r->rank, b.out, i % 2));
        if (i == 1)
            once = measured - once;
    }
    RANKS_CHECK(r, once > 0 && measured <= 7 * once); /* at the 1st, 2nd, 4th, ..., 64th bind */
    free(other);
    pair_release(&b);
}

/* It takes longer to measure than to move: who binds for each move, as collectives in one call do, measures seldom. */
static void binding_again_measures_seldom(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run(4, &(weft_comm_opts){.staged = false}, bind_again, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(private_memory_is_read_where_permitted),
                                       cmocka_unit_test(memory_that_is_not_worth_reading_is_staged),
                                       cmocka_unit_test(reads_that_are_switched_off_are_staged),
                                       cmocka_unit_test(measured_choice_gives_right_values),
                                       cmocka_unit_test(refused_ranks_get_staged_data),
                                       cmocka_unit_test(binding_again_measures_seldom),
                                       cmocka_unit_test(rank_that_dies_while_read_is_named)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
