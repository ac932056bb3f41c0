// Metrics in Prometheus' text form: counters, gauges and histograms, all made before the threads that use them start.
//
// Updating one is a relaxed atomic operation: no lock, no allocation, from any thread, the engine's step included. A
// metric belongs to a registry and lives as long as it does. Names have the unit as suffix (_seconds, _bytes, _total).
#ifndef RELAY_COMMON_METRICS_H
#define RELAY_COMMON_METRICS_H

#include <stdint.h>

#include "common/buf.h"

typedef struct relay_metrics relay_metrics; // a registry
typedef struct relay_counter relay_counter;
typedef struct relay_gauge relay_gauge;
typedef struct relay_histogram relay_histogram;

relay_metrics *relay_metrics_create(void);
void relay_metrics_destroy(relay_metrics *m);

// `labels` is NULL or the inside of the braces, such as `code="OK",method="Generate"`. The same name and labels again
// give the same metric; the same name with another kind is a programmer error.
relay_counter *relay_metrics_counter(relay_metrics *m, const char *name, const char *help, const char *labels);
relay_gauge *relay_metrics_gauge(relay_metrics *m, const char *name, const char *help, const char *labels);
// A gauge whose type is counter: for what only grows and is counted elsewhere, such as CPU seconds.
relay_gauge *relay_metrics_float_counter(relay_metrics *m, const char *name, const char *help, const char *labels);
// Upper bounds in ascending order, copied; +Inf is added.
relay_histogram *relay_metrics_histogram(relay_metrics *m, const char *name, const char *help, const char *labels,
                                         const double *bounds, uint32_t n_bounds);
// Called at each scrape, on the scraping thread, before the text is written: for values kept elsewhere. Scrapes are one
// at a time; the function may make and set metrics, and must not scrape.
void relay_metrics_on_scrape(relay_metrics *m, void (*fn)(void *arg), void *arg);

void relay_counter_add(relay_counter *c, uint64_t n);
uint64_t relay_counter_value(const relay_counter *c);
void relay_gauge_set(relay_gauge *g, double value);
double relay_gauge_value(const relay_gauge *g);
// NaN is not counted.
void relay_histogram_observe(relay_histogram *h, double value);

// The bounds used for latencies, in seconds: 1 ms to 60 s.
extern const double relay_latency_bounds[];
extern const uint32_t relay_latency_bounds_count;

// Appends the whole registry in text format 0.0.4.
void relay_metrics_write(relay_metrics *m, relay_buf *out);
// Adds gauges of the process (resident memory, open files, threads, CPU seconds) and of jemalloc where it is linked.
void relay_metrics_add_process(relay_metrics *m);

#endif
