/* A family of comms: one that was opened and all that were split from it. It has a progress thread if the user asked
 * for one, and the progress lock that the thread shares with callers. */
#ifndef WEFT_COMM_FAMILY_H
#define WEFT_COMM_FAMILY_H
#include "comm/comm.h"

/* For a comm that is to be opened: with a progress thread and a lock (threaded), or with a lock alone (locked). The
 * caller holds the lock afterwards. */
int family_open(bool threaded, bool locked, struct comm_family **out);
/* Removes the lock of a family that has no thread and that no other thread knows yet. */
void family_unlock(struct comm_family *f);
void family_settle(struct comm_family *f); /* when it has its first comm */
/* The last comm is about to be freed: ends the thread, if there is one, and frees the family. A family with a lock is
 * freed when the lock is left. If the thread itself calls this, it ends when it is back from its pass. */
void family_close(struct comm_family *f);
#endif
