/* Handing over: the agent of this host is told of a snapshot before its part is in the directory. It takes the memory
 * file and the digests from this publisher's server, as a reader does. So every version that is committed is held by
 * the agent, too, also if this process is killed right after the commit. A publisher goes on without an agent that is
 * not there, has no memory, or does not answer. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "rendezvous/deadline.h"
#include "version/part_client.h"
#include "version/part_record.h"

#define ANSWER_NS INT64_C(2000000000) /* within which the directory and the agent must answer */
#define LATER_NS INT64_C(1000000000)  /* after which an agent is looked for again; longer if it took long */

/* Is there an agent? */
static bool find_agent(weft_publisher *p, int64_t until)
{
    if (!p->agent.revision && catalog_agent(&p->bus->keeper, p->bus->host, until, &p->agent))
        return false;
    return p->agent.revision;
}

static int hand_one(weft_publisher *p, struct publish_ring *r, struct part_client *c, int64_t until)
{
    struct part_client_of of = {
        .version = {p->epoch, r->step}, .rank = p->rank, .generation = r->generation, .digests = p->digests};
    part_record_hash(p, r, of.hash);
    int err = part_client_keep(c, &of, until);
    r->held = err ? 0 : p->agent.revision;
    return err;
}

static int hand_all(weft_publisher *p, bool all, int64_t until)
{
    struct part_client c;
    int64_t silence = min64(ANSWER_NS, p->bus->keeper.lease_ns);
    int err = part_client_open(p->bus->host, p->source.set, &p->agent, silence, until, &c);
    if (err)
        return err;
    for (int i = 0; i < p->keep && !err; i++)
        if (p->ring[i].state == PUBLISH_SHOWN && (all || p->ring[i].held != p->agent.revision))
            err = hand_one(p, &p->ring[i], &c, until);
    part_client_close(&c);
    return err;
}

void hand_over(weft_publisher *p, bool all, int64_t until)
{
    struct error_text kept;
    bool any = false;
    for (int i = 0; i < p->keep; i++)
        any = any || p->ring[i].state == PUBLISH_SHOWN;
    if (!any || (!all && deadline_now() < p->later))
        return;
    error_keep(&kept);
    int64_t begun = deadline_now();
    until = min64(until, deadline_in(ANSWER_NS));
    if (all)
        p->agent.revision = 0; /* is it there still? */
    bool found = find_agent(p, until);
    int err = found ? hand_all(p, all, until) : 0;
    if (err)
        log_write(WEFT_LOG_WARNING, "agent", p->bus->url, p->rank, "set '%s': the agent of this host holds nothing: %s",
                  p->source.set, weft_errmsg());
    if (err || !found) {
        p->agent.revision = 0;
        p->later = deadline_in(LATER_NS + (deadline_now() - begun));
        for (int i = 0; i < p->keep && (all || err); i++)
            p->ring[i].held = 0;
    }
    error_restore(&kept);
}
