#include "foresee/page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "foresee/holdings_picture.h"
#include "foresee/story.h"
#include "foresee/time_picture.h"
#include "foresee/traffic_picture.h"
#include "tool/readable.h"

#define PAIRS 20 /* with most bytes, in the table */

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--line:#8886;--soft:#8881}\n"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}code{overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;margin:.5rem 0}caption{text-align:left;font-weight:600;padding:.3rem 0}\n"
    "th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}\n"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".two{display:flex;flex-wrap:wrap;gap:2rem}.two>*{flex:1 1 22rem}\n"
    "figure{margin:1rem 0;background:var(--soft);padding:.6rem;border-radius:.4rem}svg{width:100%;height:auto}\n"
    ".bar{display:inline-block;height:.7em;background:#2f74c0}\n"
    "@media print{body{max-width:none;margin:0}figure,tr{break-inside:avoid}}\n"
    "</style>\n";

static void escape(FILE *to, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '&': fputs("&amp;", to); break;
        case '"': fputs("&quot;", to); break;
        default: fputc(*text, to);
        }
}

/* A row of the table of numbers. The value stands for itself, too, as in the JSON: tests compare the two. */
static void number(FILE *to, const char *name, const char *key, double value, const char *text)
{
    fprintf(to, "<tr><th scope=\"row\">%s</th><td data-key=\"%s\" data-value=\"%.17g\">", name, key, value);
    escape(to, text);
    fprintf(to, "</td></tr>\n");
}

static void numbers(FILE *to, const struct page *p)
{
    const struct graph *g = &p->run->graph;
    const struct events *e = &p->run->events;
    char a[160], name[64];
    uint32_t link;
    double bound = graph_bound(g, &link);
    fprintf(to, "<table><caption>Numbers</caption>\n");
    if (e->span) {
        number(to, "time", "time_ns", e->total, story_time(e->total, a, sizeof a));
        story_time(bound, a, sizeof a);
        if (link != FAIR_NONE) {
            size_t n = strlen(a);
            snprintf(a + n, sizeof a - n, ", for which %s is busy", links_name(g->links, link, name, sizeof name));
        }
        number(to, "lower bound", "bound_ns", bound, a);
        snprintf(a, sizeof a, "%.1f %%", e->total > 0 ? 100 * bound / e->total : 100);
        number(to, "efficiency", "efficiency", e->total > 0 ? bound / e->total : 1, a);
    }
    number(to, "moved", "moved", (double)g->bytes, readable_bytes(g->bytes, a, sizeof a));
    snprintf(a, sizeof a, "%" PRId64, g->messages);
    number(to, "messages", "messages", (double)g->messages, a);
    number(to, "copied inside ranks", "copied", (double)g->copied, readable_bytes(g->copied, a, sizeof a));
    number(to, "read by folds", "folded", (double)g->folded, readable_bytes(g->folded, a, sizeof a));
    snprintf(a, sizeof a, "%d", g->links->world);
    number(to, "ranks", "ranks", g->links->world, a);
    snprintf(a, sizeof a, "%d", g->links->hosts);
    number(to, "hosts", "hosts", g->links->hosts, a);
    fprintf(to, "<tr><th scope=\"row\">machine</th><td>");
    escape(to, g->links->m.name);
    fprintf(to, "</td></tr>\n<tr><th scope=\"row\">recognised as</th><td>%s, by %s</td></tr>\n</table>\n", g->kind,
            g->algorithm);
}

/* ---- who holds what ---- */

static void holdings_of(FILE *to, const weft_layout *l, const char *caption, const char *text)
{
    fprintf(to, "<figure><figcaption>%s: <code>", caption);
    escape(to, text);
    fprintf(to, "</code></figcaption>\n");
    char about[64];
    snprintf(about, sizeof about, "%s: which rank holds which elements", caption);
    if (holdings_picture_print(to, l, about))
        fprintf(to, "<p>It has more than %d boxes, which are not drawn.</p>\n", HOLDINGS_PICTURE_BOXES);
    fprintf(to, "</figure>\n");
}

static void holdings(FILE *to, const struct page *p)
{
    if (!p->src)
        return;
    fprintf(to,
            "<h2>Who holds what</h2>\n<p>Rows go down, columns to the right; of more than two dims the first two are "
            "drawn. Numbers are ranks.</p>\n<div class=\"two\">\n");
    holdings_of(to, p->scene->moves.v[0].src, "before", p->src);
    holdings_of(to, p->scene->moves.v[0].dst, "after", p->dst);
    fprintf(to, "</div>\n");
}

