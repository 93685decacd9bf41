/* Messages between ranks that share no memory. A wire carries them. Bind makes a message of the wire for each, and
 * every run starts it. There are no counters between the ends: each message has a tag, and the wire matches the nth
 * start at one end with the nth start at the other, so it cannot confuse two runs.
 *
 * A message goes straight from or to its place if that is dense and has the message's dtype. It goes as a list of
 * pieces if the wire takes lists and the pieces have 2 KiB or more on average. Otherwise it goes through a slot: a
 * channel has `channel_buckets` slots, or fewer if all slots together would take more than half of the staging memory
 * that is left.
 *
 * A SEND is packed if it has a slot, then started, and is over when the wire does not need its memory any more. A RECV
 * is started as soon as its memory is free, which is at the start of a run unless it waits for a slot. It is over when
 * the message has come and has been unpacked. */
#include "engine/ways/way_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defaults.h"
#include "base/error.h"
#include "engine/channel.h"
#include "engine/device/carry.h"
#include "engine/proof.h"
#include "engine/work.h"

#define SLICE (1 << 20) /* bytes that one pass packs or unpacks in each channel; its last message may go beyond */

/* ---- bind ---- */

static int make_channels(const weft_exec *x, struct program *p, int kind, const uint32_t *steps, uint32_t all)
{
    struct wire_channels *wired = &p->wired;
    for (uint32_t at = 0, n; at < all; at += n) {
        struct wire_channel *ch = &wired->channels[wired->n++];
        n = program_run(x, steps + at, all - at);
        ch->peer = x->plan->steps[steps[at]].peer;
        ch->sends = kind == PLAN_SEND;
        ch->messages = program_take(p, n, sizeof *ch->messages);
        if (!ch->messages)
            return error_nomem();
        for (uint32_t k = at; k < at + n; k++) {
            ch->messages[ch->n++].step = steps[k];
            p->steps[steps[k]].offer = OFFER_WIRE;
            p->steps[steps[k]].way = &way_wire;
        }
    }
    return 0;
}

int way_wire_outline(weft_exec *x, struct program *p)
{
    if (!x->comm->link->hosts)
        return 0;
    uint32_t nins, nouts, *steps = p->urgent, *spare = p->lazy; /* queues that the run uses */
    uint32_t recvs = program_messages(x, PLAN_RECV, PEERS_ELSEWHERE, steps, spare, &nins);
    uint32_t sends = program_messages(x, PLAN_SEND, PEERS_ELSEWHERE, steps + recvs, spare, &nouts);
    p->wired.channels = program_take(p, nins + nouts, sizeof *p->wired.channels);
    if (!p->wired.channels)
        return error_nomem();
    int err = make_channels(x, p, PLAN_RECV, steps, recvs);
    return err ? err : make_channels(x, p, PLAN_SEND, steps + recvs, sends);
}

int way_wire_tags(weft_exec *x, struct program *p, bool checks)
{
    struct transport_hosts *hosts = x->comm->link->hosts;
    int err = 0;
    for (uint32_t i = 0; i < p->wired.n; i++) {
        struct wire_channel *ch = &p->wired.channels[i];
        uint64_t *next = &(ch->sends ? hosts->tags_out : hosts->tags_in)[ch->peer];
        if (x->program != p) { /* binding again: the same plan has the same channels */
            ch->tag = x->program->wired.channels[i].tag;
            continue;
        }
        ch->tag = *next;
        *next += ch->n + checks; /* the last one is for their sums */
        if (*next > hosts->wire->tags && !err)
            err = error_set(WEFT_EUNSUPPORTED,
                            "%s has %llu tags for messages between two ranks, and those with rank %d are used up: open "
                            "the comm again",
                            hosts->wire->ops->name, (unsigned long long)hosts->wire->tags, ch->peer);
    }
    return err;
}

/* The place of a message that needs no slot: it is one piece and is not cast. NULL: it needs one. */
static char *direct(const weft_exec *x, const struct program *p, const struct wire_channel *ch,
                    const struct wire_bucket *m)
{
    const struct exec_step *step = &p->steps[m->step];
    const struct exec_move *move = &p->moves[step->work];
    if (p->carries || step->nwork != 1 || move->tile || move->offset || move->bytes != x->plan->steps[m->step].bytes)
        return NULL;
    return ch->sends ? (char *)(uintptr_t)move->src : move->dst;
}

/* The number of dense pieces of a move at its place, in the order of the message. 0: it casts, or the message has them
 * in another order. If `out` is not NULL, writes them there. */
