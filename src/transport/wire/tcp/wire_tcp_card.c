/* At which addresses a rank can be reached, and in which order a peer tries them.
 *
 * Ranks that share a network namespace use the loopback. Other ranks first try the addresses in networks that this
 * machine is in, then the rest. They skip loopback addresses and addresses that this machine has itself (bridges of
 * containers have the same one on every machine), since these are not the peer's. If a call reaches another process all
 * the same, its answer shows it, and the next address is tried. */
#define _GNU_SOURCE
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "weft.h"

/* ---- this rank's ---- */

static unsigned char bits(const unsigned char *mask, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++)
        all = (unsigned char)(all + __builtin_popcount(mask[i]));
    return all;
}

/* False: peers cannot use this address. A link-local address of IPv6 has no meaning on another machine. */
static bool read_address(const struct ifaddrs *i, struct tcp_address *a)
{
    *a = (struct tcp_address){.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0};
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return false;
    if (i->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *at = (const void *)i->ifa_addr, *mask = (const void *)i->ifa_netmask;
        a->family = 4;
        memcpy(a->bytes, &at->sin_addr, 4);
        a->prefix = mask ? bits((const unsigned char *)&mask->sin_addr, 4) : 32;
        return true;
    }
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *at = (const void *)i->ifa_addr, *mask = (const void *)i->ifa_netmask;
    a->family = 6;
    memcpy(a->bytes, &at->sin6_addr, 16);
    a->prefix = mask ? bits((const unsigned char *)&mask->sin6_addr, 16) : 128;
    return !IN6_IS_ADDR_LINKLOCAL(&at->sin6_addr);
}

/* Is the name in the list, whose names are separated by commas? */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (!strncmp(at, name, n) && (at[n] == ',' || at[n] == 0))
            return true;
    return false;
}

/* IPv4 first, loopback last. */
static int collect(const struct wire_boot *boot, struct tcp_card *card, bool *any)
{
    const char *wanted = getenv("WEFT_TCP_INTERFACE");
    struct tcp_address inside = {0};
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return boot->error(WEFT_ETRANSPORT, "tcp: this machine's addresses cannot be found: %s", strerror(errno));
    wanted = wanted && *wanted ? wanted : NULL;
    *any = !wanted;
    bool found = !wanted;
    for (int turn = 0; turn < 4; turn++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            struct tcp_address a;
            bool named = wanted && is_listed(wanted, i->ifa_name);
            if (!read_address(i, &a) || a.loopback != (turn >= 2) || (a.family == 6) != (turn % 2))
                continue;
            found |= named;
            if (a.loopback && !inside.family)
                inside = a;
            if ((!wanted || named) && card->n < TCP_ADDRESSES)
                card->at[card->n++] = a;
        }
    freeifaddrs(all);
    if (!found)
        return boot->error(WEFT_EINVAL, "WEFT_TCP_INTERFACE=%s: no such interface is up and has an address", wanted);
    if (boot->local && inside.family) {
        card->n = 1;
        card->at[0] = inside;
        *any = false;
    }
    return card->n ? 0 : boot->error(WEFT_ETRANSPORT, "tcp: no network interface of this machine is up");
}

int tcp_card_fill(const struct wire_boot *boot, struct tcp_card *card, bool *any)
{
    card->net = process_net();
    return collect(boot, card, any);
}

/* ---- a peer's ---- */

static bool same_network(const struct tcp_address *a, const struct tcp_address *b)
{
    size_t whole = a->prefix / 8u, rest = a->prefix % 8u;
    return a->family == b->family && !memcmp(a->bytes, b->bytes, whole) &&
           (!rest || !((a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest)));
}

/* When the address is tried: 0 first; -1: not at all. */
static int turn_of(const struct tcp_card *me, const struct tcp_address *a, bool together)
{
    int turn = 1;
    if (together)
        return a->loopback ? 0 : 1;
    for (uint32_t k = 0; k < me->n; k++) {
        if (a->family == me->at[k].family && !memcmp(a->bytes, me->at[k].bytes, sizeof a->bytes))
            return -1;
        if (same_network(&me->at[k], a))
            turn = 0;
    }
    return a->loopback ? -1 : turn;
}

socklen_t tcp_card_sockaddr(const struct tcp_address *a, struct sockaddr_storage *to)
{
    *to = (struct sockaddr_storage){0};
    if (a->family == 4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(a->port)};
        memcpy(&v4.sin_addr, a->bytes, 4);
        memcpy(to, &v4, sizeof v4);
        return sizeof v4;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
    memcpy(&v6.sin6_addr, a->bytes, 16);
    memcpy(to, &v6, sizeof v6);
    return sizeof v6;
}

bool tcp_card_together(const struct tcp_card *a, const struct tcp_card *b)
{
    return a->net && a->net == b->net;
}

bool tcp_card_address(const struct tcp_card *me, const struct tcp_card *peer, int i, struct sockaddr_storage *to,
                      socklen_t *n)
{
    bool together = tcp_card_together(me, peer);
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t k = 0; k < peer->n && k < TCP_ADDRESSES; k++) {
            const struct tcp_address *a = &peer->at[k];
            if (turn_of(me, a, together) != turn || i-- > 0)
                continue;
            *n = tcp_card_sockaddr(a, to);
            return true;
        }
    return false;
}
