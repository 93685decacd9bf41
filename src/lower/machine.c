#include "lower/machine.h"

#include "base/math.h"

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

bool machine_hand_on(const weft_machine *m, int64_t bytes, int64_t takers)
{
    return wide_mul(takers - 1, 500 + (wide)bytes * 1000 / m->bytes_per_us) > 300 + takers * 100;
}
