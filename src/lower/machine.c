#include "lower/machine.h"

#include "base/math.h"

#define RELAYED (64 << 10)     /* bytes for which one more hop pays */
#define SHARE (16 << 10)       /* bytes of a share, at least */
#define MOST_HOSTS 64          /* of the destination: each host of a group sends to all others of it */
#define MORE_HOSTS_PERCENT 150 /* hosts of the destination, of those of the source, from which on it pays */

bool machine_hosts(const weft_machine *m, int world)
{
    if (!m->host)
        return m->ranks_per_host > 0 && m->ranks_per_host < world;
    for (int r = 1; r < world; r++)
        if (m->host[r] != m->host[0])
            return true;
    return false;
}

int machine_host(const weft_machine *m, int rank)
{
    return m->host ? m->host[rank] : m->ranks_per_host > 0 ? rank / m->ranks_per_host : 0;
}

int machine_link(const weft_machine *m, int rank)
{
    int64_t before = 0, all = 0;
    if (m->links == 1)
        return 0;
    if (m->ranks_per_host > 0) {
        before = rank % m->ranks_per_host;
        all = m->ranks_per_host;
    }
    for (int r = 0; m->host && r < m->ranks; r++) {
        before += r < rank && m->host[r] == m->host[rank];
        all += m->host[r] == m->host[rank];
    }
    return all ? (int)(before * m->links / all) : 0;
}

bool machine_hand_on(const weft_machine *m, int64_t bytes, int64_t takers)
{
    return wide_mul(takers - 1, 500 + (wide)bytes * 1000 / m->bytes_per_us) > 300 + takers * 100;
}

int64_t machine_group(int64_t bytes, int64_t hosts, int64_t from, int64_t to)
{
    if (bytes < RELAYED || to * 100 < from * MORE_HOSTS_PERCENT || to > MOST_HOSTS)
        return 1;
    return min64(hosts, 2 * ceil_div(to, from)); /* twice as many as would do, since hosts do not send equally much */
}

int64_t machine_shares(int64_t bytes, int64_t hosts)
{
    return max64(1, min64(hosts, bytes / SHARE));
}
