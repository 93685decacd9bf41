/* The few functions of libcurl that a directory on etcd needs. The library is loaded when such a directory is first
 * opened: weft is built and runs without it. Numbers of options are part of libcurl's ABI and never change. */
#ifndef WEFT_BUS_CURL_H
#define WEFT_BUS_CURL_H
#include <stdbool.h>
#include <stddef.h>

enum {
    CURL_WRITEDATA = 10001,
    CURL_URL = 10002,
    CURL_POSTFIELDS = 10015,
    CURL_HTTPHEADER = 10023,
    CURL_NOPROXY = 10177,
    CURL_POSTFIELDSIZE = 60,
    CURL_NOSIGNAL = 99,
    CURL_TIMEOUT_MS = 155,
    CURL_CONNECTTIMEOUT_MS = 156,
    CURL_PROTOCOLS = 181,
    CURL_TCP_KEEPALIVE = 213,
    CURL_WRITEFUNCTION = 20011,
    CURL_RESPONSE_CODE = 0x200002 /* of getinfo */
};
enum { CURL_NO_HOST = 6, CURL_NO_CONNECTION = 7, CURL_TIMED_OUT = 28 }; /* results */

struct curl {
    void *(*easy)(void);
    int (*set)(void *easy, int option, ...);
    int (*perform)(void *easy);
    int (*info)(void *easy, int what, ...);
    void (*easy_end)(void *easy);
    const char *(*text)(int result);
    void *(*list)(void *list, const char *text);
    void (*list_end)(void *list);
    void *(*multi)(void);
    int (*add)(void *multi, void *easy);
    int (*remove)(void *multi, void *easy);
    int (*go_on)(void *multi, int *running);
    int (*wait)(void *multi, void *none, unsigned n, int ms, int *ready);
    int (*multi_end)(void *multi);
};

/* NULL, with WEFT_EUNSUPPORTED set, if the library is not installed. */
const struct curl *curl_find(void);
#endif
