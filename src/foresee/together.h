/* Threads that share a piece of the simulation's work: each calls the same function, which takes what is left to do
 * from a counter of its own. What they compute must not depend on how many they are. */
#ifndef WEFT_FORESEE_TOGETHER_H
#define WEFT_FORESEE_TOGETHER_H

#define TOGETHER_MOST 8

/* How many threads can run at the same time here; 1 to TOGETHER_MOST. */
int together_here(void);
/* Calls work(arg, k) on n threads, k from 0; the caller is number 0. Returns when all are done. Fewer threads do the
 * work if no more can be made. */
void together_do(int n, void (*work)(void *arg, int k), void *arg);
#endif
