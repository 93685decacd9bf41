#define _GNU_SOURCE
#include "engine/tracer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "base/ticks.h"
#include "engine/way.h"
#include "engine/ways/way_wire.h"

/* A channel of any kind: first those of program.ins, then program.outs, then program.wired. */
#define NONE UINT32_MAX

struct tracer {
    struct driver driver;    /* what the program has as its driver, */
    const struct driver *of; /* and the one that drives it */
    struct trace *to;        /* NULL: only times of runs and waits are wanted, for metrics or a profiler */
    uint32_t *seen;          /* of each channel: messages of this run that were recorded */
    struct ticks ticks;
    int64_t begun;          /* when the run began; 0: none is in flight */
    int64_t waits;          /* since when nothing has moved; 0: something has */
    int64_t pass_at;        /* when the pass began */
    int64_t clock;          /* the last look at the clock in this pass: where the next step of the pipeline begins */
    int64_t last;           /* no event of the run ends later, except those with lengths of their own */
    uint32_t on;            /* the channel that it waits for, */
    uint32_t message, step; /* and the message there */
    bool profiled;
    uint64_t range; /* of the run, for the profiler */
    char text[128]; /* its name there */
};

/* ---- channels ---- */

static uint32_t channels(const struct program *p)
{
    return p->nins + p->nouts + p->wired.n;
}

static bool sends(const struct program *p, uint32_t i)
{
    return i >= p->nins && (i < p->nins + p->nouts || p->wired.channels[i - p->nins - p->nouts].sends);
}

static int peer_of(const struct program *p, uint32_t i)
{
    if (i < p->nins)
        return p->ins[i].peer;
    i -= p->nins;
    return i < p->nouts ? p->outs[i].peer : p->wired.channels[i - p->nouts].peer;
}

static uint32_t step_of(const struct program *p, uint32_t i, uint32_t message)
{
    if (i < p->nins)
        return p->ins[i].steps[message];
    i -= p->nins;
    return i < p->nouts ? p->outs[i].steps[message] : p->wired.channels[i - p->nouts].messages[message].step;
}

static bool waits_for(const weft_exec *x, uint32_t i)
{
    const struct program *p = x->program;
    const struct driver *d = p->tracer->of;
    if (i < p->nins)
        return d->in_waits(x, &p->ins[i]);
    i -= p->nins;
    return i < p->nouts ? d->out_waits(x, &p->outs[i]) : way_wire_waits(&p->wired.channels[i - p->nouts]);
}

/* Messages of the channel that have left this rank, or were taken by it. */
static uint32_t moved_of(const weft_exec *x, uint32_t i)
{
    const struct program *p = x->program;
    const struct driver *d = p->tracer->of;
    if (i < p->nins)
        return p->left ? d->in_count(x, &p->ins[i]).done : p->ins[i].n;
    i -= p->nins;
    if (i < p->nouts)
        return p->left ? d->out_count(x, &p->outs[i]).begun : p->outs[i].n;
    const struct wire_channel *ch = &p->wired.channels[i - p->nouts];
    return ch->sends ? ch->begun : ch->ended;
}

/* The message that the channel waits for. */
static uint32_t next_of(const weft_exec *x, uint32_t i, uint32_t *n)
{
    const struct program *p = x->program;
    const struct driver *d = p->tracer->of;
    if (i < p->nins) {
        *n = p->ins[i].n;
        return d->in_count(x, &p->ins[i]).next;
    }
    i -= p->nins;
    if (i < p->nouts) {
        *n = p->outs[i].n;
        return d->out_count(x, &p->outs[i]).next;
    }
    *n = p->wired.channels[i - p->nouts].n;
    return p->wired.channels[i - p->nouts].ended;
}

/* ---- events ---- */

