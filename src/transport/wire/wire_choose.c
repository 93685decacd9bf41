/* Which wire a group on several hosts has, if the user's URL does not say. It is the wire that a rank has asked for.
 * Otherwise it is UCX, if all ranks have its module and some rank has a device for RDMA. Otherwise it is sockets, which
 * over TCP save a copy at each end compared with UCX. All ranks choose the same, because all have the same list of
 * wishes. */
#include <dirent.h>
#include <string.h>

#include "base/error.h"
#include "transport/wire/wire.h"

static const char *const wires[] = {"tcp:", "ucx:"};
enum { TCP, UCX, WIRES };

static bool has_rdma(void)
{
    DIR *d = opendir("/sys/class/infiniband");
    bool some = false;
    for (const struct dirent *e; d && (e = readdir(d));)
        some |= e->d_name[0] != '.';
    if (d)
        closedir(d);
    return some;
}

int wire_choose_wish(const char *asked, const char *modules, struct wire_wish *out)
{
    *out = (struct wire_wish){.able = 1u << TCP, .rdma = has_rdma()};
    const char *module;
    for (size_t i = 0; (module = wire_module(modules, i)); i++)
        for (uint32_t k = 0; k < WIRES; k++)
            out->able |= (uint32_t)!strcmp(module, wires[k]) << k;
    for (uint32_t k = 0; k < WIRES && asked; k++)
        if (!strncmp(asked, wires[k], strlen(asked)) && strlen(asked) + 1 == strlen(wires[k]))
            out->asked = k + 1;
    return !asked || out->asked ? 0 : error_set(WEFT_EINVAL, "WEFT_WIRE=%s: expected tcp or ucx", asked);
}

int wire_choose(const struct wire_wish *first, size_t stride, int size, const char **url)
{
    uint32_t able = UINT32_MAX, rdma = 0, asked = 0;
    int who = 0;
    for (int r = 0; r < size; r++) {
        const struct wire_wish *w = (const struct wire_wish *)(const void *)((const char *)first + (size_t)r * stride);
        if (w->asked && asked && w->asked != asked)
            return error_set(WEFT_EMISMATCH, "WEFT_WIRE differs: it is %.3s on rank %d and %.3s on rank %d",
                             wires[(asked - 1) % WIRES], who, wires[(w->asked - 1) % WIRES], r);
        if (w->asked && !asked) {
            asked = w->asked;
            who = r;
        }
        able &= w->able;
        rdma |= w->rdma;
    }
    uint32_t which = asked ? (asked - 1) % WIRES : rdma && able >> UCX & 1 ? UCX : TCP;
    for (int r = 0; r < size && !(able >> which & 1); r++) {
        const struct wire_wish *w = (const struct wire_wish *)(const void *)((const char *)first + (size_t)r * stride);
        if (!(w->able >> which & 1))
            return error_set(WEFT_EUNSUPPORTED, "WEFT_WIRE=%.3s, but rank %d has no module for it", wires[which], r);
    }
    *url = wires[which];
    return 0;
}
