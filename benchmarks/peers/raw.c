/* Bare sockets: the upper limits for the clients, and the far ends that send them messages.
 * They use no client library, and parse no more than the job needs.
 *
 *   raw publish PORT SUBJECT SIZE COUNT     prebuilt chunks, until the PONG after them
 *   raw spread PORT SUBJECT SIZE COUNT N    to SUBJECT.0 up to N, in turn
 *   raw read PORT SUBJECT SIZE COUNT        reads and counts bytes
 *   raw pushed PORT SUBJECT COUNT           counts messages whose lengths differ
 *   raw echo PORT SUBJECT                   answers requests until it is killed
 *   raw request PORT SUBJECT SIZE COUNT     one at a time: latency
 *   raw lone PORT COUNT INTERVAL_US SIZE    one stamped publish each interval
 *   raw source SIZE COUNT                   acts as a server: sends prebuilt messages
 *   raw sink COUNT                          acts as a server: stamps the arrivals
 */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE (256 * 1024)  /* as jsync reads */
#define INFO                                                                             \
    "INFO {\"server_id\":\"raw\",\"server_name\":\"raw\",\"version\":\"2.15.1\","        \
    "\"proto\":1,\"headers\":true,\"max_payload\":1048576,\"client_id\":1}\r\n"

static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0) fail("send");
        data += n;
        size -= n;
    }
}

static void send_text(int fd, const char *text) { send_all(fd, text, strlen(text)); }

/* Reads until the input ends with PONG. Use it only while the server sends nothing else. */
static void await_pong(int fd) {
    char buffer[65536];
    size_t have = 0;
    for (;;) {
        ssize_t n = recv(fd, buffer + have, sizeof buffer - have - 1, 0);
        if (n <= 0) fail("recv");
        have += n;
        buffer[have] = 0;
        if (have >= 6 && strcmp(buffer + have - 6, "PONG\r\n") == 0) return;
        if (have > sizeof buffer / 2) {
            memmove(buffer, buffer + have - 16, 16);
            have = 16;
        }
    }
}

static int dial(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    no_delay(fd);
    send_text(fd, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
                  "\"no_responders\":true,\"lang\":\"c\",\"version\":\"0\"}\r\nPING\r\n");
    await_pong(fd);
    return fd;
}

static int serve(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1))
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) fail("accept");
    close(listener);
    no_delay(fd);
    send_text(fd, INFO);
    return fd;
}


static char *payload_of(int size) {
    char *payload = calloc(1, size + 1);
    memset(payload, 'x', size);
    return payload;
}

