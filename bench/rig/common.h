// What the parts of the instrument share: the clock, failing, sockets.
#ifndef LLMGW_BENCH_COMMON_H
#define LLMGW_BENCH_COMMON_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_A_SECOND 1000000000ull

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_A_SECOND + (uint64_t)t.tv_nsec;
}

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline void watch(int epoll, int fd, void *owner) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest)) die("epoll_ctl");
}

// The mock engine (engine.c): opens `listeners` free ports and prints them on one line.
int engine_open(int listeners, int chunks, uint64_t pace_ns);  // returns what to poll for its work
void engine_arm(void);           // before such a poll: have it end when the next chunk is due
void engine_turn(void);          // do what there is to do, wait for nothing
uint64_t engine_busy_ns(void);   // time spent on it so far

// The load generator (load.c): one measurement, described and answered in one line.
void load_run(char *order);

#endif
