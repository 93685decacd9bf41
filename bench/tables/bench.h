/* The benchmarks, each in the file that its name begins with. Each takes the arguments after its name and returns an
 * exit code. */
#ifndef WEFT_BENCH_TABLES_BENCH_H
#define WEFT_BENCH_TABLES_BENCH_H
int bench_coll(int argc, char **argv);
int bench_reshard(int argc, char **argv);
int bench_halo(int argc, char **argv);
int bench_many(int argc, char **argv);
int bench_coll_latency(int argc, char **argv);
int bench_memory(int argc, char **argv);
int bench_lower(int argc, char **argv);
int bench_overlap(int argc, char **argv);
int bench_pairs(int argc, char **argv);
int bench_hosts(int argc, char **argv);
int bench_bus(int argc, char **argv);
int bench_check(int argc, char **argv);
#endif
