/* Random cases for the property campaign. Two layouts that have nothing to do with each other seldom make an
 * interesting pair, so most destinations are the source changed a little, or the two are the two ends of a collective.
 */
#ifndef WEFT_TESTS_PROPERTY_RANDOM_H
#define WEFT_TESTS_PROPERTY_RANDOM_H
#include <stdint.h>

#include "property_case.h"
#include "random.h"

void random_shuffle(struct random *g, int *v, int n);

/* Case `number` of the campaign with this seed, always the same. */
void random_case(uint64_t seed, int64_t number, struct property_case *c);

/* Some cases have ranks on hosts in blocks, in turn or at random; with fewer ranks than the machine has, too. */
void random_hosts(uint64_t seed, struct property_case *c);

/* The same case with other sizes: far beyond what memory holds. Both sides of a dim grow alike, blocks and ghosts too.
 */
void random_giant(uint64_t seed, int64_t number, struct property_case *c);
#endif
