#ifndef WEFT_COMM_SURVIVE_H
#define WEFT_COMM_SURVIVE_H
#include "comm/comm.h"

/* A far rank has said who survives: a bit for each rank. */
void survive_heard(weft_comm *c, int rank, uint32_t times, const char *list, size_t bytes);
#endif
