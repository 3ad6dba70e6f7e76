/* nats.c doing what the other peers do.
 *
 *   natsc publish URL SUBJECT SIZE COUNT THREADS
 *   natsc read URL SUBJECT SIZE COUNT
 *   natsc request URL SUBJECT SIZE COUNT
 *   natsc lone URL COUNT INTERVAL_US SIZE ASAP  (1: natsOptions_SetSendAsap)
 *   natsc fetch URL STREAM CONSUMER COUNT BATCH ACK
 *   natsc version
 */
#include "bench.h"

#include <nats/nats.h>
#include <pthread.h>

static void check(natsStatus s, const char *what) {
    if (s != NATS_OK) {
        const char *more = nats_GetLastError(NULL);
        fprintf(stderr, "%s: %s %s\n", what, natsStatus_GetText(s), more ? more : "");
        exit(1);
    }
}

static natsConnection *dial_with(const char *url, bool asap) {
    natsConnection *nc = NULL;
    natsOptions *options = NULL;
    check(natsOptions_Create(&options), "options");
    check(natsOptions_SetURL(options, url), "url");
    check(natsOptions_SetSendAsap(options, asap), "asap");
    check(natsConnection_Connect(&nc, options), "connect");
    natsOptions_Destroy(options);
    return nc;
}

static natsConnection *dial(const char *url) { return dial_with(url, false); }

static char *payload_of(int size) {
    char *payload = malloc(size + 1);
    memset(payload, 'x', size);
    return payload;
}

struct publisher {
    natsConnection *nc;
    const char *subject;
    int size;
    long count;
};

static void *publish_some(void *argument) {
    struct publisher *p = argument;
    char *payload = payload_of(p->size);
    for (long i = 0; i < p->count; i++)
        check(natsConnection_Publish(p->nc, p->subject, payload, p->size), "publish");
    return NULL;
}

static void publish(char **v) {
    long count = atol(v[3]);
    int threads = atoi(v[4]);
    pthread_t ids[64];
    struct publisher job = {dial(v[0]), v[1], atoi(v[2]), count / threads};
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, publish_some, &job);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    check(natsConnection_FlushTimeout(job.nc, 60000), "flush");
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

static void read_all(char **v) {
    natsConnection *nc = dial(v[0]);
    natsSubscription *sub = NULL;
    long count = atol(v[3]), bytes = 0;
    int64_t begin = 0;
    check(natsConnection_SubscribeSync(&sub, nc, v[1]), "subscribe");
    check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    check(natsConnection_Flush(nc), "flush");
    await_go();
    double cpu = cpu_seconds();
    for (long i = 0; i < count; i++) {
        natsMsg *msg = NULL;
        check(natsSubscription_NextMsg(&msg, sub, 60000), "next");
        if (i == 0) begin = now_ns();
        bytes += natsMsg_GetDataLength(msg);
        natsMsg_Destroy(msg);
    }
    if (bytes != count * atol(v[2])) fail("bytes");
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

static void request(char **v) {
    natsConnection *nc = dial(v[0]);
    int size = atoi(v[2]);
    long count = atol(v[3]);
    char *payload = payload_of(size);
    double *us = malloc(count * sizeof *us);
    double cpu = 0;
    int64_t began = 0;
    await_go();
    for (long i = -count / 10; i < count; i++) {
        natsMsg *msg = NULL;
        if (i == 0) {
            cpu = cpu_seconds();
            began = now_ns();
        }
        int64_t begin = now_ns();
        check(natsConnection_Request(&msg, nc, v[1], payload, size, 5000), "request");
        if (i >= 0) us[i] = (now_ns() - begin) / 1e3;
        natsMsg_Destroy(msg);
    }
    cpu = cpu_seconds() - cpu;
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, ", count,
           (now_ns() - began) / 1e9, cpu);
    print_percentiles("latency", us, count);
    puts("}");
}

static void lone(char **v) {
    natsConnection *nc = dial_with(v[0], atoi(v[4]));
    long count = atol(v[1]);
    int64_t interval = atol(v[2]) * 1000;
    int size = atoi(v[3]);
    char *payload = payload_of(size);
    double *us = malloc(count * sizeof *us);
    await_go();
    double cpu = cpu_seconds();
    int64_t next = now_ns(), began = next;
    for (long i = 0; i < count; i++) {
        char stamp[32];
        sleep_until(next += interval);
        int64_t begin = now_ns();
        sprintf(stamp, "%019lld", (long long)begin);
        memcpy(payload, stamp, 19);
        check(natsConnection_Publish(nc, "bench.lone", payload, size), "publish");
        us[i] = (now_ns() - begin) / 1e3;
    }
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, ", count,
           (now_ns() - began) / 1e9, cpu_seconds() - cpu);
    print_percentiles("caller", us, count);
    puts("}");
    fflush(stdout);
    natsConnection_FlushTimeout(nc, 1000);
    natsConnection_Close(nc);
}

static void fetch(char **v) {
    natsConnection *nc = dial(v[0]);
    jsCtx *js = NULL;
    natsSubscription *sub = NULL;
    jsSubOptions options;
    long count = atol(v[3]), done = 0;
    int batch = atoi(v[4]), ack = atoi(v[5]);
    check(natsConnection_JetStream(&js, nc, NULL), "jetstream");
    check(jsSubOptions_Init(&options), "options");
    options.Stream = v[1];
    options.Consumer = v[2];
    check(js_PullSubscribe(&sub, js, NULL, v[2], NULL, &options, NULL), "subscribe");
    check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    while (done < count) {
        natsMsgList list = {0};
        check(natsSubscription_Fetch(&list, sub, batch, 10000, NULL), "fetch");
        for (int i = 0; i < list.Count; i++)
            if (ack) check(natsMsg_Ack(list.Msgs[i], NULL), "ack");
        done += list.Count;
        natsMsgList_Destroy(&list);
    }
    check(natsConnection_FlushTimeout(nc, 60000), "flush");
    print_rate(done, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

static void version(char **v) {
    (void)v;
    puts(nats_GetVersion());
}

int main(int argc, char **argv) {
    struct { const char *name; int arguments; void (*run)(char **); } jobs[] = {
        {"publish", 5, publish}, {"read", 4, read_all}, {"request", 4, request},
        {"lone", 5, lone}, {"fetch", 6, fetch}, {"version", 0, version},
    };
    for (size_t i = 0; argc > 1 && i < sizeof jobs / sizeof *jobs; i++)
        if (strcmp(argv[1], jobs[i].name) == 0 && argc == 2 + jobs[i].arguments) {
            jobs[i].run(argv + 2);
            return 0;
        }
    fputs("natsc: see the top of natsc.c for the arguments\n", stderr);
    return 2;
}
