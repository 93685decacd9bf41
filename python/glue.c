/* What the Python module has beside weft.h: the loops in C that weft.bench measures Python's against, and DLPack's
 * structs for memory of weft on a device. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft.h>

/* Start and wait `runs` times; how long it took. */
static int weft_python_runs(weft_exec *x, int64_t runs, int64_t *ns)
{
    struct timespec a, b;
    int err = 0;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int64_t i = 0; i < runs && !err; i++) {
        err = weft_exec_start(x);
        if (!err)
            err = weft_exec_wait(x, WEFT_FOREVER);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    *ns = (int64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (b.tv_nsec - a.tv_nsec);
    return err;
}

/* ---- DLPack ---- */

#define DLPACK_CUDA 2

/* A consumer may free it after Python has ended: then there is nothing left to count. */
static void let_go(void *owner)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static void plain_deleter(DLManagedTensor *self)
{
    let_go(self->manager_ctx);
    free(self);
}

static void versioned_deleter(DLManagedTensorVersioned *self)
{
    let_go(self->manager_ctx);
    free(self);
}

/* Of a capsule that nobody has consumed: a consumer renames it. */
static void weft_python_capsule_end(void *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *m = PyCapsule_GetPointer(capsule, "dltensor");
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        m->deleter(m);
    }
}

/* Dense memory of a device as a DLManagedTensor or a DLManagedTensorVersioned, in one allocation with its shape. It
 * counts a reference to the owner, a PyObject. NULL: no memory. cffi has released the GIL. */
static void *weft_python_dlpack(uintptr_t owner, bool versioned, void *data, int device, int code, int bits, int ndim,
                                const int64_t *shape)
{
    size_t head = versioned ? sizeof(DLManagedTensorVersioned) : sizeof(DLManagedTensor);
    size_t dims = (size_t)ndim * sizeof(int64_t);
    char *memory = calloc(1, head + 2 * dims);
    if (!memory)
        return NULL;
    int64_t *extents = (int64_t *)(void *)(memory + head), *strides = extents + ndim, step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        extents[i] = shape[i];
        strides[i] = step;
        step *= shape[i];
    }
    DLTensor tensor = {data, {DLPACK_CUDA, device}, ndim, {(uint8_t)code, (uint8_t)bits, 1}, extents, strides, 0};
    if (versioned) {
        DLManagedTensorVersioned *m = (DLManagedTensorVersioned *)(void *)memory;
        m->version.major = 1;
        m->manager_ctx = (void *)owner;
        m->deleter = versioned_deleter;
        m->dl_tensor = tensor;
    } else {
        DLManagedTensor *m = (DLManagedTensor *)(void *)memory;
        m->dl_tensor = tensor;
        m->manager_ctx = (void *)owner;
        m->deleter = plain_deleter;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    Py_INCREF((PyObject *)owner);
    PyGILState_Release(state);
    return memory;
}
