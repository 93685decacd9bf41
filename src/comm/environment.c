/* The one place that reads the environment. weft run sets WEFT_RANK, WEFT_SIZE and WEFT_URL, and with --at WEFT_AT. For
 * other launchers a row of a table says which variables hold the rank, the size and something that no other job on this
 * machine has. */
#define _GNU_SOURCE
#include "comm/environment.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defaults.h"
#include "base/ended.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/comm.h"
#include "transport/wire/wire.h"

#define SECOND INT64_C(1000000000)

static const char *variable(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text && *text ? text : NULL;
}

/* Where to meet, and the secret by which ranks know each other. A program that runs with more rights than its user
 * takes neither from the user's environment: it would open files, and connect to places, that the user names. */
static const char *trusted(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text ? text : NULL;
}

/* Reads a whole number from the environment for an option that was left at 0. */
static int from_environment(const char *name, int64_t scale, int64_t max, int64_t *value)
{
    const char *text = getenv(name);
    if (*value || !text || !*text)
        return 0;
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end || n < 1 || n > max / scale)
        return error_set(WEFT_EINVAL, "%s=%s: expected a number from 1 to %lld", name, text, (long long)(max / scale));
    *value = n * scale;
    return 0;
}

static int settle(int64_t *value, const char *what, const char *name, int64_t scale, int64_t max, int64_t fallback)
{
    if (*value < 0)
        return error_set(WEFT_EINVAL, "%s is %lld: it must not be negative", what, (long long)*value);
    if (*value > max)
        return error_set(WEFT_EINVAL, "%s is %lld: it must be at most %lld", what, (long long)*value, (long long)max);
    int err = from_environment(name, scale, max, value);
    if (!err && !*value)
        *value = fallback;
    return err;
}

static int settle_progress(weft_comm_opts *o)
{
    const char *text = getenv("WEFT_PROGRESS");
    if (o->progress != WEFT_PROGRESS_CALLER && o->progress != WEFT_PROGRESS_THREAD)
        return error_set(WEFT_EINVAL, "progress is %d: it must be WEFT_PROGRESS_CALLER or WEFT_PROGRESS_THREAD",
                         (int)o->progress);
    if (o->progress || !text || !*text || !strcmp(text, "caller"))
        return 0;
    if (strcmp(text, "thread"))
        return error_set(WEFT_EINVAL, "WEFT_PROGRESS=%s: expected thread or caller", text);
    o->progress = WEFT_PROGRESS_THREAD;
    return 0;
}

const char *weft_module_name(size_t i)
{
    return wire_module(environment_modules(), i);
}

/* A program that runs with more rights than its user loads no code that the user names. */
const char *environment_modules(void)
{
    return secure_getenv("WEFT_MODULES");
}

/* Fills in what the caller left open: first from WEFT_*, then the defaults. */
int environment_settle(weft_comm_opts *o)
{
    int64_t buckets = o->inflight_buckets, channel = o->channel_buckets, staged = o->staged;
    int err = settle(&o->deadline_ns, "deadline_ns", "WEFT_DEADLINE_MS", 1000000, COMM_DEADLINE_MOST, 30 * SECOND);
    if (!err)
        err = settle(&o->inflight_bytes, "inflight_bytes", "WEFT_INFLIGHT_BYTES", 1, INT64_MAX / 4, INT64_C(64) << 20);
    if (!err)
        err = settle(&buckets, "inflight_buckets", "WEFT_INFLIGHT_BUCKETS", 1, 1 << 20, 256);
    if (!err)
        err = settle(&channel, "channel_buckets", "WEFT_CHANNEL_BUCKETS", 1, 1 << 20, DEFAULTS_CHANNEL_BUCKETS);
    const char *text = getenv("WEFT_STAGED");
    if (!err && !staged && text && *text) {
        if (strcmp(text, "0") && strcmp(text, "1"))
            err = error_set(WEFT_EINVAL, "WEFT_STAGED=%s: expected 0 or 1", text);
        staged = text[0] == '1';
    }
    o->inflight_buckets = (int)buckets;
    o->channel_buckets = (int)channel;
    o->staged = staged;
    return err ? err : settle_progress(o);
}

/* ---- the flight recorder ---- */

