#define _GNU_SOURCE
#include "bus/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"

#define GLOBAL_ALL 3L

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct curl found;
static bool usable;

static const char *const files[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};

static bool take(void *library, const char *name, void *function)
{
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at); /* ISO C has no cast from an object's pointer to a function's */
    return at != NULL;
}

static void load(void)
{
    void *library = NULL;
    int (*init)(long);
    for (size_t i = 0; i < sizeof files / sizeof *files && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    usable = library && take(library, "curl_global_init", &init) && take(library, "curl_easy_init", &found.easy) &&
             take(library, "curl_easy_setopt", &found.set) && take(library, "curl_easy_perform", &found.perform) &&
             take(library, "curl_easy_getinfo", &found.info) && take(library, "curl_easy_cleanup", &found.easy_end) &&
             take(library, "curl_easy_strerror", &found.text) && take(library, "curl_slist_append", &found.list) &&
             take(library, "curl_slist_free_all", &found.list_end) && take(library, "curl_multi_init", &found.multi) &&
             take(library, "curl_multi_add_handle", &found.add) &&
             take(library, "curl_multi_remove_handle", &found.remove) &&
             take(library, "curl_multi_perform", &found.go_on) && take(library, "curl_multi_wait", &found.wait) &&
             take(library, "curl_multi_cleanup", &found.multi_end) && !init(GLOBAL_ALL);
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
