/* Lines of a rank's output, each with the rank before it and never mixed with those of others. */
#ifndef WEFT_CLI_RUN_RANK_OUTPUT_H
#define WEFT_CLI_RUN_RANK_OUTPUT_H
#include <stdio.h>

struct rank_output {
    int fd; /* where the rank's output comes from; -1: closed */
    FILE *to;
    int rank;
    size_t n; /* bytes of a line that is not complete */
    char line[4096];
};

void rank_output_open(struct rank_output *t, int fd, FILE *to, int rank);
void rank_output_read(struct rank_output *t);  /* reads and prints what has come; closes at the end of the output */
void rank_output_close(struct rank_output *t); /* reads what is left without waiting */
#endif