/* Only if there is a trace. */
static void message(const weft_exec *x, uint32_t i, uint32_t k, int64_t at, int64_t until, bool part)
{
    const struct program *p = x->program;
    *trace_next(p->tracer->to) = (struct trace_event){.at = at,
                                                      .ns = until - at,
                                                      .task = x->task.id,
                                                      .run = x->run,
                                                      .step = step_of(p, i, k),
                                                      .message = k,
                                                      .peer = peer_of(p, i),
                                                      .event = sends(p, i) ? EVENT_SEND : EVENT_RECEIVE,
                                                      .arrow = sends(p, i) ? TRACE_LEAVES
                                                               : part      ? TRACE_NO_ARROW
                                                                           : TRACE_ARRIVES};
}

/* ---- waits ---- */

/* The first channel from `from` on that waits for its peer. */
static void look(weft_exec *x, uint32_t from)
{
    struct tracer *t = x->program->tracer;
    uint32_t n;
    t->on = NONE;
    for (uint32_t i = from; i < channels(x->program); i++) {
        if (!waits_for(x, i))
            continue;
        t->on = i;
        t->message = next_of(x, i, &n);
        t->message = t->message < n ? t->message : n - 1;
        t->step = step_of(x->program, i, t->message);
        return;
    }
}

static void end_wait(weft_exec *x, int64_t until)
{
    struct tracer *t = x->program->tracer;
    bool known = t->on != NONE;
    metrics_time(&x->comm->metrics.wait_times, until - t->waits);
    if (t->to)
        *trace_next(t->to) = (struct trace_event){.at = t->waits,
                                                  .ns = until - t->waits,
                                                  .task = x->task.id,
                                                  .run = x->run,
                                                  .step = known ? t->step : 0,
                                                  .message = known ? t->message : 0,
                                                  .peer = known ? peer_of(x->program, t->on) : TRACE_NOBODY,
                                                  .event = EVENT_WAIT,
                                                  .sends = known && sends(x->program, t->on)};
    t->waits = 0;
}

/* Nothing has moved since the pass began. A wait that is for one rank, and then for another, is two waits. */
static void waits(weft_exec *x)
{
    struct tracer *t = x->program->tracer;
    if (!t->waits) {
        t->waits = t->pass_at;
        look(x, 0);
    } else if (t->on != NONE && !waits_for(x, t->on)) {
        uint32_t before = t->on;
        int64_t since = t->pass_at;
        end_wait(x, since);
        t->waits = since;
        look(x, before + 1);
        if (t->on == NONE)
            look(x, 0);
    }
}

/* ---- the driver in front ---- */

/* Records the messages that have moved in this pass and are not recorded yet. They left after the pass began, and had
 * come when it ended, so that an arrow never ends before it begins. Returns when that was, or 0 if it did not look. */
static int64_t catch_up(weft_exec *x)
{
    struct program *p = x->program;
    struct tracer *t = p->tracer;
    int64_t now = 0, from = t->pass_at;
    for (uint32_t i = 0; t->to && i < channels(p); i++) {
        bool out = sends(p, i);
        for (uint32_t n = moved_of(x, i); t->seen[i] < n; t->seen[i]++) {
            now = now || out ? now : ticks_after(&t->ticks);
            int64_t at = out ? from++ : now++;
            message(x, i, t->seen[i], at, at + 1, false);
            t->last = at + 1;
        }
    }
    return now;
}

static void begin_run(weft_exec *x)
{
    struct tracer *t = x->program->tracer;
    memset(t->seen, 0, channels(x->program) * sizeof *t->seen);
    t->waits = 0;
    t->begun = t->pass_at = t->clock = ticks_now(&t->ticks);
    if (t->profiled)
        t->range = nvtx_start(t->text);
}

static void start(weft_exec *x)
{
    begin_run(x);
    x->program->tracer->of->start(x);
    (void)catch_up(x);
}

