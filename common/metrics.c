// A registry is a list of families (one name, one HELP and TYPE), each a list of series (one set of labels). Both lists
// are in the order of their making and are only added to, so a scrape walks them while other threads update the values
// in them. The lock keeps makers and scrapes apart; updating takes none.
//
// A series has cache lines of its own, so that threads which update different ones do not slow each other down.
#include "common/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 };

typedef enum metric_kind {
    COUNTER,
    FLOAT_COUNTER,
    GAUGE,
    HISTOGRAM,
} metric_kind;

static const char *const type_names[] = {
    [COUNTER] = "counter", [FLOAT_COUNTER] = "counter", [GAUGE] = "gauge", [HISTOGRAM] = "histogram"};

struct relay_counter {
    _Atomic uint64_t value;
};

struct relay_gauge {
    _Atomic uint64_t bits; // of a double
};

struct relay_histogram {
    uint32_t n_bounds;
    double *bounds;           // owned
    _Atomic uint64_t *counts; // owned: [n_bounds + 1], of each bucket alone; the last is +Inf's
    _Atomic uint64_t sum_bits;
};

typedef struct series {
    union { // what the caller holds is a pointer to one of these
        relay_counter counter;
        relay_gauge gauge;
        relay_histogram histogram;
    };
    struct series *next;
    char *labels; // owned; "" for none
} series;

typedef struct family {
    struct family *next;
    char *name, *help; // owned
    metric_kind kind;
    series *first, **end;
} family;

typedef struct hook {
    struct hook *next;
    void (*fn)(void *arg);
    void *arg;
} hook;

struct relay_metrics {
    pthread_mutex_t scrape_lock; // one scrape at a time, its hooks included; taken before `lock`
    pthread_mutex_t lock;        // guards the lists
    family *first, **end;
    hook *hooks, **hooks_end;
};

const double relay_latency_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
const uint32_t relay_latency_bounds_count = sizeof relay_latency_bounds / sizeof *relay_latency_bounds;

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// ---- Making

relay_metrics *relay_metrics_create(void) {
    relay_metrics *m = relay_calloc(1, sizeof *m);
    pthread_mutex_init(&m->scrape_lock, NULL);
    pthread_mutex_init(&m->lock, NULL);
    m->end = &m->first;
    m->hooks_end = &m->hooks;
    return m;
}

static void destroy_series(series *s, metric_kind kind) {
    if (kind == HISTOGRAM) {
        free(s->histogram.bounds);
        free(s->histogram.counts);
    }
    free(s->labels);
    free(s);
}

void relay_metrics_destroy(relay_metrics *m) {
    if (m == NULL) return;
    for (family *f = m->first, *next; f != NULL; f = next) {
        next = f->next;
        for (series *s = f->first, *next_s; s != NULL; s = next_s) {
            next_s = s->next;
            destroy_series(s, f->kind);
        }
        free(f->name);
        free(f->help);
        free(f);
    }
    for (hook *h = m->hooks, *next; h != NULL; h = next) {
        next = h->next;
        free(h);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->scrape_lock);
    free(m);
}

