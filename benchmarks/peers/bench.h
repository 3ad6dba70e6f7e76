/* Clocks, percentiles, and the protocol with the runner, for every peer in C.
 *
 * A peer sets itself up, prints "ready", waits for a line on stdin, works, and prints one
 * line of JSON. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CPU time of all threads, user and system, in seconds. */
static inline double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec
        + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

static inline void await_go(void) {
    char line[64];
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) exit(0);
}

static inline void sleep_until(int64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double percentile(const double *sorted, long n, double p) {
    long i = (long)(p * (n - 1) + 0.5);
    return n ? sorted[i] : 0;
}

/* `"<name>_p50": ..., "<name>_p99": ...`. Sorts in place. */
static inline void print_percentiles(const char *name, double *us, long n) {
    qsort(us, n, sizeof *us, compare_doubles);
    printf("\"%s_p50\": %.2f, \"%s_p99\": %.2f", name, percentile(us, n, 0.5), name,
           percentile(us, n, 0.99));
}

static inline void print_rate(long count, double seconds, double cpu) {
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu\": %.6f}\n", count, seconds, cpu);
    fflush(stdout);
}

#endif
