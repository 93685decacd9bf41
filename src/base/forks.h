/* What a child that was forked has of its parent and must not have: files, by which it would keep names and connections
 * alive after the parent's end; and comms, which are the parent's. A child that executes a program has none of it
 * anyway. */
#ifndef WEFT_BASE_FORKS_H
#define WEFT_BASE_FORKS_H

/* A file that a forked child shall not have; returns it, also -1 for none. Without memory for the list the child has
 * it. */
int forks_own(int fd);
void forks_close(int fd); /* here; takes -1 */

/* Forks between the process that first used weft and this one. */
unsigned forks_count(void);
#endif
