/* Survivor agreement: which ranks are left of a comm that has failed. */
#ifndef WEFT_COMM_SURVIVE_H
#define WEFT_COMM_SURVIVE_H
#include "comm/comm.h"

void survive_open(weft_comm *c); /* from here on this rank receives the questions of ranks of other hosts, also before
                                    it asks itself */
#endif
