/* What a forked child inherits from its parent and must not keep. Open files would keep names and connections alive
 * after the parent has ended. Comms belong to the parent. A child that executes a program has neither. */
#ifndef WEFT_BASE_FORKS_H
#define WEFT_BASE_FORKS_H

/* Marks a file that a forked child shall not have, and returns it; -1 (no file) is allowed. Without memory for the list
 * the child keeps the file. */
int forks_own(int fd);
void forks_close(int fd); /* in this process; -1 is allowed */

/* How many forks lie between the process that first used weft and this one. */
unsigned forks_count(void);
#endif
