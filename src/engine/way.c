/* How messages travel.
 *
 * Small ones are letters: the sender packs the message into a slot of its block and puts the run's
 * number in front of it, which is all the signal there is. SENDs of the same data to several ranks
 * are one letter that all of them read.
 *
 * Elements that lie far apart on both sides are packed, too, into staging memory: who reads them where they are has a
 * line of the other's cache come for each, and it is the line in which that one writes next (a ghost beside a cell).
 *
 * Of the others, one side copies straight from memory to memory. It should be the side whose memory is
 * walked in shorter runs: it goes through that in the order of its addresses, all channels together
 * (weave.c), and the runs of the other sides are so many open streams. */
#include <string.h>

#include "base/error.h"
#include "engine/block.h"

#define LETTERS_LIMIT (512 << 10) /* bytes of all letters of an exec */
#define LETTERS_ONCE (8 << 10)    /* bytes of those of a run to peers that could pull them; see way_letters */
#define SCATTERED 32              /* bytes of runs that are worth packing: half of a cache's line, most often */
#define SCATTERED_FAR 64          /* and of those that stand FAR apart, each on a page of its own */
#define FAR 4096

/* ---- letters ---- */

static bool same_data(const weft_plan *plan, const struct plan_step *a, const struct plan_step *b)
{
    if (a->nparts != b->nparts || a->bytes != b->bytes)
        return false;
    for (uint32_t k = 0; k < a->nparts; k++) {
        const struct plan_part *pa = &plan->parts[a->part + k], *pb = &plan->parts[b->part + k];
        if (pa->buf != pb->buf || pa->wire != pb->wire || pa->offset != pb->offset || pa->count != pb->count)
            return false;
        size_t ndim = (size_t)plan_ndim(plan, pa);
        if (ndim && (memcmp(plan->runs + pa->runs, plan->runs + pb->runs, ndim * sizeof *plan->runs) ||
                     memcmp(plan->spots + pa->spots, plan->spots + pb->spots, ndim * sizeof *plan->spots)))
            return false;
    }
    return true;
}

/* SENDs of the same data are one letter for all readers who answer, and one for those who do not. */
static uint32_t find_letter(const weft_plan *plan, const struct program *p, uint32_t step, bool answered)
{
    uint32_t i = 0;
    while (i < p->nletters && (p->letters[i].answered != answered ||
                               !same_data(plan, &plan->steps[p->letters[i].step], &plan->steps[step])))
        i++;
    return i;
}

static int64_t in_lines(int64_t bytes)
{
    return (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

/* The tiny letters that have the same number of slots stand side by side, run by run: so one line has several of them,
 * and neither their writer nor a reader of one has more than that line to get. Larger ones have lines of their own. */
struct room {
    int64_t answered, others; /* bytes of tiny ones in one run */
    int64_t large;            /* of all others, in all runs */
};

static int64_t room_bytes(const struct room *r)
{
    return LETTERS_ANSWERED * in_lines(r->answered) + LETTERS * in_lines(r->others) + r->large;
}

static void add_letter(struct room *r, const struct exec_letter *letter)
{
    if (letter->bytes > LETTER_TINY)
        r->large += letter->slots * in_lines(letter_number(letter->bytes) + 8);
    else if (!letter->answered)
        r->others += letter_tiny_bytes(letter->bytes);
    else
        r->answered += letter_tiny_bytes(letter->bytes);
}

bool way_answered(const struct program *p, int peer)
{
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].peer == peer)
            return true;
    return false;
}

/* Can its peer pull a message, and does it send one, so that this rank waits for it anyway? */
static bool could_be_pulled(const weft_exec *x, const struct program *p, uint32_t step)
{
    const struct plan_step *st = &x->plan->steps[step];
    bool all = way_answered(p, st->peer);
    for (uint32_t k = 0; k < st->nparts && all; k++)
        all = p->places[x->plan->parts[st->part + k].buf].reached;
    return all;
}

/* Gives every small SEND its letter while the limit lasts, but those of more than `most` bytes that could be pulled;
 * returns how many bytes of letters could be. Whoever binds again keeps the letters that there were: the block has
 * their slots. */
