/* Lines of a rank's output, each with the rank before it and never mixed with those of others. */
#ifndef WEFT_CLI_TAG_H
#define WEFT_CLI_TAG_H
#include <stdio.h>

struct tag {
    int fd; /* where the rank's output comes from; -1: closed */
    FILE *to;
    int rank;
    size_t n; /* bytes of a line that is not complete */
    char line[4096];
};

void tag_open(struct tag *t, int fd, FILE *to, int rank);
void tag_read(struct tag *t);  /* what has come; closes at the end */
void tag_close(struct tag *t); /* reads what is left without waiting */
#endif