/* now: 0 if nobody has looked since the last message. */
static void end_run(weft_exec *x, int64_t now, bool failed)
{
    struct tracer *t = x->program->tracer;
    now = now ? now : ticks_now(&t->ticks);
    now = now > t->last ? now : t->last;
    if (t->waits)
        end_wait(x, now);
    if (t->begun && t->to)
        *trace_next(t->to) = (struct trace_event){.at = t->begun,
                                                  .ns = now - t->begun,
                                                  .task = x->task.id,
                                                  .run = x->run,
                                                  .peer = TRACE_NOBODY,
                                                  .event = EVENT_RUN,
                                                  .failed = failed};
    if (t->begun && t->profiled)
        nvtx_end(t->range);
    if (t->begun)
        metrics_time(&x->comm->metrics.run_times, now - t->begun);
    t->begun = 0;
}

static bool pass(weft_exec *x, bool idle)
{
    struct program *p = x->program;
    struct tracer *t = p->tracer;
    t->pass_at = t->clock = ticks_now(&t->ticks);
    bool moved = t->of->pass(x, idle);
    if (!moved && p->left) {
        waits(x);
        return false;
    }
    if (t->waits)
        end_wait(x, t->pass_at);
    int64_t now = catch_up(x);
    if (!p->left)
        end_run(x, now, false);
    return moved;
}

/* Runs on a stream: the host sees when they are put there, and when they are over. */
static int enqueue(weft_exec *x, void *stream)
{
    struct tracer *t = x->program->tracer;
    if (!t->begun)
        begin_run(x);
    return t->of->enqueue(x, stream);
}

/* ---- the pipeline ---- */

/* Each step begins where the one before it in the pass ended, so that it costs one look at the clock. */
static int64_t step_began(struct tracer *t)
{
    int64_t at = t->clock;
    t->clock = ticks_after(&t->ticks);
    return at;
}

void tracer_sent(weft_exec *x, const struct exec_out *out)
{
    struct program *p = x->program;
    struct tracer *t = p->tracer;
    uint32_t i = p->nins + (uint32_t)(out - p->outs);
    if (t->waits)
        end_wait(x, t->pass_at);
    if (!t->to)
        return;
    int64_t at = step_began(t);
    message(x, i, out->posted - 1, at, t->clock, false);
    t->seen[i] = out->posted;
}

void tracer_took(weft_exec *x, const struct exec_in *in, uint32_t k)
{
    struct program *p = x->program;
    struct tracer *t = p->tracer;
    uint32_t i = (uint32_t)(in - p->ins);
    bool part = in->taken == k;
    if (t->waits) { /* whatever it has waited for before, this came first */
        t->on = i;
        t->message = k;
        t->step = in->steps[k];
        end_wait(x, t->pass_at);
    }
    if (!t->to)
        return;
    int64_t at = step_began(t);
    message(x, i, k, at, t->clock, part);
    t->seen[i] = in->taken;
}

void tracer_worked(weft_exec *x, uint32_t step)
{
    struct tracer *t = x->program->tracer;
    if (t->waits)
        end_wait(x, t->pass_at);
    if (!t->to)
        return;
    int64_t at = step_began(t);
    *trace_next(t->to) =
        (struct trace_event){.at = at,
                             .ns = t->clock - at,
                             .task = x->task.id,
                             .run = x->run,
                             .step = step,
                             .peer = TRACE_NOBODY,
                             .event = x->program->steps[step].kind == PLAN_REDUCE ? EVENT_REDUCE : EVENT_COPY};
}

/* ---- bind and the end ---- */

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t did = write(fd, bytes, n);
        if (did <= 0)
            return false;
        bytes += did;
        n -= (size_t)did;
    }
    return true;
}

/* Keeps the plan for weft trace --sim. A plan that cannot be kept is left out: the trace does not need it. */
static void keep_plan(const weft_exec *x)
{
    char path[TRACE_PATH + 64], *bytes = NULL;
    size_t n = 0;
    struct error_text kept;
    snprintf(path, sizeof path, "%s/weft-plan-%016" PRIx64 ".plan", x->comm->trace->plans, x->plan->digest);
    error_keep(&kept);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        bool saved = !weft_plan_save(x->plan, NULL, 0, &n) && (bytes = malloc(n)) &&
                     !weft_plan_save(x->plan, bytes, n, &n) && write_all(fd, bytes, n);
        if (!saved)
            unlink(path);
        close(fd);
    }
    free(bytes);
    error_restore(&kept);
}

