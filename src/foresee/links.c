#include "foresee/links.h"

#include <math.h>
#include <stdlib.h>

/* Which of its host's ranks each one is, and with whom it copies on the same core. */
static bool count_slots(struct links *l)
{
    int *first = calloc((size_t)l->hosts + 1, sizeof *first), *order = malloc(((size_t)l->world + 1) * sizeof *order);
    for (int r = 0; first && order && r < l->world; r++)
        l->slot[r] = first[l->host[r] + 1]++;
    for (int h = 0; first && order && h < l->hosts; h++)
        first[h + 1] += first[h];
    for (int r = 0; first && order && r < l->world; r++)
        order[first[l->host[r]] + l->slot[r]] = r;
    for (int r = 0; first && order && r < l->world; r++)
        l->turn[r] = l->m.cores ? order[first[l->host[r]] + l->slot[r] % l->m.cores] : r;
    bool fits = first && order;
    free(first);
    free(order);
    return fits;
}

static int place(struct links *l, const int *host, struct failure *why)
{
    size_t n = (size_t)l->world + 1;
    l->own_host = malloc(n * sizeof *l->own_host);
    l->slot = malloc(n * sizeof *l->slot);
    l->turn = malloc(n * sizeof *l->turn);
    if (!l->own_host || !l->slot || !l->turn)
        return failure_set(why, CLI_WRONG, "not enough memory for %d ranks", l->world);
    l->hosts = 1;
    for (int r = 0; r < l->world; r++) {
        l->own_host[r] = host ? host[r] : l->m.ranks_per_host ? (int)(r / l->m.ranks_per_host) : 0;
        l->hosts = l->own_host[r] >= l->hosts ? l->own_host[r] + 1 : l->hosts;
    }
    l->host = l->own_host;
    if (!count_slots(l))
        return failure_set(why, CLI_WRONG, "not enough memory for %d hosts", l->hosts);
    l->racks = l->m.hosts_per_rack ? (int)((l->hosts + l->m.hosts_per_rack - 1) / l->m.hosts_per_rack) : 1;
    return CLI_OK;
}

/* How many ranks at a time a core of a host can serve, in effect. If some cores have a rank more than others, they are
 * busy when those are idle. A scheduler then moves ranks, the sooner the more cores there are: on two, half of that
 * time is lost. */
static double turns(const struct links *l)
{
    int most = 1;
    for (int r = 0; r < l->world; r++)
        most = l->slot[r] + 1 > most ? l->slot[r] + 1 : most;
    double cores = (double)l->m.cores, each = (double)most / cores, longest = ceil(each);
    return each > 1 ? longest / (each + (longest - each) / cores) : 1;
}

static void find_rates(const struct links *l, bool host, double kept, double *rate)
{
    for (int w = 0; w < MACHINE_FILE_WORKS; w++)
        rate[w] = machine_file_rate(&l->m, (enum machine_file_work)w, host, kept);
}

