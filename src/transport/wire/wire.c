/* Which wire a URL asks for: the library's own, or a module's; where the module is, and loading it. A module stays
 * loaded, because the libraries behind it cannot be unloaded safely. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "transport/wire/wire.h"

#ifndef WEFT_MODULE_DIR
#define WEFT_MODULE_DIR "/../lib/weft" /* as seen from the folder of the programs */
#endif

struct module {
    const char *url, *file;
    const char *library, *package; /* the library that it needs, and the package with which it can be built */
};

static const struct module modules_known[] = {
    {"ucx:", "weft_ucx.so", "UCX", "libucx-dev"},
    {"mpi:openmpi", "weft_mpi_openmpi.so", "Open MPI", "libopenmpi-dev"},
    {"mpi:mpich", "weft_mpi_mpich.so", "MPICH", "libmpich-dev"},
};
enum { UCX, OPENMPI, MPICH, MODULES };

/* ---- where modules are ---- */

#define PLACES 4

/* The file that contains this code. For a program, the system reports the name by which it was called. This may lack
 * the folder, so the path of the running program is used instead. */
static bool own_file(char *out, size_t cap)
{
    static const char here = 0; /* an address inside the file */
    Dl_info self;
    struct link_map *object = NULL;
    if (!dladdr1(&here, &self, (void **)&object, RTLD_DL_LINKMAP) || !object)
        return false;
    if (object->l_name && *object->l_name)
        return (size_t)snprintf(out, cap, "%s", object->l_name) < cap;
    ssize_t n = readlink("/proc/self/exe", out, cap);
    if (n <= 0 || (size_t)n >= cap)
        return false;
    out[n] = 0;
    return true;
}

/* The ith folder where modules are looked for, from 0 on: the one that the caller asks for; the folder of this code;
 * its subfolder weft; and where modules are installed, relative to the folder of the programs. False: there is no ith
 * one. */
static bool folder(const char *asked, int i, char *out, size_t cap)
{
    static const char *const below[PLACES] = {"", "", "/weft", WEFT_MODULE_DIR};
    char file[PATH_MAX];
    if (i == 0) {
        snprintf(out, cap, "%s", asked ? asked : "");
        return asked && *asked;
    }
    const char *slash = own_file(file, sizeof file) ? strrchr(file, '/') : NULL;
    return slash && (size_t)snprintf(out, cap, "%.*s%s", (int)(slash - file), file, below[i]) < cap;
}

/* The same in the folders where the dynamic linker looks for libraries of the program: its run path above all. So a
 * program that is linked with libweft.a finds the modules of the installation that it was linked from. */
static bool find_by_run_path(const struct module *m, char *path, size_t cap)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    Dl_serinfo size;
    bool found = false;
    if (!program)
        return false;
    Dl_serinfo *all = dlinfo(program, RTLD_DI_SERINFOSIZE, &size) ? NULL : malloc(size.dls_size);
    if (all && !dlinfo(program, RTLD_DI_SERINFOSIZE, all) && !dlinfo(program, RTLD_DI_SERINFO, all))
        for (unsigned i = 0; i < all->dls_cnt && !found; i++)
            found = (size_t)snprintf(path, cap, "%s/%s", all->dls_serpath[i].dls_name, m->file) < cap &&
                    !access(path, R_OK);
    free(all);
    dlclose(program);
    return found;
}

/* The path of a module's file; false: there is none. */
static bool find(const struct module *m, const char *asked, char *path, size_t cap)
{
    char dir[PATH_MAX];
    for (int i = 0; i < PLACES; i++)
        if (folder(asked, i, dir, sizeof dir) && (size_t)snprintf(path, cap, "%s/%s", dir, m->file) < cap &&
            !access(path, R_OK))
            return true;
    return find_by_run_path(m, path, cap);
}

const char *wire_module(const char *modules, size_t i)
{
    char path[PATH_MAX];
    for (int k = 0; k < MODULES; k++)
        if (find(&modules_known[k], modules, path, sizeof path) && i-- == 0)
            return modules_known[k].url;
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
        if (!strcmp(place, modules_known[k].url + strlen("mpi:"))) {
            *which = k;
            if (in >= 0 && in != k)
                return error_set(WEFT_EINVAL, "mpi:%s: this process has loaded %s already, and the two cannot be mixed",
                                 place, modules_known[in].library);
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

/* ---- loading ---- */

static int missing(const struct module *m, const char *asked)
{
    char text[512], dir[PATH_MAX];
    struct text t = text_start(text, sizeof text);
    for (int i = 0; i < PLACES; i++)
        if (folder(asked, i, dir, sizeof dir))
            text_printf(&t, "%s%s", t.len ? ", " : "", dir);
    return error_set(WEFT_EUNSUPPORTED,
                     "%s is not possible: this weft has no module for %s (%s is not in %s or the run path): build and "
                     "install it where "
                     "%s is installed, or name its folder in WEFT_MODULES",
                     m->url, m->library, m->file, text, m->package);
}

static int load(const struct module *m, const char *asked, const struct wire_ops **out)
{
    char path[PATH_MAX];
    if (!find(m, asked, path, sizeof path))
        return missing(m, asked);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!module)
        return error_set(WEFT_EUNSUPPORTED, "%s cannot be loaded, is %s installed? %s", path, m->library, dlerror());
    const struct wire_ops *ops = dlsym(module, WIRE_NAME);
    uint32_t abi = ops ? ops->abi : 0;
    if (abi != WIRE_ABI) {
        dlclose(module);
        return error_set(WEFT_EUNSUPPORTED, "%s is not of this weft: its interface is number %u, not %u", path, abi,
                         WIRE_ABI);
    }
    *out = ops;
    return 0;
}

int wire_open(const char *url, const struct wire_boot *boot, struct wire **out)
{
    const struct wire_ops *ops = &wire_tcp;
    bool own = !strncmp(url, "tcp:", 4);
    int which, err = own ? 0 : choose(url, &which);
    if (!err && !own)
        err = load(&modules_known[which], boot->modules, &ops);
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
