#include "base/sized.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"

static size_t size_of(const void *caller)
{
    size_t size;
    memcpy(&size, caller, sizeof size);
    return size;
}

int sized_check(const char *call, const char *type, const void *to)
{
    size_t size = size_of(to);
    if (size >= sizeof size && size <= SIZED_MOST)
        return 0;
    char init[64];
    size_t n = 0;
    for (; type[n] && n + 1 < sizeof init; n++)
        init[n] = (char)toupper((unsigned char)type[n]);
    init[n] = 0;
    return error_set(WEFT_EINVAL, "%s: the size in %s is %zu: initialise it with %s_INIT, or set size to sizeof(%s)",
                     call, type, size, init, type);
}

int sized_read(const char *call, const char *type, void *to, size_t bytes, const void *from)
{
    memset(to, 0, bytes);
    memcpy(to, &bytes, sizeof bytes);
    if (!from)
        return 0;
    int err = sized_check(call, type, from);
    if (err)
        return err;
    size_t size = size_of(from);
    const char *at = from;
    for (size_t i = bytes; i < size; i++)
        if (at[i])
            return error_set(WEFT_EINVAL,
                             "%s: %s has %zu bytes, this library's has %zu, and byte %zu is not zero: the program "
                             "was compiled for a newer version and uses a field that version %s does not have",
                             call, type, size, bytes, i, weft_version_string());
    memcpy((char *)to + sizeof size, at + sizeof size, (size < bytes ? size : bytes) - sizeof size);
    return 0;
}

void sized_write(void *to, const void *from, size_t bytes)
{
    size_t size = size_of(to);
    char *at = to;
    memcpy(at + sizeof size, (const char *)from + sizeof size, (size < bytes ? size : bytes) - sizeof size);
    if (size > bytes)
        memset(at + bytes, 0, size - bytes);
}