/* ---- bytes between ranks and hosts ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct traffic *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static int by_ends(const void *a, const void *b)
{
    const struct traffic *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

/* Joins pairs with the same ends; returns how many are left. */
static size_t join(struct traffic *v, size_t n)
{
    size_t kept = 0;
    qsort(v, n, sizeof *v, by_ends);
    for (size_t i = 0; i < n; i++)
        if (kept && v[kept - 1].from == v[i].from && v[kept - 1].to == v[i].to) {
            v[kept - 1].bytes += v[i].bytes;
            v[kept - 1].messages += v[i].messages;
        } else {
            v[kept++] = v[i];
        }
    return kept;
}

/* unit: "rank", "host"; each: how many of them are one row. */
static void matrix(FILE *to, struct traffic *v, size_t n, int count, int each, const char *unit)
{
    char about[96], bytes[64];
    n = join(v, n);
    if (each > 1)
        snprintf(about, sizeof about, "bytes from %s to %s, %d %ss in a row", unit, unit, each, unit);
    else
        snprintf(about, sizeof about, "bytes from %s to %s", unit, unit);
    fprintf(to, "<figure><figcaption>%s</figcaption>\n", about);
    traffic_picture_print(to, v, n, count, about);
    fprintf(to, "</figure>\n");
    qsort(v, n, sizeof *v, by_bytes);
    fprintf(to,
            "<details><summary>The pairs with most bytes</summary>\n<table><caption>%s</caption>\n<tr><th "
            "scope=\"col\">from</th><th scope=\"col\">to</th><th scope=\"col\">bytes</th><th "
            "scope=\"col\">messages</th></tr>\n",
            about);
    for (size_t i = 0; i < n && i < PAIRS; i++)
        fprintf(to, "<tr><td>%d</td><td>%d</td><td class=\"n\">%s</td><td class=\"n\">%" PRId64 "</td></tr>\n",
                v[i].from, v[i].to, readable_bytes(v[i].bytes, bytes, sizeof bytes), v[i].messages);
    fprintf(to, "</table></details>\n");
}

static int traffic(FILE *to, const struct page *p, struct failure *why)
{
    const struct graph *g = &p->run->graph;
    size_t n = g->channels.n;
    struct traffic *v = malloc((n + 1) * sizeof *v);
    if (!v)
        return failure_set(why, CLI_WRONG, "not enough memory for what %d ranks send", g->links->world);
    fprintf(to, "<h2>Bytes between ranks and hosts</h2>\n<div class=\"two\">\n");
    for (int hosts = 0; hosts < 2; hosts++) {
        int count = hosts ? g->links->hosts : g->links->world;
        int each = hosts ? (count + TRAFFIC_PICTURE_RANKS - 1) / TRAFFIC_PICTURE_RANKS : 1;
        if (hosts ? count < 2 : count > TRAFFIC_PICTURE_RANKS)
            continue;
        for (size_t i = 0; i < n; i++) {
            const struct graph_channel *c = &g->channels.v[i];
            v[i] = (struct traffic){hosts ? g->links->host[c->from] / each : c->from,
                                    hosts ? g->links->host[c->to] / each : c->to, c->bytes, c->messages};
        }
        fprintf(to, "<div>\n");
        matrix(to, v, n, (count + each - 1) / each, each, hosts ? "host" : "rank");
        fprintf(to, "</div>\n");
    }
    fprintf(to, "</div>\n");
    free(v);
    return CLI_OK;
}

/* ---- time ---- */

static void links_table(FILE *to, const struct page *p)
{
    const struct graph *g = &p->run->graph;
    uint32_t top[STORY_LINKS];
    char name[64], text[32];
    int n = story_busiest(g, top);
    fprintf(to, "<h2>Busiest links</h2>\n<table><caption>Of links that are alike one is listed</caption>\n<tr><th "
                "scope=\"col\">link</th><th scope=\"col\">alike</th><th scope=\"col\">busy for</th><th "
                "scope=\"col\">of the time</th></tr>\n");
    for (int i = 0; i < n; i++) {
        double part = p->run->events.total > 0 ? g->busy[top[i]] / p->run->events.total : 0;
        fprintf(to,
                "<tr><td>%s</td><td class=\"n\">%" PRIu32 "</td><td class=\"n\">%s</td><td><span class=\"bar\" "
                "style=\"width:%.1fem\" aria-hidden=\"true\"></span> %.1f %%</td></tr>\n",
                links_name(g->links, top[i], name, sizeof name), story_alike(g, top[i]),
                story_time(g->busy[top[i]], text, sizeof text), 8 * part, 100 * part);
    }
    fprintf(to, "</table>\n");
}

