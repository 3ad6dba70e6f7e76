/* A bare socket that publishes atomic batches (ADR-50), with prebuilt frames.
 *
 *   atomic PORT SUBJECT SIZE COUNT BATCH
 *
 * It sends each batch at once, and waits for the reply to the commit before the next batch.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static char in[64 * 1024];

int main(int argc, char **v) {
    if (argc != 6) {
        fputs("atomic PORT SUBJECT SIZE COUNT BATCH\n", stderr);
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1]))};
    int size = atoi(v[3]), batch = atoi(v[5]), one = 1;
    long batches = atol(v[4]) / batch;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

    char inbox[64], header[256], hello[256];
    sprintf(inbox, "_INBOX.raw%019lld", (long long)now_ns());
    char *payload = calloc(1, size + 1);
    memset(payload, 'x', size);
    size_t most = strlen(v[2]) + sizeof inbox + sizeof header + size + 64, filled = 0;
    char *frames = malloc(batches * batch * most);
    size_t *ends = malloc((batches + 1) * sizeof *ends);
    ends[0] = 0;
    for (long i = 0; i < batches; i++) {
        for (int n = 1; n <= batch; n++) {
            int block = sprintf(header,
                                "NATS/1.0\r\nNats-Batch-Id: %s.%ld\r\n"
                                "Nats-Batch-Sequence: %d\r\n%s\r\n",
                                inbox + 7, i, n, n == batch ? "Nats-Batch-Commit: 1\r\n" : "");
            filled += sprintf(frames + filled, "HPUB %s %s %d %d\r\n%s%s\r\n", v[2],
                              n == batch ? inbox : "", block, block + size, header, payload);
        }
        ends[i + 1] = filled;
    }

    sprintf(hello, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n"
                   "SUB %s 1\r\nPING\r\n", inbox);
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
    for (long i = 0; i < batches; i++) {
        for (size_t sent = ends[i]; sent < ends[i + 1];) {
            ssize_t n = send(fd, frames + sent, ends[i + 1] - sent, MSG_NOSIGNAL);
            if (n < 0) fail("send");
            sent += n;
        }
        for (have = 0; have < 2 || memcmp(in + have - 2, "\r\n", 2) || !strstr(in, "\n{");) {
            ssize_t n = recv(fd, in + have, sizeof in - 1 - have, 0);
            if (n <= 0) fail("recv");
            have += n;
            in[have] = 0;
        }
        if (strstr(in, "\"count\"") == NULL) {
            fputs(in, stderr);
            return 1;
        }
    }
    print_rate(batches * batch, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
    return 0;
}
