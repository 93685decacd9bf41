#define _GNU_SOURCE
#include "cli/cmd_bus_agent.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/notify.h"
#include "comm/environment.h"
#include "tool/signals.h"
#include "version/bus_agent.h"
#include "weft/log.h"

#define SECOND INT64_C(1000000000)

static int library(struct failure *why, int err)
{
    return err ? failure_set(why, err == WEFT_EINVAL ? CLI_BAD : CLI_WRONG, "%s", weft_errmsg()) : CLI_OK;
}

/* What happens, for whoever looks after the agent. */
static void say(void *arg, const weft_log_record *r)
{
    (void)arg;
    if (!strcmp(r->event, "agent"))
        fprintf(stderr, "weft bus: rank %d: %s\n", r->rank, r->text);
}

static int open_bus(const struct cmd_bus_agent *a, weft_bus **out)
{
    char token[SERVER_TOKEN_MAX + 2] = "";
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    int err = a->token_file ? environment_token_file("--token-file ", a->token_file, token) : 0;
    o.token = *token ? token : NULL;
    o.listen = a->listen;
    o.deadline_ns = a->timeout * SECOND;
    if (!err)
        err = weft_bus_open(a->url, &o, out);
    explicit_bzero(token, sizeof token);
    return err;
}

int cmd_bus_agent(const struct cmd_bus_agent *a, struct failure *why)
{
    weft_bus *b = NULL;
    struct bus_agent *agent = NULL;
    const struct timespec pause = {.tv_nsec = 50000000};
    int err = open_bus(a, &b);
    if (!err)
        err = weft_log(WEFT_LOG_INFO, say, NULL);
    if (!err)
        err = bus_agent_start(b, &(struct bus_agent_opts){.memory = a->memory, .versions = (int)a->versions}, &agent);
    int code = library(why, err);
    signals_watch(); /* until now it has nothing, and can end at once */
    if (!code) {
        printf("agent of %s\n", a->url);
        fflush(stdout);
        notify_send("READY=1");
        while (!signals_caught())
            nanosleep(&pause, NULL);
        notify_send("STOPPING=1");
    }
    bus_agent_stop(agent);
    weft_bus_close(b);
    weft_log(0, NULL, NULL);
    return code;
}
