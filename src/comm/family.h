/* A family of comms: one that was opened and those that were split from it. It has a progress thread if one was asked
 * for, and the progress lock that the thread shares with callers. */
#ifndef WEFT_COMM_FAMILY_H
#define WEFT_COMM_FAMILY_H
#include "comm/comm.h"

/* For a comm that is to be opened, with a progress thread if one is asked for, or with a lock alone; the caller has the
 * lock then. */
int family_open(bool threaded, bool locked, struct comm_family **out);
void family_unlock(struct comm_family *f); /* takes the lock away, if there is no thread and nobody knows it yet */
void family_settle(struct comm_family *f); /* when it has its first comm */
/* The last comm is about to go: ends the thread, if it has one, and frees the family; with a lock when that is left. By
 * the thread itself: when it has come out of what it is in. */
void family_close(struct comm_family *f);
#endif
