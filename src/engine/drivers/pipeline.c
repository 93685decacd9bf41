/* The run of a program: one pipeline for all messages. A SEND is prepared (staged ones take a slot and
 * are packed, letters are packed), launched (the peer can see it) and retired when its memory is this
 * rank's own again. A RECV is taken when it is the next of its channel, has been launched and waits
 * for nothing; it is settled, which the sender sees, when nobody here will look at the message again.
 * Channels are first in first out both ways, so one counter each way says all.
 *
 * Counters only grow. Bucket k of run r (from 0) of a channel with n buckets a run is:
 *   pulled, staged   launched when `ready` reaches r*n + k + 1, read when `done` does; one that flows (flow.c) is
 *                    launched before it is packed; one that is helped (help.c) is read by both ends
 *   pushed           open for writing when `done` reaches r*n + k + 1, written when `ready` does
 *   a letter         launched when its slot has the number of the run; `done` says every few runs that
 *                    the letters of all runs before have been read
 * core_signal's store of a counter, and that of the letter's number, release what the one side wrote or
 * has read; the load on the other side acquires it.
 *
 * Why runs need nothing else between them: peers read a rank's SRC, DST and TEMP memory through its
 * SENDs only, and write its DST through its RECVs only. A run of a rank is over when all its steps
 * are done and all its SENDs are retired. So when it returns, no peer will touch its memory for this
 * run any more: the caller may change the source, and the next run may overwrite DST and TEMP. A
 * peer that is a run ahead only raises its counter beyond what is asked for. Letters are in memory of
 * their own: a rank may be LETTERS runs ahead of their readers before it must wait for them. So are staged messages
 * that keep their slots (keep.c): like letters they are retired when they are launched.
 *
 * Why staging cannot block for ever: a staged RECV is unpacked as soon as it is launched and first
 * in its channel, and frees the slot. A SEND that waits for a slot therefore waits for receivers
 * that have yet to start at the worst; and the slot that its exec has reserved can only be held by
 * a SEND of the same run, which its receivers take for this SEND's run to end at all.
 *
 * What a step that depends on a SEND waits for is that the memory behind it has been read: by the
 * packing if it is staged or a letter, by this rank if it is pushed, by the peer if it is pulled. */
#include <string.h>

#include "engine/block.h"
#include "engine/driver.h"
#include "engine/ways/far.h"

#define SLICE (256 << 10) /* bytes that one pass moves in each of its parts, and one step more */

void engine_opened(struct program *p, const struct exec_step *step)
{
    for (uint32_t k = 0; k < step->nnext; k++) {
        uint32_t s = p->next[step->next + k];
        if (--p->open[s])
            continue;
        switch (p->steps[s].kind) {
        case PLAN_SEND: p->launchable = true; break;
        case PLAN_RECV: break; /* receive looks at the first of each channel */
        default:
            if (p->steps[s].urgent)
                p->urgent[p->urgent_tail++] = s;
            else
                p->lazy[p->lazy_tail++] = s;
        }
    }
}

void engine_bytes(const struct exec_move *m, char *dst, const char *src, size_t bytes)
{
    if (m->nontemporal)
        memory_copy_nontemporal(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

void engine_move(const struct exec_move *m, char *dst, const char *src)
{
    if (m->tile)
        memory_copy(m->tile, dst, m->to, src, m->from);
    else if (m->nontemporal)
        memory_copy_nontemporal(dst, src, (size_t)m->bytes);
    else
        letter_copy(dst, src, m->bytes);
}

/* ---- sending ---- */

void engine_pack(const struct program *p, const struct exec_step *step, char *message)
{
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        engine_move(m, message + m->offset, m->src);
    }
}

/* Are all channels of a share at it, with room in flight? */
static bool all_at(const weft_exec *x, const struct exec_share *share)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        if (out->posted != share->index || p->open[out->steps[out->posted]] ||
            out->posted - out->retired >= (uint32_t)x->comm->channel_buckets)
            return false;
    }
    return true;
}

bool engine_slot(weft_exec *x, struct exec_share *share)
{
    struct program *p = x->program;
    if (!all_at(x, share))
        return false;
    if (share->kept) {
        share->message = keep_slot(share->kept_at, share->slot_bytes, x->run);
    } else {
        if (!staging_take(&x->comm->staging, &p->reserve, x->plan->steps[share->step].bytes, &share->slot))
            return false;
        share->message = x->comm->staging.base + share->slot;
    }
    share->run = x->run;
    share->readers = share->nouts;
    return true;
}

