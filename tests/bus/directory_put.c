/* Puts or deletes a key of a directory, for bus_cli_test.sh: directory_put URL TOKEN KEY [VALUE]. "\0" in VALUE is a
 * zero. */
#include <stdio.h>
#include <string.h>

#include "bus/directory.h"
#include "weft.h"

#define TIMEOUT INT64_C(60000000000)

int main(int argc, char **argv)
{
    struct directory *d;
    struct directory_outcome o;
    if (argc < 4)
        return 2;
    int err = directory_open(argv[1], &(struct directory_opts){argv[2], TIMEOUT}, &d);
    if (!err && argc > 4) {
        char *zero = strstr(argv[4], "\\0");
        size_t n = strlen(argv[4]);
        if (zero) {
            memmove(zero, zero + 1, strlen(zero));
            *zero = 0;
            n--;
        }
        err = directory_put_if(d, argv[3], -1, argv[4], n, 0, TIMEOUT, &o);
    } else if (!err) {
        err = directory_delete(d, argv[3], -1, TIMEOUT, &o);
    }
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        return 1;
    }
    printf("%lld\n", (long long)o.revision);
    directory_close(d);
    return 0;
}
