#include "foresee/story.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tool/readable.h"

#define ALIKE 0.999 /* links of one kind whose busy times differ by less are named once */
#define NODES 4096

char *story_time(double ns, char *buf, size_t cap)
{
    if (ns < 1e3)
        snprintf(buf, cap, "%.0f ns", ns);
    else if (ns < 1e6)
        snprintf(buf, cap, "%.2f us", ns / 1e3);
    else if (ns < 1e9)
        snprintf(buf, cap, "%.3f ms", ns / 1e6);
    else
        snprintf(buf, cap, "%.3f s", ns / 1e9);
    return buf;
}

/* ---- the busiest links ---- */

/* Is the link of the same kind as one of these, and nearly as busy? */
static bool listed(const struct graph *g, uint32_t link, const uint32_t *of, int n)
{
    for (int i = 0; i < n; i++)
        if (links_kind(g->links, of[i]) == links_kind(g->links, link) && g->busy[link] >= ALIKE * g->busy[of[i]] &&
            g->busy[of[i]] >= ALIKE * g->busy[link])
            return true;
    return false;
}

/* Of links that are alike one is listed. */
int story_busiest(const struct graph *g, uint32_t *out)
{
    int n = 0;
    for (uint32_t i = 0; i < links_count(g->links); i++) {
        if (g->busy[i] <= 0 || (n == STORY_LINKS && g->busy[i] <= g->busy[out[n - 1]]) || listed(g, i, out, n))
            continue;
        int at = n < STORY_LINKS ? n++ : n - 1;
        for (; at && g->busy[i] > g->busy[out[at - 1]]; at--)
            out[at] = out[at - 1];
        out[at] = i;
    }
    return n;
}

/* How many links of the same kind are nearly as busy, itself included. */
uint32_t story_alike(const struct graph *g, uint32_t link)
{
    enum links_kind k = links_kind(g->links, link);
    uint32_t n = 0;
    for (uint32_t i = g->links->first[k]; i < g->links->first[k + 1]; i++)
        n += listed(g, i, &link, 1);
    return n;
}

/* ---- the critical path: messages of one channel, or work of one rank, that follow each other are one line ---- */

size_t story_legs(const struct graph *g, const struct events *e, struct story_leg *out)
{
    uint32_t *path = malloc(NODES * sizeof *path);
    size_t n = path ? events_path(e, path, NODES) : 0, legs = 0;
    for (size_t i = 0; i < n; i++) {
        const struct links_load *x = &g->nodes.v[path[i]].load;
        const struct events_span *s = &e->span[path[i]];
        double end = s->end + links_latency(g->links, x->from, x->to);
        struct story_leg *l = legs ? &out[legs - 1] : NULL;
        if (!l || l->from != x->from || l->to != x->to) {
            if (legs == STORY_LEGS) { /* the last ones are kept */
                for (size_t k = 1; k < STORY_LEGS; k++)
                    out[k - 1] = out[k];
                legs--;
            }
            l = &out[legs++];
            *l = (struct story_leg){.from = x->from, .to = x->to, .start = s->start};
        }
        l->last = path[i];
        l->end = end;
        l->bytes += x->bytes;
        l->messages += x->messages;
    }
    free(path);
    return legs;
}

char *story_limit(const struct graph *g, const struct events_span *s, char *buf, size_t cap)
{
    char name[64];
    if (s->narrow == FAIR_NONE)
        snprintf(buf, cap, "nothing limits it");
    else if (s->sharers > 1)
        snprintf(buf, cap, "%s shared by %" PRIu32, links_name(g->links, s->narrow, name, sizeof name), s->sharers);
    else
        snprintf(buf, cap, "%s is the limit", links_name(g->links, s->narrow, name, sizeof name));
    return buf;
}

static void print_leg(FILE *to, const struct graph *g, const struct events *e, const struct story_leg *l)
{
    char a[32], b[32], bytes[64], why[128];
    story_limit(g, &e->span[l->last], why, sizeof why);
    readable_bytes((int64_t)l->bytes, bytes, sizeof bytes);
    story_time(l->start, a, sizeof a);
    story_time(l->end - l->start, b, sizeof b);
    if (l->from == l->to)
        fprintf(to, "  from %10s on, for %10s: rank %d copies or folds %s: %s\n", a, b, l->from, bytes, why);
    else
        fprintf(to, "  from %10s on, for %10s: rank %d waits for %s from rank %d: %s\n", a, b, l->to, bytes, l->from,
                why);
}

/* ---- ranks ---- */

struct ends {
    int slowest; /* the rank that is done last */
    double first, last;
};

static struct ends ends_of(const struct graph *g, const struct events *e, double *of)
{
    struct ends x = {.first = e->total};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct links_load *l = &g->nodes.v[i].load;
        if (e->span[i].end < 0)
            continue;
        double end = e->span[i].end + links_latency(g->links, l->from, l->to);
        of[l->to] = end > of[l->to] ? end : of[l->to];
        of[l->from] = e->span[i].end > of[l->from] ? e->span[i].end : of[l->from];
    }
    for (int r = 0; r < g->links->world; r++) {
        if (of[r] > x.last) {
            x.last = of[r];
            x.slowest = r;
        }
        x.first = of[r] < x.first ? of[r] : x.first;
    }
    return x;
}

