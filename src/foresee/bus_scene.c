#include "foresee/bus_scene.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "bus/delta.h"
#include "foresee/bus_pull.h"
#include "foresee/story.h"
#include "layout/layout.h"
#include "tool/readable.h"
#include "version/reader_plan.h"

#define SIZES 5 /* of elements: 1, 2, 4, 8 and 16 bytes */

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory for the blocks of the set");
}

/* ---- deltas ---- */

/* What a delta of blocks with elements of this size has of their bytes, by finding one: elements that are drawn at
 * random have changed. */
static double delta_ratio(size_t size, double changed)
{
    enum { COUNT = 8 * DELTA_BLOCK };
    unsigned char *a = calloc(2 * COUNT, size), *out = a ? malloc(delta_most(COUNT, size)) : NULL, *b;
    double ratio = 1;
    b = a + COUNT * size;
    for (size_t i = 0; i < COUNT && out; i++) {
        uint64_t drawn = hash_bytes(1, &i, sizeof i) >> 11;
        if ((double)drawn < changed * 0x1p53)
            b[i * size] = 1;
    }
    if (out)
        ratio = (double)delta_find(b, a, COUNT, size, out) / (double)(COUNT * size);
    free(a);
    free(out);
    return ratio < 1 ? ratio : 1;
}

/* ---- schemas ---- */

struct sides {
    struct schema *theirs, *mine;
    int first; /* rank of the subscriber's layouts: the others follow it */
};

static int said(struct failure *why, int err)
{
    return failure_set(why, err == WEFT_ENOMEM ? CLI_WRONG : CLI_BAD, "%s", weft_errmsg());
}

static int make_schemas(const struct scene *s, struct sides *out, struct failure *why)
{
    size_t n = 0;
    weft_bus_tensor *t[2] = {calloc(s->tensors + 1, sizeof **t), calloc(s->tensors + 1, sizeof **t)};
    char(*names)[24] = malloc((s->tensors + 1) * sizeof *names);
    int err = t[0] && t[1] && names ? 0 : WEFT_ENOMEM;
    for (size_t i = 0; i < s->moves.n && !err; i++)
        for (int k = 0; k < s->times.v[i]; k++, n++) {
            snprintf(names[n], sizeof *names, "%zu", n);
            t[0][n] = (weft_bus_tensor){.name = names[n], .layout = s->moves.v[i].src};
            t[1][n] = (weft_bus_tensor){.name = names[n], .layout = s->moves.v[i].dst};
        }
    int code = err ? no_memory(why) : CLI_OK;
    if (!code && (err = schema_make("SRC", t[0], n, &out->theirs)))
        code = said(why, err);
    if (!code && (err = schema_make("DST", t[1], n, &out->mine)))
        code = said(why, err);
    free(t[0]);
    free(t[1]);
    free(names);
    return code;
}

/* The ranks of a subscriber are those of its layouts, which may begin behind the publisher's. */
static int first_rank(const struct scene *s)
{
    int first = INT32_MAX;
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    for (size_t i = 0; i < s->moves.n; i++) {
        if (weft_layout_describe(s->moves.v[i].dst, &d) || d.boxes)
            return 0;
        size_t n = 1;
        for (int a = 0; a < d.naxes; a++)
            n *= (size_t)d.axes[a].size;
        for (size_t k = 0; k < n; k++)
            first = d.ranks[k] < first ? d.ranks[k] : first;
    }
    return first;
}

/* ---- where the ranks are ---- */

static int hosts_for(const struct machine_file *m, int ranks)
{
    return m->ranks_per_host ? (int)((ranks + m->ranks_per_host - 1) / m->ranks_per_host) : 1;
}

