/* The simulated device for tests, and its calls that a program would make of CUDA's own library. */
#ifndef WEFT_TESTS_SIMULATED_H
#define WEFT_TESTS_SIMULATED_H
#include "device/sim/sim.h"

/* The table of the simulation; NULL: it cannot be loaded, and weft_errmsg() says why. */
const struct device_ops *simulated_ops(void);
const struct sim_calls *simulated_calls(void); /* NULL in the same way */

/* Sets a variable of the simulation; NULL: removes it. */
void simulated_set(const char *variable, const char *value);
#endif
