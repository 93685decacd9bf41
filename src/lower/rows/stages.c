#include "lower/rows/stages.h"

#include <string.h>

#include "base/defaults.h"
#include "base/math.h"

/* What a stage uses. From HOST on it is shared; the first of those that share it counts for all. */
enum { CORE, MEMORY, PORT_OUT, PORT_IN, HOST, CORES, LINK_OUT, LINK_IN };

void stages_open(struct stages *s, const weft_machine *m, int64_t bucket, const weft_layout *mesh, uint32_t axes,
                 int root)
{
    int64_t at = axes ? -1 : mesh_index(mesh, root), all = mesh->mesh + (!axes && at < 0);
    *s = (struct stages){.m = m, .mesh = mesh, .axes = axes, .bucket = bucket, .n = (int)min64(all, STAGES_RANKS)};
    s->run_from = s->run_to = INT64_MAX;
    for (int i = 0; i < s->n; i++) {
        struct stages_rank *x = &s->rank[i];
        int64_t index = axes ? i : i - (at < 0 || i - 1 < at);
        int rank = axes || i ? mesh_rank(mesh, index) : root;
        x->host = machine_host(m, rank);
        x->number = axes ? axes_number(mesh, axes, i) : i;
        x->group = axes ? i - axes_offset(mesh, axes, x->number) : 0;
        x->first = x->link = i;
        x->mates = x->here = 1;
        x->way = machine_link(m, rank);
        for (int k = i - 1; k >= 0; k--) {
            struct stages_rank *y = &s->rank[k];
            if (y->host != x->host)
                continue;
            x->here++;
            y->here++;
            x->first = y->first;
            if (y->way == x->way)
                x->link = y->link;
            if (y->group == x->group) {
                x->mates++;
                y->mates++;
            }
        }
    }
}

void stages_open_alike(struct stages *s, const weft_machine *m, int64_t bucket, const weft_layout *mesh, uint32_t axes,
                       int64_t members)
{
    s->m = m;
    s->mesh = mesh;
    s->axes = axes;
    s->bucket = bucket;
    s->n = 1;
    s->alike = true;
    s->rank[0] =
        (struct stages_rank){.host = machine_host(m, mesh_rank(mesh, 0)), .mates = members, .here = mesh->mesh};
    stages_again(s);
}

void stages_again(struct stages *s)
{
    s->ns = s->latency = 0;
    s->run_from = s->run_to = INT64_MAX;
    for (int i = 0; i < s->n; i++) {
        struct stages_rank *x = &s->rank[i];
        memset(&x->load, 0, sizeof x->load);
        memset(x->total, 0, sizeof x->total);
    }
}

int64_t stages_member(const struct stages *s, int i, int64_t number)
{
    if (s->alike)
        return 0;
    return s->rank[i].group + axes_offset(s->mesh, s->axes, number);
}

int64_t stages_messages(const struct stages *s, int64_t bytes)
{
    return max64(1, ceil_div(bytes, s->bucket));
}

/* One end of some messages. sends: the sender's. */
static void end_of(struct stages *s, int i, bool sends, bool far, int64_t messages, int64_t bytes, bool folds)
{
    struct stages_load *x = &s->rank[i].load;
    bool device = s->m->inside_bytes_per_us, packs;
    if (far) {
        *(sends ? &x->far_out : &x->far_in) += bytes;
        x->far_messages += messages;
        packs = (sends ? s->run_from : s->run_to) < DEFAULTS_PIECE;
        x->launches += device && packs ? messages : 0;
    } else {
        *(sends ? &x->near_out : &x->near_in) += bytes;
        x->near_messages += messages;
        packs = !device && (bytes <= DEFAULTS_EAGER * messages || (!sends && !folds));
        x->launches += device && !sends ? messages : 0;
    }
    x->copied += packs ? bytes : 0;
}

void stages_out(struct stages *s, int i, bool far, int64_t messages, int64_t bytes, bool folds)
{
    if (messages > 0)
        end_of(s, i, true, far, messages, bytes, folds);
}

void stages_in(struct stages *s, int i, bool far, int64_t messages, int64_t bytes, bool folds)
{
    if (messages > 0)
        end_of(s, i, false, far, messages, bytes, folds);
}

void stages_both(struct stages *s, int i, bool far, int64_t messages, int64_t bytes, bool folds)
{
    stages_out(s, i, far, messages, bytes, folds);
    stages_in(s, i, far, messages, bytes, folds);
}

int stages_host(const struct stages *s, int64_t place)
{
    if (place < s->n)
        return s->rank[place].host;
    return machine_host(s->m, mesh_rank(s->mesh, place));
}

void stages_send(struct stages *s, int64_t from, int64_t to, int64_t bytes, bool folds)
{
    bool far = stages_host(s, from) != stages_host(s, to);
    if (from < s->n)
        stages_out(s, (int)from, far, stages_messages(s, bytes), bytes, folds);
    if (to < s->n)
        stages_in(s, (int)to, far, stages_messages(s, bytes), bytes, folds);
}

void stages_work(struct stages *s, int i, int64_t bytes, int64_t kernels)
{
    struct stages_load *x = &s->rank[i].load;
    x->copied += bytes;
    x->launches += s->m->inside_bytes_per_us ? kernels : 0;
}

