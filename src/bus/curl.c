#include "bus/curl.h"

#include <pthread.h>

#include "base/error.h"
#include "base/library.h"

#define GLOBAL_ALL 3L

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct curl found;
static bool usable;

static const char *const files[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};

static void load(void)
{
    int (*init)(long);
    const struct library_call calls[] = {
        {"curl_global_init", &init},
        {"curl_easy_init", &found.easy},
        {"curl_easy_setopt", &found.set},
        {"curl_easy_perform", &found.perform},
        {"curl_easy_getinfo", &found.info},
        {"curl_easy_cleanup", &found.easy_end},
        {"curl_easy_strerror", &found.text},
        {"curl_slist_append", &found.list},
        {"curl_slist_free_all", &found.list_end},
        {"curl_multi_init", &found.multi},
        {"curl_multi_add_handle", &found.add},
        {"curl_multi_remove_handle", &found.remove},
        {"curl_multi_perform", &found.go_on},
        {"curl_multi_wait", &found.wait},
        {"curl_multi_cleanup", &found.multi_end},
        {0},
    };
    usable = library_open(files, sizeof files / sizeof *files, calls) && !init(GLOBAL_ALL);
}

const struct curl *curl_find(void)
{
    pthread_once(&once, load);
    if (usable)
        return &found;
    error_set(WEFT_EUNSUPPORTED,
              "etcd: directories need libcurl, which is not installed (Debian: apt-get install libcurl4)");
    return NULL;
}
