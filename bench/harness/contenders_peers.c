/* The MPI libraries as contenders. Each launcher has a keeper: a process that makes a folder for the files of the
 * library. When the launcher has ended or this command is gone, the keeper ends every rank and removes the folder. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness/contenders.h"
#include "tool/temp_folder.h"

enum fits { FITS = 1, OVER = 2, BOTH = 3 }; /* no more ranks than cores; more */

#define OB1 "--mca", "pml", "ob1", "--mca", "btl", "vader,self"
#define CMA "--mca", "btl_vader_single_copy_mechanism", "cma"
#define NOCMA "--mca", "btl_vader_single_copy_mechanism", "none"
#define UCX "--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"
#define SM "--mca", "coll_sm_priority", "90"
#define YIELD "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"
#define SPIN "--bind-to", "none", "--mca", "mpi_yield_when_idle", "0"
#define BOUND "--bind-to", "core", "--mca", "mpi_yield_when_idle", "0"

static const struct setting {
    const char *name, *program, *launcher;
    enum fits when;
    const char *args[20];
} settings[] = {
    {"Open MPI cma spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", OB1, CMA, BOUND}},
    {"Open MPI nocma spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", OB1, NOCMA, BOUND}},
    {"Open MPI ucx spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", UCX, BOUND}},
    {"Open MPI sm spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", OB1, CMA, SM, BOUND}},
    {"Open MPI cma spin", "peer_openmpi", "mpirun.openmpi", OVER, {"--oversubscribe", OB1, CMA, SPIN}},
    {"Open MPI cma yield", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", OB1, CMA, YIELD}},
    {"Open MPI nocma yield", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", OB1, NOCMA, YIELD}},
    {"Open MPI ucx yield", "peer_openmpi", "mpirun.openmpi", OVER, {"--oversubscribe", UCX, YIELD}},
    {"Open MPI sm yield", "peer_openmpi", "mpirun.openmpi", OVER, {"--oversubscribe", OB1, CMA, SM, YIELD}},
    {"MPICH", "peer_mpich", "mpiexec.hydra", BOTH, {0}},
};
#define SETTINGS (sizeof settings / sizeof *settings)

/* Between hosts: shared memory inside each host if the library has its own (UCX takes all hosts for one). */
#define TCP "--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self", "--mca", "btl_tcp_if_include", "eth0"

static const struct setting between[] = {
    {"Open MPI tcp spin", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", TCP, SPIN}},
    {"Open MPI tcp yield", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", TCP, YIELD}},
    {"Open MPI ucx spin", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", UCX, SPIN}},
    {"Open MPI ucx yield", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", UCX, YIELD}},
    {"MPICH", "peer_mpich", "mpiexec.hydra", BOTH, {0}},
};
#define BETWEEN (sizeof between / sizeof *between)

static bool on_path(const char *program)
{
    char name[1024];
    const char *path = getenv("PATH");
    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        if ((size_t)snprintf(name, sizeof name, "%.*s/%s", (int)n, path, program) < sizeof name && !access(name, X_OK))
            return true;
    }
    return false;
}

/* Where the peers' programs are: beside the command in a build tree, below libexec where it is installed. */
static bool find_program(const char *program, char *out, size_t cap)
{
    static const char *const places[] = {"bench", "../libexec/weft"};
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return false;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    *(slash ? slash : self) = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if ((size_t)snprintf(out, cap, "%s/%s/%s", self, places[i], program) < cap && !access(out, X_OK))
            return true;
    return false;
}

/* Arguments by which the launcher starts ranks on the hosts of a link. Returns how many. */
static int host_args(const struct contender *c, const struct setting *s, const struct bench_link *link, char *hosts,
                     size_t cap, const char **argv)
{
    size_t at = 0;
    int ranks = (int)c->orders->ranks, n = 0;
    for (int h = 0, r = 0; h < link->netns.hosts; h++) {
        char address[32];
        int first = r;
        while (r < ranks && link_host(link, r, ranks) == h)
            r++;
        at += (size_t)snprintf(hosts + at, cap - at, "%s%s:%d", h ? "," : "", link_address(h, address, sizeof address),
                               r - first);
    }
    bool hydra = !strcmp(s->launcher, "mpiexec.hydra");
    const char *const open_mpi[] = {
        "--host", hosts, "--mca", "plm_rsh_agent", link->agent, "--mca", "oob_tcp_if_include", "eth0"};
    const char *const mpich[] = {"-hosts", hosts, "-launcher", "rsh", "-launcher-exec", link->agent, "-iface", "eth0"};
    for (; n < 8; n++)
        argv[n] = hydra ? mpich[n] : open_mpi[n];
    return n;
}

static void exec_peer(const struct contender *c, const struct setting *s, const struct bench_link *link, pid_t command,
                      const char *program)
{
    char n[16], orders[64], hosts[NETNS_HOSTS * 24];
    const char *argv[48] = {s->launcher, "-n", n};
    int argc = 3;
    if (link)
        argc += host_args(c, s, link, hosts, sizeof hosts, argv + argc);
    snprintf(n, sizeof n, "%u", c->orders->ranks);
    snprintf(orders, sizeof orders, "/proc/%ld/fd/%d", (long)command, c->fd);
    for (int i = 0; s->args[i]; i++)
        argv[argc++] = s->args[i];
    argv[argc++] = program;
    argv[argc++] = orders;
    if (!freopen("/dev/null", "r", stdin) || dup2(c->log, STDOUT_FILENO) < 0 || dup2(c->log, STDERR_FILENO) < 0)
        _exit(127);
    if (link && !link_enter_peer(link, 0)) /* where the launcher is */
        _exit(127);
    execvp(s->launcher, (char *const *)argv);
    _exit(127);
}

/* ---- keeping ---- */

/* s for which ranks that are starting up are left alone: until then MPICH may have a file outside the folder. */
#define STARTING 8
#define GRACE 3 /* s for a launcher to end its ranks */

/* In /dev/shm if that is a folder, as the libraries do by default. */
static bool make_folder(struct temp_folder *out)
{
    char why[400];
    return temp_folder_make("/dev/shm", "bench", out, why, sizeof why) ||
           temp_folder_make(NULL, "bench", out, why, sizeof why);
}

static void set_environment(const char *folder)
{
    static const char *const folders[] = {"TMPDIR",
                                          "OMPI_MCA_orte_tmpdir_base",
                                          "OMPI_MCA_btl_vader_backing_directory",
                                          "OMPI_MCA_btl_sm_backing_directory",
                                          "PRTE_MCA_prte_tmpdir_base",
                                          "UCX_POSIX_DIR"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        setenv(folders[i], folder, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    const char *name_end = read ? strrchr(line, ')') : NULL; /* "pid (name) state ppid ..." */
    long ppid = -1;
    return name_end && sscanf(name_end, ") %*c %ld", &ppid) == 1 ? (pid_t)ppid : -1;
}

/* Kills all children of this process: its own, and those that it inherited because their parent has ended. */
static void kill_children(void)
{
    DIR *d = opendir("/proc");
    for (const struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = (pid_t)atoi(e->d_name);
        if (pid > 1 && parent_of(pid) == getpid())
            kill(pid, SIGKILL);
    }
    if (d)
        closedir(d);
}

/* Waits until the ranks have started. True: the launcher has ended. */
static bool await_started(const struct contender *c, pid_t launcher)
{
    double from = work_now();
    while (atomic_load_explicit(&c->orders->here, memory_order_relaxed) < c->orders->ranks &&
           work_now() - from < STARTING) {
        if (waitpid(launcher, NULL, WNOHANG) == launcher)
            return true;
        usleep(10000);
    }
    return false;
}

/* Waits until the launcher has ended, or was told to end and did not in time. */
static void await_launcher(const struct contender *c, pid_t launcher, const sigset_t *set)
{
    struct timespec tick = {GRACE, 0};
    bool told = false;
    for (;;) {
        int sig = told ? sigtimedwait(set, NULL, &tick) : sigwaitinfo(set, NULL);
        if (waitpid(launcher, NULL, WNOHANG) == launcher || (sig < 0 && errno == EAGAIN))
            return;
        if (sig > 0 && sig != SIGCHLD && !told) {
            if (await_started(c, launcher))
                return;
            kill(launcher, SIGTERM);
            told = true;
        }
    }
}

/* Does not return. The keeper gets no signals of the terminal. It gets SIGTERM when the command ends. */
static void keep(const struct contender *c, const struct setting *s, const struct bench_link *link, const char *program)
{
    struct temp_folder folder;
    pid_t command = getppid();
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &old);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setpgid(0, 0); /* not a session of its own, which the scheduler may treat as another job */
    if (getppid() != command || !make_folder(&folder))
        _exit(1);
    set_environment(folder.path);
    pid_t launcher = fork();
    if (!launcher) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, &old, NULL);
        exec_peer(c, s, link, command, program);
    }
    if (launcher > 0)
        await_launcher(c, launcher, &set);
    do
        kill_children();
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
    temp_folder_remove(&folder);
    _exit(0);
}

int contenders_peers_add(struct contenders *f, int ranks, const struct bench_link *link)
{
    enum fits now = ranks <= work_cores() ? FITS : OVER;
    const struct setting *list = link ? between : settings;
    int n = 0;
    for (size_t i = 0; i < (link ? BETWEEN : SETTINGS); i++) {
        char program[600];
        if (!(list[i].when & now) || !on_path(list[i].launcher) ||
            !find_program(list[i].program, program, sizeof program))
            continue;
        struct contender *c = contenders_add(f, list[i].name, WORK_PEER, ranks);
        c->log = memfd_create("weft-bench-log", 0);
        if (!c->out && !contenders_spawn(c))
            keep(c, &list[i], link, program);
        n++;
    }
    return n;
}
