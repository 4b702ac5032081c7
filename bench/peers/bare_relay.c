/* The lowest cost of a relay in any language: it moves bytes both ways, with one thread and one epoll.
 * bare_relay PORT UPSTREAM_PORT
 *
 * Each client connection has its own connection to the upstream. Nothing is parsed, checked, limited, pooled, captured or
 * buffered: if a socket is full, all connections wait for it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 65536, READ_BYTES = 262144, AT_ONCE = 256, BACKLOG = 2048 };

static int other_side[CONNECTIONS]; /* by descriptor: that of the other side of its client; 0: none */
static char read_bytes[READ_BYTES];

static struct sockaddr_in local(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void watch(int epoll, int socket)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = socket};
    epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &wanted);
}

static void pair(int epoll, int client, struct sockaddr_in *upstream)
{
    int on = 1, to_upstream = socket(AF_INET, SOCK_STREAM, 0);
    if (client >= CONNECTIONS || to_upstream >= CONNECTIONS
        || connect(to_upstream, (struct sockaddr *)upstream, sizeof *upstream)) {
        close(client);
        close(to_upstream);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(to_upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    other_side[client] = to_upstream;
    other_side[to_upstream] = client;
    watch(epoll, client);
    watch(epoll, to_upstream);
}

static void move(int from)
{
    int to = other_side[from];
    if (!to)
        return; /* it was closed in the same turn */
    ssize_t came = recv(from, read_bytes, sizeof read_bytes, MSG_DONTWAIT);
    if (came > 0 && send(to, read_bytes, came, MSG_NOSIGNAL) == came)
        return;
    other_side[from] = other_side[to] = 0;
    close(from);
    close(to);
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    struct sockaddr_in here = local(words[1]), upstream = local(words[2]);
    struct epoll_event ready[AT_ONCE];
    int on = 1, epoll = epoll_create1(0), listening = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&here, sizeof here) || listen(listening, BACKLOG))
        return 1;
    watch(epoll, listening);
    for (;;) {
        int many = epoll_wait(epoll, ready, AT_ONCE, -1);
        for (int at = 0; at < many; at++) {
            if (ready[at].data.fd == listening)
                pair(epoll, accept(listening, NULL, NULL), &upstream);
            else
                move(ready[at].data.fd);
        }
    }
}
