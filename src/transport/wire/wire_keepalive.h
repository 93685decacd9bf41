/* How the wires over TCP notice that a host has vanished without even a reset.
 *
 * If no data is in flight, the keepalive of TCP asks every second whether the other host is there. If data is in
 * flight, the kernel sends it again, for a quarter of an hour. So a rank that waits looks at what the kernel knows of
 * each connection (TCP_INFO). It ends the connections on which the other end's kernel has given no sign for
 * KEEP_SILENT_NS, although it was asked again and again. Why this is right:
 *   - If a process is stopped or busy, its kernel answers for it. When its buffers are full, the kernel announces a
 * window of 0; then nothing is unacknowledged, and the kernel answers the probes. (TCP_USER_TIMEOUT would end such
 * connections, too.)
 *   - The kernel doubles the time between two tries, from some 0.2 s on. So after a break of t it sends again within
 * 2 t + 0.2 s from the beginning of the break: a link that is down for 2 s is not taken for a dead one.
 *   - If data was unanswered at two looks, and no sign came in between, it was unanswered all the time.
 *
 * Packets get lost, also inside one machine: its queue for incoming packets overflows if hundreds of connections are
 * probed in step. So silence is a doubt, and no proof. The wire of sockets (tcp/wire_tcp_watch.c) probes few
 * connections, and asks anew before it gives a peer up. */
#ifndef WEFT_TRANSPORT_WIRE_WIRE_KEEPALIVE_H
#define WEFT_TRANSPORT_WIRE_WIRE_KEEPALIVE_H
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define KEEP_IDLE 1     /* seconds of silence before the kernel asks whether the other host is there */
#define KEEP_INTERVAL 1 /* seconds until it asks again */
#define KEEP_COUNT 9    /* how often it asks; a rank that waits does not wait for all of them: */
#define KEEP_SILENT_NS INT64_C(4000000000) /* without an answer of the other host's kernel: the connection is ended */
#define KEEP_LOOK_NS INT64_C(100000000)    /* between two looks at the connections */

/* Switches the keepalive on. Accepted connections inherit it from the listening socket. */
static inline void keep_alive(int fd)
{
    const int on = 1, idle = KEEP_IDLE, interval = KEEP_INTERVAL, count = KEEP_COUNT;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* The same with another time of silence, in whole seconds, and as many questions as the kernel permits: for a caller
 * that decides itself. */
#define KEEP_COUNT_MOST 127
static inline void keep_alive_after(int fd, int idle)
{
    const int on = 1, interval = KEEP_INTERVAL, count = KEEP_COUNT_MOST;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* Has this end sent something that is not answered yet? */
static inline bool keep_awaits(const struct tcp_info *i)
{
    return (i->tcpi_state == TCP_ESTABLISHED || i->tcpi_state == TCP_CLOSE_WAIT) && (i->tcpi_unacked || i->tcpi_probes);
}

/* Probes are sent every second, so three unanswered probes show how long it has been silent. */
static inline bool keep_silent(const struct tcp_info *i, int64_t awaited_ns)
{
    const uint32_t ms = (uint32_t)(KEEP_SILENT_NS / 1000000);
    return i->tcpi_last_ack_recv >= ms && i->tcpi_last_data_recv >= ms &&
           (i->tcpi_probes >= 3 || (i->tcpi_retransmits >= 2 && awaited_ns >= KEEP_SILENT_NS));
}

/* Has the other end been silent for `doubt_ns` although it was asked? */
static inline bool keep_doubted(const struct tcp_info *i, int64_t awaited_ns, int64_t doubt_ns)
{
    const uint32_t ms = (uint32_t)(doubt_ns / 1000000);
    return i->tcpi_last_ack_recv >= ms && i->tcpi_last_data_recv >= ms &&
           (i->tcpi_probes >= 1 || (i->tcpi_retransmits >= 1 && awaited_ns >= doubt_ns));
}
#endif
