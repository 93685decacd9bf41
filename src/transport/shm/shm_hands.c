/* Giving out the file of a group: each rank that has it gives it to a few others (shm_meet.h). */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transport/shm/shm_meet.h"

#define HANDS "weft-file:" /* before the host's process and the name of its group: where the file is given out */

socklen_t shm_hands_address(const struct shm_link *l, int64_t host, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, HANDS "%lld:%s", (long long)host, l->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

uint32_t shm_hands_number(const struct shm_link *l)
{
    return (uint32_t)l->base.size + 1;
}

bool shm_hands_attend(const struct shm_link *l, int events, int hands)
{
    struct epoll_event what = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.u32 = shm_hands_number(l)};
    return !epoll_ctl(events, EPOLL_CTL_ADD, hands, &what);
}

int shm_hands_accept(int hands)
{
    return accept4(hands, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void shm_hands_give(const struct shm_link *l, int host, int events, int hands, int fd, int *handed)
{
    struct ucred who;
    socklen_t len = sizeof who;
    if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) && who.uid == geteuid())
        *handed += shm_talk_tell(fd, &(struct shm_message){.protocol = SHM_PROTOCOL, .kind = SHM_WELCOME, .rank = host},
                                 (const int[2]){l->home->file, hands}, 2);
    close(fd);
    if (*handed >= SHM_FAN)
        epoll_ctl(events, EPOLL_CTL_DEL, hands, NULL);
}
