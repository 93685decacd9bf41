/* weft run: starts the ranks of a program on this machine and stays with them until all have ended. It is one loop over
 * one signalfd and the pipes of the ranks. Nothing outlives it: ranks end with their launcher, and a watchdog ends what
 * they have started. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/ended.h"
#include "cli/cli.h"
#include "cli/run/rank_output.h"
#include "cli/run/run_metrics.h"
#include "cli/run/watchdog.h"
#include "rendezvous/metrics_http.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/netns.h"
#include "tool/temp_folder.h"
#include "weft/store.h"

#define TOKEN_BYTES 32
#define SPARE_FILES 64 /* beside the pipes of ranks */
#define GRACE_MS 2000  /* between TERM and KILL, when a rank has failed */
#define GRACE_S 10     /* between a signal that is to end the job and KILL; --grace */
#define GRACE_S_MAX 86400

struct job {
    char **argv;
    const char *url;
    const char *at, *token; /* where the ranks meet, if they need to; NULL: not given */
    int64_t ranks, hosts;   /* hosts 0: none are played */
    struct netns netns;
    struct temp_folder folder;  /* made for the ranks to meet in, if they need it */
    int64_t port;               /* of --metrics; -1: none */
    struct temp_folder metrics; /* where the ranks write theirs, then */
    struct watchdog watchdog;
    bool bind, tag;
    bool terminal; /* rank 0 reads from a terminal, so it stays in the launcher's process group */
    pid_t launcher;
    cpu_set_t cores;
    sigset_t mask;       /* the signal mask as it was before */
    struct rlimit files; /* the limit of open files as it was, if `limited` */
    bool limited;
    int signals;              /* the signalfd */
    pid_t *pids;              /* 0: has ended */
    struct rank_output *tags; /* two for each rank */
    struct pollfd *polls;
    int ended;           /* the file that says which rank has ended first; -1: none */
    int left, code;      /* ranks that run; the first exit code that is not 0 */
    bool ending, unread; /* unread: the reader of this command's output is gone */
    bool failed;         /* `code` is that of a rank */
    int asked;           /* the first signal that is to end the job; 0: none has come */
    int64_t asked_at;    /* when it came, in ms */
    int64_t grace;       /* in s */
    int64_t kill_at;     /* in ms; 0: no kill is planned */
};

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};
#define FORWARDED (sizeof forwarded / sizeof *forwarded)

/* A signal that is to end a job, and not only to tell its ranks something. */
static bool is_end(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- a rank ---- */

/* Pins a rank to one of the cores that the launcher may use, in turn. */
static void pin(const struct job *j, int rank)
{
    int want = rank % CPU_COUNT(&j->cores);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &j->cores) || want-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

/* Only rank 0 has the standard input. */
static void redirect(int rank, int out, int err)
{
    int null = rank ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    if (err >= 0)
        dup2(err, STDERR_FILENO);
}

static void become_rank(const struct job *j, int rank, int out, int err)
{
    char number[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != j->launcher)
        _exit(128 + SIGKILL);
    if (j->limited)
        setrlimit(RLIMIT_NOFILE, &j->files);
    if (rank || !j->terminal)
        setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &j->mask, NULL);
    snprintf(number, sizeof number, "%d", rank);
    setenv("WEFT_RANK", number, 1);
    snprintf(number, sizeof number, "%d", (int)j->ranks);
    setenv("WEFT_SIZE", number, 1);
    setenv("WEFT_URL", j->url, 1);
    if (j->at)
        setenv("WEFT_AT", j->at, 1);
    char file[64];
    snprintf(file, sizeof file, "/proc/%ld/fd/%d", (long)j->launcher, j->ended);
    if (j->ended >= 0)
        setenv("WEFT_ENDED", file, 1);
    else
        unsetenv("WEFT_ENDED");
    if (j->token)
        setenv("WEFT_TOKEN", j->token, 1);
    if (*j->metrics.path)
        setenv("WEFT_METRICS", j->metrics.path, 1);
    if (j->hosts) {
        int host = (int)(rank * j->hosts / j->ranks);
        snprintf(number, sizeof number, "host%d", host);
        setenv("WEFT_HOST", number, 1);
        if (!netns_enter(&j->netns, host)) {
            fprintf(stderr, "weft run: rank %d cannot go to its host: %s\n", rank, strerror(errno));
            fflush(stderr);
            _exit(CLI_WRONG);
        }
    }
    if (j->bind)
        pin(j, rank);
    redirect(rank, out, err);
    execvp(j->argv[0], j->argv);
    int code = errno == ENOENT ? 127 : 126;
    fprintf(stderr, "weft run: %s: %s\n", j->argv[0], strerror(errno));
    fflush(stderr);
    _exit(code);
}

