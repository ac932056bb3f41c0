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

// Logprob, rank, most likely and wanted ids, of the sorted row's first n.
static void report(const scratch *s, uint32_t n, double total, double temperature, const relay_sample_params *p,
                   const uint32_t *wanted, relay_sample_result *r) {
    const double max = s->sorted[0].logit, log_total = log(total);
    for (uint32_t j = 0; j < p->n_wanted; j++)
        r->wanted_logprobs[j] = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const float logprob = relay_sampling_logprob(s->sorted[i].logit, max, temperature, log_total);
        if (s->sorted[i].id == r->token_id) {
            r->logprob = logprob;
            if (p->n_top > 0) r->rank = i + 1;
        }
        for (uint32_t j = 0; j < p->n_wanted; j++) {
            if (wanted[j] == s->sorted[i].id) r->wanted_logprobs[j] = logprob;
        }
        if (i >= p->n_top || s->sorted[i].logit == -INFINITY) continue;
        r->n_top = i + 1;
        r->top_ids[i] = s->sorted[i].id;
        r->top_logprobs[i] = logprob;
    }
}

static void report_raw(scratch *s, const float *logits, uint32_t n_vocab, const relay_sample_params *p,
                       const uint32_t *wanted, relay_sample_result *r) {
    sort_row(s, logits, n_vocab);
    report(s, n_vocab, weigh(s, n_vocab, 1), 1, p, wanted, r);
}

// Those of the sorted row's first n whose logit is at most so many standard deviations below the largest.
static uint32_t keep_sigma(const scratch *s, uint32_t n, double n_sigma) {
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += s->sorted[i].logit / (double)n;
    for (uint32_t i = 0; i < n; i++)
        variance += (s->sorted[i].logit - mean) * (s->sorted[i].logit - mean) / n;
    while (n > 1 && s->sorted[n - 1].logit < s->sorted[0].logit - n_sigma * sqrt(variance))
        n--;
    return n;
}

// The shortest front of the first n whose weights reach `share` of their sum.
static uint32_t keep_share(const scratch *s, uint32_t n, double total, double share) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += s->probs[i];
        if (sum >= share * total) return i + 1;
    }
    return n;
}

// The same in the order of how far a surprise is from the entropy.
static uint32_t keep_typical(scratch *s, uint32_t n, const relay_sample_params *p) {
    double total = weigh(s, n, p->temperature), mean = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += s->probs[i] / total * s->sorted[i].logit;
    for (uint32_t i = 0; i < n; i++)
        s->by_id[s->sorted[i].id] = s->sorted[i].logit;
    for (uint32_t i = 0; i < n; i++)
        s->sorted[i].logit = (float)-fabs(s->sorted[i].logit - mean);
    sort(s->sorted, n);
    for (uint32_t i = 0; i < n; i++)
        s->probs[i] = exp((s->by_id[s->sorted[i].id] - mean) / p->temperature);
    total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += s->probs[i];
    n = keep_share(s, n, total, p->typical_p);
    for (uint32_t i = 0; i < n; i++)
        s->sorted[i].logit = (float)s->by_id[s->sorted[i].id];
    sort(s->sorted, n);
    return n;
}

// Takes out those of at least the threshold's share but the last of them.
static uint32_t exclude_top_choices(scratch *s, uint32_t n, const relay_sample_params *p) {
    double total = weigh(s, n, p->temperature);
    uint32_t n_top = 0;
    while (n_top < n && s->probs[n_top] >= p->xtc_threshold * total)
        n_top++;
    if (n_top < 2) return n;
    memmove(s->sorted, s->sorted + n_top - 1, (n - n_top + 1) * sizeof *s->sorted);
    return n - n_top + 1;
}

