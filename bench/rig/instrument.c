// The instrument of measurements: a mock engine and a load generator in one process and one thread.
//
// usage: instrument LISTENERS CHUNKS PACE_US
//
// Prints the engine's ports, then answers each order on its standard input (see load.c) with one line.
// Between orders it sleeps, save for what the engine has to do.
#include "common.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

int main(int argc, char **argv) {
    if (argc != 4 || atoi(argv[2]) < 2) {
        fprintf(stderr, "usage: instrument LISTENERS CHUNKS PACE_US   (at least 2 chunks)\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // an instrument whose starter is gone measures for nobody
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdin, NULL, _IONBF, 0);  // poll() must see what is not read yet
    int engine = engine_open(atoi(argv[1]), atoi(argv[2]), strtoull(argv[3], NULL, 10) * 1000);
    struct pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = engine, .events = POLLIN}};
    char order[1024];
    for (;;) {
        engine_arm();
        if (poll(ready, 2, -1) < 0 && errno != EINTR) die("poll");
        if (ready[1].revents) engine_turn();
        if (!ready[0].revents) continue;
        if (!fgets(order, sizeof order, stdin)) return 0;
        load_run(order);
    }
}