/* A program that runs with more rights than its user writes no files where the user says. */
int environment_flight(struct environment_flight *out)
{
    const char *dir = secure_getenv("WEFT_FLIGHT"), *name = variable("WEFT_FLIGHT_SIGNAL");
    struct stat st;
    *out = (struct environment_flight){.signal = SIGUSR2};
    if (!dir || !*dir)
        return 0;
    if (strlen(dir) >= sizeof out->dir)
        return error_set(WEFT_EINVAL, "WEFT_FLIGHT=%.40s...: at most %zu letters", dir, sizeof out->dir - 1);
    if (stat(dir, &st) || !S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK))
        return error_set(WEFT_EINVAL, "WEFT_FLIGHT=%s: expected a folder that can be written", dir);
    if (name && !strcmp(name, "USR1"))
        out->signal = SIGUSR1;
    else if (name && !strcmp(name, "none"))
        out->signal = 0;
    else if (name && strcmp(name, "USR2"))
        return error_set(WEFT_EINVAL, "WEFT_FLIGHT_SIGNAL=%s: expected USR1, USR2 or none", name);
    strcpy(out->dir, dir);
    return 0;
}

/* ---- traces and metrics ---- */

static int output(const char *name, struct environment_output *out)
{
    const char *path = secure_getenv(name);
    struct stat st;
    *out = (struct environment_output){.folder = false};
    if (!path || !*path)
        return 0;
    if (strlen(path) >= sizeof out->path)
        return error_set(WEFT_EINVAL, "%s=%.40s...: at most %zu letters", name, path, sizeof out->path - 1);
    out->folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    if (out->folder ? access(path, W_OK | X_OK) : path[strlen(path) - 1] == '/')
        return error_set(WEFT_EINVAL, "%s=%s: expected a folder that can be written, or a file", name, path);
    strcpy(out->path, path);
    return 0;
}

int environment_trace(struct environment_output *out, int64_t *events)
{
    int64_t asked = 0;
    int err = output("WEFT_TRACE", out);
    if (!err && *out->path)
        err = settle(&asked, "", "WEFT_TRACE_EVENTS", 1, INT64_C(1) << 26, TRACE_EVENTS);
    for (*events = 16; *events < asked;)
        *events *= 2;
    return err;
}

int environment_metrics(struct environment_output *out)
{
    return output("WEFT_METRICS", out);
}

/* ---- hosts ---- */

static void boot_name(char boot[64])
{
    boot[0] = 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(boot, 64, f))
        boot[0] = 0;
    if (f)
        fclose(f);
    boot[strcspn(boot, "\n")] = 0;
}

void environment_place(struct environment_place *p)
{
    const char *host = variable("WEFT_HOST");
    char boot[64], space[64];
    *p = (struct environment_place){.modules = environment_modules(), .wire = variable("WEFT_WIRE")};
    boot_name(boot);
    p->machine = hash_bytes(0, boot, strlen(boot));
    ssize_t n = readlink("/proc/self/ns/net", space, sizeof space - 1);
    space[n > 0 ? n : 0] = 0;
    if (!host && gethostname(p->name, sizeof p->name - 1))
        p->name[0] = 0;
    if (host)
        snprintf(p->name, sizeof p->name, "%s", host);
    if (host)
        snprintf(p->host, sizeof p->host, "%s", host);
    else
        snprintf(p->host, sizeof p->host, "%s %s", boot, space);
}

/* ---- jobs ---- */

struct launcher {
    const char *name, *rank, *size;
    const char *local;     /* variable with the number of ranks on this machine; NULL: none */
    const char *machines;  /* variable with the number of machines; NULL: none */
    const char *unique[3]; /* together they name the job; if none is set, the parent process does */
};

