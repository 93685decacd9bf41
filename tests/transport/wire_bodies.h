/* What every wire must do, as bodies of ranks. */
#ifndef WEFT_TESTS_WIRE_BODIES_H
#define WEFT_TESTS_WIRE_BODIES_H

#include "wire_ranks.h"

void wire_mail_body(struct wire_rank *r);
void wire_sizes_body(struct wire_rank *r);
void wire_crowd_body(struct wire_rank *r);
void wire_ahead_body(struct wire_rank *r);
void wire_remake_body(struct wire_rank *r);
void wire_mismatch_body(struct wire_rank *r);
void wire_huge_body(struct wire_rank *r);
void wire_sleep_body(struct wire_rank *r);
#endif