static bool stage(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct program *p = x->program;
    struct block_message *send = &out->sends[out->posted];
    struct exec_share *share = &p->shares[step->letter];
    if (share->run != x->run) {
        if (!engine_slot(x, share))
            return false;
        if (step->combed)
            comb_pack(x, out);
        else if (step->flows)
            flow_pack(x, share, step, share->message);
        else
            engine_pack(p, step, share->message);
    }
    if (!step->flows && !step->kept) /* else it has been shown already, or is where it always is */
        send->slot = (uint64_t)share->slot;
    engine_opened(p, step);
    return true;
}

/* Have the readers on a channel let go of the slot that a letter of this run goes into? */
static bool slot_free(const weft_exec *x, struct exec_out *out)
{
    uint64_t need = x->run > LETTERS ? (x->run - LETTERS) * out->n : 0;
    if (out->seen_done < need)
        out->seen_done = atomic_load_explicit(out->done, memory_order_seq_cst);
    return out->seen_done >= need;
}

void engine_write(const weft_exec *x, const struct exec_letter *letter)
{
    const struct exec_step *step = &x->program->steps[letter->step];
    char *slot = letter->slot + letter_slot(x->run, letter->slots, letter->slot_bytes);
    if (letter->bytes > LETTER_TINY) {
        engine_pack(x->program, step, slot);
        if (!letter->joint)
            letter_seal(slot, x->run, letter->number);
    } else {
        char tiny[LETTER_TINY];
        engine_pack(x->program, step, tiny);
        letter_write_tiny(slot, x->run, tiny, letter->bytes);
    }
}

void engine_seal(const weft_exec *x)
{
    const struct exec_letter *joint = x->program->joint;
    if (joint)
        letter_seal(joint->slot + letter_slot(x->run, joint->slots, joint->slot_bytes), x->run, joint->number);
}

/* Wakes those who sleep and are to see the letter. */
static void call_readers(const weft_exec *x, const struct exec_letter *letter)
{
    const struct program *p = x->program;
    core_fence_all(); /* between the letter and the looks at who sleeps, as in core_signal */
    for (uint32_t i = 0; i < letter->nouts; i++)
        core_call_fenced(x->comm->group, p->outs[p->readers_of[letter->outs + i]].peer);
}

static void seal(weft_exec *x)
{
    const struct program *p = x->program;
    engine_seal(x);
    for (uint32_t i = 0; i < p->nletters; i++)
        if (p->letters[i].joint)
            call_readers(x, &p->letters[i]);
}

static bool write_letter(weft_exec *x, const struct exec_step *step)
{
    struct program *p = x->program;
    struct exec_letter *letter = &p->letters[step->letter];
    if (letter->run == x->run)
        return true;
    const uint32_t *outs = p->readers_of + letter->outs;
    for (uint32_t i = 0; i < letter->nouts && !letter->answered; i++)
        if (!slot_free(x, &p->outs[outs[i]]))
            return false;
    engine_write(x, letter);
    if (!letter->joint)
        call_readers(x, letter);
    letter->run = x->run;
    return true;
}

/* Is the SEND retired when it is launched? */
static bool at_once(const struct exec_step *step)
{
    return step->way == WAY_LETTER || step->kept;
}

/* Launches what can go: of a staged channel one bucket, so that channels take turns, of others all. */
static bool launch(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    p->launchable = false;
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        uint32_t before = out->posted, told = before;
        while (out->posted < out->n && !p->open[out->steps[out->posted]]) {
            const struct exec_step *step = &p->steps[out->steps[out->posted]];
            if (step->way == WAY_PUSH || (step->way == WAY_LETTER && !write_letter(x, step)) ||
                (step->way == WAY_STAGED && (told != before || !stage(x, out, step))))
                break;
            out->posted++;
            if (at_once(step)) {
                if (out->retired == out->posted - 1)
                    out->retired++;
                p->left--;
            }
            if (step->way == WAY_LETTER)
                engine_opened(p, step);
            else
                told = out->posted;
        }
        if (out->posted == before)
            continue;
        p->unposted -= out->posted - before;
        if (told != before)
            core_signal(x->comm->group, out->peer, out->ready, out->base + told);
        moved = true;
    }
    return moved;
}

