#define _GNU_SOURCE
#include "etcds.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bus/curl.h"
#include "bus/directory.h"
#include "directories.h"
#include "rendezvous/address.h"
#include "weft.h"

void etcds_run(struct etcds *e, int i)
{
    static const char *const usual[] = {"etcd", "/usr/bin/etcd", "/usr/local/bin/etcd"};
    const char *asked = getenv("WEFT_ETCD");
    char client[64], peer[64], data[96], name[8], cluster[300] = "";
    snprintf(client, sizeof client, "http://127.0.0.1:%d", e->client[i]);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", e->peer[i]);
    snprintf(name, sizeof name, "m%d", i);
    snprintf(data, sizeof data, "%s/%s", e->folder, name);
    for (int k = 0; k < e->n; k++)
        snprintf(cluster + strlen(cluster), sizeof cluster - strlen(cluster), "%sm%d=http://127.0.0.1:%d", k ? "," : "",
                 k, e->peer[k]);
    setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 1); /* older ones refuse to run without it */
    fflush(NULL);
    e->pid[i] = fork(); /* between here and exec nothing takes memory: other threads may run */
    if (e->pid[i])
        return;
    int log = open("/dev/null", O_WRONLY);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, 1);
    dup2(log, 2);
    for (size_t k = 0; k < (asked ? 1 : sizeof usual / sizeof *usual); k++)
        execlp(asked ? asked : usual[k], "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", client,
               "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
               "--initial-cluster", cluster, (char *)NULL);
    _exit(127);
}

void etcds_kill(struct etcds *e, int i)
{
    if (!e->pid[i])
        return;
    kill(e->pid[i], SIGKILL);
    waitpid(e->pid[i], NULL, 0);
    e->pid[i] = 0;
}

/* Ports that were free a moment ago. */
static void choose_ports(struct etcds *e)
{
    int fd[2 * ETCDS_MOST];
    for (int i = 0; i < 2 * e->n; i++) {
        struct address a = {.host = "127.0.0.1"};
        assert_int_equal(address_listen(&a, &fd[i]), 0);
        (i % 2 ? e->peer : e->client)[i / 2] = a.port;
    }
    for (int i = 0; i < 2 * e->n; i++)
        close(fd[i]);
}

bool etcds_begin(struct etcds *e, int n)
{
    *e = (struct etcds){.n = n};
    struct directory *d;
    strcpy(e->folder, "/tmp/weft-etcd-XXXXXX");
    assert_non_null(mkdtemp(e->folder));
    choose_ports(e);
    strcpy(e->url, "etcd:http://");
    for (int i = 0; i < n; i++) {
        snprintf(e->url + strlen(e->url), sizeof e->url - strlen(e->url), "%s127.0.0.1:%d", i ? "," : "", e->client[i]);
        etcds_run(e, i);
    }
    for (int64_t until = clock_now() + LONG; clock_now() < until;) {
        int status;
        if (waitpid(e->pid[0], &status, WNOHANG) == e->pid[0]) {
            e->pid[0] = 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                printf("skip: etcd is not installed (Debian: apt-get install etcd-server; or WEFT_ETCD=PROGRAM)\n");
            else
                printf("skip: etcd has ended with status %d before it answered\n", status);
            etcds_end(e);
            return false;
        }
        int err = directory_open(e->url, &(struct directory_opts){.timeout_ns = 200 * MS}, &d);
        if (!err) {
            directory_close(d);
            return true;
        }
        if (err == WEFT_EUNSUPPORTED) {
            printf("skip: libcurl is not installed\n");
            etcds_end(e);
            return false;
        }
    }
    printf("skip: etcd did not answer within %d s\n", (int)(LONG / SECOND));
    etcds_end(e);
    return false;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void etcds_wipe(const struct etcds *e, int i)
{
    char data[96];
    snprintf(data, sizeof data, "%s/m%d", e->folder, i);
    assert_int_equal(nftw(data, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void etcds_end(struct etcds *e)
{
    for (int i = 0; i < e->n; i++)
        etcds_kill(e, i);
    if (e->folder[0])
        nftw(e->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *e = (struct etcds){0};
}

struct reply {
    char *text;
    size_t n, cap;
};

static size_t collect(char *bytes, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    for (size_t i = 0; i < one * n && r->n + 1 < r->cap; i++)
        r->text[r->n++] = bytes[i];
    r->text[r->n] = 0;
    return one * n;
}

long etcds_post(const struct etcds *e, int i, const char *path, const char *body, char *reply, size_t cap)
{
    const struct curl *c = curl_find();
    char url[300];
    long code = 0;
    struct reply r = {reply, 0, cap};
    reply[0] = 0;
    assert_non_null(c);
    void *easy = c->easy();
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v3/%s", e->client[i], path);
    if (!easy || c->set(easy, CURL_URL, url) || c->set(easy, CURL_POSTFIELDS, body) ||
        c->set(easy, CURL_NOPROXY, "*") || c->set(easy, CURL_NOSIGNAL, 1L) ||
        c->set(easy, CURL_WRITEFUNCTION, collect) || c->set(easy, CURL_WRITEDATA, &r) || c->perform(easy) ||
        c->info(easy, CURL_RESPONSE_CODE, &code))
        code = 0;
    c->easy_end(easy);
    return code;
}
