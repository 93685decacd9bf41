"""Writes the C source of weft._weft. Its declarations are the headers of weft themselves, so that nothing is declared twice.

    python build_ffi.py _weft.c include/weft.h include/weft/checkpoint.h ...
"""

import pathlib
import re
import sys

import cffi

# DLPack's structs as their specification gives them (version 1); Python needs to see a part of the last two.
TENSOR = """
typedef struct { int32_t device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;
"""
MANAGED = """
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    struct { uint32_t major, minor; } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
"""
SEEN = """
typedef struct { DLTensor dl_tensor; ...; } DLManagedTensor;
typedef struct { uint64_t flags; DLTensor dl_tensor; ...; } DLManagedTensorVersioned;
int weft_python_runs(weft_exec *x, int64_t runs, int64_t *ns);
void *weft_python_dlpack(uintptr_t owner, bool versioned, void *data, int device, int code, int bits, int ndim, const int64_t *shape);
void weft_python_capsule_end(void *capsule);
extern "Python" void weft_python_done(void *arg, int err);
extern "Python" void weft_python_log(void *arg, const weft_log_record *r);
extern "Python" int weft_python_progress(void *arg, int64_t done, int64_t size);
extern "Python" int weft_python_arrived(void *arg, const weft_epoch_step *v, size_t i, const void *data, int64_t bytes);
extern "Python" void *weft_python_buffer(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes);
"""


def declarations(header: str) -> str:
    """The header without comments and without what cffi's parser does not know: of the preprocessor it keeps the constants."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
    numbers = re.compile(r"#define (WEFT_\w+) \(?(-?\d+)\)? *$|#define (WEFT_VERSION) ")
    lines = []
    for line in text.splitlines():
        number = numbers.match(line)
        if number:
            line = f"#define {number[1]} {number[2]}" if number[1] else f"#define {number[3]} ..."
        if number or not line.startswith("#"):
            lines.append(re.sub(r"^WEFT_API ", "", line))
    return "\n".join(lines) + "\n"


def main() -> None:
    target, *headers = map(pathlib.Path, sys.argv[1:])
    glue = pathlib.Path(__file__).with_name("glue.c").read_text()
    ffi = cffi.FFI()
    ffi.cdef("".join(declarations(h.read_text()) for h in headers) + TENSOR + SEEN)
    include = "".join(f"#include <{'weft/' * (h.parent.name == 'weft')}{h.name}>\n" for h in headers)
    ffi.set_source("weft._weft", include + TENSOR + MANAGED + glue)
    ffi.emit_c_code(str(target))


if __name__ == "__main__":
    main()