int links_open(struct links *l, const struct machine_file *m, int world, const int *host, struct failure *why)
{
    *l = (struct links){.m = *m, .world = world};
    int code = place(l, host, why);
    if (code) {
        links_free(l);
        return code;
    }
    bool device = m->inside == MACHINE_FILE_LINK;
    uint32_t groups = (uint32_t)((l->hosts + m->hosts_on_cores - 1) / m->hosts_on_cores);
    uint32_t ranks = (uint32_t)world, hosts = (uint32_t)l->hosts, racks = (uint32_t)l->racks;
    uint32_t nics = hosts * (uint32_t)m->nics;
    const struct {
        uint32_t n;
        double cap;
    } kinds[LINKS_KINDS] = {
        [LINKS_CORE] = {ranks, 1},
        [LINKS_MEMORY] = {ranks, device ? m->copy : 0},
        [LINKS_OUT] = {ranks, device ? m->inside_rank : 0},
        [LINKS_IN] = {ranks, device ? m->inside_rank : 0},
        [LINKS_CORES] = {groups, (double)m->cores},
        /* Ranks of played hosts sleep until a message comes, and wake up on any core that is idle. */
        [LINKS_TURNS] = {ranks, !device && m->cores && m->hosts_on_cores == 1 ? turns(l) : 0},
        [LINKS_COPY_HOST] = {hosts, m->copy_host},
        [LINKS_INSIDE] = {hosts, device ? m->inside_host : 0},
        [LINKS_NIC_OUT] = {nics, m->nic},
        [LINKS_NIC_IN] = {nics, m->nic},
        [LINKS_SPINE_OUT] = {racks, m->spine},
        [LINKS_SPINE_IN] = {racks, m->spine},
    };
    for (int k = 0; k < LINKS_KINDS; k++)
        l->first[k + 1] = l->first[k] + kinds[k].n;
    l->cap = malloc((links_count(l) + 1) * sizeof *l->cap);
    l->rate = malloc((ranks + 1) * sizeof *l->rate);
    l->host_rate = malloc((hosts + 1) * sizeof *l->host_rate);
    l->much = calloc(ranks + 1, sizeof *l->much);
    l->once = malloc((ranks + 1) * sizeof *l->once);
    if (!l->cap || !l->rate || !l->host_rate || !l->much || !l->once) {
        links_free(l);
        return failure_set(why, CLI_WRONG, "not enough memory for the links of %d ranks", world);
    }
    for (int k = 0; k < LINKS_KINDS; k++)
        for (uint32_t i = l->first[k]; i < l->first[k + 1]; i++)
            l->cap[i] = kinds[k].cap;
    for (uint32_t r = 0; r < ranks; r++)
        find_rates(l, false, INFINITY, l->rate[r]), l->once[r] = 1;
    for (uint32_t h = 0; h < hosts; h++)
        find_rates(l, true, INFINITY, l->host_rate[h]);
    return CLI_OK;
}

void links_free(struct links *l)
{
    free(l->own_host);
    free(l->slot);
    free(l->turn);
    free(l->cap);
    free(l->rate);
    free(l->host_rate);
    free(l->much);
    free(l->once);
    free(l->gives);
    free(l->takes);
    *l = (struct links){0};
}

int links_cache(struct links *l, const struct links_work *of)
{
    const struct machine_file *m = &l->m;
    size_t groups = (size_t)((l->hosts + m->hosts_on_cores - 1) / m->hosts_on_cores);
    struct group {
        double kept, source; /* kept: by each core, first by all of them */
        int ranks;
    } *group = calloc(groups + 1, sizeof *group);
    if (!group)
        return -1;
    size_t sizes = m->ncached[MACHINE_FILE_COPY];
    double held = sizes ? m->cached[MACHINE_FILE_COPY][sizes - 1].bytes : 0; /* by the caches of all cores */
    for (int r = 0; r < l->world; r++) {
        struct group *g = &group[l->host[r] / m->hosts_on_cores];
        g->kept += of[r].kept;
        g->source += of[r].source;
        g->ranks++;
    }
    for (size_t i = 0; i < groups; i++)
        group[i].kept /= m->cores ? (double)m->cores : fmax(1, group[i].ranks);
    for (int r = 0; r < l->world; r++) {
        const struct group *g = &group[l->host[r] / m->hosts_on_cores];
        double all = g->kept * (m->cores ? (double)m->cores : 1);
        double bytes = fmax(of[r].worked, all > held ? all : g->kept);
        l->much[r] = of[r].writes >= LINKS_MUCH;
        l->once[r] = of[r].read > of[r].source && g->source <= held ? of[r].source / of[r].read : 1;
        find_rates(l, false, bytes, l->rate[r]);
    }
    for (int h = 0; h < l->hosts; h++) {
        find_rates(l, true, group[h / m->hosts_on_cores].kept, l->host_rate[h]);
        l->cap[l->first[LINKS_COPY_HOST] + (uint32_t)h] = l->host_rate[h][MACHINE_FILE_COPY];
    }
    free(group);
    return 0;
}

struct pair {
    int from, to; /* hosts */
    double bytes;
};

