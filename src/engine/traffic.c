/* What the runs of an exec move, by way and host of the peer, for the comm's metrics. A run moves what its plan says,
 * so that only runs are counted. */
#include "base/error.h"
#include "engine/driver.h"
#include "engine/way.h"

struct traffic {
    uint32_t row; /* of the comm's metrics */
    uint64_t sent_bytes, sent, received_bytes, received;
};

int traffic_make(weft_exec *x, struct program *p)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < p->nsteps; s++)
        n += p->steps[s].kind == PLAN_SEND || p->steps[s].kind == PLAN_RECV;
    uint32_t rows = n < metrics_rows_most(x->comm) ? n : metrics_rows_most(x->comm);
    p->traffic = program_take(p, rows, sizeof *p->traffic);
    return p->traffic && metrics_reserve(x->comm, rows) ? 0 : error_nomem();
}

void traffic_open(weft_exec *x, struct program *p)
{
    const weft_plan *plan = x->plan;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct exec_step *step = &p->steps[s];
        bool sends = step->kind == PLAN_SEND;
        if (!sends && step->kind != PLAN_RECV)
            continue;
        const char *way = p->driver->copies ? p->driver->name : step->way->name;
        uint32_t row = metrics_row(x->comm, way, plan->steps[s].peer), i = 0;
        while (i < p->ntraffic && p->traffic[i].row != row)
            i++;
        p->ntraffic += i == p->ntraffic;
        struct traffic *t = &p->traffic[i];
        uint64_t bytes = (uint64_t)plan->steps[s].bytes;
        t->row = row;
        t->sent += sends;
        t->sent_bytes += sends ? bytes : 0;
        t->received += !sends;
        t->received_bytes += sends ? 0 : bytes;
    }
}

void traffic_count(struct comm_task *task)
{
    weft_exec *x = (weft_exec *)task;
    const struct program *p = x->program;
    struct metrics *m = &x->comm->metrics;
    int64_t failed = atomic_load_explicit(&x->failed, memory_order_relaxed);
    int64_t good = atomic_load_explicit(&x->ended, memory_order_relaxed) - failed;
    uint64_t runs = (uint64_t)(good - x->counted);
    m->runs += runs;
    m->failed += (uint64_t)(failed - x->counted_failed);
    x->counted = good;
    x->counted_failed = failed;
    for (uint32_t i = 0; i < p->ntraffic; i++) {
        const struct traffic *t = &p->traffic[i];
        struct metrics_row *row = &m->rows[t->row];
        row->sent += t->sent * runs;
        row->sent_bytes += t->sent_bytes * runs;
        row->received += t->received * runs;
        row->received_bytes += t->received_bytes * runs;
    }
}
