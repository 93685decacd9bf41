/* How far the clock of this host and that of rank 0 are apart, by round trips. */
#include <string.h>

#include "comm/mail.h"
#include "transport/hosts/hosts.h"

#define ASKS 8 /* round trips for one look at the clock of rank 0: the shortest counts */
#define ASK_NS INT64_C(1000000000)

enum { ASK = MAIL_KIND(MAIL_TRACE, 1), ANSWER = MAIL_KIND(MAIL_TRACE, 2) };

struct clock_packet {
    uint32_t kind, number;
    int64_t now; /* ANSWER: of the rank that answers */
};

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct clock_packet m;
    int64_t now = core_now();
    if (n != sizeof m)
        return;
    memcpy(&m, packet, n);
    if (m.kind == ASK) {
        m.kind = ANSWER;
        m.now = now;
        (void)mail_send(c, peer, &m, sizeof m);
        return;
    }
    struct trace *t = c->trace;
    if (!t || peer != 0 || m.number != t->asked || t->answered == t->asked || m.now < 0)
        return;
    /* It was answered at some moment of the round trip: the middle is wrong by half of the trip at most. */
    int64_t trip = now - t->sent_at;
    t->answered = t->asked;
    if (!t->best.at || (trip + 1) / 2 < t->best.error_ns)
        t->best = (struct trace_clock){now, m.now - (t->sent_at + trip / 2), (trip + 1) / 2};
}

void trace_clock_listen(weft_comm *c)
{
    mail_handle(c, MAIL_TRACE, take);
}

static bool answered(void *arg)
{
    const struct trace *t = arg;
    return t->answered == t->asked;
}

void trace_clock_align(weft_comm *c)
{
    struct trace *t = c->trace;
    const struct transport_hosts *h = c->link->hosts;
    if (!t || !c->mail || !transport_elsewhere(c->link, 0) || h->firsts[h->here] != c->rank)
        return;
    struct comm_need need = {answered, NULL, t, core_now() + ASK_NS};
    t->best = (struct trace_clock){0};
    for (int i = 0; i < ASKS; i++) {
        struct clock_packet m = {.kind = ASK, .number = ++t->asked};
        t->sent_at = core_now();
        if (mail_send(c, 0, &m, sizeof m) || comm_wait(c, &need))
            break;
    }
    t->asked += !answered(t); /* an answer that comes too late is for nobody */
    t->answered = t->asked;
    if (!t->best.at)
        return;
    if (t->nclocks == TRACE_CLOCKS) /* the first one stays, and so do the last ones */
        memmove(t->clocks + 1, t->clocks + 2, (TRACE_CLOCKS - 2) * sizeof *t->clocks);
    else
        t->nclocks++;
    t->clocks[t->nclocks - 1] = t->best;
}