// How many of the sorted row are left; they are its first ones when this returns.
static uint32_t truncate_row(scratch *s, uint32_t n, const relay_sample_params *p) {
    if (p->top_n_sigma > 0) n = keep_sigma(s, n, p->top_n_sigma);
    if (p->top_k > 0 && n > p->top_k) n = p->top_k;
    double total = weigh(s, n, p->temperature);
    if (p->top_p < 1) n = keep_share(s, n, total, p->top_p);
    while (n > 1 && s->probs[n - 1] < (double)p->min_p)
        n--;
    if (relay_sampling_has_typical(p)) n = keep_typical(s, n, p);
    if (relay_sampling_xtc_happens(p)) n = exclude_top_choices(s, n, p);
    return n;
}

static uint32_t mirostat_row(scratch *s, uint32_t n, uint32_t n_vocab, double total, const relay_sample_params *p) {
    if (p->mirostat == 1) {
        double x[RELAY_MIROSTAT_PAIRS + 1];
        uint32_t n_x = n < RELAY_MIROSTAT_PAIRS + 1 ? n : RELAY_MIROSTAT_PAIRS + 1;
        for (uint32_t i = 0; i < n_x; i++)
            x[i] = ((double)s->sorted[i].logit - s->sorted[0].logit) / p->temperature;
        uint32_t k = relay_sampling_mirostat_k(x, n_x, n_vocab, p->mirostat_mu);
        return k < n ? k : n;
    }
    while (n > 1 && -log2(s->probs[n - 1] / total) > p->mirostat_mu)
        n--;
    return n;
}

// Walks the first n, whose weights are s->probs, in the order of their ids.
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

// Draws from the sorted row; gives how many were left of it and, in *total, the sum of their weights.
static uint32_t draw_row(scratch *s, uint32_t n_vocab, const relay_sample_params *p, double *total,
                         relay_sample_result *r) {
    uint32_t n = n_vocab;
    while (s->sorted[n - 1].logit == -INFINITY)
        n--;
    if (p->mirostat == 0) {
        n = truncate_row(s, n, p);
        *total = weigh(s, n, p->temperature);
        r->token_id = draw(s, n, n_vocab, p);
        return n;
    }
    const double whole = weigh(s, n, p->temperature);
    n = mirostat_row(s, n, n_vocab, whole, p);
    *total = weigh(s, n, p->temperature);
    r->token_id = draw(s, n, n_vocab, p);
    uint32_t i = 0;
    while (s->sorted[i].id != r->token_id)
        i++;
    double x = ((double)s->sorted[i].logit - s->sorted[0].logit) / p->temperature;
    r->mirostat_mu = relay_sampling_mirostat_next(p, (log(whole) - x) / log(2));
    return n;
}

static void sample_row(scratch *s, relay_sample_result *r, const float *logits, uint32_t n_vocab,
                       const relay_sample_params *p, const relay_sample_input *in) {
    memset(r, 0, sizeof *r);
    r->mirostat_mu = p->mirostat_mu;
    const uint32_t *wanted = in->d_wanted + p->wanted_begin;
    if (!is_finite_row(logits, n_vocab)) return;
    if (p->is_score_only) {
        r->is_finite = true;
        r->token_id = p->scored_id;
        report_raw(s, logits, n_vocab, p, wanted, r);
        return;
    }
    memcpy(s->logits, logits, n_vocab * sizeof *logits);
    relay_sampling_change_logits(s->logits, n_vocab, p, in);
    if (!is_finite_row(s->logits, n_vocab)) return;
    r->is_finite = true;
    sort_row(s, s->logits, n_vocab);
    // Greedy is the limit of temperature 0: all is on one id.
    const double temperature = p->temperature == 0 ? 1 : p->temperature;
    uint32_t n_left = 1;
    double total = 1;
    if (p->temperature == 0) {
        r->token_id = s->sorted[0].id;
    } else {
        n_left = draw_row(s, n_vocab, p, &total, r);
    }
    if (p->logprob_mode == RELAY_LOGPROB_PROCESSED) {
        report(s, n_left, total, temperature, p, wanted, r);
    } else if (p->logprob_mode == RELAY_LOGPROB_RAW) {
        report_raw(s, logits, n_vocab, p, wanted, r);
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
