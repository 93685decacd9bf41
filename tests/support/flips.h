/* Planted faults for tests of the check of messages: a bit is flipped in the destination of a message, after the
 * message was written and before the check looks at it. A test that uses it wraps proof_came_sum and proof_wire_came.
 */
#ifndef WEFT_TESTS_FLIPS_H
#define WEFT_TESTS_FLIPS_H
#include <stdbool.h>
#include <stdint.h>

/* Before ranks are started, which share what is planted. */
void flips_open(void);
/* From here on: the rank's message number `nth` (from 0 on) of those that it takes gets a flipped bit; which one
 * depends on the seed. */
void flips_plant(int rank, int64_t nth, uint64_t seed);
void flips_clear(void);
bool flips_struck(void);
/* Is this the text of the failure that was planted: does it name the sender, the tensor and the box? */
bool flips_named(const char *text);
const char *flips_expected(void); /* for texts of tests */
#endif