static bool retire(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        if (out->retired == out->posted)
            continue;
        out->seen_done = atomic_load_explicit(out->done, memory_order_seq_cst);
        while (out->retired < out->posted) {
            const struct exec_step *step = &p->steps[out->steps[out->retired]];
            if (at_once(step)) { /* it was when it was launched */
                out->retired++;
                continue;
            }
            if (out->base + out->retired >= out->seen_done)
                break;
            const struct block_message *send = &out->sends[out->retired++];
            if (step->way == WAY_PULL)
                engine_opened(p, step);
            else if (--p->shares[step->letter].readers == 0)
                staging_give(&x->comm->staging, &p->reserve, send->bytes, (int64_t)send->slot);
            p->left--;
            moved = true;
        }
    }
    return moved;
}

void engine_pushed(weft_exec *x, struct exec_out *out)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[out->steps[out->posted]];
    if (out->retired == out->posted++)
        out->retired++;
    p->unposted--;
    p->left--;
    core_signal(x->comm->group, out->peer, out->ready, out->base + out->posted);
    engine_opened(p, step);
    p->launchable |= out->posted < out->n; /* a letter may be next */
}

/* ---- receiving ---- */

/* Without a message each move knows where its part is. */
void engine_unpack(const struct program *p, const struct exec_step *step, const char *message)
{
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        engine_move(m, m->dst, message ? message + m->offset : m->src);
    }
}

/* Tells the sender of the messages that have been read to the end. Letters do not count: a fold may read one when
 * others have come that need what is behind it. That their slots are free is told by let_go; here it is told too early,
 * but where there is something else to tell, the sender cannot get more than a run ahead. */
static void settle(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    bool tell = false;
    for (; in->settled < in->taken; in->settled++) {
        uint32_t s = in->steps[in->settled];
        if (p->steps[s].way != WAY_LETTER && p->readers[s])
            break;
        tell |= p->steps[s].way != WAY_LETTER && p->steps[s].way != WAY_PUSH && !p->steps[s].kept;
    }
    if (tell)
        core_signal(x->comm->group, in->peer, in->done, in->base + in->settled);
}

/* At the end of a run all letters have been read. */
static void let_go(weft_exec *x)
{
    for (uint32_t i = 0; i < x->program->nins; i++) {
        struct exec_in *in = &x->program->ins[i];
        if (in->letters)
            core_signal(x->comm->group, in->peer, in->done, in->base + in->n);
    }
}

/* Opens what peers push into. */
static void welcome(weft_exec *x)
{
    for (uint32_t i = 0; i < x->program->nins; i++) {
        struct exec_in *in = &x->program->ins[i];
        if (in->pushed)
            core_signal(x->comm->group, in->peer, in->done, in->base + in->n);
    }
}

const char *engine_letter(const weft_exec *x, const struct exec_step *step)
{
    return step->slot + letter_slot(x->run, step->slots, step->slot_bytes);
}

/* The message of a letter that is there: in its slot, or put together. */
static const char *open_letter(const weft_exec *x, const struct exec_step *step)
{
    const char *slot = engine_letter(x, step);
    if (!step->tiny)
        return slot;
    letter_read_tiny(slot, x->run, step->tiny, step->letter_bytes);
    return step->tiny;
}

/* Is the next message of the channel there? Relaxed, so that looks at several peers do not wait for each other:
 * core_arm's fence comes before them where they are to be the last before a sleep, and who reads the message then
 * fences it from the look. */
bool engine_arrived(const weft_exec *x, const struct exec_in *in)
{
    const struct exec_step *step = &x->program->steps[in->steps[in->taken]];
    if (step->way == WAY_LETTER)
        return letter_there(engine_letter(x, step), x->run, step->letter_bytes, step->number);
    return atomic_load_explicit(in->ready, CORE_LOOK) > in->base + in->taken && (!step->flows || flow_arrived(x, in)) &&
           (!step->helped || help_arrived(x, in));
}

void engine_pulled(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[in->steps[in->taken++]];
    p->left--;
    settle(x, in);
    engine_opened(p, step);
    if (x->arrivals)
        arrivals_step(x, (uint32_t)(step - p->steps));
}