/* For ranks that wait for the others: ended.h. Without it they wait for their deadline. */
static void write_ended(const struct job *j, int rank, int code)
{
    struct ended_record r = {.magic = ENDED_MAGIC, .rank = rank, .code = code, .size = (int32_t)j->ranks};
    if (j->ended >= 0)
        (void)!pwrite(j->ended, &r, sizeof r, 0);
}

/* A rank and what it has started, as an argument of kill(). */
static pid_t target(const struct job *j, int rank)
{
    return rank || !j->terminal ? -j->pids[rank] : j->pids[rank];
}

static int start_rank(struct job *j, int rank)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    if (j->tag && (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)))
        return -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        become_rank(j, rank, out[1], err[1]);
    if (j->tag) {
        close(out[1]);
        close(err[1]);
        rank_output_open(&j->tags[2 * rank], out[0], stdout, rank);
        rank_output_open(&j->tags[2 * rank + 1], err[0], stderr, rank);
    }
    if (pid < 0)
        return -1;
    if (rank || !j->terminal)
        setpgid(pid, pid); /* also in the parent, so that it is done before either goes on */
    j->pids[rank] = pid;
    j->watchdog.ends[rank] = target(j, rank);
    j->left++;
    return 0;
}

/* ---- the loop ---- */

static void send_all(const struct job *j, int signal)
{
    for (int r = 0; r < j->ranks; r++)
        if (j->pids[r])
            kill(target(j, r), signal);
}

static void end_all(struct job *j)
{
    if (j->ending)
        return;
    j->ending = true;
    j->kill_at = now_ms() + GRACE_MS;
    send_all(j, SIGTERM);
    send_all(j, SIGCONT); /* a stopped rank would not get the signal */
}

static void note_end(struct job *j, int rank, const siginfo_t *how)
{
    bool by_signal = how->si_code != CLD_EXITED;
    int code = by_signal ? 128 + how->si_status : how->si_status;
    if (j->left == j->ranks) /* it is the first */
        write_ended(j, rank, by_signal ? -how->si_status : how->si_status);
    if (code && !j->failed && !j->ending) {
        j->failed = true;
        j->code = code;
    }
    if (code && !j->asked && !j->ending) {
        const char *rest = j->left > 1 ? "; ending the others" : "";
        if (by_signal)
            fprintf(stderr, "weft run: rank %d was ended by signal %d (%s)%s\n", rank, how->si_status,
                    strsignal(how->si_status), rest);
        else
            fprintf(stderr, "weft run: rank %d ended with code %d%s\n", rank, code, rest);
        end_all(j);
    }
    if (j->ending || j->asked)
        kill(target(j, rank), SIGKILL); /* ends what the rank has started and left behind */
    j->watchdog.ends[rank] = 0;
    waitpid(j->pids[rank], NULL, 0);
    j->pids[rank] = 0;
    j->left--;
}

/* A rank that has ended is reaped last: until then no other process can get its number. */
static void reap(struct job *j)
{
    for (int r = 0; r < j->ranks; r++) {
        siginfo_t how = {.si_pid = 0};
        if (j->pids[r] && !waitid(P_PID, (id_t)j->pids[r], &how, WEXITED | WNOHANG | WNOWAIT) && how.si_pid)
            note_end(j, r, &how);
    }
}

/* A signal that is to end the job leaves the ranks some time to end. The second one does not. */
static void plan_end(struct job *j, int signal)
{
    if (j->asked || j->ending) {
        j->kill_at = now_ms();
        return;
    }
    j->asked = signal;
    j->asked_at = now_ms();
    j->kill_at = now_ms() + j->grace * 1000;
}

static void kill_all(struct job *j)
{
    if (j->asked && now_ms() >= j->asked_at + j->grace * 1000)
        fprintf(stderr, "weft run: %d of %lld ranks still run %lld s after signal %d (%s): killing them\n", j->left,
                (long long)j->ranks, (long long)j->grace, j->asked, strsignal(j->asked));
    send_all(j, SIGKILL);
    j->kill_at = 0;
}

