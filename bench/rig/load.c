// Asks as many clients would: keep-alive, each connection asks again when it is answered.
//
// One order is one line: PORT CONNECTIONS EVENTS WARM_UP_S MEASURED_S DELAY_S API_KEY PID,PID,… (or -).
// EVENTS is 0 for plain answers; for streams it is how many events each must bring, the closing ones
// included. Connections begin to ask spread over DELAY_S. After the warm-up it counts for MEASURED_S and
// prints one line of JSON: counts, latencies and gaps in seconds, the CPU seconds the processes used, and
// the seconds that the engine and this part were busy. Any answer that is not a whole 200 is an error, and
// the first one is told.
//
// While it runs nothing here sleeps: who waits has to be woken, and on a virtual machine that costs the
// subject, who does the waking, more than its own work.
#include "common.h"

enum { HEAD_MAX = 8 * 1024, READ_MAX = 256 * 1024, EVENTS_A_TURN = 256, TAIL = 5 };

struct connection {
    int fd;
    int asking;
    int in_body;
    int chunked;
    long missing;          // bytes of a body with a length
    int events;            // of this answer, so far
    char before;           // the byte before the ones at hand: an event ends with two line feeds
    char tail[TAIL];       // the last bytes of a chunked body
    uint64_t asked_ns;
    uint64_t event_ns;     // when the last event came
    uint64_t begins_ns;
    size_t head_used;
    char head[HEAD_MAX + 1];
};

struct durations {
    float *values;  // seconds
    size_t used, room;
};

static struct durations latencies, first_events, gaps;
static struct sockaddr_in address;
static char *request;
static size_t request_size;
static int epoll, events_wanted, measuring;
static uint64_t answered, events_seen, errors;
static char first_error[400];

static void note(struct durations *d, uint64_t ns) {
    if (d->used == d->room) {
        d->room = d->room ? d->room * 2 : 65536;
        d->values = realloc(d->values, d->room * sizeof *d->values);
        if (!d->values) die("realloc");
    }
    d->values[d->used++] = (float)ns / NS_A_SECOND;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void complain(const char *what, const char *text) {
    if (measuring && !errors++) snprintf(first_error, sizeof first_error, "%s: %.300s", what, text);
}

// ---------------------------------------------------------------- asking

static void make_request(const char *key, int port) {
    static char body[2048];
    const char *prompt = "Tell me, in about as many words as this question has, what a gateway in front of "
                         "several engines does, why its overhead should be small, and how one would measure "
                         "that on a machine with two cores without fooling oneself or anybody else.";
    int size = snprintf(body, sizeof body,
        "{\"model\":\"mock\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
        "{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":64,\"temperature\":0.7,\"stream\":%s}",
        prompt, events_wanted ? "true,\"stream_options\":{\"include_usage\":true}" : "false");
    request = malloc(4096);
    if (!request) die("malloc");
    // The headers an OpenAI client library sends: parsing them is part of a gateway's work.
    request_size = (size_t)snprintf(request, 4096,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: identity\r\n"
        "Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        "User-Agent: AsyncOpenAI/Python 3.57.0\r\nX-Stainless-Lang: python\r\n"
        "X-Stainless-Package-Version: 3.57.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\n"
        "X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.7\r\n"
        "Authorization: Bearer %s\r\nX-Stainless-Async: async:asyncio\r\nx-stainless-retry-count: 0\r\n"
        "x-stainless-read-timeout: 600\r\nContent-Length: %d\r\n\r\n%s", port, key, size, body);
}

static void ask(struct connection *c) {
    c->in_body = c->chunked = c->events = 0;
    c->head_used = 0;
    c->missing = -1;
    c->before = 0;
    memset(c->tail, 0, TAIL);
    c->asking = 1;
    c->asked_ns = now_ns();
    if (send(c->fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size)
        complain("send", strerror(errno));
}

static void dial(struct connection *c) {
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    no_delay(c->fd);
    watch(epoll, c->fd, c);
}

static void dial_again(struct connection *c, const char *why) {
    complain("connection ended early", why);
    close(c->fd);
    dial(c);
    if (c->asking) ask(c);
}

// ---------------------------------------------------------------- answers

static void whole(struct connection *c) {
    if (c->events != events_wanted) complain("stream with a wrong number of events", c->head);
    if (measuring) {
        answered++;
        note(&latencies, now_ns() - c->asked_ns);
    }
    ask(c);
}

static void count_events(struct connection *c, const char *data, size_t size) {
    uint64_t now = now_ns();
    const char *at = data, *end = data + size;
    char before = c->before;
    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        if ((at > data ? at[-1] : before) == '\n') {
            if (measuring && !c->events) note(&first_events, now - c->asked_ns);
            if (measuring && c->events) note(&gaps, now - c->event_ns);
            events_seen += (uint64_t)measuring;
            c->event_ns = now;
            c->events++;
        }
        at++;
    }
    c->before = end[-1];
}

static void keep_tail(struct connection *c, const char *data, size_t size) {
    size_t kept = size < TAIL ? TAIL - size : 0;
    memmove(c->tail, c->tail + TAIL - kept, kept);
    memcpy(c->tail + kept, data + size - (TAIL - kept), TAIL - kept);
}

static void on_body(struct connection *c, const char *data, size_t size) {
    if (!size) return;
    if (events_wanted) count_events(c, data, size);
    if (c->chunked) {
        keep_tail(c, data, size);
        if (!memcmp(c->tail, "0\r\n\r\n", TAIL)) whole(c);
    } else {
        c->missing -= (long)size;
        if (c->missing == 0) whole(c);
        else if (c->missing < 0) dial_again(c, "more bytes than announced");
    }
}

static void on_bytes(struct connection *c, const char *data, size_t size) {
    if (c->in_body) {
        on_body(c, data, size);
        return;
    }
    size_t take = size < HEAD_MAX - c->head_used ? size : HEAD_MAX - c->head_used;
    size_t had = c->head_used;
    memcpy(c->head + had, data, take);
    c->head_used += take;
    c->head[c->head_used] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) {
        if (c->head_used == HEAD_MAX) dial_again(c, "head too long");
        return;
    }
    if (strncmp(c->head, "HTTP/1.1 200 ", 13)) complain("answer", c->head);
    size_t head_size = (size_t)(end + 4 - c->head);
    *end = 0;
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->missing = length ? strtol(length + 17, NULL, 10) : -1;
    c->in_body = 1;
    on_body(c, data + (head_size - had), size - (head_size - had));
}

