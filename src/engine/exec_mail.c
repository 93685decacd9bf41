/* What the ranks of an exec that are on different hosts tell each other beside messages: that they are at work in a
 * run, and that they have freed their exec. */
#include "engine/exec_mail.h"

#include <string.h>

#include "comm/mail.h"
#include "engine/ways/way_wire.h"

#define PULSE_NS INT64_C(250000000) /* nanoseconds between two pulses; less if the deadline is short */

enum { PULSE = MAIL_KIND(MAIL_EXEC, 1), FREED = MAIL_KIND(MAIL_EXEC, 2) };

struct exec_packet {
    uint32_t kind;
    uint64_t exec, run;
};

/* A peer with channels in both directions is told twice, which does no harm. */
static void tell_peers(const weft_exec *x, uint32_t kind)
{
    struct exec_packet m;
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.exec = x->task.id;
    m.run = x->run;
    for (uint32_t i = 0; i < x->program->wired.n; i++)
        (void)mail_send(x->comm, x->program->wired.channels[i].peer, &m, sizeof m);
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct exec_packet m;
    if (n != sizeof m)
        return;
    memcpy(&m, packet, n);
    weft_exec *x = (weft_exec *)comm_task_find(c, m.exec);
    if (x && m.kind == FREED)
        way_wire_freed(x, peer, m.run);
    else if (x && exec_in_flight(x))
        way_wire_heard(x, peer, m.run, core_now());
}

void exec_mail_open(weft_comm *c)
{
    mail_handle(c, MAIL_EXEC, take);
}

void exec_mail_pulse(weft_exec *x, int64_t now)
{
    int64_t eighth = x->comm->deadline_ns / 8;
    if (!x->program->wired.n || now - x->pulsed_at < (eighth < PULSE_NS ? eighth : PULSE_NS))
        return;
    x->pulsed_at = now;
    tell_peers(x, PULSE);
}

void exec_mail_freed(const weft_exec *x)
{
    if (!core_failed(x->comm->group))
        tell_peers(x, FREED);
}
