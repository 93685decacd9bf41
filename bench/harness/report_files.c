/* Rows of a benchmark as CSV and JSON: all figures of all contenders. */
#include <inttypes.h>

#include "bench/harness/report.h"
#include "tool/json_write.h"

void report_files_csv(const struct report *r, FILE *to)
{
    fputs("bench,ranks,what,bytes,who,time_us,back_to_back_us,least_us,median_us,p95_us,wrong,brief,memcpy_GBps\n", to);
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->rows[i].n; k++) {
            const struct row *row = &r->rows[i];
            const struct figure *f = &row->f[k];
            fprintf(to, "%s,%d,\"%s\",%" PRId64 ",\"%s\",%.3f,%.3f,%.3f,%.3f,%.3f,%" PRId64 ",%d,%.2f\n", r->name,
                    row->ranks, row->label, row->cell.bytes, f->who, measure_time(row, f) * 1e6, f->each * 1e6,
                    f->least * 1e6, f->single * 1e6, f->tail * 1e6, f->wrong, f->brief, row->copy / 1e9);
        }
    if (r->incomplete)
        fprintf(to, "# incomplete: %s\n", r->incomplete);
}

static void json_figure(struct json *j, const struct row *row, const struct figure *f)
{
    json_write_open(j, NULL, '{', true);
    json_write_text(j, "who", f->who);
    json_write_real(j, "time_us", measure_time(row, f) * 1e6);
    json_write_real(j, "back_to_back_us", f->each * 1e6);
    json_write_real(j, "least_us", f->least * 1e6);
    json_write_real(j, "median_us", f->single * 1e6);
    json_write_real(j, "p95_us", f->tail * 1e6);
    json_write_int(j, "wrong", f->wrong);
    json_write_bool(j, "brief", f->brief);
    if (f->made > 0)
        json_write_real(j, "made_us", f->made * 1e6);
    json_write_close(j, '}');
}

static void json_remarks(struct json *j, const struct report *r)
{
    struct remarks said = {0};
    if (r->remark && !r->incomplete && !r->options->nwithout) /* of all rows, or of none */
        r->remark(r, &said);
    json_write_open(j, "summary", '[', false);
    for (int i = 0; i < said.n; i++) {
        json_write_open(j, NULL, '{', true);
        json_write_text(j, "text", said.of[i].text);
        if (said.of[i].aims)
            json_write_bool(j, "met", said.of[i].met);
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
}

void report_files_json(const struct report *r, FILE *to)
{
    struct json j = {.to = to};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", r->name);
    json_write_text(&j, "on", r->options->weft.on);
    json_write_text(&j, "memory", r->options->weft.private_ ? "private" : "window");
    json_write_text(&j, "algorithm", r->options->weft.algorithm);
    json_write_int(&j, "cores", work_cores());
    json_write_real(&j, "ms", r->options->measure.seconds * 1e3);
    json_write_int(&j, "rounds", r->options->measure.rounds);
    json_write_open(&j, "rows", '[', false);
    for (int i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        struct line l = report_line(row);
        json_write_open(&j, NULL, '{', false);
        json_write_text(&j, "what", row->label);
        json_write_int(&j, "ranks", row->ranks);
        json_write_int(&j, "bytes", row->cell.bytes);
        if (row->cell.tensors)
            json_write_int(&j, "tensors", row->cell.tensors);
        json_write_real(&j, "time_us", l.time * 1e6);
        json_write_real(&j, "algbw_GBps", l.algbw / 1e9);
        json_write_real(&j, "busbw_GBps", l.busbw / 1e9);
        json_write_int(&j, "wrong", l.weft ? l.weft->wrong : -1);
        json_write_real(&j, "memcpy_GBps", row->copy / 1e9);
        json_write_real(&j, "share_of_memcpy", l.copy_share);
        json_write_real(&j, "floor_us", l.floor ? measure_time(row, l.floor) * 1e6 : 0);
        json_write_real(&j, "share_of_floor", l.floor_share);
        json_write_text(&j, "best_peer", l.peer ? l.peer->who : NULL);
        json_write_real(&j, "best_peer_us", l.peer ? measure_time(row, l.peer) * 1e6 : 0);
        json_write_real(&j, "ratio", l.ratio);
        if (row->explain_json)
            json_write_raw(&j, "explain", row->explain_json);
        json_write_open(&j, "figures", '[', false);
        for (int k = 0; k < row->n; k++)
            json_figure(&j, row, &row->f[k]);
        json_write_close(&j, ']');
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "left_out", r->left_out);
    json_write_text(&j, "incomplete", r->incomplete);
    json_remarks(&j, r);
    json_write_close(&j, '}');
}
