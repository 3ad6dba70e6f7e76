/* A bare socket that does what a fast ingest does (ADR-50), with prebuilt frames.
 *
 *   batch PORT SUBJECT SIZE COUNT FLOW OUTSTANDING
 *
 * It waits for the first reply and keeps to the window that the server grants. At the end it
 * commits the batch and waits for that reply. It reads only the numbers in replies.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static char in[256 * 1024];

int main(int argc, char **v) {
    if (argc != 7) {
        fputs("batch PORT SUBJECT SIZE COUNT FLOW OUTSTANDING\n", stderr);
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1]))};
    int size = atoi(v[3]), flow = atoi(v[5]), outstanding = atoi(v[6]), one = 1;
    long count = atol(v[4]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

    /* The server identifies a batch by this token alone. */
    char prefix[64], hello[256];
    sprintf(prefix, "_INBOX.raw%019lld", (long long)now_ns());
    char *payload = calloc(1, size + 1);
    memset(payload, 'x', size);
    size_t most = strlen(v[2]) + sizeof prefix + size + 64, filled = 0;
    char *frames = malloc((count + 1) * most);
    size_t *ends = malloc((count + 2) * sizeof *ends);
    ends[0] = 0;
    for (long i = 1; i <= count; i++) {
        filled += sprintf(frames + filled, "PUB %s %s.%d.fail.%ld.%d.$FI %d\r\n%s\r\n", v[2],
                          prefix, flow, i, i == 1 ? 0 : 1, size, payload);
        ends[i] = filled;
    }
    filled += sprintf(frames + filled, "PUB %s %s.%d.fail.%ld.3.$FI 0\r\n\r\n", v[2], prefix,
                      flow, count + 1);
    ends[count + 1] = filled;

    sprintf(hello, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n"
                   "SUB %s.> 1\r\nPING\r\n", prefix);
    if (send(fd, hello, strlen(hello), MSG_NOSIGNAL) < 0) fail("send");
    size_t have = 0;
    while (have < 6 || memcmp(in + have - 6, "PONG\r\n", 6)) {
        ssize_t n = recv(fd, in + have, sizeof in - have, 0);
        if (n <= 0) fail("recv");
        have += n;
    }

    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    long limit = 1;
    size_t sent = 0;
    have = 0;
    for (int done = 0; !done;) {
        struct pollfd p = {fd, POLLIN | (sent < ends[limit] ? POLLOUT : 0), 0};
        if (poll(&p, 1, 10000) <= 0) fail("poll");
        if (p.revents & POLLOUT) {
            ssize_t n = send(fd, frames + sent, ends[limit] - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN) fail("send");
            if (n > 0) sent += n;
        }
        if (!(p.revents & POLLIN)) continue;
        ssize_t n = recv(fd, in + have, sizeof in - 1 - have, MSG_DONTWAIT);
        if (n <= 0) fail("recv");
        have += n;
        in[have] = 0;
        char *at = in, *end;
        for (; (end = strchr(at, '\n')) != NULL; at = end + 1) {
            long seq, msgs;
            if (strncmp(at, "PING", 4) == 0 && send(fd, "PONG\r\n", 6, MSG_NOSIGNAL) < 0)
                fail("send");
            if (at[0] != '{') continue;
            if (sscanf(at, "{\"type\":\"ack\",\"seq\":%ld,\"msgs\":%ld", &seq, &msgs) == 2) {
                if (seq + msgs * outstanding > limit) limit = seq + msgs * outstanding;
                if (limit > count) limit = count + 1;
            } else {
                done = 1;
                if (strstr(at, "\"batch\"") == NULL || end - at > 200) {
                    fprintf(stderr, "%.*s\n", (int)(end - at), at);
                    return 1;
                }
            }
        }
        have -= at - in;
        memmove(in, at, have);
    }
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
    return 0;
}
