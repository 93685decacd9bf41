#define _GNU_SOURCE
#include "support/simulated.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "weft.h"

const struct device_ops *simulated_ops(void)
{
    const struct device_ops *ops;
    setenv("WEFT_DEVICE", "sim", 1);
    return device_find("test", WEFT_MEMORY_CUDA, getenv("WEFT_MODULES"), &ops) ? NULL : ops;
}

const struct sim_calls *simulated_calls(void)
{
    const struct device_ops *ops = simulated_ops();
    Dl_info info;
    if (!ops || !dladdr(ops, &info))
        return NULL;
    void *module = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    const struct sim_calls *calls = module ? dlsym(module, SIM_SYMBOL) : NULL;
    if (module)
        dlclose(module);
    return calls;
}

void simulated_set(const char *variable, const char *value)
{
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}
