/* Mail that came while this rank was still joining: it is kept, and handed out before what the wire has. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/hosts/hosts_link.h"

struct hosts_early {
    struct hosts_early *next;
    int peer;
    size_t n;
    char bytes[WIRE_MAIL];
};

int hosts_early_keep(struct transport_hosts *h, int peer, const void *bytes, size_t n)
{
    struct hosts_early **at = &h->early, *e = malloc(sizeof *e);
    if (!e)
        return error_nomem();
    while (*at)
        at = &(*at)->next;
    *e = (struct hosts_early){.peer = peer, .n = n};
    memcpy(e->bytes, bytes, n);
    *at = e;
    return 0;
}

bool hosts_early_fetch(struct transport_hosts *h, int *peer, const void **bytes, size_t *n)
{
    struct hosts_link *l = (struct hosts_link *)((char *)h - offsetof(struct hosts_link, hosts));
    if (l->reading) {
        struct hosts_early *e = h->early;
        h->early = e->next;
        free(e);
    }
    l->reading = h->early != NULL;
    if (!l->reading)
        return h->wire->ops->fetch(h->wire, peer, bytes, n);
    *peer = h->early->peer;
    *bytes = h->early->bytes;
    *n = h->early->n;
    return true;
}

void hosts_early_free(struct transport_hosts *h)
{
    while (h->early) {
        struct hosts_early *e = h->early;
        h->early = e->next;
        free(e);
    }
}
