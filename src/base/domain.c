#include "base/domain.h"

#include "base/error.h"

int domain_check(const char *what, int memory, int device)
{
    if (memory != WEFT_MEMORY_HOST)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: memory of kind %d%s is not supported: version %s moves host memory (WEFT_MEMORY_HOST, 0) "
                         "only; copy to host memory first",
                         what, memory, memory == WEFT_MEMORY_CUDA ? " (WEFT_MEMORY_CUDA)" : "", weft_version_string());
    if (device)
        return error_set(WEFT_EINVAL, "%s: host memory has no device %d: set device to 0", what, device);
    return 0;
}
