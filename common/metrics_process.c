// Gauges of the process, under the names that Prometheus' own client libraries use, and of the allocator.
#include "common/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// jemalloc's; NULL where another allocator is linked, as in sanitizer builds.
extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len) __attribute__((weak));

static bool read_text(const char *path, char *text, size_t cap) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, cap - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static void set(relay_metrics *m, const char *name, const char *help, double value) {
    relay_gauge_set(relay_metrics_gauge(m, name, help, NULL), value);
}

static uint32_t count_open_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) return 0;
    uint32_t n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n - 3; // ".", ".." and the directory's own
}

// Fields of /proc/self/stat by their number in proc(5), which counts from 1; those behind the name, the second, which
// may hold anything.
static bool read_stat(unsigned long long *threads, unsigned long long *start_ticks) {
    char text[1024];
    if (!read_text("/proc/self/stat", text, sizeof text)) return false;
    char *at = strrchr(text, ')');
    if (at == NULL) return false;
    unsigned field = 2;
    char *save;
    for (char *word = strtok_r(at + 1, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        field++;
        if (field == 20) *threads = strtoull(word, NULL, 10);
        if (field == 22) *start_ticks = strtoull(word, NULL, 10);
    }
    return field >= 22;
}

static double seconds_now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void set_memory(relay_metrics *m) {
    char text[128];
    unsigned long long total, resident;
    if (!read_text("/proc/self/statm", text, sizeof text) || sscanf(text, "%llu %llu", &total, &resident) != 2) return;
    double page = (double)sysconf(_SC_PAGESIZE);
    set(m, "process_virtual_memory_bytes", "Virtual memory size in bytes.", (double)total * page);
    set(m, "process_resident_memory_bytes", "Resident memory size in bytes.", (double)resident * page);
}

static void set_allocator(relay_metrics *m) {
    static const struct {
        const char *name, *metric, *help;
    } stats[] = {
        {"stats.allocated", "jemalloc_allocated_bytes", "Bytes allocated by the program."},
        {"stats.active", "jemalloc_active_bytes", "Bytes in pages that hold allocations."},
        {"stats.metadata", "jemalloc_metadata_bytes", "Bytes of the allocator's own data."},
        {"stats.resident", "jemalloc_resident_bytes", "Bytes in resident pages that the allocator maps."},
        {"stats.mapped", "jemalloc_mapped_bytes", "Bytes in extents that the allocator maps."},
        {"stats.retained", "jemalloc_retained_bytes", "Bytes of address space kept for reuse."},
    };
    if (mallctl == NULL) return;
    uint64_t epoch = 1; // writing it refreshes the statistics
    size_t len = sizeof epoch;
    mallctl("epoch", &epoch, &len, &epoch, len);
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++) {
        size_t value;
        len = sizeof value;
        if (mallctl(stats[i].name, &value, &len, NULL, 0) == 0) set(m, stats[i].metric, stats[i].help, (double)value);
    }
}

static void on_scrape(void *arg) {
    relay_metrics *m = arg;
    set_memory(m);
    set_allocator(m);
    set(m, "process_open_fds", "Number of open file descriptors.", count_open_fds());
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        set(m, "process_max_fds", "Maximum number of open file descriptors.", (double)limit.rlim_cur);
    unsigned long long threads, start_ticks;
    if (read_stat(&threads, &start_ticks)) set(m, "process_threads", "Number of threads.", (double)threads);
    relay_gauge_set(relay_metrics_float_counter(m, "process_cpu_seconds_total",
                                                "Total user and system CPU time spent in seconds.", NULL),
                    seconds_now(CLOCK_PROCESS_CPUTIME_ID));
}

void relay_metrics_add_process(relay_metrics *m) {
    unsigned long long threads, start_ticks;
    // The kernel counts from boot. Read once: clocks that are set must not move the start.
    if (read_stat(&threads, &start_ticks))
        set(m, "process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
            seconds_now(CLOCK_REALTIME) - seconds_now(CLOCK_BOOTTIME) +
                (double)start_ticks / (double)sysconf(_SC_CLK_TCK));
    relay_metrics_on_scrape(m, on_scrape, m);
}