/* A terminal sends its signals to the whole process group of the launcher already. */
static void read_signals(struct job *j)
{
    struct signalfd_siginfo s;
    while (read(j->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo == SIGCHLD)
            continue;
        if (s.ssi_signo == SIGPIPE) {
            if (!j->ending)
                j->code = 128 + SIGPIPE;
            j->unread = true;
            end_all(j);
            continue;
        }
        for (int r = 0; r < j->ranks; r++)
            if (j->pids[r] && (r || !j->terminal || s.ssi_code != SI_KERNEL))
                kill(target(j, r), (int)s.ssi_signo);
        if (is_end((int)s.ssi_signo))
            plan_end(j, (int)s.ssi_signo);
    }
    reap(j);
}

static void poll_once(struct job *j)
{
    nfds_t n = 1;
    j->polls[0] = (struct pollfd){.fd = j->signals, .events = POLLIN};
    for (int i = 0; j->tag && i < 2 * j->ranks; i++)
        j->polls[n++] = (struct pollfd){.fd = j->tags[i].fd, .events = POLLIN};
    int64_t wait = j->kill_at ? j->kill_at - now_ms() : -1;
    poll(j->polls, n, wait < 0 && j->kill_at ? 0 : (int)wait);
    for (int i = 0; j->tag && i < 2 * j->ranks; i++)
        if (j->polls[1 + i].revents)
            rank_output_read(&j->tags[i]);
    read_signals(j);
    if (j->kill_at && now_ms() >= j->kill_at)
        kill_all(j);
}

static int run_job(struct job *j)
{
    for (int r = 0; r < j->ranks; r++) {
        if (start_rank(j, r)) {
            fprintf(stderr, "weft run: rank %d could not be started: %s\n", r, strerror(errno));
            j->code = CLI_WRONG;
            end_all(j);
            break;
        }
    }
    while (j->left)
        poll_once(j);
    for (int i = 0; j->tag && i < 2 * j->ranks; i++)
        rank_output_close(&j->tags[i]);
    return j->code;
}

/* ---- the verb ---- */

/* A name that no other job has, behind the scheme. */
static int fresh_url(char *url, size_t cap, const char *scheme)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return -1;
    snprintf(url, cap, "%sweft-%ld-%016llx", scheme, (long)getpid(), (unsigned long long)random);
    return 0;
}

/* Ranks that do not meet in shared memory and were not told where to meet get a folder of their own. */
static int make_folder(struct job *j, char *at, size_t cap)
{
    char why[400];
    if (!temp_folder_make(NULL, "run", &j->folder, why, sizeof why)) {
        fprintf(stderr, "weft run: the ranks cannot meet: %s\n", why);
        return CLI_WRONG;
    }
    snprintf(at, cap, "file:%s", j->folder.path);
    j->at = at;
    return CLI_OK;
}

/* A token that nobody else knows, for the sockets of the ranks, unless the user has set one. A store over TCP makes its
 * own. */
static int make_token(struct job *j, char token[2 * TOKEN_BYTES + 1])
{
    unsigned char random[TOKEN_BYTES];
    if (getenv("WEFT_TOKEN") || getenv("WEFT_TOKEN_FILE") || !strncmp(j->at, "tcp:", 4))
        return CLI_OK;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        fprintf(stderr, "weft run: no random number: %s\n", strerror(errno));
        return CLI_WRONG;
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    j->token = token;
    return CLI_OK;
}

/* Called by the launcher, or by the watchdog if the launcher was killed. */
static void clean_up(void *arg)
{
    struct job *j = arg;
    if (j->hosts)
        netns_remove(&j->netns);
    temp_folder_remove(&j->folder);
    temp_folder_remove(&j->metrics);
}

/* Two pipes for each rank whose lines are tagged. The ranks get the limit as it was. If the system does not permit that
 * many, a rank that cannot be started is named. */