enum { TORCHRUN = 3 };
static const struct launcher launchers[] = {
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL}},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, {"PMI_JOBID", NULL, NULL}},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", NULL, "SLURM_STEP_NUM_NODES", {"SLURM_JOB_ID", "SLURM_STEP_ID", NULL}},
    [TORCHRUN] = {"torchrun",
                  "RANK",
                  "WORLD_SIZE",
                  "LOCAL_WORLD_SIZE",
                  NULL,
                  {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
};

/* On several machines torchrun itself is a task of srun or mpirun, and its ranks inherit that task's variables:
 * torchrun's own variables have priority. */
static bool by_torchrun(void)
{
    return variable("TORCHELASTIC_RUN_ID") && variable("RANK") && variable("WORLD_SIZE");
}

static int number(const char *name, int64_t min, int64_t max, int *out)
{
    const char *text = variable(name);
    char *end = NULL;
    errno = 0;
    long long n = text ? strtoll(text, &end, 10) : 0;
    if (!text)
        return error_set(WEFT_EINVAL, "%s is not set, although other variables of its launcher are", name);
    if (errno || *end || !isdigit((unsigned char)*text) || n < min || n > max)
        return error_set(WEFT_EINVAL, "%s=%s: expected a number from %lld to %lld", name, text, (long long)min,
                         (long long)max);
    *out = (int)n;
    return 0;
}

static int place_in(const char *rank, const char *size, struct environment_job *job)
{
    int err = number(size, 1, INT32_MAX, &job->size);
    return err ? err : number(rank, 0, job->size - 1, &job->rank);
}

/* Replaces characters that names may not have. A name that is too long is cut, and a hash of all of it is appended. */
static void name_job(struct environment_job *job, const char *scheme, const char *name)
{
    char clean[64];
    size_t n = 0, all = strlen(name);
    uint64_t hash = hash_bytes(0, name, all);
    for (; n < all && n + 1 < sizeof clean; n++)
        clean[n] = isalnum((unsigned char)name[n]) || strchr("._-", name[n]) ? name[n] : '-';
    clean[n] = 0;
    if (n < all)
        snprintf(job->url, sizeof job->url, "%s%.40s-%016llx", scheme, clean, (unsigned long long)hash);
    else
        snprintf(job->url, sizeof job->url, "%s%s", scheme, clean);
}

/* Does the launcher say that there are ranks on other machines? */
static int spans(const struct launcher *l, struct environment_job *job)
{
    int local = job->size, machines = 1, err = 0;
    if (variable(l->local))
        err = number(l->local, 1, INT32_MAX, &local);
    if (!err && variable(l->machines))
        err = number(l->machines, 1, INT32_MAX, &machines);
    job->spans = local < job->size || machines > 1;
    return err;
}

/* A name that no other job has and that is the same on all machines of the job. */
static void unique_name(const struct launcher *l, const struct environment_job *job, char *name, size_t cap)
{
    struct text t = text_start(name, cap);
    bool unique = false;
    text_put(&t, l->name);
    for (int i = 0; i < 3; i++) {
        const char *text = variable(l->unique[i]);
        if (text)
            text_printf(&t, "-%s", text);
        unique |= text != NULL;
    }
    if (!unique && !job->spans)
        text_printf(&t, "-%ld", (long)getppid());
}

static int job_of(const struct launcher *l, struct environment_job *job)
{
    char name[512];
    const char *url = trusted("WEFT_URL");
    int err = place_in(l->rank, l->size, job);
    if (!err)
        err = spans(l, job);
    if (err)
        return err;
    if (url && strlen(url) >= sizeof job->url / 2)
        return error_set(WEFT_EINVAL, "WEFT_URL is too long");
    unique_name(l, job, name, sizeof name);
    const char *colon = url ? strchr(url, ':') : NULL;
    if (url && (!colon || colon[1] || !strcmp(url, "mpi:")))
        strcpy(job->url, url);
    else
        name_job(job,
                 url                                ? url
                 : job->spans || trusted("WEFT_AT") ? "auto:"
                                                    : "shm:",
                 variable("WEFT_NAME") ? variable("WEFT_NAME") : name);
    return 0;
}

int environment_job(struct environment_job *job, bool *found)
{
    *job = (struct environment_job){.size = 0};
    *found = true;
    if (variable("WEFT_RANK") || variable("WEFT_SIZE")) {
        const char *url = trusted("WEFT_URL");
        if (url && strlen(url) < sizeof job->url)
            strcpy(job->url, url);
        else if (variable("WEFT_NAME"))
            name_job(job, "shm:", variable("WEFT_NAME"));
        else
            return error_set(WEFT_EINVAL, "WEFT_RANK and WEFT_SIZE need WEFT_URL or WEFT_NAME, %s",
                             url ? "and WEFT_URL is too long" : "neither is set");
        return place_in("WEFT_RANK", "WEFT_SIZE", job);
    }
    if (by_torchrun())
        return job_of(&launchers[TORCHRUN], job);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (variable(launchers[i].rank) && variable(launchers[i].size))
            return job_of(&launchers[i], job);
    *found = false;
    return 0;
}

int environment_ended(int rank, int size)
{
    struct environment_job job;
    const char *path = trusted("WEFT_ENDED");
    if (!path || !variable("WEFT_RANK") || !variable("WEFT_SIZE") || place_in("WEFT_RANK", "WEFT_SIZE", &job))
        return -1;
    return job.rank == rank && job.size == size ? ended_open(path, size) : -1;
}

int environment_no_job(void)
{
    return error_set(WEFT_EINVAL,
                     "this process was not started as a rank: no weft run, mpirun, srun or torchrun has left a rank in "
                     "the environment; start it by: weft run -n 4 PROGRAM, or name a URL, for instance self:");
}

/* ---- where they meet ---- */

/* The first line of a file that only its owner can read. */
int environment_token_file(const char *option, const char *path, char token[SERVER_TOKEN_MAX + 2])
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(WEFT_EINVAL, "%s%s: %s", option, path, strerror(errno));
    int err = 0;
    ssize_t n = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        err = error_set(WEFT_EINVAL, "%s%s: it is not a file", option, path);
    else if ((st.st_uid != geteuid() && st.st_uid) || (st.st_mode & 077))
        err = error_set(WEFT_EINVAL, "%s%s: other users can read it: chmod 600 it", option, path);
    else if ((n = read(fd, token, SERVER_TOKEN_MAX + 1)) < 0)
        err = error_set(WEFT_EINVAL, "%s%s: %s", option, path, strerror(errno));
    close(fd);
    token[n > 0 ? n : 0] = 0;
    token[strcspn(token, "\r\n")] = 0;
    if (!err && !*token)
        err = error_set(WEFT_EINVAL, "%s%s: its first line is empty", option, path);
    return err;
}