static int by_hosts(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

/* The flows between two hosts are added up. Returns how many pairs there are. */
static size_t pair_up(const struct links *l, const struct links_flow *flows, size_t n, struct pair *out)
{
    size_t pairs = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        if (l->host[flows[i].from] != l->host[flows[i].to])
            out[pairs++] = (struct pair){l->host[flows[i].from], l->host[flows[i].to], flows[i].bytes};
    qsort(out, pairs, sizeof *out, by_hosts);
    for (size_t i = 0; i < pairs; i++)
        if (kept && !by_hosts(&out[kept - 1], &out[i]))
            out[kept - 1].bytes += out[i].bytes;
        else
            out[kept++] = out[i];
    return kept;
}

int links_crowd(struct links *l, const struct links_flow *flows, size_t n)
{
    size_t hosts = (size_t)l->hosts;
    struct pair *pairs = malloc((n + 1) * sizeof *pairs);
    l->gives = calloc(hosts + 1, sizeof *l->gives);
    l->takes = calloc(hosts + 1, sizeof *l->takes);
    if (!pairs || !l->gives || !l->takes) {
        free(pairs);
        return -1;
    }
    n = pair_up(l, flows, n, pairs);
    for (size_t i = 0; i < n; i++) { /* `peers` are sums of squares at first */
        struct links_side *side[2] = {&l->gives[pairs[i].from], &l->takes[pairs[i].to]};
        for (int k = 0; k < 2; k++) {
            side[k]->bytes += pairs[i].bytes;
            side[k]->peers += pairs[i].bytes * pairs[i].bytes;
        }
    }
    for (size_t h = 0; h < hosts; h++)
        for (int k = 0; k < 2; k++) {
            struct links_side *side = k ? &l->takes[h] : &l->gives[h];
            side->peers = side->peers > 0 ? side->bytes * side->bytes / side->peers : 1;
        }
    free(pairs);
    return 0;
}

/* A power: peers with half as much to do leave a sixteenth of the loss. It fits tables of many tensors on 5 to 7 played
 * hosts, which lose nothing where receivers have three quarters of what senders have. */
#define LEFT 4

/* Which share of the way from `least` to `most` x has made, by its logarithm. */
static double way(double least, double most, double x)
{
    return fmax(0, fmin(1, log(fmax(1, x) / least) / log(most / least)));
}

/* What a byte between two hosts takes of the NIC at either end. If both have several peers, each is often free while
 * those that it waits for serve others. If these have less to do than it has, they are soon free for it again: of that
 * loss little is left. */
static void crowded(const struct links *l, int from, int to, double *out, double *in)
{
    const struct machine_file *m = &l->m;
    *out = *in = 1;
    if (!l->gives || m->nic_crowd <= 0)
        return;
    const struct links_side *a = &l->gives[l->host[from]], *b = &l->takes[l->host[to]];
    if (a->bytes <= 0 || b->bytes <= 0)
        return;
    double few = fmax(0, m->nic / m->nic_crowd - 1);
    double many = fmax(0, m->nic / (m->nic_crowd_long > 0 ? m->nic_crowd_long : m->nic_crowd) - 1);
    double lost = few + (many - few) * way(LINKS_CROWD_SHORT, LINKS_CROWD_LONG, a->bytes / a->peers);
    lost *= way(1, LINKS_CROWD - 1, fmin(a->peers, b->peers));
    *out += lost * pow(fmin(1, b->bytes / a->bytes), LEFT);
    *in += lost * pow(fmin(1, a->bytes / b->bytes), LEFT);
}

struct uses {
    const struct links *l;
    struct fair_use *out;
    int n;
};

static void use(struct uses *u, enum links_kind kind, int64_t index, double each)
{
    uint32_t link = u->l->first[kind] + (uint32_t)index;
    if (u->l->cap[link] <= 0 || each <= 0)
        return;
    int i = 0;
    while (i < u->n && u->out[i].link != link)
        i++;
    if (i == u->n)
        u->out[u->n++] = (struct fair_use){link, 0};
    u->out[i].each += (float)each;
}

static int64_t nic_of(const struct links *l, int rank)
{
    int64_t per = l->m.ranks_per_host ? l->m.ranks_per_host : l->world;
    int64_t k = l->m.nics >= per ? l->slot[rank] * (l->m.nics / per) : l->slot[rank] * l->m.nics / per;
    return l->host[rank] * l->m.nics + k % l->m.nics;
}

static int64_t rack_of(const struct links *l, int rank)
{
    return l->m.hosts_per_rack ? l->host[rank] / l->m.hosts_per_rack : 0;
}

/* Do messages between two hosts use the spine? On rails they do if the NICs are of two rails, wherever the hosts are.
 */
static bool over_spine(const struct links *l, int from, int to)
{
    if (l->m.rails)
        return nic_of(l, from) % l->m.nics != nic_of(l, to) % l->m.nics;
    return rack_of(l, from) != rack_of(l, to);
}

struct shares {
    double of[MACHINE_FILE_WORKS];
};

/* Of the bytes that one end copies. */
static struct shares shares_of(const struct links *l, const struct links_load *x, int rank, double cast)
{
    struct shares s = {.of = {[MACHINE_FILE_LONG] = l->much[rank] ? (double)x->in_long : 0,
                              [MACHINE_FILE_ROWS] = (double)x->in_rows,
                              [MACHINE_FILE_FOLD] = (double)x->folded,
                              [MACHINE_FILE_CAST] = cast}};
    double others = 0;
    for (int w = 0; w < MACHINE_FILE_WORKS; w++)
        others += s.of[w];
    s.of[MACHINE_FILE_COPY] = fmax(0, 1 - others);
    return s;
}

/* How many bytes could be copied while one is worked on. */
static double cost(const struct shares *s, const double *rate)
{
    double sum = 0;
    for (int w = 0; w < MACHINE_FILE_WORKS; w++)
        sum += s->of[w] * (rate[MACHINE_FILE_COPY] > 0 && rate[w] > 0 ? rate[MACHINE_FILE_COPY] / rate[w] : 1);
    return sum;
}

/* One end's own work for each byte of a load: `copied` bytes through its core or its device, `parts` parts of tensors,
 * and `ns` of its core. reads: the share of the bytes that it copies which caches do not have from an earlier read. */
static void use_rank(struct uses *u, int rank, double copied, double parts, struct shares s, double ns, double reads)
{
    const struct links *l = u->l;
    const double *rate = l->rate[rank];
    if (l->m.inside == MACHINE_FILE_LINK) {
        use(u, LINKS_MEMORY, rank, copied * cost(&s, rate));
    } else {
        double took = copied * cost(&s, rate) / rate[MACHINE_FILE_COPY] + parts * l->m.part;
        ns += took;
        use(u, LINKS_TURNS, l->turn[rank], took);
    }
    use(u, LINKS_CORE, rank, ns);
    use(u, LINKS_CORES, l->host[rank] / l->m.hosts_on_cores, ns);
    use(u, LINKS_COPY_HOST, l->host[rank], copied * cost(&s, l->host_rate[l->host[rank]]) * (1 + reads) / 2);
}

int links_uses(const struct links *l, const struct links_load *x, struct fair_use *out)
{
    struct uses u = {.l = l, .out = out};
    double b = x->bytes > 0 ? x->bytes : 1;
    bool host = l->host[x->from] == l->host[x->to];
    if (x->from == x->to) {
        use_rank(&u, x->from, x->bytes / b, x->parts_from / b, shares_of(l, x, x->from, (double)x->cast_from),
                 x->launches_from * l->m.launch / b, 1);
        return u.n;
    }
    double wire = !host && l->m.nic_core > 0 ? 1 / l->m.nic_core : 0;
    double reads = host ? l->once[x->from] : 1;
    double messages = x->messages * (!host && l->m.nic_message > 0 ? l->m.nic_message : l->m.message);
    use_rank(&u, x->from, x->copied_from / b, x->parts_from / b, shares_of(l, x, x->from, (double)x->cast_from),
             wire + (messages + x->launches_from * l->m.launch) / b, reads);
    use_rank(&u, x->to, x->copied_to / b, x->parts_to / b, shares_of(l, x, x->to, (double)x->cast_to),
             wire + (messages + x->launches_to * l->m.launch) / b, reads);
    if (!host && l->m.nic_path > 0) {
        use(&u, LINKS_CORES, l->host[x->from] / l->m.hosts_on_cores, 0.5 / l->m.nic_path);
        use(&u, LINKS_CORES, l->host[x->to] / l->m.hosts_on_cores, 0.5 / l->m.nic_path);
    }
    if (host && l->m.inside == MACHINE_FILE_LINK) {
        use(&u, LINKS_OUT, x->from, 1);
        use(&u, LINKS_IN, x->to, 1);
        use(&u, LINKS_INSIDE, l->host[x->from], 1);
    } else if (!host) {
        double out_each, in_each;
        crowded(l, x->from, x->to, &out_each, &in_each);
        use(&u, LINKS_NIC_OUT, nic_of(l, x->from), out_each);
        use(&u, LINKS_NIC_IN, nic_of(l, x->to), in_each);
        if (over_spine(l, x->from, x->to)) {
            use(&u, LINKS_SPINE_OUT, rack_of(l, x->from), 1);
            use(&u, LINKS_SPINE_IN, rack_of(l, x->to), 1);
        }
    }
    return u.n;
}

int links_turns(const struct links *l, const struct links_load *x, const struct fair_use *use, int uses)
{
    int most = -1; /* both ends may copy */
    for (int k = 0; k < uses && l->host[x->from] == l->host[x->to]; k++)
        if (use[k].link >= l->first[LINKS_TURNS] && use[k].link < l->first[LINKS_TURNS + 1] &&
            (most < 0 || use[k].each > use[most].each))
            most = k;
    return most;
}

double links_latency(const struct links *l, int from, int to)
{
    if (from == to)
        return 0;
    if (l->host[from] == l->host[to])
        return l->m.inside_latency;
    return l->m.nic_latency + (over_spine(l, from, to) ? l->m.spine_latency : 0);
}

enum links_kind links_kind(const struct links *l, uint32_t link)
{
    int k = 0;
    while (link >= l->first[k + 1])
        k++;
    return (enum links_kind)k;
}

char *links_name(const struct links *l, uint32_t link, char *buf, size_t cap)
{
    enum links_kind kind = links_kind(l, link);
    int i = (int)(link - l->first[kind]), nics = (int)l->m.nics;
    switch (kind) {
    case LINKS_CORE: snprintf(buf, cap, "the core of rank %d", i); break;
    case LINKS_MEMORY: snprintf(buf, cap, "the memory of rank %d", i); break;
    case LINKS_OUT: snprintf(buf, cap, "the outgoing port of rank %d", i); break;
    case LINKS_IN: snprintf(buf, cap, "the incoming port of rank %d", i); break;
    case LINKS_CORES: snprintf(buf, cap, "the cores of host %d", i * (int)l->m.hosts_on_cores); break;
    case LINKS_TURNS: snprintf(buf, cap, "core %d of host %d", l->slot[i], l->host[i]); break;
    case LINKS_COPY_HOST: snprintf(buf, cap, "the memory of host %d", i); break;
    case LINKS_INSIDE: snprintf(buf, cap, "the fabric of host %d", i); break;
    case LINKS_NIC_OUT: snprintf(buf, cap, "the outgoing NIC %d of host %d", i % nics, i / nics); break;
    case LINKS_NIC_IN: snprintf(buf, cap, "the incoming NIC %d of host %d", i % nics, i / nics); break;
    case LINKS_SPINE_OUT: snprintf(buf, cap, "the outgoing spine of rack %d", i); break;
    default: snprintf(buf, cap, "the incoming spine of rack %d", i); break;
    }
    return buf;
}
