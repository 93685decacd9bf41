/* Hosts that vanish without a word: no reset comes, nothing comes at all. What the wires over TCP have in common to see
 * that.
 *
 * Where nothing is on its way the keepalive of TCP asks every second whether the other host is there. Where something
 * is on its way the kernel sends it again, for a quarter of an hour. So whoever waits looks at what the kernel knows of
 * each connection (TCP_INFO), and ends those of which the other end's kernel has given no sign for KEEP_SILENT_NS
 * though it was asked again and again. Why that is right:
 *   - A process that is stopped or busy has a kernel that answers for it. When its buffers are full that announces a
 * window of 0; then nothing is unacknowledged, and it answers the probes. (TCP_USER_TIMEOUT would end such connections,
 * too.)
 *   - The kernel doubles its patience from some 0.2 s on, so after a break of t it sends again within 2 t + 0.2 s from
 * its beginning: a link that is down for 2 s is not taken for a dead one.
 *   - What was unanswered at two looks and brought no sign in between was unanswered all the time. */
#ifndef WEFT_TRANSPORT_WIRE_WIRE_KEEPALIVE_H
#define WEFT_TRANSPORT_WIRE_WIRE_KEEPALIVE_H
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define KEEP_IDLE 1     /* seconds without a word before the kernel asks whether the other host is there ... */
#define KEEP_INTERVAL 1 /* ... again after this many seconds ... */
#define KEEP_COUNT 9    /* ... so often; who waits does not wait for that: */
#define KEEP_SILENT_NS INT64_C(4000000000) /* without an answer of the other host's kernel */
#define KEEP_LOOK_NS INT64_C(100000000)    /* between two looks at the connections */

/* Connections that come in inherit it from the socket that listens. */
static inline void keep_alive(int fd)
{
    const int on = 1, idle = KEEP_IDLE, interval = KEEP_INTERVAL, count = KEEP_COUNT;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* Has it sent something that was not answered yet? */
static inline bool keep_awaits(const struct tcp_info *i)
{
    return (i->tcpi_state == TCP_ESTABLISHED || i->tcpi_state == TCP_CLOSE_WAIT) && (i->tcpi_unacked || i->tcpi_probes);
}

/* Probes come every second, so three of them say by themselves for how long. */
static inline bool keep_silent(const struct tcp_info *i, int64_t awaited_ns)
{
    const uint32_t ms = (uint32_t)(KEEP_SILENT_NS / 1000000);
    return i->tcpi_last_ack_recv >= ms && i->tcpi_last_data_recv >= ms &&
           (i->tcpi_probes >= 3 || (i->tcpi_retransmits >= 2 && awaited_ns >= KEEP_SILENT_NS));
}
#endif
