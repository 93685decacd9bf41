/* Processes for tests of shm: children that do one thing, what is left of them, and a pair of layouts made ready to
 * run on a comm that a process opened by itself. */
#ifndef WEFT_TESTS_PROCESSES_H
#define WEFT_TESTS_PROCESSES_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "random.h"
#include "tensors.h"

int64_t process_below(struct random *r, int64_t n);

int process_open(const char *url, int rank, int ranks, int64_t deadline_ns, weft_comm **out);
int process_files(void);

/* Lines of a file of /proc that have the text. */
int process_lines(const char *path, const char *text);

/* Files of /dev/shm that have the text in their names. */
int process_dev_shm(const char *text);
void process_nothing_left(const char *name);

/* Forks. The child (0 is returned there) ends with its parent, and by SIGALRM after `seconds`; 0: without that limit.
 */
pid_t process_fork(unsigned seconds);

/* Waits for a child to end. "" if it exited with 0, otherwise how it ended: "exit code 3", "signal 11 (Segmentation
 * fault)". In a buffer of PROCESS_END bytes. */
#define PROCESS_END 80
const char *process_end(pid_t pid, char *text);

/* Children that are forked one after the other begin together: each waits in process_gate_pass until the parent opens
 * the gate. So a thread of the parent that serves them sleeps while they are forked, and holds no lock, which a child
 * would have for ever: that of malloc under ASan, say. */
struct process_gate {
    int ends[2];
};
void process_gate_begin(struct process_gate *g);
void process_gate_pass(struct process_gate *g); /* in a child */
void process_gate_open(struct process_gate *g); /* in the parent */

/* Runs f in a child and gives its exit code. */
int process_do(int (*f)(void *), void *arg);

struct pair {
    weft_layout *src, *dst;
    weft_plan *plan;
    void *in, *out;
    bool window;
    weft_comm *comm;
    weft_exec *x;
};
int pair_bind(struct pair *p, const char *src, const char *dst, bool window, weft_comm *c);
void pair_release(struct pair *p);
#endif
