#define _GNU_SOURCE
#include "cli/cmd_bus_agent.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/cmd_bus_open.h"
#include "cli/notify.h"
#include "tool/signals.h"
#include "version/bus_agent.h"
#include "weft/log.h"

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

int cmd_bus_agent(const struct cmd_bus_agent *a, struct failure *why)
{
    weft_bus *b = NULL;
    struct bus_agent *agent = NULL;
    const struct timespec pause = {.tv_nsec = 50000000};
    int err = cmd_bus_open(a->url, a->token_file, a->listen, a->timeout, &b);
    if (!err)
        err = weft_log(WEFT_LOG_INFO, say, NULL);
    signals_watch(); /* until now it has nothing, and can end at once */
    if (!err)
        err = bus_agent_start(b, &(struct bus_agent_opts){.memory = a->memory, .versions = (int)a->versions}, &agent);
    int code = library(why, err);
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