static int place(const struct bus_scene_how *how, struct bus_scene_run *r, struct failure *why)
{
    const int64_t all = r->publishers + (int64_t)how->subscribers * r->readers;
    if (all > BUS_SCENE_RANKS)
        return failure_set(why, CLI_BAD, "%d ranks and %d jobs of %d ranks are too many: at most %d ranks are possible",
                           r->publishers, how->subscribers, r->readers, BUS_SCENE_RANKS);
    int each = hosts_for(&how->machine, r->readers), world = (int)all;
    int64_t per = how->machine.ranks_per_host;
    r->publisher_hosts = hosts_for(&how->machine, r->publishers);
    r->hosts = how->subscribers * each;
    r->host = malloc(((size_t)world + 1) * sizeof *r->host);
    if (!r->host)
        return no_memory(why);
    for (int i = 0; i < r->publishers; i++)
        r->host[i] = per ? (int)(i / per) : 0;
    for (int i = r->publishers; i < world; i++) {
        int at = i - r->publishers, subscriber = at / r->readers;
        r->host[i] = r->publisher_hosts + subscriber * each + (per ? (int)(at % r->readers / per) : 0);
    }
    int code = links_open(&r->links, &how->machine, world, r->host, why);
    if (code)
        return code;
    r->bytes = calloc(links_count(&r->links) + 1, sizeof *r->bytes);
    r->busy = calloc(links_count(&r->links) + 1, sizeof *r->busy);
    return r->bytes && r->busy ? CLI_OK : no_memory(why);
}

/* ---- what a host needs ---- */

/* Blocks of the bus, in each part. */
static int open_parts(struct bus_pull *p, const struct schema *theirs, struct schema_part *real, struct failure *why)
{
    size_t blocks = 0;
    for (int i = 0; i < p->run->publishers; i++) {
        int err = schema_part(theirs, i, false, &real[i]);
        if (err)
            return said(why, err);
        blocks += real[i].blocks;
    }
    int64_t grain = (int64_t)(blocks / BUS_SCENE_BLOCKS) + 1;
    for (int i = 0; i < p->run->publishers; i++) {
        struct bus_pull_part *part = &p->parts[i];
        size_t n = (real[i].blocks + (size_t)grain - 1) / (size_t)grain;
        part->grain = grain;
        if (grain == 1) {
            part->places = real[i];
            continue;
        }
        part->places = (struct schema_part){.v = calloc(1, sizeof *part->places.v), .n = 1, .blocks = n};
        if (!part->places.v)
            return no_memory(why);
        part->places.bytes = part->places.v[0].bytes = (int64_t)n * SCHEMA_BLOCK;
    }
    return CLI_OK;
}

static int open_needs(struct bus_pull *p, struct failure *why)
{
    for (int k = 0; k < p->kinds; k++) {
        struct bus_pull_need *need = &p->needs[k];
        need->bytes = calloc((size_t)p->run->publishers + 1, sizeof *need->bytes);
        need->sent = calloc((size_t)p->run->publishers + 1, sizeof *need->sent);
        for (int i = 0; need->bytes && need->sent && i < p->run->publishers; i++) {
            need->bytes[i] = calloc(p->parts[i].places.blocks + 1, sizeof **need->bytes);
            need->sent[i] = calloc(p->parts[i].places.blocks + 1, sizeof **need->sent);
            if (!need->bytes[i] || !need->sent[i])
                return no_memory(why);
        }
        if (!need->bytes || !need->sent)
            return no_memory(why);
    }
    return CLI_OK;
}

struct adding {
    struct bus_pull *p;
    const struct sides *sides;
    const struct schema_part *real; /* by the publisher's ranks */
    unsigned char **seen;           /* bits of the blocks that the host needs so far, by the publisher's ranks */
    double ratio[SIZES];            /* of deltas, by the size of elements */
};

static int size_of(size_t bytes)
{
    int k = 0;
    while (k < SIZES - 1 && (size_t)1 << k < bytes)
        k++;
    return k;
}