int environment_token(char token[SERVER_TOKEN_MAX + 2])
{
    const char *text = trusted("WEFT_TOKEN"), *file = trusted("WEFT_TOKEN_FILE");
    token[0] = 0;
    if (!text)
        return file ? environment_token_file("WEFT_TOKEN_FILE=", file, token) : 0;
    if (strlen(text) > SERVER_TOKEN_MAX)
        return error_set(WEFT_EINVAL, "WEFT_TOKEN has more than %d letters", SERVER_TOKEN_MAX);
    strcpy(token, text);
    return 0;
}

/* torchrun's own store listens at MASTER_PORT; weft's listens at the next port, or at WEFT_PORT. */
static int beside_torch(char *at, size_t cap)
{
    int port, err;
    if (variable("WEFT_PORT")) {
        err = number("WEFT_PORT", 1, 65535, &port);
    } else {
        err = number("MASTER_PORT", 1, 65535, &port);
        port += port < 65535 ? 1 : -1;
    }
    const char *host = variable("MASTER_ADDR");
    snprintf(at, cap, strchr(host, ':') ? "tcp:[%s]:%d" : "tcp:%s:%d", host, port);
    return err;
}

int environment_store(const char *at, struct environment_store *out)
{
    struct environment_job job;
    bool found = false;
    *out = (struct environment_store){.at = ""};
    if (!at)
        at = trusted("WEFT_AT");
    if (at && strlen(at) >= sizeof out->at)
        return error_set(WEFT_EINVAL, "%.40s...: the place of a store has at most %zu letters", at, sizeof out->at - 1);
    if (at)
        strcpy(out->at, at);
    int err = environment_token(out->token);
    if (err)
        return err;
    if (!at && variable("PMIX_RANK") && !by_torchrun())
        strcpy(out->at, "pmix:");
    else if (!at && variable("RANK") && variable("WORLD_SIZE") && variable("MASTER_ADDR"))
        err = beside_torch(out->at, sizeof out->at);
    else if (!at)
        err = error_set(WEFT_EINVAL,
                        "the ranks have no place to meet: set WEFT_AT to file:DIR, a folder that all of them "
                        "see, or to tcp:HOST:PORT, where rank 0 serves (weft run --at sets it)");
    const char *name = !err && !environment_job(&job, &found) && found ? strchr(job.url, ':') : NULL;
    if (name && store_word(name + 1, strlen(name + 1), STORE_NAME_MAX))
        strcpy(out->name, name + 1);
    return err;
}
