/* The memory of a message, which may be in several pieces, and where in it the next byte goes. */
#include <string.h>
#include <sys/uio.h>

#include "transport/wire/tcp/wire_tcp.h"

size_t tcp_memory_pieces(const struct tcp_message *m, size_t n, struct iovec *out, size_t cap)
{
    size_t k = 0, offset = m->offset;
    for (size_t i = m->part; n && k < cap && i < m->nparts; i++, offset = 0) {
        size_t rest = m->parts[i].bytes - offset, some = n < rest ? n : rest;
        if (!some)
            continue;
        out[k++] = (struct iovec){(unsigned char *)m->parts[i].memory + offset, some};
        n -= some;
    }
    return k;
}

void tcp_memory_advance(struct tcp_message *m, size_t n)
{
    while (n) {
        size_t rest = m->parts[m->part].bytes - m->offset;
        if (n < rest) {
            m->offset += n;
            return;
        }
        n -= rest;
        m->part++;
        m->offset = 0;
    }
}

void tcp_memory_put(struct tcp_message *m, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    for (struct iovec v; n && tcp_memory_pieces(m, n, &v, 1); n -= v.iov_len, from += v.iov_len) {
        memcpy(v.iov_base, from, v.iov_len);
        tcp_memory_advance(m, v.iov_len);
    }
}
