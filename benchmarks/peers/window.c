/* A bare socket that publishes into a stream without waiting for each ack, by prebuilt frames.
 *
 *   window PORT SUBJECT SIZE COUNT WINDOW
 *
 * Each of WINDOW frames has another reply subject in the inbox of the process, as long as those
 * of jsync. The program counts acks and does not read them.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>


int main(int argc, char **v) {
    if (argc != 6) {
        fputs("window PORT SUBJECT SIZE COUNT WINDOW\n", stderr);
        return 2;
    }
    static char in[256 * 1024];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1]))};
    int size = atoi(v[3]), one = 1;
    long count = atol(v[4]), window = atol(v[5]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

    char *payload = calloc(1, size + 1);
    memset(payload, 'x', size);
    char inbox[64], hello[200];
    snprintf(inbox, sizeof inbox, "_INBOX.%022d.pull.1.", (int)getpid());
    const char *form = "PUB %s %s%07ld %d\r\n%s\r\n";
    size_t frame = snprintf(NULL, 0, form, v[2], inbox, 0L, size, payload);
    char *frames = malloc(window * frame + 1);
    for (long i = 0; i < window; i++)
        sprintf(frames + i * frame, form, v[2], inbox, i, size, payload);

    snprintf(hello, sizeof hello,
             "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n"
             "SUB %s* 1\r\nPING\r\n", inbox);
    if (send(fd, hello, strlen(hello), MSG_NOSIGNAL) < 0) fail("send");
    for (size_t have = 0; have < 6 || memcmp(in + have - 6, "PONG\r\n", 6);) {
        ssize_t n = recv(fd, in + have, sizeof in - have, 0);
        if (n <= 0) fail("recv");
        have += n;
    }

    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    int64_t sent = 0, ends = 0, acked = 0;  /* bytes; ends of lines; messages */
    while (acked < count) {
        int64_t allowed = (acked + window < count ? acked + window : count) * frame;
        struct pollfd p = {fd, POLLIN | (sent < allowed ? POLLOUT : 0), 0};
        if (poll(&p, 1, 10000) <= 0) fail("poll");
        if (p.revents & POLLOUT) {
            int64_t at = sent % (window * frame), most = window * frame - at;
            int64_t n = allowed - sent < most ? allowed - sent : most;
            n = send(fd, frames + at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN) fail("send");
            if (n > 0) sent += n;
        }
        if (p.revents & POLLIN) {
            ssize_t n = recv(fd, in, sizeof in, MSG_DONTWAIT);
            if (n <= 0) fail("recv");
            for (char *c = in; (c = memchr(c, '\n', in + n - c)) != NULL; c++) ends++;
            acked = ends / 2;  /* a line, and a payload without an end of line in it */
        }
    }
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
    return 0;
}
