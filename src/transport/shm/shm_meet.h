/* How the processes of a group find each other. As long as a rank is a member, it holds a socket with an abstract name,
 * made of the group's name and the rank: a second process with the same rank is refused. The first process that comes
 * also binds the group's own name. It is the host until all are there: it makes the file and hands it to each rank that
 * connects. The kernel drops abstract names with the process, so nothing is left behind, also if a rank is killed.
 *
 *   rank: HELLO    host: nothing, or REFUSED
 *   rank: READY    host: closes the connection when all ranks are ready, and has set the word `formed` in the file
 *
 * A rank gets the file by another connection, as soon as it has said HELLO. Its socket is made by the host. Who answers
 * there hands over the file and the socket itself (WELCOME), and so the rank that gets it can answer others. Each rank
 * answers FAN of them at most: no rank sends more messages if there are more ranks. Only a host without such a socket
 * sends WELCOME to all itself.
 *
 * Ranks that say different sizes are all refused: see disagree() in shm_host.c.
 *
 * If a rank or the host sees that others have ended, or that it is in vain to wait for them (struct transport_ask), the
 * word `formed` in the file decides for all: the group has formed if all ranks had come by then, and otherwise it never
 * will. So either all ranks that are left are members, or none is.
 *
 * Either may send BYE when its time has run out. After a rank's BYE the host waits for that rank again. After the
 * host's BYE another rank can be the host. If a connection ends without BYE, its process has ended. */
#ifndef WEFT_TRANSPORT_SHM_SHM_MEET_H
#define WEFT_TRANSPORT_SHM_SHM_MEET_H
#include <sys/socket.h>
#include <sys/un.h>

#include "transport/shm/shm.h"

enum shm_kind { SHM_HELLO = 1, SHM_WELCOME, SHM_REFUSED, SHM_READY, SHM_BYE };
/* It changes with the layout of the core. */
#define SHM_PROTOCOL (UINT32_C(0x776b0000) | (uint32_t)sizeof(struct core_rank))
#define SHM_FAN 8 /* ranks that a rank gives the file to */
/* For how long a rank that is taken is tried again: its process may be ending. */
#define SHM_CLAIM_NS INT64_C(100000000)

struct shm_message {
    uint32_t protocol, kind;
    int32_t rank, size, code;
    int64_t pid;
    char text[SHM_SAID];
};

/* ---- shm_talk.c ---- */

/* Make a socket, or return a negative errno. A rank below 0 stands for the group. who: the process at the other end. */
int shm_talk_listen_on(const struct sockaddr_un *a, socklen_t n, int backlog);
int shm_talk_listen(const struct shm_link *l, int rank);
int shm_talk_connect_with(const struct sockaddr_un *a, socklen_t n, struct ucred *who);
int shm_talk_connect(const struct shm_link *l, int rank, struct ucred *who);
int shm_talk_error(const struct shm_link *l, int err); /* the error of a rank that has no socket */

int shm_talk_ms_until(int64_t until);
int shm_talk_wait_ms(const struct transport_ask *ask, int64_t until); /* how long to wait now, in milliseconds */

/* False: the message was not sent. Most callers ignore it: the next read finds out whether the other end is gone.
 * files: the first n of two are sent. */
bool shm_talk_tell(int fd, const struct shm_message *m, const int files[2], size_t n);
void shm_talk_say(int fd, enum shm_kind kind, const char *text);
void shm_talk_refuse(int fd, int code, const char *text);
/* Returns 1 if a message has come: *m, and the files that it carries, of which the first is -EMFILE if this process
 * could not take it. Returns 0 if the other end is closed, -1 if nothing has come. files: two, or NULL. */
int shm_talk_hear(int fd, struct shm_message *m, int *files);

/* ---- shm_hands.c ---- */

/* Where the ranks that this host gathers get the file. host: its process. */
socklen_t shm_hands_address(const struct shm_link *l, int64_t host, struct sockaddr_un *a);
/* The number of the socket for the file in an epoll; those of connections are ranks, and that of the host's socket
 * comes after the last rank. */
uint32_t shm_hands_number(const struct shm_link *l);
/* Of all ranks that wait for somebody who asks for the file, the system wakes one. False: it cannot. */
bool shm_hands_attend(const struct shm_link *l, int events, int hands);
/* Accepts a rank that asks for the file; -1: there is none. */
int shm_hands_accept(int hands);
/* Gives the file to the rank that asks by fd, and closes fd. When this rank has given it to SHM_FAN others, they do it.
 * host: its rank. */
void shm_hands_give(const struct shm_link *l, int host, int events, int hands, int fd, int *handed);

/* ---- shm_form.c ---- */

/* The first rank that calls it decides for all whether the group has formed. Returns what was decided. */
bool shm_form(const struct shm_link *l, bool formed);
/* Whether the group has formed, after the connection with the host has ended. If the host has not decided that, this
 * rank looks at the words of all others. */
bool shm_form_known(const struct shm_link *l);
void shm_form_enter(struct shm_link *l); /* this rank has the file: it is here */
/* The error that names the ranks that have not come. */
int shm_form_missing(struct shm_link *l, int64_t wait_ns);
/* The error after the connection with a rank has ended; rank -1: with some rank. The caller may know more of it, but
 * not before its process has ended. */
int shm_form_ended(const struct shm_link *l, const struct transport_ask *ask, int rank);

/* ---- shm_host.c ---- */

/* Gathers the other ranks as the host, which listens there, and closes the listener. */
int shm_host(struct shm_link *l, const struct transport_ask *ask, int listener, int64_t until);
#endif
