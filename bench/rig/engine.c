// Plays inference engines for measurements: HTTP/1.1 with keep-alive on several ports.
//
// A POST whose body holds `"stream":true` is answered with a number of events, the first at once and the
// others at one pace, then usage and [DONE]; any other POST with one JSON answer; anything else with a
// status. Every event is a send() of its own, as from an engine that gives out token by token. A send that
// would block ends the connection: paced answers never fill a socket whose reader lives.
#include "common.h"

#include <sys/queue.h>
#include <sys/timerfd.h>

enum { REQUEST_MAX = 32 * 1024, EVENTS_A_TURN = 256, BACKLOG = 1024 };

enum kind { LISTENER, TIMER, CONNECTION };

struct source {  // what an epoll event is about
    enum kind kind;
    int fd;
};

struct connection {
    struct source source;
    TAILQ_ENTRY(connection) streaming;
    int chunks_left;  // of the answer in progress; 0: none is
    uint64_t due_ns;  // of its next chunk
    size_t used;
    char request[REQUEST_MAX + 1];
};

// All streams have one pace, so that whoever sent last is due last: a queue, no heap.
static TAILQ_HEAD(, connection) streams = TAILQ_HEAD_INITIALIZER(streams);
static int epoll, timer, chunks;
static uint64_t pace_ns, busy_ns;
static struct source timer_source = {TIMER, 0};

static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    "server: mock\r\ntransfer-encoding: chunked\r\n\r\n";
static const char CHUNK[] =
    "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"mock\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" of some words\"},"
    "\"finish_reason\":null}]}\n\n";
static const char STREAM_END[] =
    "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"mock\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":64,"
    "\"total_tokens\":84}}\n\ndata: [DONE]\n\n";
static const char PLAIN[] =
    "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion\",\"created\":1700000000,"
    "\"model\":\"mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
    "\"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. "
    "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog.\","
    "\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":20,"
    "\"completion_tokens\":64,\"total_tokens\":84,\"prompt_tokens_details\":null}}";
static const char STATUS[] = "{\"status\":\"ok\"}";

// Whole messages, made once: what is measured is the proxy, so that the engine does as little as it can.
static char first_message[2048], next_message[1024], last_message[1024], plain_message[2048];
static char status_message[256];

static void make_messages(void) {
    snprintf(next_message, sizeof next_message, "%zx\r\n%s\r\n", sizeof CHUNK - 1, CHUNK);
    snprintf(first_message, sizeof first_message, "%s%s", STREAM_HEAD, next_message);
    snprintf(last_message, sizeof last_message, "%zx\r\n%s\r\n0\r\n\r\n", sizeof STREAM_END - 1, STREAM_END);
    const char *head = "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: application/json\r\n"
                       "content-length: %zu\r\n\r\n%s";
    snprintf(plain_message, sizeof plain_message, head, sizeof PLAIN - 1, PLAIN);
    snprintf(status_message, sizeof status_message, head, sizeof STATUS - 1, STATUS);
}

static int say(struct connection *c, const char *message) {
    size_t size = strlen(message);
    return send(c->source.fd, message, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -1;
}

static void hang_up(struct connection *c) {
    if (c->chunks_left) TAILQ_REMOVE(&streams, c, streaming);
    close(c->source.fd);
    free(c);
}

// ---------------------------------------------------------------- requests

static int answer(struct connection *c, const char *body) {
    if (strncmp(c->request, "POST ", 5)) return say(c, status_message);
    if (!strstr(body, "\"stream\":true")) return say(c, plain_message);
    c->chunks_left = chunks;
    c->due_ns = now_ns() + pace_ns;
    TAILQ_INSERT_TAIL(&streams, c, streaming);
    c->chunks_left--;
    return say(c, first_message);
}

// Answer the requests that have arrived whole, one after the other.
static int take_requests(struct connection *c) {
    while (c->used && !c->chunks_left) {
        c->request[c->used] = 0;
        char *end = strstr(c->request, "\r\n\r\n");
        if (!end) return c->used < REQUEST_MAX ? 0 : -1;
        const char *body = end + 4;
        *end = 0;
        const char *length = strcasestr(c->request, "\r\ncontent-length:");
        *end = '\r';
        size_t size = (size_t)(body - c->request) + (length ? strtoul(length + 17, NULL, 10) : 0);
        if (size > REQUEST_MAX) return -1;
        if (c->used < size) return 0;
        if (answer(c, body)) return -1;
        c->used -= size;
        memmove(c->request, c->request + size, c->used);
    }
    return 0;
}

static void on_readable(struct connection *c) {
    ssize_t n = recv(c->source.fd, c->request + c->used, REQUEST_MAX - c->used, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        hang_up(c);
        return;
    }
    c->used += (size_t)n;
    if (take_requests(c)) hang_up(c);
}

static void on_connection(int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        if (!c) die("calloc");
        c->source = (struct source){CONNECTION, fd};
        no_delay(fd);
        watch(epoll, fd, c);
    }
}

// ---------------------------------------------------------------- streams

static void send_due_chunks(void) {
    uint64_t now = now_ns();
    struct connection *c;
    while ((c = TAILQ_FIRST(&streams)) && c->due_ns <= now) {
        TAILQ_REMOVE(&streams, c, streaming);
        int failed;
        if (c->chunks_left == 1) {
            c->chunks_left = 0;
            failed = say(c, next_message) || say(c, last_message) || take_requests(c);
        } else {
            c->chunks_left--;
            c->due_ns += pace_ns;
            TAILQ_INSERT_TAIL(&streams, c, streaming);
            failed = say(c, next_message);
        }
        if (failed) hang_up(c);
    }
}

void engine_arm(void) {
    struct connection *c = TAILQ_FIRST(&streams);
    uint64_t due = c ? c->due_ns : 0;  // 0 disarms
    struct itimerspec at = {.it_value = {(time_t)(due / NS_A_SECOND), (long)(due % NS_A_SECOND)}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL)) die("timerfd_settime");
}

// ---------------------------------------------------------------- start and turns

static void open_listener(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, BACKLOG)) die("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &size)) die("getsockname");
    struct source *source = malloc(sizeof *source);
    if (!source) die("malloc");
    *source = (struct source){LISTENER, fd};
    watch(epoll, fd, source);
    printf("%d ", ntohs(address.sin_port));
}

int engine_open(int listeners, int chunks_a_stream, uint64_t pace) {
    chunks = chunks_a_stream;
    pace_ns = pace;
    epoll = epoll_create1(0);
    timer = timer_source.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    watch(epoll, timer, &timer_source);
    make_messages();
    for (int i = 0; i < listeners; i++) open_listener();
    printf("\n");
    fflush(stdout);
    return epoll;
}

void engine_turn(void) {
    struct epoll_event events[EVENTS_A_TURN];
    int n = epoll_wait(epoll, events, EVENTS_A_TURN, 0);
    struct connection *first = TAILQ_FIRST(&streams);
    uint64_t began = now_ns();
    if (n <= 0 && (!first || first->due_ns > began)) return;
    for (int i = 0; i < n; i++) {
        struct source *source = events[i].data.ptr;
        uint64_t fired;
        switch (source->kind) {
            case LISTENER: on_connection(source->fd); break;
            case TIMER: if (read(timer, &fired, sizeof fired) < 0) errno = 0; break;
            case CONNECTION: on_readable((struct connection *)source); break;
        }
    }
    send_due_chunks();
    busy_ns += now_ns() - began;
}

uint64_t engine_busy_ns(void) { return busy_ns; }
