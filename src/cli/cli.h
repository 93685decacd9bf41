/* The verbs of the command. Each takes the arguments after its name and returns an exit code (tool/failure.h). */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

int cmd_plan(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_reshard(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_diagnose(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_bus(int argc, char **argv);
#endif
