/* Which wire a URL asks for: the library's own, or a module's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/module.h"
#include "transport/wire/wire.h"

struct source {
    const char *url;
    struct module module;
};

static const struct source sources[] = {
    {"ucx:", {"weft_ucx.so", "UCX", "libucx-dev", WIRE_NAME, WIRE_ABI}},
    {"mpi:openmpi", {"weft_mpi_openmpi.so", "Open MPI", "libopenmpi-dev", WIRE_NAME, WIRE_ABI}},
    {"mpi:mpich", {"weft_mpi_mpich.so", "MPICH", "libmpich-dev", WIRE_NAME, WIRE_ABI}},
};
enum { UCX, OPENMPI, MPICH, MODULES };

const char *wire_module(const char *modules, size_t i)
{
    for (int k = 0; k < MODULES; k++)
        if (module_exists(&sources[k].module, modules) && i-- == 0)
            return sources[k].url;
    return NULL;
}

/* ---- which one ---- */

static bool loaded(const char *library, const char *symbol)
{
    void *there = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (there)
        dlclose(there);
    return there || dlsym(RTLD_DEFAULT, symbol);
}

/* The MPI library that this process has loaded already; -1: none. */
static int mpi_loaded(void)
{
    if (loaded("libmpi.so.40", "ompi_mpi_comm_world"))
        return OPENMPI;
    return loaded("libmpich.so.12", "MPII_Version_string") ? MPICH : -1;
}

/* The one whose launcher started this process; -1: unknown. */
static int mpi_launched(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return OPENMPI;
    return getenv("PMI_RANK") && getenv("PMI_SIZE") ? MPICH : -1;
}

static int mpi_choose(const char *place, int *which)
{
    int in = mpi_loaded();
    if (*place == 0) {
        *which = in >= 0 ? in : mpi_launched();
        if (*which < 0)
            return error_set(WEFT_EINVAL,
                             "mpi: this process was not started by Open MPI or MPICH and has loaded neither; "
                             "start it with mpirun or mpiexec, or say mpi:openmpi or mpi:mpich");
        return 0;
    }
    for (int k = OPENMPI; k <= MPICH; k++)
        if (!strcmp(place, sources[k].url + strlen("mpi:"))) {
            *which = k;
            if (in >= 0 && in != k)
                return error_set(WEFT_EINVAL, "mpi:%s: this process has loaded %s already, and the two cannot be mixed",
                                 place, sources[in].module.library);
            return 0;
        }
    return error_set(WEFT_EINVAL, "mpi:%s: no such MPI library; there are mpi:openmpi and mpi:mpich", place);
}

static int choose(const char *url, int *which)
{
    *which = UCX;
    if (!strncmp(url, "ucx:", 4))
        return 0;
    if (!strncmp(url, "mpi:", 4))
        return mpi_choose(url + 4, which);
    return error_set(WEFT_EINVAL, "%s: there is no module of that name", url);
}

int wire_open(const char *url, const struct wire_boot *boot, struct wire **out)
{
    const struct wire_ops *ops = &wire_tcp;
    bool own = !strncmp(url, "tcp:", 4);
    int which, err = own ? 0 : choose(url, &which);
    const void *calls = NULL;
    if (!err && !own && !(err = module_load(&sources[which].module, sources[which].url, boot->modules, &calls)))
        ops = calls;
    if (err)
        return err;
    struct wire_boot with = *boot;
    with.error = error_set;
    if (boot->size < 0 || (boot->size == 0 && !ops->can.sized))
        return error_set(WEFT_EINVAL, "%s a group of %d ranks", url, boot->size);
    if (boot->size && (boot->rank < 0 || boot->rank >= boot->size))
        return error_set(WEFT_EINVAL, "%s rank %d of %d", url, boot->rank, boot->size);
    return ops->open(&with, out);
}