static void add_block(const struct adding *a, struct bus_pull_need *need, int rank, size_t tensor, int64_t block)
{
    const struct schema_place *place = &a->real[rank].v[tensor];
    size_t b = place->block + (size_t)block;
    if (a->seen[rank][b / 8] >> (b % 8) & 1)
        return;
    a->seen[rank][b / 8] |= (unsigned char)(1 << (b % 8));
    int64_t rest = place->bytes - block * SCHEMA_BLOCK, bytes = rest < SCHEMA_BLOCK ? rest : SCHEMA_BLOCK;
    size_t size = weft_dtype_size(a->sides->theirs->v[tensor].layout->dtype);
    size_t at = b / (size_t)a->p->parts[rank].grain;
    double sent = (double)bytes * (a->p->how->changed >= 0 ? a->ratio[size_of(size)] : 1);
    need->bytes[rank][at] += (double)bytes;
    need->sent[rank][at] += sent;
    need->all += (double)bytes;
}

/* What one reader needs, of the ranks that it would ask (choose_rank of version/fetch_sources.c: all of them are as
 * good). */
static int add_reader(const struct adding *a, struct bus_pull_need *need, int reader, struct failure *why)
{
    struct reader_plan plan = {0};
    const struct sides *s = a->sides;
    int err = reader_plan_make(s->theirs, s->mine, s->first + reader, true, &plan);
    if (err)
        return said(why, err);
    a->p->readers[reader] = (double)plan.bytes;
    int64_t number = 0;
    for (size_t i = 0; i < plan.n; i++) {
        if (!plan.pieces[i].ways)
            continue;
        size_t read;
        int64_t holders = reader_plan_holders(&plan, s->theirs, i);
        int rank = reader_plan_holder(&plan, s->theirs, i, (number++ + s->first + reader) % holders, &read);
        const struct reader_piece *piece = &plan.pieces[read];
        for (size_t k = 0; k < piece->nruns; k++)
            for (int64_t b = piece->runs[k].first; b < piece->runs[k].end; b++)
                add_block(a, need, rank, piece->theirs, b);
    }
    reader_plan_free(&plan);
    return CLI_OK;
}

static int add_host(const struct adding *a, int kind, struct failure *why)
{
    struct bus_pull *p = a->p;
    struct bus_pull_need *need = &p->needs[kind];
    int64_t per = p->how->machine.ranks_per_host;
    need->first = per ? (int)(kind * per) : 0;
    need->n = per && p->run->readers - need->first > per ? (int)per : p->run->readers - need->first;
    for (int i = 0; i < p->run->publishers; i++)
        memset(a->seen[i], 0, a->real[i].blocks / 8 + 1);
    int code = CLI_OK;
    for (int i = 0; i < need->n && !code; i++)
        code = add_reader(a, need, need->first + i, why);
    p->run->needed += need->all;
    for (int i = 0; i < p->run->publishers && !code; i++)
        for (size_t b = 0; b < p->parts[i].places.blocks; b++)
            p->run->ratio += need->sent[i][b];
    return code;
}

static int add_hosts(struct bus_pull *p, const struct sides *sides, const struct schema_part *real, struct failure *why)
{
    struct adding a = {.p = p, .sides = sides, .real = real};
    int code = CLI_OK;
    for (int i = 0; i < SIZES && p->how->changed >= 0; i++)
        a.ratio[i] = delta_ratio((size_t)1 << i, p->how->changed);
    a.seen = calloc((size_t)p->run->publishers + 1, sizeof *a.seen);
    for (int i = 0; i < p->run->publishers && a.seen && !code; i++)
        if (!(a.seen[i] = malloc(real[i].blocks / 8 + 1)))
            code = no_memory(why);
    if (!a.seen)
        code = no_memory(why);
    for (int k = 0; k < p->kinds && !code; k++)
        code = add_host(&a, k, why);
    p->run->ratio = p->run->needed > 0 ? p->run->ratio / p->run->needed : 1;
    for (int i = 0; i < p->run->publishers && a.seen; i++)
        free(a.seen[i]);
    free(a.seen);
    return code;
}

/* ---- the whole ---- */

