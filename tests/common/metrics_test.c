#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/metrics.h"

static relay_buf text_of(relay_metrics *m) {
    relay_buf b;
    relay_buf_init(&b, 1 << 20);
    relay_metrics_write(m, &b);
    assert_false(b.is_failed);
    return b;
}

static void assert_text(relay_metrics *m, const char *expected) {
    relay_buf b = text_of(m);
    assert_string_equal(b.data != NULL ? b.data : "", expected);
    relay_buf_fini(&b);
}

// The value of a series without labels; NAN if it is not there.
static double value_of(relay_metrics *m, const char *name) {
    relay_buf b = text_of(m);
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(b.data, line);
    double value = at != NULL ? strtod(at + strlen(line), NULL) : NAN;
    relay_buf_fini(&b);
    return value;
}

static void counters_and_gauges_are_prometheus_text(void **state) {
    relay_metrics *m = relay_metrics_create();
    assert_text(m, "");
    relay_counter *ok = relay_metrics_counter(m, "requests_total", "Requests\nby \\code.", "code=\"OK\"");
    relay_gauge *g = relay_metrics_gauge(m, "running", "Running now.", NULL);
    relay_counter *bad = relay_metrics_counter(m, "requests_total", "Requests\nby \\code.", "code=\"ABORTED\"");
    relay_gauge *cpu = relay_metrics_float_counter(m, "cpu_seconds_total", "CPU.", NULL);
    relay_counter_add(ok, 3);
    relay_counter_add(ok, UINT64_C(1) << 60);
    relay_counter_add(bad, 1);
    relay_gauge_set(g, -0.1);
    relay_gauge_set(cpu, 12.5);
    assert_true(relay_counter_value(ok) == (UINT64_C(1) << 60) + 3);
    assert_true(relay_gauge_value(g) == -0.1);
    assert_text(m, "# HELP requests_total Requests\\nby \\\\code.\n# TYPE requests_total counter\n"
                   "requests_total{code=\"OK\"} 1152921504606846979\nrequests_total{code=\"ABORTED\"} 1\n"
                   "# HELP running Running now.\n# TYPE running gauge\nrunning -0.1\n"
                   "# HELP cpu_seconds_total CPU.\n# TYPE cpu_seconds_total counter\ncpu_seconds_total 12.5\n");
    // The same name and labels again are the same metric.
    assert_ptr_equal(relay_metrics_counter(m, "requests_total", "", "code=\"OK\""), ok);
    assert_ptr_equal(relay_metrics_gauge(m, "running", "", NULL), g);
    assert_ptr_equal(relay_metrics_gauge(m, "running", "", ""), g);
    relay_metrics_destroy(m);
    relay_metrics_destroy(NULL);
}

static void numbers_are_short_and_exact(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {1, "1"},
                 {0.1, "0.1"},
                 {1e300, "1e+300"},
                 {NAN, "NaN"},
                 {INFINITY, "+Inf"},
                 {-INFINITY, "-Inf"},
                 {123456789012, "123456789012"},
                 {1.0 / 3, "0.3333333333333333"},
                 {0.1 + 0.2, "0.30000000000000004"}};
    relay_metrics *m = relay_metrics_create();
    relay_gauge *g = relay_metrics_gauge(m, "g", "G.", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, "# HELP g G.\n# TYPE g gauge\ng %s\n", cases[i].text);
        relay_gauge_set(g, cases[i].value);
        assert_text(m, expected);
    }
    relay_metrics_destroy(m);
}