static void send_publishes(int fd, const char *chunk, size_t frame, long in_chunk, long count) {
    long left = count;
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    while (left) {
        long n = left < in_chunk ? left : in_chunk;
        send_all(fd, chunk, n * frame);
        left -= n;
    }
    send_text(fd, "PING\r\n");
    await_pong(fd);
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

static void publish(char **v) {
    int fd = dial(v[0]), size = atoi(v[2]);
    const char *form = "PUB %s %d\r\n%s\r\n", *payload = payload_of(size);
    size_t frame = snprintf(NULL, 0, form, v[1], size, payload);
    long in_chunk = 128 * 1024 / frame + 1;
    char *chunk = malloc(in_chunk * frame + 1);
    for (long i = 0; i < in_chunk; i++) sprintf(chunk + i * frame, form, v[1], size, payload);
    send_publishes(fd, chunk, frame, in_chunk, atol(v[3]));
}

/* Numbers with leading zeros would be other subjects, so frames differ in length. The program
 * sends whole rounds of them. */
static void spread(char **v) {
    int fd = dial(v[0]), size = atoi(v[2]);
    long subjects = atol(v[4]), filled = 0;
    const char *payload = payload_of(size);
    char *round = malloc(subjects * (strlen(v[1]) + size + 64));
    for (long i = 0; i < subjects; i++)
        filled += sprintf(round + filled, "PUB %s.%ld %d\r\n%s\r\n", v[1], i, size, payload);
    send_publishes(fd, round, filled, 1, atol(v[3]) / subjects);
}

static void read_and_count(char **v) {
    char text[256];
    int fd = dial(v[0]);
    int size = atoi(v[2]);
    long count = atol(v[3]);
    char *buffer = malloc(READ_SIZE);
    snprintf(text, sizeof text, "SUB %s 1\r\nPING\r\n", v[1]);
    send_text(fd, text);
    await_pong(fd);
    int64_t frame = snprintf(NULL, 0, "MSG %s 1 %d\r\n", v[1], size) + size + 2;
    int64_t left = frame * count, begin = 0;
    await_go();
    double cpu = cpu_seconds();
    while (left > 0) {
        ssize_t n = recv(fd, buffer, READ_SIZE, 0);
        if (n <= 0) fail("recv");
        if (!begin) begin = now_ns();
        left -= n;
    }
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

/* The next line in `b` after `*at`, or NULL; moves `*at` past it. */
static char *next_line(char *b, size_t have, size_t *at) {
    char *line = b + *at;
    char *end = memchr(line, '\n', have - *at);
    if (end == NULL) return NULL;
    end[-1] = 0;
    *at = end - b + 1;
    return line;
}

/* Reads messages of any length, and of each only its length. */
static void count_messages(char **v) {
    char text[256];
    int fd = dial(v[0]);
    long left = atol(v[2]);
    long count = left;
    char *buffer = malloc(READ_SIZE);
    size_t have = 0, skip = 0;
    int64_t begin = 0;
    snprintf(text, sizeof text, "SUB %s 1\r\nPING\r\n", v[1]);
    send_text(fd, text);
    await_pong(fd);
    await_go();
    double cpu = cpu_seconds();
    while (left > 0) {
        ssize_t n = recv(fd, buffer + have, READ_SIZE - have, 0);
        if (n <= 0) fail("recv");
        if (!begin) begin = now_ns();
        have += n;
        size_t at = 0;
        while (left > 0) {
            size_t some = skip < have - at ? skip : have - at;
            at += some;
            skip -= some;
            if (skip) break;
            char *line = next_line(buffer, have, &at);
            if (line == NULL) break;
            if (strncmp(line, "MSG ", 4) != 0) continue;
            skip = strtoul(strrchr(line, ' '), NULL, 10) + 2;
            left--;
        }
        memmove(buffer, buffer + at, have - at);
        have -= at;
    }
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

static void echo(char **v) {
    static char in[1 << 20], out[2 << 20];
    char text[256], subject[256], sid[32], reply[256];
    size_t have = 0;
    int fd = dial(v[0]);
    snprintf(text, sizeof text, "SUB %s 1\r\nPING\r\n", v[1]);
    send_text(fd, text);
    await_pong(fd);
    puts("ready");
    fflush(stdout);
    for (;;) {
        ssize_t n = recv(fd, in + have, sizeof in - have - 1, 0);
        if (n <= 0) exit(0);
        have += n;
        size_t at = 0, filled = 0;
        for (;;) {
            size_t start = at;
            char *line = next_line(in, have, &at);
            if (line == NULL) break;
            if (strncmp(line, "PING", 4) == 0) {
                filled += sprintf(out + filled, "PONG\r\n");
                continue;
            }
            size_t size;
            if (sscanf(line, "MSG %255s %31s %255s %zu", subject, sid, reply, &size) != 4)
                continue;
            if (have - at < size + 2) {  /* incomplete: put the line back */
                line[strlen(line)] = '\r';
                at = start;
                break;
            }
            filled += sprintf(out + filled, "PUB %s %zu\r\n", reply, size);
            memcpy(out + filled, in + at, size + 2);
            filled += size + 2;
            at += size + 2;
        }
        if (filled) send_all(fd, out, filled);
        memmove(in, in + at, have - at);
        have -= at;
    }
}

static void request(char **v) {
    static char buffer[1 << 20];
    int fd = dial(v[0]);
    int size = atoi(v[2]);
    long count = atol(v[3]);
    double *us = malloc(count * sizeof *us);
    char *frame = malloc(size + 512);
    send_text(fd, "SUB _INBOX.raw 1\r\nPING\r\n");
    await_pong(fd);
    int n = sprintf(frame, "PUB %s _INBOX.raw %d\r\n", v[1], size);
    memset(frame + n, 'x', size);
    memcpy(frame + n + size, "\r\n", 2);
    n += size + 2;
    await_go();
    double cpu = 0;
    int64_t began = 0;
    for (long i = -count / 10; i < count; i++) {
        if (i == 0) {
            cpu = cpu_seconds();
            began = now_ns();
        }
        int64_t begin = now_ns();
        size_t have = 0, wanted = 0;
        send_all(fd, frame, n);
        while (!wanted || have < wanted) {
            ssize_t got = recv(fd, buffer + have, sizeof buffer - have, 0);
            if (got <= 0) fail("recv");
            have += got;
            char *end = memchr(buffer, '\n', have);
            if (!wanted && end != NULL) {
                char *digits = end - 1;
                while (digits[-1] != ' ') digits--;
                wanted = end + 1 - buffer + atol(digits) + 2;
            }
        }
        if (i >= 0) us[i] = (now_ns() - begin) / 1e3;
    }
    cpu = cpu_seconds() - cpu;
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, ", count,
           (now_ns() - began) / 1e9, cpu);
    print_percentiles("latency", us, count);
    puts("}");
}

static void lone(char **v) {
    int fd = dial(v[0]);
    long count = atol(v[1]);
    int64_t interval = atol(v[2]) * 1000;
    int size = atoi(v[3]);
    double *us = malloc(count * sizeof *us);
    char *frame = malloc(size + 512);
    int n = sprintf(frame, "PUB bench.lone %d\r\n", size);
    memset(frame + n, 'x', size);
    memcpy(frame + n + size, "\r\n", 2);
    await_go();
    double cpu = cpu_seconds();
    int64_t next = now_ns(), began = next;
    for (long i = 0; i < count; i++) {
        char stamp[32];
        sleep_until(next += interval);
        int64_t begin = now_ns();
        sprintf(stamp, "%019lld", (long long)begin);
        memcpy(frame + n, stamp, 19);
        send_all(fd, frame, n + size + 2);
        us[i] = (now_ns() - begin) / 1e3;
    }
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, ", count,
           (now_ns() - began) / 1e9, cpu_seconds() - cpu);
    print_percentiles("caller", us, count);
    puts("}");
    fflush(stdout);
    sleep_until(now_ns() + 20000000);
}

static void send_messages(int fd, const char *subject, const char *sid, int size, long count) {
    char *payload = calloc(1, size + 1);
    memset(payload, 'x', size);
    size_t frame = snprintf(NULL, 0, "MSG %s %s %d\r\n%s\r\n", subject, sid, size, payload);
    long in_chunk = 256 * 1024 / frame + 1;
    char *chunk = malloc(in_chunk * frame + 1);
    for (long i = 0; i < in_chunk; i++)
        sprintf(chunk + i * frame, "MSG %s %s %d\r\n%s\r\n", subject, sid, size, payload);
    for (long left = count; left > 0; left -= in_chunk)
        send_all(fd, chunk, (left < in_chunk ? left : in_chunk) * frame);
}

static void source(char **v) {
    int size = atoi(v[0]);
    long count = atol(v[1]);
    static char in[1 << 16];
    char subject[256] = "", sid[32] = "";
    size_t have = 0;
    int fd = serve(), told = 0;
    for (;;) {  /* the runner says go when the client has subscribed */
        struct pollfd fds[2] = {{fd, POLLIN, 0}, {told ? -1 : 0, POLLIN, 0}};
        poll(fds, 2, -1);
        if (fds[1].revents) {
            told = 1;
            send_messages(fd, subject, sid, size, count);
            continue;
        }
        ssize_t n = recv(fd, in + have, sizeof in - have - 1, 0);
        if (n <= 0) exit(0);
        have += n;
        size_t at = 0;
        char *line;
        while ((line = next_line(in, have, &at)) != NULL) {
            if (strncmp(line, "PING", 4) == 0) send_text(fd, "PONG\r\n");
            if (strncmp(line, "SUB", 3) == 0) sscanf(line, "SUB %255s %31s", subject, sid);
        }
        memmove(in, in + at, have - at);
        have -= at;
    }
}

static void sink(char **v) {
    static char in[4 << 20];
    long most = atol(v[0]), count = 0;
    double *us = malloc(most * sizeof *us);
    size_t have = 0;
    int fd = serve();
    for (;;) {
        ssize_t n = recv(fd, in + have, sizeof in - have - 1, 0);
        int64_t arrived = now_ns();
        if (n <= 0) break;
        have += n;
        size_t at = 0;
        for (;;) {
            size_t start = at, size;
            char *line = next_line(in, have, &at);
            if (line == NULL) break;
            if (strncmp(line, "PING", 4) == 0) send_text(fd, "PONG\r\n");
            if (strncmp(line, "PUB ", 4) != 0) continue;
            size = atol(strrchr(line, ' ') + 1);
            if (have - at < size + 2) {
                line[strlen(line)] = '\r';
                at = start;
                break;
            }
            if (count < most) us[count++] = (arrived - strtoll(in + at, NULL, 10)) / 1e3;
            at += size + 2;
        }
        memmove(in, in + at, have - at);
        have -= at;
    }
    printf("{\"arrived\": %ld, ", count);
    print_percentiles("arrival", us, count);
    puts("}");
}

int main(int argc, char **argv) {
    struct { const char *name; int arguments; void (*run)(char **); } jobs[] = {
        {"publish", 4, publish}, {"spread", 5, spread}, {"read", 4, read_and_count}, {"echo", 2, echo},
        {"pushed", 3, count_messages},
        {"request", 4, request}, {"lone", 4, lone}, {"source", 2, source}, {"sink", 1, sink},
    };
    for (size_t i = 0; argc > 1 && i < sizeof jobs / sizeof *jobs; i++)
        if (strcmp(argv[1], jobs[i].name) == 0 && argc == 2 + jobs[i].arguments) {
            jobs[i].run(argv + 2);
            return 0;
        }
    fputs("raw: see the top of raw.c for the arguments\n", stderr);
    return 2;
}