static int64_t choose(const weft_exec *x, struct program *p, int64_t limit, int64_t most, struct room *room)
{
    const struct program *was = x->program == p ? NULL : x->program;
    int64_t once = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &x->plan->steps[s];
        if (st->kind != PLAN_SEND || st->bytes > LETTER_MOST || p->steps[s].way == WAY_WIRE)
            continue;
        bool choice = !was && could_be_pulled(x, p, s);
        if (was ? was->steps[s].way != WAY_LETTER : choice && st->bytes > most)
            continue;
        struct exec_out *out = &p->outs[p->steps[s].channel];
        uint32_t k = find_letter(x->plan, p, s, out->answered);
        if (k == p->nletters) {
            struct exec_letter letter = {.answered = out->answered, .bytes = st->bytes, .step = s};
            letter.slots = letter.answered && letter.bytes <= LETTER_TINY ? LETTERS_ANSWERED : LETTERS;
            struct room more = *room;
            add_letter(&more, &letter);
            if (room_bytes(&more) > limit)
                continue;
            *room = more;
            p->letters[p->nletters++] = letter;
            once += choice ? letter.bytes : 0;
        }
        out->letters |= !out->answered;
        p->letters[k].nouts++;
        p->steps[s].way = WAY_LETTER;
        p->steps[s].letter = k;
    }
    return once;
}

static void choose_none(struct program *p, struct room *room)
{
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].way == WAY_LETTER)
            p->steps[s].way = WAY_PULL;
    for (uint32_t i = 0; i < p->nouts; i++)
        p->outs[i].letters = false;
    p->nletters = 0;
    *room = (struct room){0};
}

/* Are all SENDs letters that wait for nothing? Then those whose slots are free are written together. */
static bool all_at_once(const weft_plan *plan, const struct program *p)
{
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (plan->steps[s].kind == PLAN_SEND && (p->steps[s].way != WAY_LETTER || plan->steps[s].ndeps))
            return false;
    return true;
}

/* Large letters that readers answer can be joint: their slots are free whenever a run starts. Returns the bytes of all
 * messages, in lines; 0: they are not. */
static int64_t join(const weft_plan *plan, struct program *p)
{
    int64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->nletters; k++)
        n += p->letters[k].bytes > LETTER_TINY && p->letters[k].answered;
    if (n < 2 || !all_at_once(plan, p))
        return 0;
    for (uint32_t k = 0; k < p->nletters; k++) {
        struct exec_letter *letter = &p->letters[k];
        letter->joint = letter->bytes > LETTER_TINY && letter->answered;
        if (letter->joint) {
            p->joint = letter;
            bytes += in_lines(letter->bytes);
        }
    }
    return bytes;
}

/* Where the slots of all letters are. */
static void lay_out(const weft_plan *plan, struct program *p, const struct room *room)
{
    struct room used = {0};
    int64_t answered = in_lines(room->answered), others = in_lines(room->others), joint = join(plan, p), joined = 0;
    int64_t first_joint = LETTERS_ANSWERED * answered + LETTERS * others;
    int64_t joint_bytes = joint ? joint + in_lines(8) : 0, first_large = first_joint + LETTERS * joint_bytes;
    for (uint32_t k = 0; k < p->nletters; k++) {
        struct exec_letter *letter = &p->letters[k];
        if (letter->joint) {
            letter->at = first_joint + joined;
            letter->slot_bytes = joint_bytes;
            letter->number = joint - joined;
            joined += in_lines(letter->bytes);
            continue;
        }
        bool large = letter->bytes > LETTER_TINY, answers = letter->answered;
        letter->at = large     ? first_large + used.large
                     : answers ? used.answered
                               : LETTERS_ANSWERED * answered + used.others;
        letter->number = letter_number(letter->bytes);
        letter->slot_bytes = large ? in_lines(letter->number + 8) : answers ? answered : others;
        add_letter(&used, letter);
    }
    p->letter_bytes = first_large + used.large;
}

int way_letters(const weft_exec *x, struct program *p)
{
    int64_t limit = x->comm->staging.limit / 4;
    uint32_t sends = 0, at = 0;
    struct room room = {0};
    if (x->comm->staged)
        return 0;
    for (uint32_t s = 0; s < p->nsteps; s++)
        sends += x->plan->steps[s].kind == PLAN_SEND && x->plan->steps[s].bytes <= LETTER_MOST;
    p->letters = program_take(p, sends, sizeof *p->letters);
    p->readers_of = program_take(p, sends, sizeof *p->readers_of);
    if (!p->letters || !p->readers_of)
        return error_nomem();
    /* Fewer slots are for ranks that share cores and drive each other's lines out of the cache, and for what is tiny: a
     * line that its reader's core still has takes longer to write than one that has left it since. */
    for (uint32_t i = 0; i < p->nouts; i++)
        p->outs[i].answered = !x->comm->dedicated_cores && way_answered(p, p->outs[i].peer);
    limit = limit < LETTERS_LIMIT ? limit : LETTERS_LIMIT;
    /* Where every rank has a core, many letters take longer to pack than their readers to say that they have read them.
     */
    if (choose(x, p, limit, LETTER_MOST, &room) > LETTERS_ONCE && x->comm->dedicated_cores) {
        choose_none(p, &room);
        choose(x, p, limit, LETTER_TINY, &room);
    }
    lay_out(x->plan, p, &room);
    for (uint32_t k = 0; k < p->nletters; k++) {
        p->letters[k].outs = at;
        at += p->letters[k].nouts;
        p->letters[k].nouts = 0;
    }
    for (uint32_t s = 0; s < p->nsteps; s++) {
        struct exec_letter *letter = &p->letters[p->steps[s].letter];
        if (p->steps[s].kind == PLAN_SEND && p->steps[s].way == WAY_LETTER)
            p->readers_of[letter->outs + letter->nouts++] = p->steps[s].channel;
    }
    return 0;
}

