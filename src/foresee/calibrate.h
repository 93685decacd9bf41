/* Measures this machine as a host whose ranks share memory: what a core copies, what all cores copy together, what a
 * message costs and how long it takes. In a job on several hosts it also measures the network between two of them. */
#ifndef WEFT_FORESEE_CALIBRATE_H
#define WEFT_FORESEE_CALIBRATE_H
#include "foresee/machine_file.h"

/* Fills *m; keys that are not measured have the values of "plain". An exit code, and in *why what is wrong. */
int calibrate_measure(struct machine_file *m, struct failure *why);
/* In a job (weft run, or another launcher): rank 0 measures its host, and the network to the first rank of another host
 * if there is one. Hosts that are played on one machine share its cores, which move the bytes: nic_core, nic_path and
 * nic_message are measured, and nic has no limit. Otherwise nic is what one rank reaches, and nic_crowd and
 * nic_crowd_long are what up to 8 hosts do that all give each other data. All ranks call it. *hosts:
 * how many there are; 0 on all ranks but 0, which have no result. */
int calibrate_job(struct machine_file *m, int *hosts, struct failure *why);
/* Sets a rank's own time for a message and the latency inside a host so that two ranks which give each other eight
 * bytes take `both` nanoseconds. The two cannot be told apart from outside: half of the time is latency, the other half
 * is of the two messages that each rank has. */
void calibrate_exchange(double both, struct machine_file *m);
/* Played hosts of which each gives each other one a small message, and one that has `bytes` more: the nanoseconds for
 * which all of `cores` were busy with it, and those that the process of one host took itself. Sets nic_core, nic_path
 * and nic_message to what adds up to that. */
struct calibrate_crowd {
    double hosts, cores, bytes;
    double small, small_own, much, much_own;
};
void calibrate_crowd(const struct calibrate_crowd *x, struct machine_file *m);
/* Sets nic_crowd and nic_crowd_long from the nanoseconds in which 3 to 8 hosts all give each other LINKS_CROWD_SHORT
 * bytes (brief), and LINKS_CROWD_LONG bytes (lengthy). */
void calibrate_nics(int hosts, double brief, double lengthy, struct machine_file *m);
#define CALIBRATE_ROUNDS 7
double calibrate_now(void); /* nanoseconds */
#endif