// ---------------------------------------------------------------- what it cost

static double cpu_of(const char *pids) {
    char list[1024];
    snprintf(list, sizeof list, "%s", pids);
    double ticks = 0;
    for (char *pid = strtok(list, ","); pid; pid = strtok(NULL, ",")) {
        char path[64], line[1024] = "";
        snprintf(path, sizeof path, "/proc/%s/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) die(path);
        if (!fgets(line, sizeof line, file)) die(path);
        fclose(file);
        unsigned long user, system;  // fields 14 and 15; the name in parentheses may hold anything
        const char *rest = strrchr(line, ')');
        if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            die(path);
        ticks += (double)(user + system);
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static void print_durations(const char *name, struct durations *d) {
    qsort(d->values, d->used, sizeof *d->values, by_size);
    for (int percent = 50; percent < 100; percent += 49) {
        if (d->used)
            printf("\"%s_p%d_s\": %.7f, ", name, percent, d->values[(d->used - 1) * (size_t)percent / 100]);
        else
            printf("\"%s_p%d_s\": null, ", name, percent);
    }
}

static void print_text(const char *text) {  // the inside of a JSON string
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 0x20 || c > 0x7e) printf("\\u%04x", c);
        else putchar(c);
    }
}

// ---------------------------------------------------------------- run

struct order {
    int port, connections;
    double warm_up_s, measured_s, delay_s;
    char key[256], subject[256];
};

static struct order read_order(const char *line) {
    struct order o = {0};
    int read = sscanf(line, "%d %d %d %lf %lf %lf %255s %255s", &o.port, &o.connections, &events_wanted,
                      &o.warm_up_s, &o.measured_s, &o.delay_s, o.key, o.subject);
    if (read != 8 || o.connections <= 0 || o.measured_s <= 0) die("order");
    if (!strcmp(o.subject, "-")) *o.subject = 0;
    return o;
}

static void read_some(struct connection *c) {
    static char data[READ_MAX];
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n > 0) on_bytes(c, data, (size_t)n);
    else dial_again(c, n ? strerror(errno) : "closed");
}

static uint64_t turn(void) {
    struct epoll_event events[EVENTS_A_TURN];
    int n = epoll_wait(epoll, events, EVENTS_A_TURN, 0);
    if (n <= 0) return 0;
    uint64_t began = now_ns();
    for (int i = 0; i < n; i++) read_some(events[i].data.ptr);
    return now_ns() - began;
}

static struct connection *open_all(const struct order *o, uint64_t start) {
    struct connection *all = calloc((size_t)o->connections, sizeof *all);
    if (!all) die("calloc");
    for (int i = 0; i < o->connections; i++) {
        all[i].begins_ns = start + (uint64_t)(o->delay_s * NS_A_SECOND * i / o->connections);
        dial(&all[i]);
    }
    return all;
}

static void forget_everything(void) {
    latencies.used = first_events.used = gaps.used = 0;
    answered = events_seen = errors = 0;
    *first_error = 0;
    measuring = 0;
}

void load_run(char *line) {
    struct order o = read_order(line);
    forget_everything();
    epoll = epoll_create1(0);
    address = loopback(o.port);
    make_request(o.key, o.port);
    uint64_t start = now_ns(), began = 0, measure_at = start + (uint64_t)(o.warm_up_s * NS_A_SECOND);
    uint64_t stop_at = measure_at + (uint64_t)(o.measured_s * NS_A_SECOND);
    struct connection *all = open_all(&o, start);
    double subject_s = 0;
    uint64_t engine_ns = 0, load_ns = 0;
    int asking = 0;
    for (uint64_t now = now_ns(); now < stop_at; now = now_ns()) {
        while (asking < o.connections && all[asking].begins_ns <= now) ask(&all[asking++]);
        if (!measuring && now >= measure_at) {
            measuring = 1;
            subject_s = cpu_of(o.subject), engine_ns = engine_busy_ns(), load_ns = 0;
            began = now_ns();
        }
        engine_turn();
        load_ns += turn();
    }
    double seconds = (double)(now_ns() - began) / NS_A_SECOND;
    subject_s = cpu_of(o.subject) - subject_s;
    printf("{\"seconds\": %.4f, \"requests\": %llu, \"events\": %llu, \"errors\": %llu, ", seconds,
           (unsigned long long)answered, (unsigned long long)events_seen, (unsigned long long)errors);
    print_durations("latency", &latencies);
    print_durations("first_event", &first_events);
    print_durations("gap", &gaps);
    printf("\"subject_cpu_s\": %.3f, \"engine_busy_s\": %.4f, \"load_busy_s\": %.4f, \"first_error\": \"",
           subject_s, (double)(engine_busy_ns() - engine_ns) / NS_A_SECOND, (double)load_ns / NS_A_SECOND);
    print_text(first_error);
    printf("\"}\n");
    fflush(stdout);
    for (int i = 0; i < o.connections; i++) close(all[i].fd);
    close(epoll);
    free(request);
    free(all);
}
