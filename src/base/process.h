/* An identity of a process, by which another process can tell whether it still runs. */
#ifndef WEFT_BASE_PROCESS_H
#define WEFT_BASE_PROCESS_H
#include <stdbool.h>
#include <stdint.h>

/* When a process began, in ticks since boot; 0: the process does not exist, or this is not known. */
uint64_t process_start(int64_t pid, bool *zombie);

/* Has the process ended, or has it begun to end? Then it runs no more code of its program, but its files may be open
 * still. */
bool process_ending(int64_t pid);

/* Identifies a process among those of all machines. A process number is unique only within one boot and one namespace.
 */
struct process_id {
    char boot[40], host[64];
    uint64_t space, start; /* of the numbers, and of the process */
    int64_t pid;
};

/* Equal for processes that share a network namespace, and different for others, also of other machines; 0: not known.
 */
uint64_t process_net(void);

void process_self(struct process_id *out);
enum process_fate { PROCESS_HERE, PROCESS_GONE, PROCESS_ELSEWHERE /* not known from here */ };
enum process_fate process_judge(const struct process_id *p);
#endif