static struct ends rank_ends(const struct graph *g, const struct events *e)
{
    double *of = calloc((size_t)g->links->world + 1, sizeof *of);
    struct ends x = of ? ends_of(g, e, of) : (struct ends){0};
    free(of);
    return x;
}

/* ---- printing ---- */

void story_print(FILE *to, const struct graph *g, const struct events *e)
{
    uint32_t top[STORY_LINKS], link;
    char a[64], b[64], name[64];
    double bound = graph_bound(g, &link);
    fprintf(to, "%-18s%s, by %s\n", "recognised as", g->kind, g->algorithm);
    fprintf(to, "%-18s%s: %d ranks on %d hosts\n", "machine", g->links->m.name, g->links->world, g->links->hosts);
    fprintf(to, "%-18s%s in %" PRId64 " messages\n", "moved", readable_bytes(g->bytes, a, sizeof a), g->messages);
    fprintf(to, "%-18s%s\n", "time", story_time(e->total, a, sizeof a));
    fprintf(to, "%-18s%s", "lower bound", story_time(bound, a, sizeof a));
    if (link != FAIR_NONE)
        fprintf(to, ", for which %s is busy", links_name(g->links, link, name, sizeof name));
    fprintf(to, "\n%-18s%.1f %%\n", "efficiency", e->total > 0 ? 100 * bound / e->total : 100);
    struct ends x = rank_ends(g, e);
    fprintf(to, "%-18sthe first after %s, the last, rank %d, after %s\n", "ranks are done",
            story_time(x.first, a, sizeof a), x.slowest, story_time(x.last, b, sizeof b));
    int n = story_busiest(g, top);
    if (n)
        fprintf(to, "\nbusiest links\n");
    for (int i = 0; i < n; i++) {
        uint32_t same = story_alike(g, top[i]);
        fprintf(to, "  %5.1f %%  %s", e->total > 0 ? 100 * g->busy[top[i]] / e->total : 0,
                links_name(g->links, top[i], name, sizeof name));
        if (same > 1)
            fprintf(to, " (and %" PRIu32 " more of its kind)", same - 1);
        fprintf(to, "\n");
    }
    struct story_leg legs[STORY_LEGS];
    size_t steps = story_legs(g, e, legs);
    if (steps)
        fprintf(to, "\ncritical path%s\n", steps == STORY_LEGS ? ", its last part" : "");
    for (size_t i = 0; i < steps; i++)
        print_leg(to, g, e, &legs[i]);
}

void story_json(struct json *j, const struct graph *g, const struct events *e)
{
    uint32_t top[STORY_LINKS], link;
    char name[128];
    double bound = graph_bound(g, &link);
    json_write_text(j, "kind", g->kind);
    json_write_text(j, "algorithm", g->algorithm);
    json_write_text(j, "machine", g->links->m.name);
    json_write_int(j, "ranks", g->links->world);
    json_write_int(j, "hosts", g->links->hosts);
    json_write_int(j, "moved", g->bytes);
    json_write_int(j, "messages", g->messages);
    json_write_int(j, "copied", g->copied);
    json_write_int(j, "folded", g->folded);
    json_write_int(j, "time_ns", (int64_t)(e->total + 0.5));
    json_write_int(j, "bound_ns", (int64_t)(bound + 0.5));
    json_write_text(j, "bound_link", link == FAIR_NONE ? NULL : links_name(g->links, link, name, sizeof name));
    json_write_real(j, "efficiency", e->total > 0 ? bound / e->total : 1);
    struct ends x = rank_ends(g, e);
    json_write_int(j, "first_rank_done_ns", (int64_t)(x.first + 0.5));
    json_write_int(j, "slowest_rank", x.slowest);
    json_write_open(j, "busiest_links", '[', false);
    int n = story_busiest(g, top);
    for (int i = 0; i < n; i++) {
        json_write_open(j, NULL, '{', true);
        json_write_text(j, "link", links_name(g->links, top[i], name, sizeof name));
        json_write_int(j, "busy_ns", (int64_t)(g->busy[top[i]] + 0.5));
        json_write_int(j, "alike", story_alike(g, top[i]));
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
    json_write_open(j, "critical_path", '[', false);
    struct story_leg legs[STORY_LEGS];
    size_t steps = story_legs(g, e, legs);
    for (size_t i = 0; i < steps; i++) {
        json_write_open(j, NULL, '{', true);
        json_write_int(j, "from", legs[i].from);
        json_write_int(j, "to", legs[i].to);
        json_write_int(j, "bytes", (int64_t)legs[i].bytes);
        json_write_int(j, "start_ns", (int64_t)(legs[i].start + 0.5));
        json_write_int(j, "end_ns", (int64_t)(legs[i].end + 0.5));
        story_limit(g, &e->span[legs[i].last], name, sizeof name);
        json_write_text(j, "limit", name);
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
}
