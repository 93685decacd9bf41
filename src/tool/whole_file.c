#define _POSIX_C_SOURCE 200809L
#include "tool/whole_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LARGEST (INT64_C(1) << 28) /* bytes of a file */

int whole_file_read(const char *path, char **out, size_t *len, struct failure *f)
{
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) { /* before it is opened: to open a pipe would wait for a writer */
        failure_set(f, CLI_BAD, "%s: it is not a regular file", path);
        return CLI_BAD;
    }
    FILE *from = fopen(path, "re");
    if (!from || fstat(fileno(from), &st)) {
        failure_set(f, CLI_BAD, "%s: %s", path, strerror(errno));
        if (from)
            fclose(from);
        return CLI_BAD;
    }
    int err = 0;
    char *bytes = NULL;
    if (st.st_size > LARGEST)
        err = failure_set(f, CLI_BAD, "%s: larger than %" PRId64 " bytes", path, LARGEST);
    else if (!(bytes = malloc((size_t)st.st_size + 1)))
        err = failure_set(f, CLI_WRONG, "memory is out");
    else {
        *len = fread(bytes, 1, (size_t)st.st_size, from);
        bytes[*len] = 0;
        if (ferror(from))
            err = failure_set(f, CLI_BAD, "%s: %s", path, strerror(errno));
    }
    fclose(from);
    if (err)
        free(bytes);
    else
        *out = bytes;
    return err;
}

void whole_file_tame(char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if ((c && c < 0x20) || c == 0x7f)
            bytes[i] = '?';
        else if (c == 0xc2 && (unsigned char)bytes[i + 1] >= 0x80 && (unsigned char)bytes[i + 1] < 0xa0)
            bytes[i] = bytes[i + 1] = '?';
    }
}