static void *alloc_lines(size_t size) {
    size = (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    void *p = aligned_alloc(CACHE_LINE, size);
    RELAY_ASSERT(p != NULL);
    return memset(p, 0, size);
}

static family *get_family(relay_metrics *m, metric_kind kind, const char *name, const char *help) {
    for (family *f = m->first; f != NULL; f = f->next) {
        if (strcmp(f->name, name) != 0) continue;
        RELAY_ASSERT(f->kind == kind);
        return f;
    }
    family *f = relay_calloc(1, sizeof *f);
    f->name = relay_strndup(name, strlen(name));
    f->help = relay_strndup(help, strlen(help));
    f->kind = kind;
    f->end = &f->first;
    *m->end = f;
    m->end = &f->next;
    return f;
}

static void init_histogram(relay_histogram *h, const double *bounds, uint32_t n_bounds) {
    h->n_bounds = n_bounds;
    h->bounds = relay_calloc(n_bounds, sizeof *h->bounds);
    h->counts = alloc_lines((n_bounds + 1) * sizeof *h->counts);
    for (uint32_t i = 0; i < n_bounds; i++) {
        RELAY_ASSERT(isfinite(bounds[i]) && (i == 0 || bounds[i] > bounds[i - 1]));
        h->bounds[i] = bounds[i];
    }
}

// The series of that name and those labels, made if there is none.
static series *get_series(relay_metrics *m, metric_kind kind, const char *name, const char *help, const char *labels,
                          const double *bounds, uint32_t n_bounds) {
    if (labels == NULL) labels = "";
    pthread_mutex_lock(&m->lock);
    family *f = get_family(m, kind, name, help);
    series *s = f->first;
    while (s != NULL && strcmp(s->labels, labels) != 0)
        s = s->next;
    if (s == NULL) {
        s = alloc_lines(sizeof *s);
        s->labels = relay_strndup(labels, strlen(labels));
        if (kind == HISTOGRAM) init_histogram(&s->histogram, bounds, n_bounds);
        *f->end = s;
        f->end = &s->next;
    }
    pthread_mutex_unlock(&m->lock);
    return s;
}

relay_counter *relay_metrics_counter(relay_metrics *m, const char *name, const char *help, const char *labels) {
    return &get_series(m, COUNTER, name, help, labels, NULL, 0)->counter;
}

relay_gauge *relay_metrics_gauge(relay_metrics *m, const char *name, const char *help, const char *labels) {
    return &get_series(m, GAUGE, name, help, labels, NULL, 0)->gauge;
}

relay_gauge *relay_metrics_float_counter(relay_metrics *m, const char *name, const char *help, const char *labels) {
    return &get_series(m, FLOAT_COUNTER, name, help, labels, NULL, 0)->gauge;
}

relay_histogram *relay_metrics_histogram(relay_metrics *m, const char *name, const char *help, const char *labels,
                                         const double *bounds, uint32_t n_bounds) {
    return &get_series(m, HISTOGRAM, name, help, labels, bounds, n_bounds)->histogram;
}

void relay_metrics_on_scrape(relay_metrics *m, void (*fn)(void *arg), void *arg) {
    hook *h = relay_calloc(1, sizeof *h);
    *h = (hook){.fn = fn, .arg = arg};
    pthread_mutex_lock(&m->lock);
    *m->hooks_end = h;
    m->hooks_end = &h->next;
    pthread_mutex_unlock(&m->lock);
}

// ---- Updating

void relay_counter_add(relay_counter *c, uint64_t n) {
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}

uint64_t relay_counter_value(const relay_counter *c) {
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}

void relay_gauge_set(relay_gauge *g, double value) {
    atomic_store_explicit(&g->bits, bits_of(value), memory_order_relaxed);
}

double relay_gauge_value(const relay_gauge *g) {
    return double_of(atomic_load_explicit(&g->bits, memory_order_relaxed));
}

void relay_histogram_observe(relay_histogram *h, double value) {
    if (isnan(value)) return;
    uint32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    uint64_t sum = atomic_load_explicit(&h->sum_bits, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->sum_bits, &sum, bits_of(double_of(sum) + value),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

// ---- Writing

// In as few digits as bring the same number back.
static void put_number(relay_buf *out, double value) {
    if (isnan(value)) {
        relay_buf_puts(out, "NaN");
    } else if (isinf(value)) {
        relay_buf_puts(out, value > 0 ? "+Inf" : "-Inf");
    } else {
        char text[32];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value) break;
        }
        relay_buf_puts(out, text);
    }
}

static void put_help(relay_buf *out, const family *f) {
    relay_buf_printf(out, "# HELP %s ", f->name);
    for (const char *s = f->help; *s != 0; s++) {
        if (*s == '\\' || *s == '\n')
            relay_buf_puts(out, *s == '\n' ? "\\n" : "\\\\");
        else
            relay_buf_putc(out, *s);
    }
    relay_buf_printf(out, "\n# TYPE %s %s\n", f->name, type_names[f->kind]);
}

static void put_name(relay_buf *out, const family *f, const series *s, const char *suffix) {
    relay_buf_printf(out, "%s%s", f->name, suffix);
    if (s->labels[0] != 0) relay_buf_printf(out, "{%s}", s->labels);
    relay_buf_putc(out, ' ');
}

// The count is that of the buckets as they were read, so that the three agree whatever is observed meanwhile.
static void put_histogram(relay_buf *out, const family *f, const series *s) {
    const relay_histogram *h = &s->histogram;
    uint64_t total = 0;
    for (uint32_t i = 0; i <= h->n_bounds; i++) {
        total += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        relay_buf_printf(out, "%s_bucket{%s%sle=\"", f->name, s->labels, s->labels[0] != 0 ? "," : "");
        put_number(out, i < h->n_bounds ? h->bounds[i] : INFINITY);
        relay_buf_printf(out, "\"} %" PRIu64 "\n", total);
    }
    put_name(out, f, s, "_sum");
    put_number(out, double_of(atomic_load_explicit(&h->sum_bits, memory_order_relaxed)));
    relay_buf_putc(out, '\n');
    put_name(out, f, s, "_count");
    relay_buf_printf(out, "%" PRIu64 "\n", total);
}

static void put_series(relay_buf *out, const family *f, const series *s) {
    switch (f->kind) {
    case COUNTER:
        put_name(out, f, s, "");
        relay_buf_printf(out, "%" PRIu64 "\n", relay_counter_value(&s->counter));
        break;
    case FLOAT_COUNTER:
    case GAUGE:
        put_name(out, f, s, "");
        put_number(out, relay_gauge_value(&s->gauge));
        relay_buf_putc(out, '\n');
        break;
    case HISTOGRAM:
        put_histogram(out, f, s);
        break;
    }
}

void relay_metrics_write(relay_metrics *m, relay_buf *out) {
    pthread_mutex_lock(&m->scrape_lock);
    pthread_mutex_lock(&m->lock);
    const hook *hooks = m->hooks; // only added to, at the end
    pthread_mutex_unlock(&m->lock);
    for (const hook *h = hooks; h != NULL; h = h->next)
        h->fn(h->arg);
    pthread_mutex_lock(&m->lock);
    for (const family *f = m->first; f != NULL; f = f->next) {
        put_help(out, f);
        for (const series *s = f->first; s != NULL; s = s->next)
            put_series(out, f, s);
    }
    pthread_mutex_unlock(&m->lock);
    pthread_mutex_unlock(&m->scrape_lock);
}
