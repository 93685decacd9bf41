/* Which rank is on which host, by the machine that the caller describes. */
#ifndef WEFT_LOWER_MACHINE_H
#define WEFT_LOWER_MACHINE_H
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

bool machine_hosts(const weft_machine *m, int world); /* are the ranks of the world on more than one host? */
int machine_host(const weft_machine *m, int rank);    /* the host of a rank */
/* Which of its host's links a rank uses: the ranks of a host share them evenly. A table of hosts is looked through. */
int machine_link(const weft_machine *m, int rank);
/* Is it cheaper to send `bytes` to one of a host's takers, which passes them on, than to each of them? Compares the
 * further copies on the link with one more hop inside the host. */
bool machine_hand_on(const weft_machine *m, int64_t bytes, int64_t takers);
/* Of `hosts` hosts that all need `bytes`, how many form a group that gets them once and passes them on inside? 1: each
 * gets them from the source. The source is on `from` hosts, and the destination on `to`: if these are more, the
 * source's links would be the bound, since every host has to take in what it needs. */
int64_t machine_group(int64_t bytes, int64_t hosts, int64_t from, int64_t to);
/* In how many shares, on different hosts, such a group gets them. */
int64_t machine_shares(int64_t bytes, int64_t hosts);
#endif