static void allow_pipes(struct job *j)
{
    struct rlimit more;
    rlim_t need = 2 * (rlim_t)j->ranks + SPARE_FILES;
    j->limited = !getrlimit(RLIMIT_NOFILE, &j->files);
    more = j->files;
    if (!j->limited || !j->tag || more.rlim_cur == RLIM_INFINITY || more.rlim_cur >= need)
        return;
    more.rlim_cur = more.rlim_max == RLIM_INFINITY || more.rlim_max > need ? need : more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

static int launch(struct job *j)
{
    size_t n = (size_t)j->ranks;
    j->launcher = getpid();
    j->terminal = isatty(STDIN_FILENO);
    if (sched_getaffinity(0, sizeof j->cores, &j->cores)) {
        CPU_ZERO(&j->cores);
        CPU_SET(0, &j->cores);
    }
    allow_pipes(j);
    j->pids = calloc(n, sizeof *j->pids);
    j->tags = calloc(2 * n, sizeof *j->tags);
    j->polls = calloc(2 * n + 1, sizeof *j->polls);
    j->ended = memfd_create("weft-ended", MFD_CLOEXEC);
    write_ended(j, -1, 0);
    int code = CLI_WRONG;
    if (j->pids && j->tags && j->polls) {
        for (size_t i = 0; i < 2 * n; i++)
            j->tags[i].fd = -1;
        code = run_job(j);
    } else {
        fprintf(stderr, "weft run: no memory for %lld ranks\n", (long long)j->ranks);
    }
    if (j->ended >= 0)
        close(j->ended);
    free(j->pids);
    free(j->tags);
    free(j->polls);
    return code;
}

/* Standard output is the ranks'. */
static int serve_metrics(struct job *j, struct metrics_http **out)
{
    int port;
    if (j->port < 0)
        return CLI_OK;
    if (metrics_http_start(run_metrics_text, j->metrics.path, (int)j->port, &port, out)) {
        fprintf(stderr, "weft run: %s\n", weft_errmsg());
        return CLI_WRONG;
    }
    fprintf(stderr, "weft run: metrics http://127.0.0.1:%d/metrics\n", port);
    return CLI_OK;
}

/* A folder is only named; a tcp: store is served here while the ranks run. */
static int serve_and_launch(struct job *j)
{
    weft_store *store = NULL;
    if (j->at && !strncmp(j->at, "tcp:", 4)) {
        int err = weft_store_open(strcmp(j->at, "tcp:") ? j->at : "tcp::0", &store);
        if (err) {
            fprintf(stderr, "weft run: %s\n", weft_errmsg());
            return err == WEFT_EINVAL ? CLI_BAD : CLI_WRONG;
        }
        j->at = weft_store_at(store);
        j->token = weft_store_token(store);
    }
    struct metrics_http *metrics = NULL;
    int code = serve_metrics(j, &metrics);
    if (!code)
        code = launch(j);
    metrics_http_stop(metrics);
    weft_store_close(store);
    return code;
}

/* From now on signals are read and do not end the launcher. Signals that come before the ranks are started are handled
 * afterwards. No signal ends the launcher before it has removed what it made. */
static int watch_signals(struct job *j)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGPIPE);
    for (size_t i = 0; i < FORWARDED; i++)
        sigaddset(&set, forwarded[i]);
    signal(SIGCHLD, SIG_DFL); /* if it is ignored, the system does not report that ranks have ended */
    sigprocmask(SIG_BLOCK, &set, &j->mask);
    j->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (j->signals >= 0)
        return CLI_OK;
    fprintf(stderr, "weft run: no signalfd: %s\n", strerror(errno));
    return CLI_WRONG;
}

/* Signals that have come meanwhile take effect now. */
static void obey_signals(const struct job *j)
{
    close(j->signals);
    if (j->unread)
        raise(SIGPIPE); /* ends like any writer without a reader */
    sigprocmask(SIG_SETMASK, &j->mask, NULL);
}

static int watch_and_launch(struct job *j)
{
    if (!watchdog_start(&j->watchdog, (int)j->ranks, clean_up, j)) {
        fprintf(stderr, "weft run: no process to watch the launcher: %s\n", strerror(errno));
        return CLI_WRONG;
    }
    int code = serve_and_launch(j);
    watchdog_stop(&j->watchdog);
    return code;
}

/* Makes the hosts to play, and removes afterwards what it made. */
static int set_up_and_launch(struct job *j, bool wide)
{
    char at[sizeof j->folder.path + 8], token[2 * TOKEN_BYTES + 1], why[256];
    int code = watch_signals(j);
    if (code)
        return code;
    if (wide && !j->at)
        code = make_folder(j, at, sizeof at);
    if (!code && j->port >= 0 && !temp_folder_make(NULL, "metrics", &j->metrics, why, sizeof why)) {
        fprintf(stderr, "weft run: no folder for metrics: %s\n", why);
        code = CLI_WRONG;
    }
    if (wide && !code)
        code = make_token(j, token);
    if (!code && j->hosts && !netns_make((int)j->hosts, &j->netns, why, sizeof why)) {
        fprintf(stderr, "weft run: hosts cannot be played here: %s\n", why);
        j->hosts = 0;
        code = CLI_WRONG;
    }
    if (!code)
        code = watch_and_launch(j);
    clean_up(j);
    obey_signals(j);
    return code;
}

