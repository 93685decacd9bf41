/* Pipes in shared memory: frames in rings, payloads that the reader loads, and ranks that are gone.
 *
 * A ring holds frames one after the other, each a head of HEAD bytes and its body, padded to a multiple of HEAD bytes.
 * A frame does not wrap: if the rest of the ring is too short, a head that says so fills it. The last frame of a round
 * is padded to a multiple of LINE bytes, so that the next round begins with a cache line. A frame is identified by its
 * position, counted in all bytes that were ever written: its head has that number, plus one, in `seal`.
 *
 * Why the reader sees whole frames. The writer stores the body and then the seal (release). The reader loads the seal
 * of the next head (acquire) and only then the rest. Old bytes are never taken for a seal: before the writer seals a
 * frame it clears the seal of the head behind it, and the reader looks there only after it saw the frame. So the signal
 * is in the cache line of the message. The writer may hold back the seal of a frame until it knows whether the frame is
 * the last of its round: then its head says so, and the end needs no frame of its own. On AArch64 these are stlr and
 * ldar or ldapr, and nothing depends on the order of other stores.
 *
 * Why the writer overwrites nothing that is still to be read. The reader has loaded all of a frame before it stores
 * `read` (a release orders loads before it, too). The writer loads `read` (acquire) before it stores into the bytes
 * that this frees. The seal that it clears behind a frame must be in free bytes, too.
 *
 * Why the writer may change a payload after it was loaded: the reader stores `loaded` after the copy, with the same
 * pair of release and acquire.
 *
 * Why no rank sleeps for ever. Readers: a write alone wakes no reader. The writer calls its readers (pipe_call_readers,
 * a fence and then the look at `awaits` that core_signal explains) when its rank has finished its round, and every
 * quarter of a ring. A reader that sleeps in between waits for the end of the round anyway. Writers: a writer that
 * finds no room stores `hungry` and looks at `read` once more; the reader stores `read` and then looks at `hungry`. All
 * four are seq_cst, so one of the two sees the other. A writer that goes to sleep after that has stored `hungry`
 * before, and the reader's call wakes it as core_signal says. The reader tells the writer only every quarter of a ring,
 * so the bytes that it has read and not told are less than that. A frame and what is skipped before it are less than
 * half a ring. So when the reader has read everything, the writer knows of enough room, and was called. */
#define _GNU_SOURCE
#include "exchange/pipe.h"

#include <sched.h>
#include <string.h>

#define HEAD PIPE_FRAME
#define LINE 64
#define FETCHED 4 /* lines */

enum mark {
    SKIP = 1, /* no body: the rest of the ring is empty */
    LAST = 2  /* of its round */
};

struct head {
    uint32_t bytes; /* of the body */
    uint32_t marks; /* enum mark */
    _Atomic uint64_t seal;
};
_Static_assert(sizeof(struct head) == HEAD, "frames are counted in heads");

static struct head *head_at(struct pipe_ring *ring, size_t bytes, uint64_t at)
{
    return (struct head *)(void *)(ring->data + (at & (bytes - 1)));
}

static uint64_t frame_bytes(uint64_t body)
{
    return (HEAD + body + HEAD - 1) / HEAD * HEAD;
}

