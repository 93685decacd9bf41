/* Blocks of a part that are given to readers of other hosts (TAKE of part_link.h): which ones, and the bytes of the
 * reply.
 *
 * A publisher gives each block to one host, as long as that host has peers: the others get it from there. So the
 * publisher's link carries the set about once, however many hosts read it. */
#ifndef WEFT_VERSION_PART_BLOCKS_H
#define WEFT_VERSION_PART_BLOCKS_H
#include "version/part_link.h"
#include "version/schema.h"

/* Bits of blocks. */
static inline bool part_blocks_bit(const unsigned char *bits, size_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}
static inline void part_blocks_set(unsigned char *bits, size_t i)
{
    bits[i / 8] |= (unsigned char)(1 << (i % 8));
}

/* To whom the blocks of a part were given. Its owner guards it. */
struct part_blocks_given {
    uint32_t *who;  /* for each block, a mark of the host that got it last; 0: nobody has */
    size_t first;   /* all blocks before this one were given to somebody */
    size_t cursor;  /* behind the block that was given last */
    uint32_t taker; /* the host that asked last; 0: nobody has */
    bool several;   /* more than one host asks */
};

/* A block as the wire has it: at most as long as the block. data NULL: there is none. */
struct part_blocks_delta {
    unsigned char *data;
    uint32_t bytes;
};

/* Where bytes of a reply lie. */
struct part_blocks_runs {
    struct part_blocks_run {
        const unsigned char *at;
        size_t bytes;
    } * v;           /* in the reply's memory */
    size_t n, bytes; /* bytes: of all of them */
};

/* What the blocks of a reply are made of. */
struct part_blocks_from {
    const struct schema *schema;
    const struct schema_part *places;
    const unsigned char *data;
    const unsigned char *const *arrays;     /* instead of data: that of each tensor */
    const unsigned char *base;              /* of the version that the reader has; NULL: it has none */
    const struct part_blocks_delta *deltas; /* to that version, found before: a block that has one is not compared with
                                               the base; NULL: there are none */
};

/* Chooses blocks for a request. One host alone gets them in their order, so that the first tensors of a reader are
 * whole early. If several hosts ask, the search goes on where the last one ended: then hosts hold different blocks, and
 * have something to give each other. Those that nobody has been given come first, then those that the same host got
 * before, then all others; `scarce`: these only if the reader insists. have NULL: all blocks are there. Marks them, and
 * returns how many there are; list has room for PART_BLOCKS_LIST. */
#define PART_BLOCKS_LIST 65536
size_t part_blocks_choose(struct part_blocks_given *g, const struct schema_part *places, const _Atomic uint8_t *have,
                          const struct part_link_message *m, const unsigned char *wanted, bool scarce, uint32_t *list);
/* Blocks that were chosen and are not given. */
void part_blocks_return(struct part_blocks_given *g, const uint32_t *list, size_t n);
void part_blocks_forget(struct part_blocks_given *g, size_t blocks); /* nobody was given any of them */
/* The reply's blocks: heads and bytes, in memory that the caller frees. *n becomes how many fit, *size the bytes there.
 * If blocks of `data` are given whole, only their heads are there, and *runs says where their bytes are. NULL: no
 * memory. */
unsigned char *part_blocks_pack(const struct part_blocks_from *f, const struct part_link_message *m,
                                const uint32_t *list, size_t *n, size_t *size, struct part_blocks_runs *runs);
#endif