/* ---- staging ---- */

/* The same data to several ranks is packed once. That needs all of them to be ready for it, so it is done only for
 * messages of one stage that have the same number before them in their channels, and none of a later stage among those:
 * of the messages of the earliest stage, those that have the fewest before them wait for nothing but earlier stages. */
static uint32_t find_share(const weft_plan *plan, const struct program *p, uint32_t first, uint32_t step)
{
    uint32_t i = first;
    while (i < p->nshares && (p->shares[i].alone || plan->steps[p->shares[i].step].stage != plan->steps[step].stage ||
                              !same_data(plan, &plan->steps[p->shares[i].step], &plan->steps[step])))
        i++;
    return i;
}

/* The shares of all messages that have `index` before them. latest[] is the latest stage so far of each channel. */
static void share_at(const weft_plan *plan, struct program *p, uint32_t index, int32_t *latest)
{
    uint32_t first = p->nshares;
    for (uint32_t i = 0; i < p->nouts; i++) {
        if (index >= p->outs[i].n)
            continue;
        uint32_t s = p->outs[i].steps[index];
        bool in_order = plan->steps[s].stage >= latest[i];
        if (in_order)
            latest[i] = plan->steps[s].stage;
        if (p->steps[s].way != WAY_STAGED)
            continue;
        uint32_t share = in_order ? find_share(plan, p, first, s) : p->nshares;
        if (share == p->nshares)
            p->shares[p->nshares++] = (struct exec_share){.step = s, .index = index, .alone = !in_order};
        p->shares[share].nouts++;
        p->steps[s].letter = share;
    }
}

int way_shares(const weft_exec *x, struct program *p)
{
    uint32_t sends = 0, most = 0, at = 0;
    for (uint32_t i = 0; i < p->nouts; i++) {
        sends += p->outs[i].n;
        most = p->outs[i].n > most ? p->outs[i].n : most;
    }
    int32_t *latest = program_take(p, p->nouts, sizeof *latest);
    p->shares = program_take(p, sends, sizeof *p->shares);
    p->sharers = program_take(p, sends, sizeof *p->sharers);
    if (!latest || !p->shares || !p->sharers)
        return error_nomem();
    for (uint32_t index = 0; index < most; index++)
        share_at(x->plan, p, index, latest);
    for (uint32_t k = 0; k < p->nshares; k++) {
        p->shares[k].outs = at;
        at += p->shares[k].nouts;
        p->shares[k].nouts = 0;
    }
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = 0; k < p->outs[i].n; k++) {
            const struct exec_step *step = &p->steps[p->outs[i].steps[k]];
            struct exec_share *share = &p->shares[step->letter];
            if (step->way == WAY_STAGED)
                p->sharers[share->outs + share->nouts++] = i;
        }
    return 0;
}

/* ---- what is packed, pulled or pushed ---- */

/* Bytes that follow each other in memory; *step: from one such run to the next, 0 if there is but one. */
static int64_t run_of(int loops, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], int64_t size, int64_t *step)
{
    loops = tile_merge(loops, n, stride, 1);
    bool packed = loops && stride[0][loops - 1] == size;
    int between = loops - 1 - packed; /* the innermost loop over runs */
    *step = between < 0 ? 0 : stride[0][between];
    return packed ? n[loops - 1] * size : size;
}