int cmd_run(int argc, char **argv)
{
    struct job j = {.grace = GRACE_S, .port = -1};
    const char *on = NULL;
    const struct args_option rows[] = {
        {"n", ARGS_INT, "N", "number of ranks", &j.ranks, 1, 4096},
        {"on", ARGS_TEXT, "URL",
         "how the ranks reach each other: shm: (the default), tcp:, ucx: or auto:;\n"
         "if it has no name, a fresh one is made",
         &on, 0, 0},
        {"hosts", ARGS_INT, "H",
         "play H hosts: network namespaces with N/H ranks each; the ranks use\n"
         "auto: unless --on says otherwise",
         &j.hosts, 1, NETNS_HOSTS},
        {"at", ARGS_TEXT, "PLACE",
         "where the ranks meet: file:DIR, or a store that weft run serves at\n"
         "tcp:HOST:PORT, tcp::PORT or tcp: (loopback)",
         &j.at, 0, 0},
        {"grace", ARGS_INT, "S", "seconds between INT, TERM or HUP and KILL (10 by default)", &j.grace, 0, GRACE_S_MAX},
        {"metrics", ARGS_INT, "PORT",
         "answer GET /metrics at this port of 127.0.0.1 with those of all ranks;\n"
         "0 lets the system choose one",
         &j.port, 0, 65535},
        {"bind", ARGS_FLAG, NULL, "run rank i on core i, modulo the number of cores", &j.bind, 0, 0},
        {"tag-output", ARGS_FLAG, NULL, "print [rank] before every line of a rank", &j.tag, 0, 0},
        {0}};
    const struct args_verb verb = {"run", "-n N [options] [--] PROG [ARGUMENT...]",
                                   "Starts N ranks of a program on this machine; weft_comm_open(NULL, ...) in them "
                                   "finds the others. Signals are passed on;\n"
                                   "ranks that do not end on INT, TERM or HUP are killed after --grace seconds, or by "
                                   "a second signal.\n"
                                   "If a rank fails, the others are ended (TERM, after 2 s KILL), and its exit code is "
                                   "the result, or 128 plus the number\n"
                                   "of the signal that ended it. Rank 0 has the standard input.",
                                   rows, ARGS_COMMAND};
    int first, code = args_parse(&verb, argc, argv, NULL, &first);
    if (code)
        return code < 0 ? CLI_OK : code;
    char url[128];
    if (!j.ranks)
        return args_complain(&verb, "-n is missing");
    if (first == argc)
        return args_complain(&verb, "there is no program to run");
    if (!on)
        on = j.hosts ? "auto:" : "shm:";
    const char *colon = strchr(on, ':');
    bool shm = !strncmp(on, "shm:", 4),
         wide = !strncmp(on, "tcp:", 4) || !strncmp(on, "ucx:", 4) || !strncmp(on, "auto:", 5);
    if (!strncmp(on, "mpi:", 4))
        return args_complain(&verb, "--on mpi: ranks of MPI are started by its own mpirun or mpiexec");
    if (!shm && !wide)
        return args_complain(&verb, "--on takes shm:, tcp:, ucx: or auto:, not '%s'", on);
    if (j.hosts && shm)
        return args_complain(&verb, "--hosts: shm: is for one host");
    if (j.hosts > j.ranks)
        return args_complain(&verb, "--hosts %lld: there are only %lld ranks", (long long)j.hosts, (long long)j.ranks);
    if (j.at && strncmp(j.at, "tcp:", 4) && (strncmp(j.at, "file:", 5) || !j.at[5]))
        return args_complain(&verb, "--at takes file:DIR or tcp:HOST:PORT, not '%s'", j.at);
    if (strlen(on) >= sizeof url)
        return args_complain(&verb, "--on %s: the name is too long", on);
    if (!colon[1] && fresh_url(url, sizeof url, on)) {
        fprintf(stderr, "weft run: no random number: %s\n", strerror(errno));
        return CLI_WRONG;
    }
    j.url = colon[1] ? on : url;
    j.argv = argv + first;
    return set_up_and_launch(&j, wide);
}