static void histograms_count_up_to_each_bound(void **state) {
    relay_metrics *m = relay_metrics_create();
    const double bounds[] = {0.1, 1, 2.5};
    relay_histogram *h = relay_metrics_histogram(m, "wait_seconds", "Waiting.", "queue=\"a\"", bounds, 3);
    relay_histogram_observe(h, 0.05);
    relay_histogram_observe(h, 0.1); // a bound belongs to its bucket
    relay_histogram_observe(h, 0.2);
    relay_histogram_observe(h, 2.5);
    relay_histogram_observe(h, 1000);
    relay_histogram_observe(h, INFINITY);
    relay_histogram_observe(h, NAN); // is not counted
    assert_text(m, "# HELP wait_seconds Waiting.\n# TYPE wait_seconds histogram\n"
                   "wait_seconds_bucket{queue=\"a\",le=\"0.1\"} 2\nwait_seconds_bucket{queue=\"a\",le=\"1\"} 3\n"
                   "wait_seconds_bucket{queue=\"a\",le=\"2.5\"} 4\nwait_seconds_bucket{queue=\"a\",le=\"+Inf\"} 6\n"
                   "wait_seconds_sum{queue=\"a\"} +Inf\nwait_seconds_count{queue=\"a\"} 6\n");
    relay_metrics_destroy(m);

    m = relay_metrics_create();
    h = relay_metrics_histogram(m, "x", "X.", NULL, bounds, 1);
    assert_ptr_equal(relay_metrics_histogram(m, "x", "X.", NULL, bounds, 1), h);
    relay_histogram_observe(h, 0.25);
    relay_histogram_observe(h, -1);
    assert_text(m, "# HELP x X.\n# TYPE x histogram\nx_bucket{le=\"0.1\"} 1\nx_bucket{le=\"+Inf\"} 2\n"
                   "x_sum -0.75\nx_count 2\n");
    relay_metrics_destroy(m);
}

static void latency_bounds_ascend_from_1_ms_to_60_s(void **state) {
    assert_true(relay_latency_bounds[0] == 0.001);
    assert_true(relay_latency_bounds[relay_latency_bounds_count - 1] == 60);
    for (uint32_t i = 1; i < relay_latency_bounds_count; i++)
        assert_true(relay_latency_bounds[i] > relay_latency_bounds[i - 1]);
}

// ---- Scrapes

typedef struct source {
    relay_metrics *m;
    relay_gauge *gauge;
    int scrapes;
} source;

static void set_first(void *arg) {
    source *s = arg;
    relay_gauge_set(s->gauge, ++s->scrapes);
}

static void set_second(void *arg) {
    source *s = arg;
    relay_gauge_set(relay_metrics_gauge(s->m, "doubled", "Made at a scrape.", NULL), 2 * relay_gauge_value(s->gauge));
}

static void hooks_run_in_order_before_the_text_is_written(void **state) {
    relay_metrics *m = relay_metrics_create();
    source s = {.m = m, .gauge = relay_metrics_gauge(m, "scrapes", "Scrapes.", NULL)};
    relay_metrics_on_scrape(m, set_first, &s);
    relay_metrics_on_scrape(m, set_second, &s);
    assert_text(m, "# HELP scrapes Scrapes.\n# TYPE scrapes gauge\nscrapes 1\n"
                   "# HELP doubled Made at a scrape.\n# TYPE doubled gauge\ndoubled 2\n");
    assert_true(value_of(m, "doubled") == 4);
    relay_metrics_destroy(m);
}

static void text_past_the_limit_fails_the_buffer(void **state) {
    relay_metrics *m = relay_metrics_create();
    relay_metrics_gauge(m, "gauge", "Some help.", NULL);
    relay_buf b;
    relay_buf_init(&b, 20);
    relay_metrics_write(m, &b);
    assert_true(b.is_failed);
    relay_buf_fini(&b);
    relay_metrics_destroy(m);
}

// ---- Threads

enum { THREADS = 4, ROUNDS = 20000 };

typedef struct worker {
    relay_counter *counter;
    relay_histogram *histogram;
} worker;

static void *update(void *arg) {
    worker *w = arg;
    for (int i = 0; i < ROUNDS; i++) {
        relay_counter_add(w->counter, 1);
        relay_histogram_observe(w->histogram, i % 2 == 0 ? 0.5 : 2);
    }
    return NULL;
}

