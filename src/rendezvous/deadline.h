/* Times until which a call may wait. */
#ifndef WEFT_RENDEZVOUS_DEADLINE_H
#define WEFT_RENDEZVOUS_DEADLINE_H
#include <stdint.h>

int64_t deadline_now(void);              /* ns, of a clock that only goes forward */
int64_t deadline_in(int64_t timeout_ns); /* timeout_ns from now; does not overflow */
int deadline_left_ms(int64_t until);     /* rounded up, at most an hour; 0 when the time is over */
/* Sleeps *pause_ns, but not beyond until. Doubles *pause_ns for the next call, up to most_ns. */
void deadline_pause(int64_t *pause_ns, int64_t most_ns, int64_t until);
#endif