/* Of one side of a part; *dense: there is but one. */
static int64_t run_bytes(const struct block *b, const struct block_part *part, bool *dense)
{
    int64_t n[MEMORY_LOOPS], stride[1][MEMORY_LOOPS], step;
    for (int i = 0; i < part->nloops; i++) {
        n[i] = block_loops(b)[part->loop + (uint32_t)i].n;
        stride[0][i] = block_loops(b)[part->loop + (uint32_t)i].stride;
    }
    int64_t run = run_of(part->nloops, n, stride, (int64_t)weft_dtype_size(part->dtype), &step);
    *dense = !step;
    return run;
}

/* The same of a part of the plan, in this rank's memory. */
static int64_t own_run(const weft_exec *x, const struct program *p, const struct plan_part *part, int64_t *step)
{
    int64_t turns[MEMORY_LOOPS], stride[1][MEMORY_LOOPS], at;
    int loops = tile_loops(x->plan, part, p->places[part->buf].stride, turns, stride[0], &at);
    return run_of(loops, turns, stride, (int64_t)weft_dtype_size(x->plan->bufs[part->buf].dtype), step);
}

bool way_scattered(const weft_exec *x, const struct program *p, const uint32_t *steps, uint32_t n)
{
    const weft_plan *plan = x->plan;
    int64_t all = 0, scattered = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_step *st = &plan->steps[steps[i]];
        for (uint32_t k = 0; k < st->nparts; k++) {
            const struct plan_part *part = &plan->parts[st->part + k];
            int64_t bytes = part->count * (int64_t)weft_dtype_size(plan->bufs[part->buf].dtype), step;
            int64_t run = own_run(x, p, part, &step);
            all += bytes;
            if (step && run <= (step < FAR ? SCATTERED : SCATTERED_FAR))
                scattered += bytes;
        }
    }
    return scattered > all / 2;
}

int64_t way_runs(const weft_exec *x, const struct program *p, uint32_t step)
{
    const weft_plan *plan = x->plan;
    const struct plan_step *st = &plan->steps[step];
    int64_t runs = 0, between;
    for (uint32_t k = 0; k < st->nparts; k++) {
        const struct plan_part *part = &plan->parts[st->part + k];
        int64_t bytes = part->count * (int64_t)weft_dtype_size(plan->bufs[part->buf].dtype);
        runs += bytes ? bytes / own_run(x, p, part, &between) : 0;
    }
    return runs;
}

/* Do both sides have runs along the same loop? Else it is a transpose, which the kernel does best as a whole. */
static bool runs_along(const struct block *from, const struct block_part *src, const struct block *to,
                       const struct block_part *dst)
{
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS];
    for (int i = 0; i < src->nloops; i++) {
        n[i] = block_loops(from)[src->loop + (uint32_t)i].n;
        stride[0][i] = block_loops(to)[dst->loop + (uint32_t)i].stride;
        stride[1][i] = block_loops(from)[src->loop + (uint32_t)i].stride;
    }
    int loops = tile_merge(src->nloops, n, stride, 2);
    return !loops || (stride[0][loops - 1] == (int64_t)weft_dtype_size(dst->dtype) &&
                      stride[1][loops - 1] == (int64_t)weft_dtype_size(src->dtype));
}

bool way_pushes(const struct block *from, const struct block_message *sends, const struct block *to,
                const struct block_message *recvs, uint32_t n, bool *woven)
{
    int64_t all = 0, push = 0, pull = 0;
    bool open = true;
    *woven = false;
    for (uint32_t k = 0; k < n; k++) {
        if (sends[k].way == WAY_LETTER)
            continue;
        if (sends[k].way == WAY_STAGED || sends[k].nparts != recvs[k].nparts)
            return false;
        open &= recvs[k].open;
        for (uint32_t q = 0; q < sends[k].nparts; q++) {
            const struct block_part *src = &block_parts(from)[sends[k].part + q];
            const struct block_part *dst = &block_parts(to)[recvs[k].part + q];
            bool src_dense, dst_dense;
            if (src->wire != src->dtype && src->wire != dst->dtype)
                return false; /* two casts through one buffer: one part at a time */
            int64_t bytes = src->count * (int64_t)weft_dtype_size(src->dtype);
            int64_t src_run = run_bytes(from, src, &src_dense) / (int64_t)weft_dtype_size(src->dtype);
            int64_t dst_run = run_bytes(to, dst, &dst_dense) / (int64_t)weft_dtype_size(dst->dtype);
            all += bytes;
            if (src->nloops != dst->nloops || !runs_along(from, src, to, dst))
                continue;
            if (!src_dense && (src_run < dst_run || dst_dense))
                push += bytes;
            else if (!dst_dense)
                pull += bytes;
        }
    }
    bool pushes = open && push > pull && push > all / 2;
    *woven = pushes || pull > all / 2;
    return pushes;
}
