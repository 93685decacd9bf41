/* The figures of a row that are printed; see report_line.h. */
#include "bench/harness/report_line.h"

#include <inttypes.h>
#include <stdio.h>

struct line report_line(const struct row *row)
{
    struct line l = {.floor = measure_best(row, WORK_FLOOR), .peer = measure_best(row, WORK_PEER)};
    for (int i = 0; i < row->n && !l.weft; i++)
        if (row->f[i].kind == WORK_WEFT)
            l.weft = &row->f[i];
    if (!l.weft)
        return l;
    l.time = measure_time(row, l.weft);
    l.algbw = (double)row->cell.bytes / l.time;
    l.busbw = l.algbw * work_bus(&row->cell, row->ranks);
    if (l.floor)
        l.floor_share = measure_time(row, l.floor) / l.time;
    if (l.peer)
        l.ratio = measure_time(row, l.peer) / l.time;
    if (row->copy > 0)
        l.copy_share = work_moved(&row->cell, row->ranks) / l.time / row->copy;
    return l;
}

const char *report_line_size(int64_t bytes, char *buf, size_t cap)
{
    static const char units[] = " KMG";
    int u = 0;
    while (bytes && bytes % 1024 == 0 && u < 3) {
        bytes /= 1024;
        u++;
    }
    snprintf(buf, cap, "%" PRId64 "%.*s", bytes, u > 0, units + u);
    return buf;
}
