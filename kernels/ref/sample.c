// The sampler as its definition in kernels.h reads: sort everything, then cut.
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/philox.h"
#include "kernels/sampling.h"

typedef struct candidate {
    uint32_t id;
    float logit;
} candidate;

typedef struct scratch {
    candidate *sorted; // [n_vocab] most likely first
    double *probs;     // [n_vocab] of sorted[i], not normalised
    double *by_id;     // [n_vocab] the same by id; 0 where it was cut
    float *logits;     // [n_vocab] after penalties and masks
} scratch;

uint64_t relay_ref_sample_scratch(uint32_t n_vocab) {
    return (uint64_t)n_vocab * (sizeof(candidate) + 2 * sizeof(double) + sizeof(float));
}

static bool comes_first(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(candidate *a, uint32_t root, uint32_t n) {
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= n) return;
        if (child + 1 < n && comes_first(a[child], a[child + 1])) child++;
        if (!comes_first(a[root], a[child])) return;
        candidate t = a[root];
        a[root] = a[child];
        a[child] = t;
        root = child;
    }
}

// Heapsort: in place, where qsort may allocate.
static void sort(candidate *a, uint32_t n) {
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(a, i, n);
    for (uint32_t end = n; end-- > 1;) {
        candidate t = a[0];
        a[0] = a[end];
        a[end] = t;
        sift_down(a, 0, end);
    }
}

static bool is_finite_row(const float *logits, uint32_t n) {
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return false;
        if (logits[i] != -INFINITY) any = true;
    }
    return any;
}

static void sort_row(scratch *s, const float *logits, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        s->sorted[i] = (candidate){i, logits[i]};
    sort(s->sorted, n);
}

// Fills in the sum of exp((logit - max) / temperature) over the first n and each term.
static double weigh(scratch *s, uint32_t n, double temperature) {
    double total = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->probs[i] = exp(((double)s->sorted[i].logit - s->sorted[0].logit) / temperature);
        total += s->probs[i];
    }
    return total;
}

// Logprob, rank and most likely ids, of the sorted row's first n.
static void report(const scratch *s, uint32_t n, double total, double temperature, uint32_t n_top,
                   relay_sample_result *r) {
    const double max = s->sorted[0].logit, log_total = log(total);
    for (uint32_t i = 0; i < n; i++) {
        if (s->sorted[i].id != r->token_id) continue;
        r->logprob = relay_sampling_logprob(s->sorted[i].logit, max, temperature, log_total);
        if (n_top > 0) r->rank = i + 1;
    }
    for (; r->n_top < n_top && r->n_top < n; r->n_top++) {
        if (s->sorted[r->n_top].logit == -INFINITY) break;
        r->top_ids[r->n_top] = s->sorted[r->n_top].id;
        r->top_logprobs[r->n_top] = relay_sampling_logprob(s->sorted[r->n_top].logit, max, temperature, log_total);
    }
}

// How many of the sorted row are left after top_k, top_p and min_p.
static uint32_t truncate_row(scratch *s, uint32_t n, const relay_sample_params *p) {
    while (n > 0 && s->sorted[n - 1].logit == -INFINITY)
        n--;
    if (p->top_k > 0 && n > p->top_k) n = p->top_k;
    double total = weigh(s, n, p->temperature);
    if (p->top_p < 1) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum += s->probs[i];
            if (sum >= (double)p->top_p * total) n = i + 1;
        }
    }
    while (n > 1 && s->probs[n - 1] < (double)p->min_p)
        n--;
    return n;
}

// Walks the first n in the order of their ids.
static uint32_t draw(scratch *s, uint32_t n, uint32_t n_vocab, const relay_sample_params *p) {
    double u = relay_philox_uniform(p->seed, p->position, p->sequence_index, RELAY_DRAW_TOKEN);
    double total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += s->probs[i];
    for (uint32_t i = 0; i < n_vocab; i++)
        s->by_id[i] = 0;
    for (uint32_t i = 0; i < n; i++)
        s->by_id[s->sorted[i].id] = s->probs[i];
    double sum = 0;
    uint32_t last = s->sorted[0].id;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (s->by_id[i] == 0) continue;
        last = i;
        sum += s->by_id[i];
        if (sum > u * total) break;
    }
    return last;
}

static void sample_row(scratch *s, relay_sample_result *r, const float *logits, uint32_t n_vocab,
                       const relay_sample_params *p, const relay_sample_input *in) {
    memset(r, 0, sizeof *r);
    if (!is_finite_row(logits, n_vocab)) return;
    memcpy(s->logits, logits, n_vocab * sizeof *logits);
    relay_sampling_change_logits(s->logits, n_vocab, p, in);
    if (!is_finite_row(s->logits, n_vocab)) return;
    r->is_finite = true;
    sort_row(s, s->logits, n_vocab);
    // Greedy is the limit of temperature 0: all is on one id.
    const double temperature = p->temperature == 0 ? 1 : p->temperature;
    uint32_t n_left = p->temperature == 0 ? 1 : truncate_row(s, n_vocab, p);
    double total = weigh(s, n_left, temperature);
    r->token_id = p->temperature == 0 ? s->sorted[0].id : draw(s, n_left, n_vocab, p);
    if (p->logprob_mode == RELAY_LOGPROB_PROCESSED) {
        report(s, n_left, total, temperature, p->n_top, r);
    } else if (p->logprob_mode == RELAY_LOGPROB_RAW) {
        sort_row(s, logits, n_vocab);
        total = weigh(s, n_vocab, 1);
        report(s, n_vocab, total, 1, p->n_top, r);
    }
}

void relay_ref_sample(void *scratch_bytes, relay_sample_result *results, const float *logits, uint32_t n_vocab,
                      const relay_sample_input *in) {
    scratch s;
    s.probs = scratch_bytes;
    s.by_id = s.probs + n_vocab;
    s.sorted = (candidate *)(s.by_id + n_vocab);
    s.logits = (float *)(s.sorted + n_vocab);
    for (uint32_t i = 0; i < in->n_samples; i++) {
        sample_row(&s, &results[i], logits + (uint64_t)i * n_vocab, n_vocab, &in->d_params[i], in);
    }
}
