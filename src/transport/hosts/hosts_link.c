#include "transport/hosts/hosts_link.h"

#include <stdlib.h>

#include "base/error.h"

int hosts_link_tags(struct transport_hosts *h, int size)
{
    h->tags_in = calloc((size_t)size, sizeof *h->tags_in);
    h->tags_out = calloc((size_t)size, sizeof *h->tags_out);
    return h->tags_in && h->tags_out ? 0 : error_nomem();
}

int *hosts_link_near(const struct transport_hosts *h, int size)
{
    int *near = malloc((size_t)size * sizeof *near);
    for (int r = 0; r < size && near; r++)
        near[r] = h->host[r] == h->here ? h->index[r] : -1;
    return near;
}

void hosts_link_free(struct hosts_link *l)
{
    struct transport_hosts *h = &l->hosts;
    /* The group's memory is freed with `home`, so the failure is read before. A link of a split that has failed was
     * never entered: then no rank needs the mail that was sent. */
    bool failed = l->base.inside ? core_failed(l->base.group) : l->base.origin != NULL;
    hosts_sleep_dismiss(l);
    if (h->home)
        h->home->transport->leave(h->home);
    if (h->wire) {
        h->wire->failed = failed;
        h->wire->ops->close(h->wire);
    }
    hosts_early_free(h);
    roster_drop(&l->roster);
    free(h->tags_in);
    free(h->tags_out);
    free(l->base.origin);
    free(l);
}

void hosts_link_enter(struct transport_link *l)
{
    if (l->hosts && !l->hosts->home->inside)
        transport_link_enter(l->hosts->home);
    transport_link_enter(l);
}

int hosts_link_founder(const struct transport_link *l, const int *ranks, int size)
{
    for (int r = 0; r < size; r++)
        if (!transport_elsewhere(l, ranks[r]))
            return r;
    return 0;
}
