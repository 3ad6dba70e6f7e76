/* Bare sockets that pull from a JetStream consumer: the ceilings of consuming.
 *
 *   pull consume PORT STREAM CONSUMER COUNT WINDOW ACK   pulls again when half is left
 *   pull next PORT STREAM CONSUMER COUNT [EACH]          latency of pulls of one message
 *                                                        EACH 1: a reply subject for each
 *
 * They find the frames, but make no messages of them.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define READ_SIZE (256 * 1024) /* as jsync reads */

static char in[2 * READ_SIZE], out[8 << 20];
static size_t have, filled;
static int fd;

static void send_all(const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0) fail("send");
        data += n;
        size -= n;
    }
}

static void dial(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const char *hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
                        "\"no_responders\":true,\"lang\":\"c\",\"version\":\"0\"}\r\n"
                        "SUB _INBOX.raw 1\r\nSUB _INBOX.raw.* 2\r\nPING\r\n";
    send_all(hello, strlen(hello));
    while (have < 6 || memcmp(in + have - 6, "PONG\r\n", 6) != 0) {
        ssize_t n = recv(fd, in + have, sizeof in - have, 0);
        if (n <= 0) fail("recv");
        have += n;
    }
    have = 0;
}

static int each; /* whether each pull has another reply subject */

static void pull(const char *stream, const char *consumer, long batch) {
    static long number;
    char body[128], frame[512], own[32] = "";
    int n = sprintf(body, "{\"batch\":%ld,\"expires\":30000000000,"
                          "\"idle_heartbeat\":15000000000}", batch);
    if (each) sprintf(own, ".%ld", ++number);
    n = sprintf(frame, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s _INBOX.raw%s %d\r\n%s\r\n",
                stream, consumer, own, n, body);
    send_all(frame, n);
}

/* The messages of one read. Statuses, which have headers, are not counted. */
static long take(int ack) {
    long count = 0;
    size_t at = 0;
    ssize_t n = recv(fd, in + have, READ_SIZE, 0);
    if (n <= 0) fail("recv");
    have += n;
    for (;;) {
        char *line = in + at, *end = memchr(line, '\n', have - at);
        if (end == NULL) break;
        if (line[0] == 'P') { /* PING, PONG */
            if (line[1] == 'I') send_all("PONG\r\n", 6);
            at = end + 1 - in;
            continue;
        }
        char *size = end - 1;
        while (size[-1] != ' ') size--;
        size_t next = end + 1 - in + atol(size) + 2;
        if (next > have) break;
        if (line[0] == 'M') {
            count++;
            if (ack) { /* MSG subject sid reply size */
                char *reply = size - 1;
                while (reply[-1] != ' ') reply--;
                memcpy(out + filled, "PUB ", 4);
                memcpy(out + filled + 4, reply, size - reply);
                filled += 4 + (size - reply);
                memcpy(out + filled, "4\r\n+ACK\r\n", 9);
                filled += 9;
            }
        }
        at = next;
    }
    memmove(in, in + at, have - at);
    have -= at;
    if (filled) send_all(out, filled);
    filled = 0;
    return count;
}

static void consume(char **v) {
    long count = atol(v[3]), window = atol(v[4]), done = 0, pending = 0;
    int ack = atoi(v[5]);
    dial(v[0]);
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    while (done < count) {
        if (pending <= window / 2) {
            pull(v[1], v[2], window - pending);
            pending = window;
        }
        long n = take(ack);
        done += n;
        pending -= n;
    }
    send_all("PING\r\n", 6);
    while (have < 6 || memcmp(in + have - 6, "PONG\r\n", 6) != 0) {
        ssize_t n = recv(fd, in + have, sizeof in - have, 0);
        if (n <= 0) fail("recv");
        have += n;
        if (have > READ_SIZE) {
            memmove(in, in + have - 16, 16);
            have = 16;
        }
    }
    print_rate(done, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

static void next(char **v) {
    long count = atol(v[3]);
    double *us = malloc(count * sizeof *us), cpu = 0;
    int64_t began = 0;
    dial(v[0]);
    await_go();
    for (long i = -count / 10; i < count; i++) {
        if (i == 0) {
            cpu = cpu_seconds();
            began = now_ns();
        }
        int64_t begin = now_ns();
        pull(v[1], v[2], 1);
        while (take(0) == 0) continue;
        if (i >= 0) us[i] = (now_ns() - begin) / 1e3;
    }
    cpu = cpu_seconds() - cpu;
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, ", count,
           (now_ns() - began) / 1e9, cpu);
    print_percentiles("latency", us, count);
    puts("}");
}

int main(int argc, char **argv) {
    if (argc == 8 && strcmp(argv[1], "consume") == 0)
        consume(argv + 2);
    else if ((argc == 6 || argc == 7) && strcmp(argv[1], "next") == 0) {
        each = argc == 7 && atoi(argv[6]);
        next(argv + 2);
    }
    else {
        fputs("pull: see the top of pull.c for the arguments\n", stderr);
        return 2;
    }
    return 0;
}
