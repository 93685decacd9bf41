/* Where the file of a module is, and loading it. */
#define _GNU_SOURCE
#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

#ifndef WEFT_MODULE_DIR
#define WEFT_MODULE_DIR "/../lib/weft" /* as seen from the folder of the programs */
#endif

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

/* Finds the file in the folders where the dynamic linker looks for libraries of the program: its run path above all. So
 * a program that is linked with libweft.a finds the modules of the installation that it was linked from. */
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

bool module_exists(const struct module *m, const char *asked)
{
    char path[PATH_MAX];
    return find(m, asked, path, sizeof path);
}

/* ---- loading ---- */

static int missing(const struct module *m, const char *what, const char *asked)
{
    char text[512], dir[PATH_MAX];
    struct text t = text_start(text, sizeof text);
    for (int i = 0; i < PLACES; i++)
        if (folder(asked, i, dir, sizeof dir))
            text_printf(&t, "%s%s", t.len ? ", " : "", dir);
    return error_set(WEFT_EUNSUPPORTED,
                     "%s is not possible: this weft has no module for %s (%s is not in %s or the run path): build and "
                     "install it where %s is installed, or name its folder in WEFT_MODULES",
                     what, m->library, m->file, text, m->package);
}

int module_load(const struct module *m, const char *what, const char *asked, const void **calls)
{
    char path[PATH_MAX];
    if (!find(m, asked, path, sizeof path))
        return missing(m, what, asked);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!module)
        return error_set(WEFT_EUNSUPPORTED, "%s cannot be loaded, is %s installed? %s", path, m->library, dlerror());
    const uint32_t *table = dlsym(module, m->symbol);
    uint32_t abi = table ? *table : 0;
    if (abi != m->abi) {
        dlclose(module);
        return error_set(WEFT_EUNSUPPORTED, "%s is not of this weft: its interface is number %u, not %u", path, abi,
                         m->abi);
    }
    *calls = table;
    return 0;
}
