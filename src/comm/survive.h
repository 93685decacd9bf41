/* Survivor agreement: which ranks are left of a comm that has failed. */
#ifndef WEFT_COMM_SURVIVE_H
#define WEFT_COMM_SURVIVE_H
#include "comm/comm.h"

/* From here on this rank receives the questions of ranks of other hosts, also before it asks itself. */
void survive_open(weft_comm *c);
#endif