#define LONGEST ((int64_t)1 << 60) /* nanoseconds: longer times count as this, so that they can be added */

/* What all ranks of a host take is added, and a ring adds that of each rank's host. */
static int64_t cap(wide ns)
{
    const int64_t most = LONGEST / STAGES_RANKS / STAGES_RANKS;
    return ns > most ? most : (int64_t)ns;
}

static int64_t later(int64_t ns, int64_t times, int64_t each)
{
    wide sum = ns + wide_mul(times, each);
    return sum > LONGEST ? LONGEST : (int64_t)sum;
}

/* The time for bytes through n links that have this rate together, if one of them carries them. 0: no limit. */
static int64_t at_rate(int64_t bytes, int64_t n, int64_t bytes_per_us)
{
    if (!bytes || !bytes_per_us)
        return 0;
    if (bytes < (int64_t)1 << 32 && n < 1 << 20) /* most: a division of 64 bits is several times as fast */
        return cap(bytes * 1000 * n / bytes_per_us);
    return cap(wide_mul(wide_mul(bytes, 1000), n) / bytes_per_us);
}

/* Turns the loads of the ranks into times, and clears them. Returns whether a message went to another host. */
static bool times_of(struct stages *s, int64_t times, int64_t ns[][STAGES_KINDS])
{
    const weft_machine *m = s->m;
    bool far = false, device = m->inside_bytes_per_us;
    memset(ns, 0, (size_t)s->n * sizeof *ns);
    for (int i = 0; i < s->n; i++) {
        const struct stages_rank *r = &s->rank[i];
        struct stages_load x = r->load;
        wide core = wide_mul(x.far_messages + x.near_messages, m->message_ns) + wide_mul(x.launches, m->launch_ns) +
                    at_rate(x.far_out + x.far_in, 1, m->core_bytes_per_us);
        int64_t copying = at_rate(x.copied, 1, m->copy_bytes_per_us);
        ns[i][CORE] = cap(core + (device ? 0 : copying));
        ns[i][MEMORY] = device ? copying : 0;
        ns[i][PORT_OUT] = at_rate(x.near_out, 1, m->inside_bytes_per_us);
        ns[i][PORT_IN] = at_rate(x.near_in, 1, m->inside_bytes_per_us);
        const int64_t all = s->alike ? r->here : 1; /* ranks for which this one stands */
        ns[r->first][CORES] += m->cores ? cap(wide_mul(ns[i][CORE] / m->cores, all)) : 0;
        ns[r->first][HOST] += at_rate(x.copied, all, m->host_copy_bytes_per_us);
        ns[r->link][LINK_OUT] += at_rate(x.far_out, m->links, m->bytes_per_us);
        ns[r->link][LINK_IN] += at_rate(x.far_in, m->links, m->bytes_per_us);
        far |= x.far_messages > 0;
        s->rank[i].load = (struct stages_load){0};
    }
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < STAGES_KINDS; k++)
            s->rank[i].total[k] = later(s->rank[i].total[k], times, ns[i][k]);
    return far;
}

/* The busiest of what rank i uses. */
static int64_t busiest(const struct stages *s, int i, int64_t ns[][STAGES_KINDS])
{
    const struct stages_rank *r = &s->rank[i];
    int64_t most =
        max64(max64(ns[r->first][HOST], ns[r->first][CORES]), max64(ns[r->link][LINK_OUT], ns[r->link][LINK_IN]));
    for (int k = 0; k < HOST; k++)
        most = max64(most, ns[i][k]);
    return most;
}

void stages_end(struct stages *s, int64_t times, bool sends)
{
    int64_t ns[STAGES_RANKS][STAGES_KINDS], most = 0;
    bool far = times_of(s, times, ns);
    for (int i = 0; i < s->n; i++)
        most = max64(most, busiest(s, i, ns));
    s->ns = later(s->ns, times, most);
    s->latency = later(s->latency, times, !sends ? 0 : far ? s->m->latency_ns : s->m->inside_latency_ns);
}

void stages_end_ring(struct stages *s, int64_t members)
{
    int64_t ns[STAGES_RANKS][STAGES_KINDS], most = 0, latency = 0, sum = 0, sum_latency = 0;
    int64_t each[STAGES_RANKS];
    for (int i = 0; i < s->n; i++)
        each[i] = cap(s->rank[i].load.far_out ? s->m->latency_ns : s->m->inside_latency_ns);
    times_of(s, members - 1, ns);
    for (int i = 0; i < s->n; i++) {
        int64_t t = busiest(s, i, ns);
        most = max64(most, t);
        latency = max64(latency, each[i]);
        sum += t;
        sum_latency += each[i];
    }
    bool path = wide_mul(members - 1, (sum + sum_latency) / s->n) > wide_mul(members - 1, most) + latency;
    s->ns = later(s->ns, members - 1, path ? sum / s->n : most);
    s->latency = later(s->latency, path ? members - 1 : 1, path ? sum_latency / s->n : latency);
}

int64_t stages_price(const struct stages *s, int64_t unit)
{
    int64_t most = 0, buckets = stages_messages(s, unit);
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < STAGES_KINDS; k++)
            most = max64(most, s->rank[i].total[k]);
    most = min64(most, s->ns);
    return s->latency + most + (s->ns - most) / buckets;
}