int tracer_make(weft_exec *x, struct program *p)
{
    if (!x->comm->trace && !x->comm->metrics.timed && !x->comm->profiled)
        return 0;
    p->tracer = program_take(p, 1, sizeof *p->tracer);
    if (!p->tracer)
        return error_nomem();
    p->tracer->seen = program_take(p, channels(p), sizeof *p->tracer->seen);
    if (!p->tracer->seen)
        return error_nomem();
    p->tracer->profiled = x->comm->profiled;
    snprintf(p->tracer->text, sizeof p->tracer->text, "weft run: %.40s by %.40s", x->plan->kind, x->plan->algorithm);
    p->tracer->to = x->comm->trace;
    if (!p->tracer->to)
        return 0;
    trace_touch(p->tracer->to);
    if (x->comm->rank == 0 && *p->tracer->to->plans)
        keep_plan(x);
    return 0;
}

void tracer_open(struct program *p)
{
    struct tracer *t = p->tracer;
    if (!t)
        return;
    t->of = p->driver;
    t->driver = *t->of;
    t->driver.start = start;
    t->driver.pass = pass;
    t->driver.enqueue = t->of->enqueue ? enqueue : NULL;
    p->driver = &t->driver;
}

void tracer_failed(weft_exec *x)
{
    if (!x->program->tracer)
        return;
    end_run(x, 0, true);
    trace_write(x->comm);
    metrics_write(x->comm);
}

/* ---- the text ---- */

static void put_step(const weft_exec *x, uint32_t s, struct text *t)
{
    const weft_plan *p = x->plan;
    const struct plan_step *st = &p->steps[s];
    uint32_t tensor = st->nparts ? p->bufs[p->parts[st->part].buf].tensor : 0;
    text_printf(t, ", \"step\": %" PRIu32 ", \"bytes\": %" PRId64 ", \"tensor\": %" PRIu32, s, st->bytes, tensor);
    char name[TRACE_NAME + 1];
    snprintf(name, sizeof name, "%s", p->names + p->tensors[tensor].name);
    flight_text_member(t, "name", name);
}

static void put_track(const weft_exec *x, struct text *t)
{
    char name[160];
    snprintf(name, sizeof name, "exec %" PRIu64 ": %.40s by %.40s, driver %s", x->task.id, x->plan->kind,
             x->plan->algorithm, x->program->driver->name);
    text_json(t, name);
}

void tracer_text(const struct comm_task *task, const struct trace_event *e, struct text *t)
{
    const weft_exec *x = (const weft_exec *)task;
    if (!e) {
        put_track(x, t);
        return;
    }
    text_printf(t, "\"exec\": %" PRIu64 ", \"run\": %" PRIu64, e->task, e->run);
    const struct exec_step *step = &x->program->steps[e->step];
    switch (e->event) {
    case EVENT_RUN:
        text_printf(t, ", \"plan\": \"%016" PRIx64 "\"", x->plan->digest);
        flight_text_member(t, "kind", x->plan->kind);
        flight_text_member(t, "algorithm", x->plan->algorithm);
        flight_text_member(t, "driver", x->program->driver->name);
        return;
    case EVENT_WAIT:
        if (e->peer == TRACE_NOBODY) {
            text_put(t, ", \"for\": null");
            return;
        }
        text_printf(t, ", \"for\": %d, \"to\": \"%s\"", flight_text_rank(x->comm, e->peer), e->sends ? "take" : "send");
        break;
    case EVENT_SEND:
    case EVENT_RECEIVE:
        text_printf(t, ", \"%s\": %d", e->event == EVENT_SEND ? "to" : "from", flight_text_rank(x->comm, e->peer));
        break;
    default: put_step(x, e->step, t); return;
    }
    text_printf(t, ", \"message\": %" PRIu32, e->message);
    flight_text_member(t, "way", x->program->driver->copies ? x->program->driver->name : step->way->name);
    put_step(x, e->step, t);
}