const char *engine_staged(const weft_exec *x, const struct exec_in *in)
{
    const struct exec_step *step = &x->program->steps[in->steps[in->taken]];
    return step->kept ? keep_slot(step->slot, step->slot_bytes, x->run) : in->staging + in->sends[in->taken].slot;
}

static int64_t take(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[in->steps[in->taken]];
    const char *message = NULL;
    if (step->way == WAY_CROSS) {
        if (!cross_take(x, in, step))
            return SLICE;
        engine_pulled(x, in);
        return step->bytes;
    }
    if (step->combed)
        return comb_take(x, in);
    if (step->joins)
        return join_take(x, in);
    if (step->flows || step->helped) {
        int64_t bytes;
        if (step->flows ? flow_take(x, in, step, &bytes) : help_take(x, in, step, &bytes))
            engine_pulled(x, in);
        return bytes;
    }
    if (step->way == WAY_STAGED)
        message = engine_staged(x, in);
    else if (step->way == WAY_LETTER)
        message = open_letter(x, step);
    engine_unpack(p, step, message);
    engine_pulled(x, in);
    return step->nwork ? step->bytes : 0;
}

bool engine_can_take(const weft_exec *x, const struct exec_in *in)
{
    const struct program *p = x->program;
    return in->taken < in->n && !p->open[in->steps[in->taken]] && !p->steps[in->steps[in->taken]].woven &&
           engine_arrived(x, in);
}

static bool receive(weft_exec *x, bool eager)
{
    struct program *p = x->program;
    int64_t room = SLICE;
    uint32_t first = 0;
    bool moved = false;
    for (; first < p->nins && !engine_can_take(x, &p->ins[first]); first++) {
    }
    for (uint32_t i = first; i < p->nins && room > 0; i++) {
        struct exec_in *in = &p->ins[i];
        while (room > 0 && engine_can_take(x, in) && (eager || !comb_waits(x, in))) {
            core_fence_looks(); /* pairs with the store that engine_arrived() has seen */
            room -= take(x, in);
            moved = true;
        }
    }
    return moved;
}

/* ---- local steps ---- */

static void fold(const weft_exec *x, const struct exec_fold *f)
{
    for (uint32_t k = 0; k < f->nletters; k++) {
        const struct exec_lettered *l = &f->letters[k];
        const void *at = l->at + letter_slot(x->run, l->slots, l->slot_bytes);
        if (f->runs)
            f->in[l->term] = at;
        else
            f->terms[l->term].data = at;
    }
    if (f->runs)
        f->runs(f->dst, f->in, (int)f->n, f->count);
    else if (f->n)
        memory_fold(f->tile, f->dst, f->to, f->via, f->acc, f->op, f->div, f->terms, f->n);
    else
        memory_fill_identity(f->tile, f->dst, f->to, f->op);
}

void engine_do(const weft_exec *x, const struct exec_step *step)
{
    const struct program *p = x->program;
    if (step->kind == PLAN_REDUCE) {
        fold(x, &p->folds[step->work]);
        return;
    }
    engine_unpack(p, step, NULL);
}

static void work(weft_exec *x, uint32_t s)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[s];
    engine_do(x, step);
    for (uint32_t k = 0; k < step->nholds; k++) {
        uint32_t recv = p->holds[step->hold + k];
        if (--p->readers[recv] == 0)
            settle(x, &p->ins[p->steps[recv].channel]);
    }
    engine_copied(x, s);
}

void engine_copied(weft_exec *x, uint32_t step)
{
    struct program *p = x->program;
    p->left--;
    engine_opened(p, &p->steps[step]);
    if (x->arrivals)
        arrivals_step(x, step);
}

static bool drain(weft_exec *x, const uint32_t *queue, uint32_t *head, const uint32_t *tail)
{
    bool moved = false;
    for (int64_t room = SLICE; *head < *tail && room > 0; moved = true) {
        uint32_t s = queue[(*head)++];
        work(x, s);
        room -= x->program->steps[s].bytes;
    }
    return moved;
}

/* ---- the run ---- */

