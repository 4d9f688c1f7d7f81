/* A process whose clock is wrong: the wall clock is LITHIFY_CLOCK_AHEAD_S seconds ahead, or as many as it was told by
   shift_clock; the monotonic one is right, and so are the times that the kernel gives to files. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long known = 0, asked = 0;

void shift_clock(long ahead) {
    known = ahead;
    asked = 1;
}

static long ahead_s(void) {
    if (!asked) {
        const char *text = getenv("LITHIFY_CLOCK_AHEAD_S");
        shift_clock(text ? atol(text) : 0);
    }
    return known;
}

int clock_gettime(clockid_t clock, struct timespec *shown) {
    int failed = (int)syscall(SYS_clock_gettime, clock, shown);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shown->tv_sec += ahead_s();
    return failed;
}

int gettimeofday(struct timeval *shown, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    shown->tv_sec = now.tv_sec;
    shown->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *shown) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (shown) *shown = now.tv_sec;
    return now.tv_sec;
}