static void close_pull(struct bus_pull *p, struct schema_part *real)
{
    for (int i = 0; i < p->run->publishers; i++) {
        if (real)
            schema_part_free(&real[i]);
        if (p->parts && p->parts[i].grain > 1)
            free(p->parts[i].places.v);
    }
    for (int k = 0; k < p->kinds && p->needs; k++) {
        for (int i = 0; i < p->run->publishers; i++) {
            if (p->needs[k].bytes)
                free(p->needs[k].bytes[i]);
            if (p->needs[k].sent)
                free(p->needs[k].sent[i]);
        }
        free(p->needs[k].bytes);
        free(p->needs[k].sent);
    }
    free(p->parts);
    free(p->needs);
    free(p->readers);
    free(real);
}

static int pull(const struct sides *sides, const struct bus_scene_how *how, struct bus_scene_run *out,
                struct failure *why)
{
    struct bus_pull p = {.how = how, .run = out, .kinds = hosts_for(&how->machine, out->readers)};
    struct schema_part *real = calloc((size_t)out->publishers + 1, sizeof *real);
    p.parts = calloc((size_t)out->publishers + 1, sizeof *p.parts);
    p.needs = calloc((size_t)p.kinds + 1, sizeof *p.needs);
    p.readers = calloc((size_t)out->readers + 1, sizeof *p.readers);
    int code = real && p.parts && p.needs && p.readers ? CLI_OK : no_memory(why);
    if (!code)
        code = open_parts(&p, sides->theirs, real, why);
    if (!code)
        code = open_needs(&p, why);
    if (!code)
        code = add_hosts(&p, sides, real, why);
    if (!code)
        code = bus_pull_run(&p, why);
    close_pull(&p, real);
    return code;
}

int bus_scene_simulate(const struct scene *s, const struct bus_scene_how *how, struct bus_scene_run *out,
                       struct failure *why)
{
    struct sides sides = {.first = first_rank(s)};
    *out = (struct bus_scene_run){.bound_link = FAIR_NONE};
    int code = make_schemas(s, &sides, why);
    if (!code) {
        out->set = sides.theirs->total;
        out->publishers = sides.theirs->ranks;
        out->readers = sides.mine->ranks - sides.first;
        code = place(how, out, why);
    }
    if (!code)
        code = pull(&sides, how, out, why);
    for (uint32_t i = 0; !code && i < links_count(&out->links); i++)
        if (out->busy[i] > out->bound) {
            out->bound = out->busy[i];
            out->bound_link = i;
        }
    schema_free(sides.theirs);
    schema_free(sides.mine);
    if (code)
        bus_scene_free(out);
    return code;
}

void bus_scene_free(struct bus_scene_run *r)
{
    links_free(&r->links);
    free(r->host);
    free(r->bytes);
    free(r->busy);
    *r = (struct bus_scene_run){0};
}

/* ---- what is said ---- */

/* The links that carry most, of different kinds or amounts; `alike`: how many carry as much. */
static int busiest(const struct bus_scene_run *r, uint32_t *out, int *alike)
{
    int n = 0;
    for (uint32_t i = 0; i < links_count(&r->links); i++) {
        int at = 0;
        while (at < n && (links_kind(&r->links, out[at]) != links_kind(&r->links, i) ||
                          r->busy[i] > 1.001 * r->busy[out[at]] || r->busy[out[at]] > 1.001 * r->busy[i]))
            at++;
        if (at < n) {
            alike[at]++;
            continue;
        }
        if (r->busy[i] <= 0 || (n == STORY_LINKS && r->busy[i] <= r->busy[out[n - 1]]))
            continue;
        for (at = n < STORY_LINKS ? n++ : n - 1; at && r->busy[i] > r->busy[out[at - 1]]; at--) {
            out[at] = out[at - 1];
            alike[at] = alike[at - 1];
        }
        out[at] = i;
        alike[at] = 1;
    }
    return n;
}

static double times_the_set(const struct bus_scene_run *r)
{
    return r->set ? r->from_publisher / (double)r->set : 0;
}

