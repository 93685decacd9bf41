/* How ranks and calls are named in texts. */
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"
#include "transport/hosts/hosts.h"

const char *names_call(uint32_t call)
{
    switch (call) {
    case COMM_BARRIER: return "weft_comm_barrier";
    case COMM_BIND:
    case COMM_BIND_DONE: return "weft_bind";
    case COMM_WINDOW:
    case COMM_WINDOW_DONE: return "weft_window_open";
    case COMM_SPLIT:
    case COMM_SPLIT_GROUPS:
    case COMM_SPLIT_DONE: return "weft_comm_split";
    case COMM_EXCHANGE:
    case COMM_EXCHANGE_DONE: return "weft_exchange_open";
    default: return "weft_exec_rebind";
    }
}

const char *names_rank(const weft_comm *c, int rank, char *buf)
{
    struct text t = text_start(buf, NAMES_RANK);
    const char *host = hosts_name(c->link, rank);
    text_printf(&t, "rank %d", rank);
    if (c->link->origin)
        text_printf(&t, " (opened as rank %d)", c->link->origin[rank]);
    if (host)
        text_printf(&t, " on host %s", host);
    return buf;
}

const char *names_gone(const weft_comm *c, int rank)
{
    if (c->transport->gone(c->link, rank) == TRANSPORT_LOST)
        return "cannot be reached";
    return transport_elsewhere(c->link, rank) ? "has died or cannot be reached" : "has died";
}

#define PREFIX 6 /* room for "ranks " */

void names_add(struct comm_names *names, const weft_comm *c, int rank, const char *note)
{
    enum { ONE = 24 + HOSTS_NAME + 40, MORE = 24 };
    char *end = names->text + PREFIX + names->len;
    const char *host = hosts_name(c->link, rank);
    if (PREFIX + names->len + ONE + MORE > sizeof names->text) {
        names->left++;
        return;
    }
    names->len += (size_t)snprintf(end, ONE, "%s%d%s%s%s", names->n++ ? ", " : "", rank, host ? " on host " : "",
                                   host ? host : "", note);
}

const char *names_text(struct comm_names *names)
{
    if (names->left)
        snprintf(names->text + PREFIX + names->len, 24, " and %d more", names->left);
    memcpy(names->text, names->n > 1 ? "ranks " : " rank ", PREFIX);
    return names->text + (names->n > 1 ? 0 : 1);
}
