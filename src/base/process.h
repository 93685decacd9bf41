/* Which process this is, in words that another process can judge: is that one still there? */
#ifndef WEFT_BASE_PROCESS_H
#define WEFT_BASE_PROCESS_H
#include <stdbool.h>
#include <stdint.h>

/* When a process began, in ticks since boot; 0: there is none, or it cannot be told. */
uint64_t process_start(int64_t pid, bool *zombie);

/* A process among those of all machines. Numbers of processes mean something within one boot and one namespace. */
struct process_id {
    char boot[40], host[64];
    uint64_t space, start; /* of the numbers, and of the process */
    int64_t pid;
};

void process_self(struct process_id *out);
enum process_fate { PROCESS_HERE, PROCESS_GONE, PROCESS_ELSEWHERE /* nobody here can tell */ };
enum process_fate process_judge(const struct process_id *p);
#endif
