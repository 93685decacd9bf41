/* Survivor agreement: which ranks are left of a comm that has failed. */
#ifndef WEFT_COMM_SURVIVE_H
#define WEFT_COMM_SURVIVE_H
#include "comm/comm.h"

void survive_open(weft_comm *c); /* from here on it hears ranks of other hosts that ask before this one does */
#endif