static void no_update_is_lost_between_threads(void **state) {
    relay_metrics *m = relay_metrics_create();
    worker w = {relay_metrics_counter(m, "n_total", "N.", NULL),
                relay_metrics_histogram(m, "h", "H.", NULL, (const double[]){1}, 1)};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, update, &w);
    for (int i = 0; i < 20; i++) { // scrapes meanwhile: a histogram agrees with itself
        relay_buf b = text_of(m);
        uint64_t all, count;
        assert_int_equal(sscanf(strstr(b.data, "le=\"+Inf\"} "), "le=\"+Inf\"} %" SCNu64, &all), 1);
        assert_int_equal(sscanf(strstr(b.data, "h_count "), "h_count %" SCNu64, &count), 1);
        assert_int_equal(all, count);
        relay_buf_fini(&b);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_text(m, "# HELP n_total N.\n# TYPE n_total counter\nn_total 80000\n"
                   "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 40000\nh_bucket{le=\"+Inf\"} 80000\n"
                   "h_sum 100000\nh_count 80000\n");
    relay_metrics_destroy(m);
}

// ---- The process

static void *wait_for_end(void *arg) {
    while (!atomic_load((atomic_bool *)arg)) {
        struct timespec t = {.tv_nsec = 1000000};
        nanosleep(&t, NULL);
    }
    return NULL;
}

static void process_gauges_follow_the_process(void **state) {
    relay_metrics *m = relay_metrics_create();
    relay_metrics_add_process(m);

    double start = value_of(m, "process_start_time_seconds");
    assert_true(fabs(start - (double)time(NULL)) < 600);

    double fds = value_of(m, "process_open_fds");
    int counted = 0;
    for (int fd = 0; fd < 4096; fd++)
        counted += fcntl(fd, F_GETFD) >= 0;
    assert_true(fds == counted);
    int opened[3];
    for (int i = 0; i < 3; i++)
        opened[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(value_of(m, "process_open_fds") == fds + 3);
    for (int i = 0; i < 3; i++)
        close(opened[i]);
    assert_true(value_of(m, "process_open_fds") == fds);
    assert_true(value_of(m, "process_max_fds") >= fds);

    double threads = value_of(m, "process_threads");
    atomic_bool is_over = false;
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_end, &is_over);
    assert_true(value_of(m, "process_threads") == threads + 1);
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);

    enum { BYTES = 64 << 20 };
    double resident = value_of(m, "process_resident_memory_bytes"),
           virtual = value_of(m, "process_virtual_memory_bytes");
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    double grown = value_of(m, "process_resident_memory_bytes") - resident;
    assert_true(grown > BYTES * 0.9 && grown < BYTES * 16.0); // a sanitizer keeps its shadow beside it
    assert_true(value_of(m, "process_virtual_memory_bytes") - virtual >= BYTES);
    munmap(memory, BYTES);

    double cpu = value_of(m, "process_cpu_seconds_total");
    for (volatile uint32_t i = 0; i < 30000000; i++) {
    }
    assert_true(value_of(m, "process_cpu_seconds_total") > cpu);
    relay_metrics_destroy(m);
}

extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len) __attribute__((weak));

static void allocator_gauges_are_there_when_jemalloc_is(void **state) {
    relay_metrics *m = relay_metrics_create();
    relay_metrics_add_process(m);
    assert_int_equal(mallctl != NULL, IS_LINKED_WITH_JEMALLOC);
    double before = value_of(m, "jemalloc_allocated_bytes");
    if (mallctl == NULL) {
        assert_true(isnan(before));
    } else {
        enum { BYTES = 32 << 20 };
        void *volatile memory = malloc(BYTES); // volatile: or the compiler leaves the pair out
        memset(memory, 1, BYTES);
        double after = value_of(m, "jemalloc_allocated_bytes");
        assert_true(after - before >= BYTES);
        assert_true(value_of(m, "jemalloc_resident_bytes") >= after);
        free(memory);
        assert_true(value_of(m, "jemalloc_allocated_bytes") < after);
    }
    relay_metrics_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_and_gauges_are_prometheus_text),
        cmocka_unit_test(numbers_are_short_and_exact),
        cmocka_unit_test(histograms_count_up_to_each_bound),
        cmocka_unit_test(latency_bounds_ascend_from_1_ms_to_60_s),
        cmocka_unit_test(hooks_run_in_order_before_the_text_is_written),
        cmocka_unit_test(text_past_the_limit_fails_the_buffer),
        cmocka_unit_test(no_update_is_lost_between_threads),
        cmocka_unit_test(process_gauges_follow_the_process),
        cmocka_unit_test(allocator_gauges_are_there_when_jemalloc_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
