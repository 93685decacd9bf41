/* Ranks of one job check digests together. A digest is a sum over a block's bytes, to which each byte adds its own part
 * (memory/sum.h), and a rank often needs some of these bytes only. A rank that is alone must read and sum the others,
 * too. Ranks of a job that share a tensor have each of its elements once, so each sums what it reads, and their sums
 * add up to the digests.
 *
 * Each rank sums the bytes of a block that it copies, before it casts them. The rank that has the block's first byte
 * takes the digest off. So the parts of all ranks for a block add up to 0 if the bytes are right. If several ranks hold
 * the same elements, those with the same number among them (reader_piece.together) have all elements once.
 *
 * The ranks do not tell each other the part of every block. A block's part, times an odd factor of the block, is added
 * to one of SUBSCRIBE_SHARE_WORDS words. The factor is a hash of the block's place: as good as random, the same in
 * every fetch. The words of all ranks are added up, and all of them must be 0. What is certain:
 *   - all changes of one block that its own sum is certain to find are found, since the factor is odd. Ranks that hold
 *     the same elements add to different words, so that a change that all of them see does not cancel itself;
 *   - changes of several blocks go unseen only if they fall into the same words and cancel there. Their factors are as
 *     good as random: of two changes that is one case in 2^40 or rarer.
 *
 * Nothing is accepted before all ranks have added up their words, which they do before weft_fetch returns. If they do
 * not fit, all ranks read the version again, and each checks whole blocks by itself: that says which block is wrong,
 * and has a relay pull it again. So ranks that for any reason do not add up cost time, and nothing else. If all blocks
 * are right then, the reason may stay: ranks that give a tensor another `from`, for one. So these ranks check together
 * no more, and read once. */
#ifndef WEFT_VERSION_FETCH_SHARE_H
#define WEFT_VERSION_FETCH_SHARE_H
#include "version/subscribe.h"

/* May this rank check together with others? All ranks say yes, or none does it. */
bool fetch_share_possible(const weft_subscriber *s);
/* May this version be checked together? All its parts must have digests. */
bool fetch_share_fits(const weft_subscriber *s, const struct catalog_version *v);
void fetch_share_begin(weft_subscriber *s, bool together); /* a fetch of a version begins */
/* Is this piece checked together with other ranks, in this fetch? */
bool fetch_share_takes(const weft_subscriber *s, const struct reader_piece *p);
/* The piece is staged. sums: of its bytes alone, by block; digests: of the blocks of the array. */
void fetch_share_add(weft_subscriber *s, const struct reader_piece *p, const uint64_t *digests, const uint64_t *sums);
/* All ranks have staged the version: do the digests fit? The same answer on all ranks. */
int fetch_share_join(weft_subscriber *s, bool *fit);
#endif