static void path_list(FILE *to, const struct page *p)
{
    struct story_leg legs[STORY_LEGS];
    size_t n = story_legs(&p->run->graph, &p->run->events, legs);
    char a[32], b[32], bytes[64], limit[128];
    fprintf(to, "<h2>What the last rank waited for</h2>\n<ol>\n");
    for (size_t i = 0; i < n; i++) {
        readable_bytes((int64_t)legs[i].bytes, bytes, sizeof bytes);
        fprintf(to, "<li>from %s on, for %s: ", story_time(legs[i].start, a, sizeof a),
                story_time(legs[i].end - legs[i].start, b, sizeof b));
        if (legs[i].from == legs[i].to)
            fprintf(to, "rank %d copies or folds %s", legs[i].from, bytes);
        else
            fprintf(to, "rank %d waits for %s from rank %d", legs[i].to, bytes, legs[i].from);
        fprintf(to, ": %s</li>\n",
                story_limit(&p->run->graph, &p->run->events.span[legs[i].last], limit, sizeof limit));
    }
    fprintf(to, "</ol>\n");
}

static void changes_table(FILE *to, const struct page *p)
{
    char text[32];
    if (!p->changes || !p->changes->all.n)
        return;
    fprintf(to, "<h2>What if</h2>\n<table><caption>The same move with one thing changed</caption>\n<tr><th "
                "scope=\"col\">change</th><th scope=\"col\">time</th><th scope=\"col\">times</th></tr>\n");
    for (size_t i = 0; i < p->changes->all.n; i++)
        fprintf(to, "<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%.2f</td></tr>\n", p->changes->all.v[i].what,
                story_time(p->changes->all.v[i].total, text, sizeof text),
                p->run->events.total > 0 ? p->changes->all.v[i].total / p->run->events.total : 1);
    fprintf(to, "</table>\n");
}

static int times(FILE *to, const struct page *p, struct failure *why)
{
    fprintf(to,
            "<h2>Time line</h2>\n<figure><figcaption>The darker, the more is under way at the time.</figcaption>\n");
    if (time_picture_print(to, &p->run->graph, &p->run->events))
        return failure_set(why, CLI_WRONG, "not enough memory for the time line");
    fprintf(to, "</figure>\n");
    links_table(to, p);
    path_list(to, p);
    changes_table(to, p);
    return CLI_OK;
}

static int write_all(FILE *to, const struct page *p, struct failure *why)
{
    bool simulated = p->run->events.span;
    fprintf(to,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
            "content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n<title>weft %s</title>\n%s</head>\n"
            "<body>\n<main>\n<h1>%s</h1>\n<p>",
            simulated ? "sim" : "plan", style, simulated ? "How long the move takes" : "What moves");
    if (p->src) {
        fprintf(to, "<code>");
        escape(to, p->src);
        fprintf(to, "</code> to <code>");
        escape(to, p->dst);
        fprintf(to, "</code>");
    } else {
        fprintf(to, "%zu tensors, of which %zu have layouts of their own", p->scene->tensors, p->scene->moves.n);
    }
    fprintf(to, "</p>\n");
    numbers(to, p);
    holdings(to, p);
    int code = traffic(to, p, why);
    if (!code && simulated)
        code = times(to, p, why);
    fprintf(to, "</main>\n</body>\n</html>\n");
    return code;
}

int page_write(const char *path, const struct page *p, struct failure *why)
{
    FILE *to = fopen(path, "w");
    if (!to)
        return failure_set(why, CLI_BAD, "%s: cannot be written", path);
    int code = write_all(to, p, why);
    bool bad = ferror(to);
    if ((fclose(to) || bad) && !code)
        code = failure_set(why, CLI_WRONG, "%s: could not be written to its end", path);
    return code;
}
