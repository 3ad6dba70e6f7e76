/* A proxy that adds a delay: it forwards bytes in both directions, MICROSECONDS later.
 *
 *   delay PORT MICROSECONDS      delay of one way to PORT on loopback
 *
 * It prints the port that it listens on. For each direction of a connection one thread reads and
 * stamps the bytes, and another sends them when their time has come. Order and throughput stay
 * the same. The number of bytes in flight is not bounded.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK (256 * 1024)

struct piece {
    struct piece *next;
    int64_t due;
    ssize_t size; /* 0 at the end */
    char bytes[];
};

struct direction {
    int from, to;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct piece *first, **last;
};

static int64_t delay;

static void *receive(void *argument) {
    struct direction *d = argument;
    char *buffer = malloc(CHUNK);
    for (ssize_t n = 1; n > 0;) {
        n = recv(d->from, buffer, CHUNK, 0);
        struct piece *piece = malloc(sizeof *piece + (n > 0 ? n : 0));
        *piece = (struct piece){NULL, now_ns() + delay, n > 0 ? n : 0};
        if (n > 0) memcpy(piece->bytes, buffer, n);
        pthread_mutex_lock(&d->lock);
        *d->last = piece;
        d->last = &piece->next;
        pthread_cond_signal(&d->changed);
        pthread_mutex_unlock(&d->lock);
    }
    return NULL;
}

static void *deliver(void *argument) {
    struct direction *d = argument;
    for (ssize_t size = 1; size > 0;) {
        pthread_mutex_lock(&d->lock);
        while (d->first == NULL) pthread_cond_wait(&d->changed, &d->lock);
        struct piece *piece = d->first;
        d->first = piece->next;
        if (d->first == NULL) d->last = &d->first;
        pthread_mutex_unlock(&d->lock);
        if (piece->due > now_ns()) sleep_until(piece->due);
        size = piece->size;
        for (ssize_t sent = 0, n; sent < size; sent += n) {
            n = send(d->to, piece->bytes + sent, size - sent, MSG_NOSIGNAL);
            if (n < 0) size = 0;
        }
        free(piece);
    }
    shutdown(d->to, SHUT_WR);
    return NULL;
}

static void join(int from, int to) {
    struct direction *d = calloc(1, sizeof *d);
    pthread_t thread;
    *d = (struct direction){.from = from, .to = to, .last = &d->first};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    pthread_create(&thread, NULL, receive, d);
    pthread_create(&thread, NULL, deliver, d);
}

int main(int argc, char **v) {
    if (argc != 3) {
        fputs("delay PORT MICROSECONDS\n", stderr);
        return 2;
    }
    delay = atol(v[2]) * 1000;
    struct sockaddr_in address = {.sin_family = AF_INET}, server = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    address.sin_addr.s_addr = server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons(atoi(v[1]));
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 16))
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL), fd = socket(AF_INET, SOCK_STREAM, 0);
        if (client < 0 || fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server))
            fail("connect");
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        join(client, fd);
        join(fd, client);
    }
}