static int64_t pieces(const struct exec_move *move, bool sends, struct wire_part *out)
{
    const struct memory_tile *t = move->tile;
    char *place = sends ? (char *)(uintptr_t)move->src : move->dst;
    if (!t) {
        if (out)
            *out = (struct wire_part){place, (size_t)move->bytes};
        return 1;
    }
    int64_t size = (int64_t)weft_dtype_size(move->to), dense = size, n = 1, at[MEMORY_LOOPS] = {0};
    const int64_t *here = t->stride[sends], *message = t->stride[!sends];
    int last = t->loops - 1;
    if (move->to != move->from || last < 0 || here[last] != size)
        return 0;
    for (int i = last; i >= 0; dense *= t->n[i--]) {
        if (message[i] != dense)
            return 0;
        n *= i < last ? t->n[i] : 1;
    }
    for (int64_t k = 0; out && k < n; k++) {
        int64_t off = 0;
        for (int i = 0; i < last; i++)
            off += at[i] * here[i];
        out[k] = (struct wire_part){place + off, (size_t)(t->n[last] * size)};
        for (int i = last - 1; i >= 0 && ++at[i] == t->n[i]; i--)
            at[i] = 0;
    }
    return n;
}

/* The number of pieces of a message that goes as a list. 0: it does not, since the wire takes no lists, or the pieces
 * are too short. */
static int64_t listed(const weft_exec *x, const struct program *p, const struct wire_channel *ch,
                      const struct wire_bucket *m)
{
    const struct exec_step *step = &p->steps[m->step];
    int64_t bytes = 0, all = 0;
    if (p->carries || !x->comm->link->hosts->wire->ops->make_list)
        return 0;
    for (uint32_t i = 0; i < step->nwork; i++) {
        const struct exec_move *move = &p->moves[step->work + i];
        int64_t n = move->offset == bytes ? pieces(move, ch->sends, NULL) : 0;
        if (!n)
            return 0;
        all += n;
        bytes += move->bytes;
    }
    return all && bytes == x->plan->steps[m->step].bytes && bytes / all >= DEFAULTS_PIECE ? all : 0;
}

static int make_list(weft_exec *x, struct program *p, const struct wire_channel *ch, struct wire_bucket *m,
                     uint64_t tag, int64_t n)
{
    struct wire *wire = x->comm->link->hosts->wire;
    const struct exec_step *step = &p->steps[m->step];
    struct wire_part *parts = calloc((size_t)n, sizeof *parts);
    if (!parts)
        return error_nomem();
    for (int64_t i = 0, k = 0; i < step->nwork; i++)
        k += pieces(&p->moves[step->work + i], ch->sends, parts + k);
    int err = wire->ops->make_list(wire, ch->peer, tag, parts, (size_t)n, ch->sends, &m->wire);
    free(parts);
    return err;
}