static void start(weft_exec *x)
{
    struct program *p = x->program;
    memcpy(p->open, p->open0, p->nsteps * sizeof *p->open);
    memcpy(p->readers, p->readers0, p->nsteps * sizeof *p->readers);
    p->left = p->nsteps;
    p->unposted = 0;
    for (uint32_t i = 0; i < p->nins; i++) {
        struct exec_in *in = &p->ins[i];
        in->base = (x->run - 1) * in->n;
        in->taken = in->settled = 0;
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        out->base = (x->run - 1) * out->n;
        out->posted = out->retired = 0;
        p->unposted += out->n;
    }
    p->urgent_head = p->urgent_tail = p->lazy_head = p->lazy_tail = 0;
    for (uint32_t k = 0; k < p->nfirst; k++) {
        uint32_t s = p->first[k];
        if (p->steps[s].urgent)
            p->urgent[p->urgent_tail++] = s;
        else
            p->lazy[p->lazy_tail++] = s;
    }
    if (p->pushed)
        welcome(x);
    if (p->weave.n)
        weave_start(p);
    if (p->unposted)
        launch(x);
    if (p->joint)
        seal(x);
    if (p->far.n)
        far_start(x);
}

/* Others wait for what is launched, folded and received; copies that only this rank needs come last. */
static bool pass(weft_exec *x, bool eager)
{
    struct program *p = x->program;
    bool moved = retire(x);
    moved |= drain(x, p->urgent, &p->urgent_head, &p->urgent_tail);
    if (p->unposted && (p->launchable || p->held)) /* what holds it may be freed by others, too */
        moved |= launch(x);
    if (receive(x, eager)) {
        drain(x, p->urgent, &p->urgent_head, &p->urgent_tail);
        moved = true;
    }
    if (p->far.n)
        moved |= far_pass(x);
    if (p->weave.left)
        moved |= weave_pass(x, eager);
    if (!moved)
        moved = drain(x, p->lazy, &p->lazy_head, &p->lazy_tail);
    if (!moved && p->helps)
        moved = help_pass(x);
    if (!p->left && x->run % (LETTERS / 2) == 0)
        let_go(x);
    return moved;
}

/* ---- waiting ---- */

static bool in_waits(const weft_exec *x, const struct exec_in *in)
{
    return in->taken < in->n && !x->program->open[in->steps[in->taken]] && !engine_arrived(x, in);
}

static bool out_waits(const weft_exec *x, const struct exec_out *out)
{
    const struct program *p = x->program;
    uint64_t done = atomic_load_explicit(out->done, memory_order_seq_cst);
    if (out->retired < out->posted && out->base + out->retired >= done)
        return true;
    if (out->posted == out->n)
        return false;
    if (out->letters && x->run > LETTERS &&
        done < (x->run - LETTERS) * out->n) /* so far ahead one gets by letters alone */
        return true;
    uint32_t s = out->steps[out->posted];
    return !p->open[s] && p->steps[s].way == WAY_PUSH && out->base + out->posted >= done;
}

/* A rank that waits for arrivals and has read all that has come needs all of them to end its run; the same holds for
 * the peers that have yet to read or to open what they are sent. Which of the two comes last is not known. */
static int lacking(const weft_exec *x)
{
    const struct program *p = x->program;
    int ins = 0, outs = 0, opens = 0;
    if (p->far.n)
        return 1;
    for (uint32_t i = 0; i < p->nins; i++)
        ins += in_waits(x, &p->ins[i]);
    for (uint32_t i = 0; i < p->nouts; i++) {
        bool waits = out_waits(x, &p->outs[i]);
        outs += waits;
        opens += waits && p->outs[i].posted < p->outs[i].n;
    }
    return opens ? opens : ins ? ins : outs ? outs : 1;
}

static struct driver_count in_count(const weft_exec *x, const struct exec_in *in)
{
    (void)x;
    return (struct driver_count){in->taken, in->taken, in->taken};
}

static struct driver_count out_count(const weft_exec *x, const struct exec_out *out)
{
    (void)x;
    return (struct driver_count){out->posted, out->retired, out->retired < out->posted ? out->retired : out->posted};
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    (void)x, (void)p, (void)block_at, (void)state;
    *can = true;
    return 0;
}

const struct driver driver_pipeline = {
    .name = "pipeline",
    .what = "channels first in first out, steps as what they wait for is done",
    .basic = true,
    .make = make,
    .start = start,
    .pass = pass,
    .in_waits = in_waits,
    .out_waits = out_waits,
    .lacking = lacking,
    .in_count = in_count,
    .out_count = out_count,
};
