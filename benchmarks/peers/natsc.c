/* Run the jobs of the comparison with nats.c.
 *
 *   natsc publish URL SUBJECT SIZE COUNT THREADS
 *   natsc read URL SUBJECT SIZE COUNT
 *   natsc readmany URL SUBJECT SIZE COUNT SUBSCRIPTIONS
 *   natsc request URL SUBJECT SIZE COUNT
 *   natsc lone URL COUNT INTERVAL_US SIZE ASAP  (1: natsOptions_SetSendAsap)
 *   natsc fetch URL STREAM CONSUMER COUNT BATCH ACK
 *   natsc consume URL STREAM CONSUMER COUNT BATCH ACK 1     the asynchronous pull
 *   natsc consumers URL STREAM CONSUMER COUNT BATCH ACK CONSUMERS
 *   natsc ordered URL STREAM COUNT BATCH    pushed, as its ordered consumers are
 *   natsc next URL STREAM CONSUMER COUNT
 *   natsc publisher URL SUBJECT SIZE COUNT WINDOW 0
 *   natsc single URL SUBJECT SIZE COUNT
 *   natsc atomic URL SUBJECT SIZE COUNT CHUNK
 *   natsc version
 *
 * Add `--ca FILE` at the end for TLS.
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

static const char *authority;

static natsConnection *dial_with(const char *url, bool asap) {
    natsConnection *nc = NULL;
    natsOptions *options = NULL;
    check(natsOptions_Create(&options), "options");
    check(natsOptions_SetURL(options, url), "url");
    check(natsOptions_SetSendAsap(options, asap), "asap");
    if (authority != NULL) {
        check(natsOptions_SetSecure(options, true), "secure");
        check(natsOptions_LoadCATrustedCertificates(options, authority), "ca");
    }
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

static void read_many(char **v) {
    natsConnection *nc = dial(v[0]);
    int subscriptions = atoi(v[4]);
    long each = atol(v[3]) / subscriptions, bytes = 0;
    natsSubscription **all = calloc(subscriptions, sizeof *all);
    for (int i = 0; i < subscriptions; i++) {
        char subject[256];
        snprintf(subject, sizeof subject, "%s.%d", v[1], i);
        check(natsConnection_SubscribeSync(&all[i], nc, subject), "subscribe");
        check(natsSubscription_SetPendingLimits(all[i], -1, -1), "limits");
    }
    check(natsConnection_Flush(nc), "flush");
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = 0;
    for (int i = 0; i < subscriptions; i++)
        for (long n = 0; n < each; n++) {
            natsMsg *msg = NULL;
            check(natsSubscription_NextMsg(&msg, all[i], 60000), "next");
            if (!begin) begin = now_ns();
            bytes += natsMsg_GetDataLength(msg);
            natsMsg_Destroy(msg);
        }
    print_rate(each * subscriptions, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}

/* Do one thing repeatedly, after a tenth as many to warm up, and measure rate and latency. */
static void timed(long count, void (*one)(void *), void *closure) {
    double *us = malloc(count * sizeof *us);
    double cpu = 0;
    int64_t began = 0;
    await_go();
    for (long i = -count / 10; i < count; i++) {
        if (i == 0) {
            cpu = cpu_seconds();
            began = now_ns();
        }
        int64_t begin = now_ns();
        one(closure);
        if (i >= 0) us[i] = (now_ns() - begin) / 1e3;
    }
    cpu = cpu_seconds() - cpu;
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, ", count,
           (now_ns() - began) / 1e9, cpu);
    print_percentiles("latency", us, count);
    puts("}");
}

struct sender {
    natsConnection *nc;
    jsCtx *js;
    const char *subject;
    char *payload;
    int size;
};

static jsCtx *jetstream(natsConnection *nc) {
    jsCtx *js = NULL;
    check(natsConnection_JetStream(&js, nc, NULL), "jetstream");
    return js;
}

static struct sender sender_of(char **v) {
    natsConnection *nc = dial(v[0]);
    return (struct sender){nc, jetstream(nc), v[1], payload_of(atoi(v[2])), atoi(v[2])};
}

static void request_one(void *closure) {
    struct sender *s = closure;
    natsMsg *msg = NULL;
    check(natsConnection_Request(&msg, s->nc, s->subject, s->payload, s->size, 5000), "request");
    natsMsg_Destroy(msg);
}