void bus_scene_print(FILE *to, const struct bus_scene_run *r)
{
    char a[64], b[64], name[64];
    uint32_t top[STORY_LINKS];
    int alike[STORY_LINKS], n = busiest(r, top, alike);
    fprintf(to, "%-18s%s: %d ranks of a publisher on %d hosts, subscribers of %d ranks on %d hosts\n", "machine",
            r->links.m.name, r->publishers, r->publisher_hosts, r->readers, r->hosts);
    fprintf(to, "%-18s%s, of which a subscriber needs %s\n", "set", readable_bytes(r->set, a, sizeof a),
            readable_bytes((int64_t)r->needed, b, sizeof b));
    fprintf(to, "%-18s%s, %.2f times the set, in %" PRId64 " replies with those of peers\n", "publisher gives",
            readable_bytes((int64_t)r->from_publisher, a, sizeof a), times_the_set(r), r->replies);
    fprintf(to, "%-18s%s\n", "peers give", readable_bytes((int64_t)r->from_peers, a, sizeof a));
    if (r->ratio < 1)
        fprintf(to, "%-18s%.1f %% of the bytes\n", "deltas", 100 * r->ratio);
    fprintf(to, "%-18s%s\n", "time", story_time(r->total, a, sizeof a));
    fprintf(to, "%-18s%s\n", "first host done", story_time(r->first, a, sizeof a));
    if (r->bound_link != FAIR_NONE)
        fprintf(to, "%-18s%s, for which %s is busy\n", "lower bound", story_time(r->bound, a, sizeof a),
                links_name(&r->links, r->bound_link, name, sizeof name));
    fprintf(to, "\nbusiest links\n");
    for (int i = 0; i < n; i++) {
        fprintf(to, "  %10s  %s", story_time(r->busy[top[i]], a, sizeof a),
                links_name(&r->links, top[i], name, sizeof name));
        if (r->bytes[top[i]] > 0)
            fprintf(to, ", %s", readable_bytes((int64_t)r->bytes[top[i]], b, sizeof b));
        if (alike[i] > 1)
            fprintf(to, ", and %d more like it", alike[i] - 1);
        fprintf(to, "\n");
    }
}

void bus_scene_json(struct json *j, const struct bus_scene_run *r)
{
    char name[64];
    json_write_text(j, "machine", r->links.m.name);
    json_write_int(j, "publisher_ranks", r->publishers);
    json_write_int(j, "publisher_hosts", r->publisher_hosts);
    json_write_int(j, "subscriber_ranks", r->readers);
    json_write_int(j, "subscriber_hosts", r->hosts);
    json_write_int(j, "set", r->set);
    json_write_int(j, "needed", (int64_t)r->needed);
    json_write_int(j, "from_publisher", (int64_t)(r->from_publisher + 0.5));
    json_write_int(j, "from_peers", (int64_t)(r->from_peers + 0.5));
    json_write_real(j, "delta_ratio", r->ratio);
    json_write_int(j, "replies", r->replies);
    json_write_int(j, "time_ns", (int64_t)(r->total + 0.5));
    json_write_int(j, "first_host_done_ns", (int64_t)(r->first + 0.5));
    json_write_int(j, "bound_ns", (int64_t)(r->bound + 0.5));
    json_write_text(j, "bound_link",
                    r->bound_link == FAIR_NONE ? NULL : links_name(&r->links, r->bound_link, name, sizeof name));
    json_write_open(j, "links", '[', false);
    for (uint32_t i = 0; i < links_count(&r->links); i++) {
        if (r->bytes[i] <= 0)
            continue;
        json_write_open(j, NULL, '{', true);
        json_write_text(j, "link", links_name(&r->links, i, name, sizeof name));
        json_write_int(j, "bytes", (int64_t)(r->bytes[i] + 0.5));
        json_write_int(j, "busy_ns", (int64_t)(r->busy[i] + 0.5));
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
}