static uint64_t line_up(uint64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* ---- frames ---- */

int64_t pipe_held(const struct pipe_out *o)
{
    return (int64_t)(o->written - atomic_load_explicit(&o->ring->read, memory_order_relaxed));
}

static bool has_room(struct pipe_out *o, uint64_t need)
{
    if (o->bytes - (o->written - o->read) >= need)
        return true;
    o->read = atomic_load_explicit(&o->ring->read, memory_order_acquire); /* pairs with pipe_tell */
    if (o->bytes - (o->written - o->read) >= need)
        return true;
    atomic_store_explicit(&o->ring->hungry, 1, memory_order_seq_cst);
    o->read = atomic_load_explicit(&o->ring->read, memory_order_seq_cst);
    return o->bytes - (o->written - o->read) >= need;
}

/* Clears the seal at `at`, behind what was written. The seal that is stored next orders this store. */
static void clear(struct pipe_out *o, uint64_t at)
{
    atomic_store_explicit(&head_at(o->ring, o->bytes, at)->seal, 0, memory_order_relaxed);
}

/* Writes the frame that begins at `at`, complete except for its seal. */
static struct head *fill(struct pipe_out *o, uint64_t at, const struct pipe_part *parts, int n, uint32_t body,
                         uint32_t marks)
{
    struct head *h = head_at(o->ring, o->bytes, at);
    unsigned char *to = (unsigned char *)(h + 1);
    h->bytes = body;
    h->marks = marks;
    for (int i = 0; i < n; i++) {
        if (parts[i].bytes)
            memcpy(to, parts[i].data, parts[i].bytes);
        to += parts[i].bytes;
    }
    return h;
}

void pipe_seal(struct pipe_out *o)
{
    if (!o->held)
        return;
    atomic_store_explicit(&((struct head *)o->held)->seal, o->seal, CORE_TELL); /* pairs with the load in pipe_read */
    o->held = NULL;
}

uint64_t pipe_sealed(const struct pipe_out *o)
{
    return o->held ? o->seal - 1 : o->written;
}

uint64_t pipe_span(struct pipe_ring *ring, size_t bytes, uint64_t from, uint64_t to, uint64_t most, uint64_t *next)
{
    uint64_t at = from, end = from;
    for (bool skipped = false; at < to && !skipped;) {
        const struct head *h = head_at(ring, bytes, at);
        uint64_t frame = h->marks & SKIP ? HEAD : frame_bytes(h->bytes);
        if (at + frame - from > most)
            break;
        end = at + frame;
        skipped = h->marks & SKIP;
        if (skipped)
            at += bytes - (at & (bytes - 1));
        else
            at = h->marks & LAST ? line_up(end) : end;
    }
    *next = at;
    return end - from;
}

static bool write_frame(struct pipes *p, struct pipe_out *o, const struct pipe_part *parts, int n, uint32_t marks)
{
    uint64_t body = 0, at = o->written, rest = o->bytes - (at & (o->bytes - 1));
    for (int i = 0; i < n; i++)
        body += parts[i].bytes;
    uint64_t need = frame_bytes(body), skip = rest < need ? rest : 0, end = at + skip + need;
    if (!has_room(o, line_up(end) - at + HEAD)) { /* the frame may become the last of its round, which is padded */
        pipe_ring(p, o);
        return false;
    }
    struct head *h = fill(o, at + skip, parts, n, (uint32_t)body, marks);
    o->tail = at + skip;
    o->written = marks & LAST ? line_up(end) : end;
    clear(o, o->written);
    if (skip) { /* a reader that sees the skip also sees the frame behind it */
        atomic_store_explicit(&h->seal, at + skip + 1, memory_order_relaxed);
        h = head_at(o->ring, o->bytes, at);
        h->marks = SKIP;
    }
    pipe_seal(o);
    o->held = h;
    o->seal = at + 1;
    return true;
}

static void note_peak(struct pipe_out *o)
{
    if (o->written - o->read <= o->peak)
        return;
    o->read = atomic_load_explicit(&o->ring->read, memory_order_acquire);
    o->peak = o->written - o->read > o->peak ? o->written - o->read : o->peak;
}

bool pipe_write(struct pipes *p, struct pipe_out *o, const struct pipe_part *parts, int n, bool hold)
{
    if (!write_frame(p, o, parts, n, 0))
        return false;
    if (!hold)
        pipe_seal(o);
    note_peak(o);
    if (o->written - o->called >= o->bytes / 4)
        pipe_ring(p, o);
    return true;
}

bool pipe_end(struct pipes *p, struct pipe_out *o)
{
    if (o->held) {
        head_at(o->ring, o->bytes, o->tail)->marks = LAST;
        o->written = line_up(o->written);
        clear(o, o->written);
    } else if (!write_frame(p, o, NULL, 0, LAST)) {
        return false;
    }
    pipe_seal(o);
    /* The second cache line of the next round. The first is in the cache, since its seal was cleared. */
    __builtin_prefetch((const char *)head_at(o->ring, o->bytes, o->written) + LINE, 1);
    note_peak(o);
    return true;
}

void pipe_call_readers(struct pipes *p)
{
    bool fenced = false;
    for (int i = 0; i < p->nouts; i++) {
        struct pipe_out *o = &p->outs[i];
        if (o->called == o->written)
            continue;
        if (!fenced)
            core_fence_all();
        fenced = true;
        o->called = o->written;
        core_call(p->comm->group, o->peer);
    }
}

void pipe_ring(struct pipes *p, struct pipe_out *o)
{
    pipe_seal(o);
    o->called = o->written;
    core_fence_all();
    core_ring(p->comm->group, o->peer);
}

/* A line from another core's cache takes long, so the first lines of a frame are prefetched together with its seal. */
static const struct head *next_head(const struct pipe_in *in)
{
    const struct head *h = head_at(in->ring, in->bytes, in->read);
    for (size_t i = 1; i < FETCHED; i++)
        __builtin_prefetch((const char *)h + i * LINE);
    return h;
}

const void *pipe_read(struct pipe_in *in, size_t *bytes)
{
    while (!in->wire || pipe_wire_some(in)) {
        const struct head *h = next_head(in);
        if (atomic_load_explicit(&h->seal, memory_order_acquire) != in->read + 1)
            return NULL;
        if (!(h->marks & SKIP)) {
            *bytes = h->bytes;
            return h + 1;
        }
        in->read += in->bytes - (in->read & (in->bytes - 1));
    }
    return NULL;
}

bool pipe_pop(struct pipe_in *in)
{
    const struct head *h = head_at(in->ring, in->bytes, in->read);
    bool last = h->marks & LAST;
    in->read += frame_bytes(h->bytes);
    if (last)
        in->read = line_up(in->read);
    return last;
}

void pipe_tell(struct pipes *p, struct pipe_in *in)
{
    if (in->read - in->told < in->bytes / 4 || in->wire) /* pipe_wire_pump tells a writer on another host */
        return;
    in->told = in->read;
    atomic_store_explicit(&in->ring->read, in->read, memory_order_seq_cst);
    if (atomic_load_explicit(&in->ring->hungry, memory_order_seq_cst)) {
        atomic_store_explicit(&in->ring->hungry, 0, memory_order_seq_cst);
        core_call(p->comm->group, in->peer);
    }
}

/* ---- payloads ---- */

bool pipe_offer(struct pipes *p, const void *memory, size_t bytes, uint64_t *place)
{
    weft_comm *c = p->comm;
    return !c->staged && c->transport->offer(c->link, memory, bytes, place);
}

/* The reader stores its flag and then loads the failure. The writer loads the flag after the failure was stored. All
 * are seq_cst, so either the reader sees the failure and does not begin, or the writer sees the flag and waits until
 * the copy is over. If the writer stops waiting, the reader sees the failure after the copy. */
bool pipe_load(struct pipes *p, struct pipe_in *in, void *dst, uint64_t place, size_t bytes)
{
    weft_comm *c = p->comm;
    atomic_store_explicit(&in->ring->loading, 1, memory_order_seq_cst);
    bool can = !core_failed(c->group);
    if (can)
        memcpy(dst, c->transport->reach(c->link, in->peer, place), bytes);
    atomic_store_explicit(&in->ring->loading, 0, memory_order_release); /* pairs with pipe_fence */
    can = can && !core_failed(c->group);
    if (can)
        core_signal(c->group, in->peer, &in->ring->loaded, ++in->loaded);
    return can;
}

bool pipe_offers_taken(const struct pipe_out *o)
{
    return atomic_load_explicit(&o->ring->loaded, memory_order_seq_cst) == o->offers;
}

void pipe_fence(struct pipes *p)
{
    weft_comm *c = p->comm;
    if (atomic_load_explicit(&p->fenced, memory_order_acquire))
        return;
    int64_t until = core_now() + c->deadline_ns;
    /* Ranks that are threads of one process are not stopped alone. */
    for (int i = 0; i < p->nouts; i++)
        while (atomic_load_explicit(&p->outs[i].ring->loading, memory_order_seq_cst) &&
               !transport_failed(c->transport->gone(c->link, p->outs[i].peer)) &&
               (!c->group->shared || core_now() < until))
            sched_yield();
    atomic_store_explicit(&p->fenced, true, memory_order_release);
}

/* ---- watching ---- */

enum transport_fate pipe_fate(const struct pipes *p, int rank, const struct pipe_head *head)
{
    const weft_comm *c = p->comm;
    if (atomic_load_explicit(&head->freed, memory_order_seq_cst))
        return TRANSPORT_LEFT;
    return pipe_wire_peer(p, rank) ? pipe_wire_fate(p, rank) : c->transport->gone(c->link, rank);
}

bool pipe_finished(const struct pipe_head *head, uint64_t round)
{
    return atomic_load_explicit(&head->finished, memory_order_relaxed) > round;
}

bool pipe_stalled(const struct pipes *p, int rank, const struct pipe_head *head, uint64_t round, struct pipe_seen *seen,
                  int64_t now)
{
    uint64_t pulse = atomic_load_explicit(&p->comm->group->ranks[rank].pulse, memory_order_relaxed);
    if (!seen->at || seen->round != round || !pipe_finished(head, round) || pulse != seen->pulse)
        *seen = (struct pipe_seen){pulse, round, now};
    return liveness_silence(p->comm, seen->at, now) >= p->comm->deadline_ns;
}
