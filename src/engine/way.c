/* The choice among ways. Both ends of a message ask the rows of way_table.c in order and take the first that fits:
 *
 *   wire     the peer is on another host
 *   pinned   some rank of the exec has memory on a device that not all ranks share (ways/pinned.c)
 *   eager    the message has 4 KiB or less, and the eager slots of the exec have room for it (ways/eager.c)
 *   cma      private memory in pieces that the system copies faster than two copies take (ways/cma.c)
 *   staged   the peer cannot reach the memory, the comm is to stage all messages, or the elements lie far apart at both
 *            ends (ways/staged.c)
 *   push     many ranks send to few, or most bytes of the channel are in shorter spans at the sender than at the
 *            receiver and it is not assisted
 *   assist   the message has 128 KiB or more, and the sender has a core of its own and much less to receive than to
 *            send (ways/assist.c)
 *   pull     all others
 *
 * The last three are zero-copy: the data goes from its place to its place. Push or pull: the side that copies walks
 * through its own memory in the order of addresses, for all its channels together (order/weave.c); each span of the
 * other side is a stream of its own. So the side with the shorter spans should be the one that walks. A channel pushes
 * if that is the sender for more than half of its bytes, and if the destination may be written from the start of a run
 * on. But if a message can be assisted, a second core is worth more than one walk for all channels (1.3 times as fast
 * between 4 and 4 of 16 x86-64 cores, rows to columns and back, cast or not), unless runs are so short that several
 * ranks would write to one cache line. If spans are as long on both sides, the gaps decide: the sender
 * copies if its own are much wider.
 *
 * Whatever the spans are, few ranks must not copy for many. A sender that has to send more than twice as much as its
 * receiver gets from all does not push: the receivers copy, each its own. A sender that has less than half of that
 * always pushes, if it may (rows or columns of 7 to 16 ranks to one on x86-64: 2 to 6 times as fast). */
#include "engine/way.h"

#include "base/defaults.h"
#include "base/math.h"
#include "engine/shape.h"
#include "memory/pick.h"

#define LINE 64 /* bytes of a cache line */
#define LESS 2  /* times the bytes of pushes that pulls go through, if senders are to copy spans of one length */

struct way_ends way_ends_in(const weft_exec *x, const struct exec_in *in, uint32_t k)
{
    return (struct way_ends){.from = in->block,
                             .to = x->block,
                             .send = &in->sends[k],
                             .recv = &in->recvs[k],
                             .pushes = in->pushed,
                             .woven = in->woven};
}

struct way_ends way_ends_out(const weft_exec *x, const struct exec_out *out, uint32_t k)
{
    return (struct way_ends){.from = x->block,
                             .to = out->block,
                             .send = &out->sends[k],
                             .recv = &out->recvs[k],
                             .pushes = out->pushed,
                             .woven = out->woven};
}

const struct way *way_choose(const struct way_ends *e)
{
    const struct way *const *w = way_table;
    for (;; w++) { /* pull, the last, always fits */
        uint64_t off = e->from->off | ((*w)->offered ? 0 : e->to->off);
        if (!(off & way_table_bit(*w)) && (*w)->fits(e))
            return *w;
    }
}

/* Does the loop with the smallest step at the receiver have the smallest one at the sender, too? */
static bool walks_alike(const struct shape *both)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < both->loops; i++)
        least = min64(least, both->stride[1][i]);
    return !both->loops || both->stride[1][both->loops - 1] == least;
}

/* Bytes of the cache lines that a span has a part in, as far as no other span of the side has one, too. */
static int64_t lines_of(const struct shape *side, const struct block_part *part)
{
    int64_t span = side->length * (int64_t)weft_dtype_size(part->dtype), step = side->stride[0][side->outer - 1];
    return min64(span + LINE - 1, max64(step, span));
}

/* Both sides are strided. Does the sender have the shorter spans? If spans are as long, the sides differ in the gaps
 * between them. A side that does not walk through its memory for all channels together is read or written in whole
 * lines of which a channel needs a part. */
static bool shorter(const struct shape *at_src, const struct block_part *src, const struct shape *at_dst,
                    const struct block_part *dst)
{
    if (at_src->length != at_dst->length)
        return at_src->length < at_dst->length;
    int64_t read = at_src->length * (int64_t)weft_dtype_size(src->dtype);
    int64_t written = at_dst->length * (int64_t)weft_dtype_size(dst->dtype);
    int64_t pushed = read + lines_of(at_dst, dst), pulled = lines_of(at_src, src) + written;
    return LESS * pushed < pulled;
}

bool way_pushes(const struct block *from, const struct block_message *sends, const struct block *to,
                const struct block_message *recvs, uint32_t n, bool *woven)
{
    const uint64_t off = from->off | to->off;
    int64_t all = 0, push = 0, pull = 0, whole = 0;
    bool open = !(off & way_table_bit(&way_push)), shared = !(off & way_table_bit(&way_assist));
    int64_t run = INT64_MAX; /* bytes of the shortest that is strided */
    *woven = false;
    if (off & toggle_extra(TOGGLE_WEAVE)) /* which does the pushes */
        return false;
    for (uint32_t k = 0; k < n; k++) {
        if (sends[k].offer == OFFER_EAGER)
            continue;
        if (sends[k].offer == OFFER_STAGED || sends[k].nparts != recvs[k].nparts)
            return false;
        open &= recvs[k].open;
        shared =
            shared && way_assist.fits(&(struct way_ends){.from = from, .to = to, .send = &sends[k], .recv = &recvs[k]});
        for (uint32_t q = 0; q < sends[k].nparts; q++) {
            const struct block_part *src = &block_parts(from)[sends[k].part + q];
            const struct block_part *dst = &block_parts(to)[recvs[k].part + q];
            if (src->wire != src->dtype && src->wire != dst->dtype)
                return false; /* two casts through one buffer: one part at a time */
            struct shape at_src = shape_side(from, src), at_dst = shape_side(to, dst);
            int64_t bytes = src->count * (int64_t)weft_dtype_size(src->dtype);
            all += bytes;
            if (src->nloops != dst->nloops) {
                whole += bytes;
                continue;
            }
            struct shape both = shape_pair(from, src, to, dst);
            const bool picked = pick_here() && src->dtype == dst->dtype && walks_alike(&both);
            if (!both.span && !picked) {
                whole += bytes; /* a transpose, which the kernel does best as a whole; or single elements, which are
                                   not picked */
                continue;
            }
            if (both.outer)
                run = min64(run, both.length * (int64_t)weft_dtype_size(src->dtype));
            if (!shape_is_dense(&at_src) && (shape_is_dense(&at_dst) || shorter(&at_src, src, &at_dst, dst)))
                push += bytes;
            else if (!shape_is_dense(&at_dst))
                pull += bytes;
        }
    }
    bool pushes = open && push > pull && push > all / 2;
    if (from->sent > DEFAULTS_CROWDED * to->received)
        pushes = false;
    *woven = pushes || pull > all / 2;
    if (shared && run >= LINE)
        pushes = *woven = false;
    if (open && whole < all / 2 && to->received > DEFAULTS_CROWDED * from->sent)
        pushes = *woven = true;
    return pushes;
}