static void request(char **v) {
    struct sender s = sender_of(v);
    timed(atol(v[3]), request_one, &s);
}

static void publish_one(void *closure) {
    struct sender *s = closure;
    jsPubAck *ack = NULL;
    check(js_Publish(&ack, s->js, s->subject, s->payload, s->size, NULL, NULL), "publish");
    jsPubAck_Destroy(ack);
}

static void single(char **v) {
    struct sender s = sender_of(v);
    timed(atol(v[3]), publish_one, &s);
}

static void refused(jsCtx *js, jsPubAckErr *error, void *closure) {
    (void)js, (void)closure;
    fprintf(stderr, "not stored: %s\n", error->ErrText);
    exit(1);
}

static void publisher(char **v) {
    natsConnection *nc = dial(v[0]);
    int size = atoi(v[2]);
    long count = atol(v[3]);
    char *payload = payload_of(size);
    jsCtx *js = NULL;
    jsOptions options;
    check(jsOptions_Init(&options), "options");
    options.PublishAsync.MaxPending = atol(v[4]);
    options.PublishAsync.StallWait = 60000;
    options.PublishAsync.ErrHandler = refused;
    check(natsConnection_JetStream(&js, nc, &options), "jetstream");
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++)
        check(js_PublishAsync(js, v[1], payload, size, NULL), "publish");
    check(js_PublishAsyncComplete(js, NULL), "complete");
    print_rate(count, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
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

static natsSubscription *pulled(jsCtx *js, const char *stream, const char *consumer) {
    natsSubscription *sub = NULL;
    jsSubOptions options;
    check(jsSubOptions_Init(&options), "options");
    options.Stream = stream;
    options.Consumer = consumer;
    check(js_PullSubscribe(&sub, js, NULL, consumer, NULL, &options, NULL), "subscribe");
    check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    return sub;
}

static void fetch(char **v) {
    natsConnection *nc = dial(v[0]);
    natsSubscription *sub = pulled(jetstream(nc), v[1], v[2]);
    long count = atol(v[3]), done = 0;
    int batch = atoi(v[4]), ack = atoi(v[5]);
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

static void fetch_one(void *closure) {
    natsMsgList list = {0};
    check(natsSubscription_Fetch(&list, closure, 1, 10000, NULL), "fetch");
    natsMsgList_Destroy(&list);
}

static void next(char **v) {
    timed(atol(v[3]), fetch_one, pulled(jetstream(dial(v[0])), v[1], v[2]));
}

/* The messages that the callbacks of one or several subscriptions must receive. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int left;
} running = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

struct reader {
    long left;
    int ack;
};

static void taken(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    struct reader *reader = closure;
    (void)nc, (void)sub;
    if (reader->left > 0) {
        if (reader->ack) check(natsMsg_Ack(msg, NULL), "ack");
        if (--reader->left == 0) {
            pthread_mutex_lock(&running.lock);
            running.left--;
            pthread_cond_signal(&running.changed);
            pthread_mutex_unlock(&running.lock);
        }
    }
    natsMsg_Destroy(msg);
}

static void await_readers(void) {
    pthread_mutex_lock(&running.lock);
    while (running.left) pthread_cond_wait(&running.changed, &running.lock);
    pthread_mutex_unlock(&running.lock);
}

#if NATS_VERSION_NUMBER >= 0x030900
static void consume_with(char **v, int consumers, const char *form) {
    natsConnection *nc = dial(v[0]);
    jsCtx *js = jetstream(nc);
    long each = atol(v[3]) / consumers;
    int batch = atoi(v[4]);
    struct reader *readers = calloc(consumers, sizeof *readers);
    running.left = consumers;
    jsSubOptions *options = calloc(consumers, sizeof *options);
    char (*names)[256] = calloc(consumers, sizeof *names);
    for (int i = 0; i < consumers; i++) {
        jsConsumerInfo *info = NULL;
        snprintf(names[i], sizeof *names, form, v[2], i);
        check(js_GetConsumerInfo(&info, js, v[1], names[i], NULL, NULL), "consumer");
        check(jsSubOptions_Init(&options[i]), "options");
        options[i].Stream = v[1];
        options[i].Consumer = names[i];
        options[i].ManualAck = true;
        options[i].Config.MemoryStorage = info->Config->MemoryStorage;
        readers[i] = (struct reader){each, atoi(v[5])};
        jsConsumerInfo_Destroy(info);
    }
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    for (int i = 0; i < consumers; i++) {
        natsSubscription *sub = NULL;
        jsOptions pulls;
        check(jsOptions_Init(&pulls), "options");
        pulls.PullSubscribeAsync.FetchSize = batch;
        pulls.PullSubscribeAsync.KeepAhead = batch / 2;
        check(js_PullSubscribeAsync(&sub, js, NULL, names[i], taken, &readers[i], &pulls,
                                    &options[i], NULL), "subscribe");
        check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    }
    await_readers();
    check(natsConnection_FlushTimeout(nc, 60000), "flush");
    print_rate(each * consumers, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
    exit(0);
}

static void consume(char **v) { consume_with(v, 1, "%s"); }

static void consumers(char **v) { consume_with(v, atoi(v[6]), "%s%d"); }
#endif

static void ordered(char **v) {
    natsConnection *nc = dial(v[0]);
    jsCtx *js = jetstream(nc);
    natsSubscription *sub = NULL;
    jsStreamInfo *info = NULL;
    jsSubOptions options;
    struct reader reader = {atol(v[2]), 0};
    check(js_GetStreamInfo(&info, js, v[1], NULL, NULL), "stream");
    check(jsSubOptions_Init(&options), "options");
    options.Stream = v[1];
    options.Ordered = true;
    running.left = 1;
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    check(js_Subscribe(&sub, js, info->Config->Subjects[0], taken, &reader, NULL, &options, NULL),
          "subscribe");
    check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    await_readers();
    print_rate(atol(v[2]), (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
    exit(0);
}

#if NATS_VERSION_NUMBER >= 0x030e00
static void atomic(char **v) {
    struct sender s = sender_of(v);
    int chunk = atoi(v[4]);
    long batches = atol(v[3]) / chunk;
    await_go();
    double cpu = cpu_seconds();
    int64_t begin = now_ns();
    for (long i = 0; i < batches; i++) {
        jsAtomicBatchCtx *batch = NULL;
        jsPubAck *ack = NULL;
        for (int n = 1; n <= chunk; n++) {
            natsMsg *msg = NULL;
            check(natsMsg_Create(&msg, s.subject, NULL, s.payload, s.size), "message");
            if (n == 1)
                check(js_BatchPublishStart(&batch, NULL, s.js, msg, NULL, NULL), "start");
            else if (n < chunk)
                check(js_BatchPublishAdd(NULL, batch, msg, NULL, NULL), "add");
            else
                check(js_BatchPublishCommit(&ack, batch, msg, NULL, NULL), "commit");
            natsMsg_Destroy(msg);
        }
        jsPubAck_Destroy(ack);
        jsAtomicBatchCtx_Destroy(batch);
    }
    print_rate(batches * chunk, (now_ns() - begin) / 1e9, cpu_seconds() - cpu);
}
#endif

static void version(char **v) {
    (void)v;
    puts(nats_GetVersion());
}

int main(int argc, char **argv) {
    struct { const char *name; int arguments; void (*run)(char **); } jobs[] = {
        {"publish", 5, publish}, {"read", 4, read_all},
        {"readmany", 5, read_many}, {"request", 4, request},
        {"lone", 5, lone}, {"fetch", 6, fetch}, {"ordered", 4, ordered}, {"next", 4, next},
        {"publisher", 6, publisher}, {"single", 4, single}, {"version", 0, version},
#if NATS_VERSION_NUMBER >= 0x030900
        {"consume", 7, consume}, {"consumers", 7, consumers},
#endif
#if NATS_VERSION_NUMBER >= 0x030e00
        {"atomic", 5, atomic},
#endif
    };
    if (argc > 3 && strcmp(argv[argc - 2], "--ca") == 0) {
        authority = argv[argc - 1];
        argc -= 2;
    }
    for (size_t i = 0; argc > 1 && i < sizeof jobs / sizeof *jobs; i++)
        if (strcmp(argv[1], jobs[i].name) == 0 && argc == 2 + jobs[i].arguments) {
            jobs[i].run(argv + 2);
            return 0;
        }
    fputs("natsc: see the top of natsc.c for the arguments\n", stderr);
    return 2;
}
