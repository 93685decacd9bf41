/* Prints the table of the model: a line `name: SRC -> DST` for each tensor. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/work/model.h"

static int put(void *arg, const char *name, const char *src, const char *dst)
{
    (void)arg;
    return printf("%s: %s -> %s\n", name, src, dst) < 0;
}

int main(int argc, char **argv)
{
    return model_moves(argc > 1 ? atoi(argv[1]) : MODEL_LAYERS, put, NULL);
}