static int64_t slot_size(const weft_exec *x, const struct program *p, const struct wire_channel *ch, uint32_t *staged)
{
    int64_t most = 0;
    *staged = 0;
    for (uint32_t k = 0; k < ch->n; k++) {
        if (direct(x, p, ch, &ch->messages[k]) || listed(x, p, ch, &ch->messages[k]))
            continue;
        int64_t bytes = x->plan->steps[ch->messages[k].step].bytes;
        most = bytes > most ? bytes : most;
        ++*staged;
    }
    return (most + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

/* Bytes that all channels need with at most `slots` slots each. */
static int64_t all_slots(const weft_exec *x, const struct program *p, uint32_t slots)
{
    int64_t all = 0;
    for (uint32_t i = 0; i < p->wired.n; i++) {
        uint32_t staged;
        int64_t bytes = slot_size(x, p, &p->wired.channels[i], &staged);
        all += bytes * (staged < slots ? staged : slots);
    }
    return all;
}

static int make_messages(weft_exec *x, struct program *p, struct wire_channel *ch, char **room)
{
    struct wire *wire = x->comm->link->hosts->wire;
    uint32_t staged = 0;
    int64_t bytes = slot_size(x, p, ch, &staged);
    ch->slots = staged < ch->slots ? staged : ch->slots;
    staged = 0;
    for (uint32_t k = 0; k < ch->n; k++) {
        struct wire_bucket *m = &ch->messages[k];
        struct exec_step *step = &p->steps[m->step];
        char *memory = direct(x, p, ch, m);
        int64_t n = memory ? 0 : listed(x, p, ch, m);
        if (n) {
            int err = make_list(x, p, ch, m, ch->tag + k, n);
            if (err)
                return err;
            step->nwork = 0;
            continue;
        }
        if (memory)
            step->nwork = 0;
        else
            step->slot = memory = m->slot = *room + bytes * (staged++ % ch->slots);
        int err = wire->ops->make(wire, ch->peer, ch->tag + k, memory, (size_t)x->plan->steps[m->step].bytes, ch->sends,
                                  &m->wire);
        if (err)
            return err;
    }
    *room += bytes * ch->slots;
    return 0;
}

int way_wire_fill(weft_exec *x, struct program *p)
{
    struct wire_channels *wired = &p->wired;
    weft_comm *c = x->comm;
    uint32_t slots = (uint32_t)c->channel_buckets;
    if (!wired->n)
        return 0;
    while (slots > 1 && all_slots(x, p, slots) > (c->staging.limit - c->staging.taken) / 2)
        slots--;
    int64_t bytes = all_slots(x, p, slots);
    if (!staging_charge(&c->staging, bytes))
        return error_set(WEFT_ENOMEM,
                         "%u channels with other hosts need %lld bytes of staging, %lld of %lld are left: raise "
                         "inflight_bytes, or lower with a smaller bucket",
                         wired->n, (long long)bytes, (long long)(c->staging.limit - c->staging.taken),
                         (long long)c->staging.limit);
    wired->slot_bytes = bytes;
    char *room = arena_alloc(&p->arena, (size_t)wired->slot_bytes + STAGING_ALIGN);
    if (!room)
        return error_nomem();
    room = (char *)(((uintptr_t)room + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN);
    int err = 0;
    for (uint32_t i = 0; i < wired->n && !err; i++) {
        wired->channels[i].slots = slots;
        err = make_messages(x, p, &wired->channels[i], &room);
        if (!err && x->checks)
            err = proof_wire_make(x, p, &wired->channels[i]);
    }
    return err;
}

/* False: the wire still uses the memory of the message. */
static bool give_up(struct wire_message *m)
{
    if (!m)
        return true;
    bool ours = m->wire->ops->cancel(m);
    m->wire->ops->drop(m);
    return ours;
}

bool way_wire_free(const weft_exec *x, struct program *p)
{
    bool ours = true;
    if (p->wired.n)
        x->comm->link->hosts->wire->failed = core_failed(x->comm->group);
    for (uint32_t i = 0; i < p->wired.n; i++) {
        const struct wire_channel *ch = &p->wired.channels[i];
        for (uint32_t k = 0; ch->messages && k < ch->n; k++)
            ours &= give_up(ch->messages[k].wire);
        ours &= !ch->proof || give_up(ch->proof->wire);
    }
    return ours;
}

/* ---- the run ---- */

static bool broken(weft_exec *x, const struct wire_channel *ch, int err)
{
    char who[NAMES_RANK], text[CORE_TEXT / 3];
    snprintf(text, sizeof text, "%s", weft_errmsg()); /* the wire's text */
    comm_fail(x->comm, err, "rank %d, which was %s %s: %s", x->comm->rank, ch->sends ? "sending to" : "waiting for",
              names_rank(x->comm, ch->peer, who), text);
    return true;
}

static bool slot_free(const struct wire_channel *ch, const struct wire_bucket *m)
{
    return !m->slot || ch->slots_begun - ch->slots_ended < ch->slots;
}

/* Packs the next message. False: the device has not packed it yet. Those behind it are begun, as far as there are
 * slots.
 */
static bool packed(weft_exec *x, const struct wire_channel *ch)
{
    struct program *p = x->program;
    const struct wire_bucket *m = &ch->messages[ch->begun];
    if (!p->carry) {
        work_pack(p, &p->steps[m->step], m->slot);
        return true;
    }
    for (uint32_t k = ch->begun; k < ch->n && k - ch->ended < ch->slots && !p->open[ch->messages[k].step]; k++)
        carry_begin(x, ch->messages[k].step);
    return carry_done(x, m->step);
}

/* Unpacks the next message, which has come, in the same way. */
static int unpacked(weft_exec *x, struct wire_channel *ch)
{
    struct program *p = x->program;
    const struct wire_bucket *m = &ch->messages[ch->ended];
    if (!p->carry) {
        work_unpack(p, &p->steps[m->step], m->slot);
        return 1;
    }
    int done = 1;
    for (; ch->came < ch->begun && done > 0; ch->came += done > 0)
        done = m->wire->wire->ops->test(ch->messages[ch->came].wire);
    for (uint32_t k = ch->ended; k < ch->came; k++)
        carry_begin(x, ch->messages[k].step);
    return done < 0 ? done : carry_done(x, m->step);
}

static bool begin(weft_exec *x, struct wire_channel *ch)
{
    struct program *p = x->program;
    struct wire *wire = x->comm->link->hosts->wire;
    bool moved = false;
    for (int64_t room = SLICE; ch->begun < ch->n && room > 0; moved = true) {
        struct wire_bucket *m = &ch->messages[ch->begun];
        const struct exec_step *step = &p->steps[m->step];
        if (p->open[m->step] || !slot_free(ch, m))
            break;
        if (ch->sends && m->slot) {
            if (!packed(x, ch))
                break;
            room -= step->bytes;
        }
        int err = wire->ops->start(m->wire);
        if (!err && ch->proof)
            err = proof_wire_began(x, ch);
        if (err)
            return broken(x, ch, err);
        ch->begun++;
        ch->slots_begun += m->slot != NULL;
        if (ch->sends && m->slot)
            channel_release(p, step); /* the memory that it was packed from may change */
    }
    return moved;
}

static bool end(weft_exec *x, struct wire_channel *ch)
{
    struct program *p = x->program;
    struct wire *wire = x->comm->link->hosts->wire;
    bool moved = false;
    for (int64_t room = SLICE; ch->ended < ch->begun && room > 0; moved = true) {
        struct wire_bucket *m = &ch->messages[ch->ended];
        const struct exec_step *step = &p->steps[m->step];
        int done = ch->ended < ch->came ? 1 : wire->ops->test(m->wire);
        if (done > 0 && ch->ended == ch->came)
            ch->came++;
        if (done > 0 && ch->proof)
            done = proof_wire_test(ch);
        if (done < 0)
            return broken(x, ch, done);
        if (!done) {
            ch->looked = true;
            break;
        }
        if (!ch->sends && m->slot) {
            done = unpacked(x, ch);
            if (done < 0)
                return broken(x, ch, done);
            if (!done)
                break;
            room -= step->bytes;
        }
        if (!ch->sends && ch->proof && !proof_wire_came(x, ch))
            return true;
        ch->ended++;
        ch->slots_ended += m->slot != NULL;
        ch->heard_at = 0;
        p->left--;
        if (!ch->sends)
            ch->peer_run = x->run; /* otherwise the message would not have come */
        if (!ch->sends || !m->slot)
            channel_release(p, step);
        if (!ch->sends && x->arrivals)
            arrivals_step(x, m->step);
    }
    return moved;
}

void way_wire_start(weft_exec *x)
{
    struct wire_channels *wired = &x->program->wired;
    for (uint32_t i = 0; i < wired->n; i++) {
        struct wire_channel *ch = &wired->channels[i];
        ch->begun = ch->came = ch->ended = ch->slots_begun = ch->slots_ended = 0;
        ch->heard_at = 0;
        ch->gone = false;
    }
    for (uint32_t i = 0; i < wired->n && !core_failed(x->comm->group); i++)
        begin(x, &wired->channels[i]);
    if (wired->n &&
        !wired->channels[0].sends) { /* peers may wait until this rank can receive: tell them before the next call */
        struct wire *wire = x->comm->link->hosts->wire;
        wire->ops->progress(wire);
    }
}

bool way_wire_pass(weft_exec *x)
{
    struct wire_channels *wired = &x->program->wired;
    bool moved = false;
    for (uint32_t i = 0; i < wired->n && !core_failed(x->comm->group); i++) {
        struct wire_channel *ch = &wired->channels[i];
        if (ch->ended == ch->n)
            continue;
        moved |= end(x, ch);
        moved |= begin(x, ch);
    }
    return moved;
}

/* ---- waiting ---- */

bool way_wire_waits(const struct wire_channel *ch)
{
    return ch->ended < ch->begun;
}

void way_wire_heard(weft_exec *x, int peer, uint64_t run, int64_t now)
{
    for (uint32_t i = 0; i < x->program->wired.n; i++) {
        struct wire_channel *ch = &x->program->wired.channels[i];
        if (ch->peer != peer)
            continue;
        ch->peer_run = run;
        ch->heard_at = now;
    }
}

void way_wire_freed(weft_exec *x, int peer, uint64_t run)
{
    for (uint32_t i = 0; i < x->program->wired.n; i++) {
        struct wire_channel *ch = &x->program->wired.channels[i];
        if (ch->peer != peer)
            continue;
        ch->freed = true;
        ch->last_run = run;
    }
}

static bool fits(const struct way_ends *e)
{
    return e->send->offer == OFFER_WIRE;
}

/* Its channels have no counters and are not in the control blocks: the pipeline calls way_wire_pass for them. */
const struct way way_wire = {
    .name = "wire",
    .what = "a message of a wire, to a rank on another host",
    .why = "the peer is on another host",
    .basic = true,
    .send_moves = WAY_MOVES_MESSAGE,
    .recv_moves = WAY_MOVES_MESSAGE,
    .fits = fits,
};
