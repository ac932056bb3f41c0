// The sampling operation, without sorting the vocabulary.
//
// Ids are ordered by logit, larger first, equal ones by id. Most truncations are a cut in that order: the last id that
// is kept. top_n_sigma is a threshold; top_k finds its cut by keeping the best k of a buffer while it walks the row;
// top_p halves the range of logits that holds its cut, a pass over the row each, until few are left to select from;
// min_p and mirostat 2 compare weights. Typical sampling and XTC are no cuts: what they take out gets the logit
// -infinity in a copy of the row. What is left is walked once in the order of ids to sum its weights, and the draw is
// found by run of ids, then by id.
//
// One row is sampled by one thread, and no step's order depends on anything but the row: the same logits and parameters
// give the same id and the same logprobs. Weights are float32, sums of many are double.
#include "kernels/cpu/ops.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/candidates.h"
#include "kernels/philox.h"
#include "kernels/sampling.h"

enum { RUN = RELAY_SAMPLE_RUN };

// A place in the order: of ids that may be drawn, those up to and including this one.
typedef struct cut {
    float logit;
    uint32_t id;
} cut;

static const cut keep_all = {-INFINITY, 0}; // but -infinity itself

// The row that is sampled.
typedef struct row {
    const float *logits;
    uint32_t n;
    float max;
    double temperature; // 1 where none is applied
    float inverse_temperature;
} row;

// ---- Passes over the row, 16 ids at a time. Lanes past the end are -infinity.

RELAY_INLINE vf load_logits(const float *logits, uint32_t i, uint32_t n) {
    if (i + LANES <= n) return vf_load(logits + i);
    vm is_in = vi_lt(vi_lane_index(), vi_set((int32_t)(n - i)));
    return vf_select(is_in, vf_set(-INFINITY), vf_load_n(logits + i, n - i));
}

// The largest logit; false where there is a NaN or +infinity, or nothing above -infinity.
static bool find_max(const float *logits, uint32_t n, float *max_out) {
    vf max = vf_set(-INFINITY);
    uint32_t finite = 0xFFFF;
    for (uint32_t i = 0; i < n; i += LANES) {
        vf l = load_logits(logits, i, n);
        finite &= vm_bits(vf_lt(l, vf_set(INFINITY))); // false for a NaN too
        max = vf_max(max, l);
    }
    *max_out = vf_max_lane(max);
    return finite == 0xFFFF && *max_out > -INFINITY;
}

RELAY_INLINE vf weights_of(const row *r, vf logits) {
    return vf_exp(vf_mul(vf_sub(logits, vf_set(r->max)), vf_set(r->inverse_temperature)));
}

static uint32_t first_id_of(const row *r, float logit) {
    for (uint32_t i = 0; i < r->n; i += LANES) {
        uint32_t bits = vm_bits(vf_eq(load_logits(r->logits, i, r->n), vf_set(logit)));
        if (bits != 0) return i + (uint32_t)__builtin_ctz(bits);
    }
    return 0; // not reached: the logit is one of the row's
}

// Lanes at i.. that the cut keeps.
RELAY_INLINE vm kept_lanes(cut c, vf logits, uint32_t i) {
    vi last = vi_set((int32_t)c.id - (int32_t)i + 1);
    vm is_up_to = vm_and(vf_eq(logits, vf_set(c.logit)), vi_lt(vi_lane_index(), last));
    vm is_kept = vm_or(vf_lt(vf_set(c.logit), logits), is_up_to);
    return vm_and(is_kept, vf_lt(vf_set(-INFINITY), logits));
}

// Sum of the weights that the cut keeps, in runs: lanes within a run, runs in double.
static double sum_weights(const row *r, cut c) {
    double total = 0;
    for (uint32_t first = 0; first < r->n; first += RUN) {
        vf sum = vf_set(0);
        for (uint32_t i = first; i < first + RUN && i < r->n; i += LANES) {
            vf logits = load_logits(r->logits, i, r->n);
            sum = vf_add(sum, vf_select(kept_lanes(c, logits, i), vf_set(0), weights_of(r, logits)));
        }
        total += vf_sum(sum);
    }
    return total;
}

// One-based place of an id in the order.
static uint32_t rank_of(const row *r, uint32_t id) {
    const float logit = r->logits[id];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < r->n; i += LANES) {
        rank += (uint32_t)__builtin_popcount(vm_bits(kept_lanes((cut){logit, id}, load_logits(r->logits, i, r->n), i)));
    }
    return rank;
}

// ---- Cuts

// The k-th id of the order; keep_all where there are fewer than k. The first k (or all there are) are left in
// s->candidates without weights, their number in *n_out.
static cut top_k_cut(const row *r, uint32_t k, relay_candidate *buffer, uint32_t *n_out) {
    // Room for some times k, so that the buffer is seldom cut down, but never more than the scratch has.
    uint32_t room = k < 512 ? 2048 : 4 * k;
    if (k > r->n / 4 || room > r->n) room = r->n;
    float threshold = -INFINITY;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i += LANES) {
        uint32_t bits = vm_bits(vf_lt(vf_set(threshold), load_logits(r->logits, i, r->n)));
        for (; bits != 0; bits &= bits - 1) {
            uint32_t id = i + (uint32_t)__builtin_ctz(bits);
            if (n == room) {
                // Later ids of the same logit come behind the k-th: only larger logits matter from here on.
                relay_candidates_select(buffer, n, k);
                threshold = buffer[k - 1].logit;
                n = k;
                if (!(r->logits[id] > threshold)) continue;
            }
            buffer[n++] = (relay_candidate){.logit = r->logits[id], .id = id};
        }
    }
    *n_out = n < k ? n : k;
    if (n < k) return keep_all;
    relay_candidates_select(buffer, n, k);
    return (cut){buffer[k - 1].logit, buffer[k - 1].id};
}

static void weigh_candidates(const row *r, relay_candidate *c, uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        float lanes[LANES] = {0};
        for (uint32_t j = 0; j < LANES && i + j < n; j++)
            lanes[j] = c[i + j].logit;
        vf_store(lanes, weights_of(r, vf_load(lanes)));
        for (uint32_t j = 0; j < LANES && i + j < n; j++)
            c[i + j].weight = lanes[j];
    }
}

// All ids that the cut keeps and whose weight is at least `least`, with their weights, in the order of ids.
static uint32_t collect(const row *r, cut c, float least, relay_candidate *buffer) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i += LANES) {
        vf logits = load_logits(r->logits, i, r->n);
        vf weights = weights_of(r, logits);
        uint32_t bits = vm_bits(vm_and(vf_le(vf_set(least), weights), kept_lanes(c, logits, i)));
        if (bits == 0) continue;
        float lanes[LANES];
        vf_store(lanes, weights);
        for (; bits != 0; bits &= bits - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(bits);
            buffer[n++] = (relay_candidate){r->logits[i + lane], lanes[lane], i + lane};
        }
    }
    return n;
}

// The last id of the shortest front of the order whose weights sum to `wanted`; of the last id if none does. n >= 1.
static cut weight_cut(relay_candidate *a, uint32_t n, double wanted) {
    double before = 0; // of what is known to be kept
    for (;;) {
        if (n == 1) return (cut){a[0].logit, a[0].id};
        uint32_t pivot = relay_candidates_split(a, n);
        double left = before;
        for (uint32_t i = 0; i < pivot; i++)
            left += a[i].weight;
        if (pivot > 0 && left >= wanted) {
            n = pivot;
        } else if (left + a[pivot].weight >= wanted || pivot + 1 == n) {
            return (cut){a[pivot].logit, a[pivot].id};
        } else {
            before = left + a[pivot].weight;
            a += pivot + 1;
            n -= pivot + 1;
        }
    }
}

// Weights of what the cut keeps, 0 of the rest, to `weights`; their sum.
static double store_weights(const row *r, cut c, float *weights) {
    double total = 0;
    for (uint32_t first = 0; first < r->n; first += RUN) {
        vf sum = vf_set(0);
        for (uint32_t i = first; i < first + RUN && i < r->n; i += LANES) {
            vf logits = load_logits(r->logits, i, r->n);
            vf w = vf_select(kept_lanes(c, logits, i), vf_set(0), weights_of(r, logits));
            vf_store_n(weights + i, w, r->n - i < LANES ? r->n - i : LANES);
            sum = vf_add(sum, w);
        }
        total += vf_sum(sum);
    }
    return total;
}

// The sum of the weights of keys above `key`, and how many these are.
static double weight_above(const float *keys, const float *weights, uint32_t n, float key, uint32_t *count) {
    double total = 0;
    *count = 0;
    for (uint32_t first = 0; first < n; first += RUN) {
        vf sum = vf_set(0);
        for (uint32_t i = first; i < first + RUN && i < n; i += LANES) {
            vm is_above = vf_lt(vf_set(key), load_logits(keys, i, n));
            vf w = i + LANES <= n ? vf_load(weights + i) : vf_load_n(weights + i, n - i);
            sum = vf_add(sum, vf_select(is_above, vf_set(0), w));
            *count += (uint32_t)__builtin_popcount(vm_bits(is_above));
        }
        total += vf_sum(sum);
    }
    return total;
}

// The same cut as weight_cut's, for a whole row in the order of its keys, which are finite or -infinity. Halves the
// range of keys that holds the cut, a pass each, until what is left of it fits a selection.
static cut share_cut(const float *keys, const float *weights, uint32_t n, double wanted, relay_candidate *buffer) {
    enum { FEW = 1024 };
    float high, low = -INFINITY;
    find_max(keys, n, &high);
    double before = 0; // weight of keys above `high`
    uint32_t n_above_high = 0, n_above_low;
    weight_above(keys, weights, n, high, &n_above_high);
    weight_above(keys, weights, n, low, &n_above_low);
    // Far keys first: a range that begins at the smallest float would take long to halve.
    for (float far = 32; n_above_low - n_above_high > FEW; far *= 4) {
        uint32_t count;
        if (!(high - far > low)) break;
        if (weight_above(keys, weights, n, high - far, &count) < wanted) continue;
        low = high - far;
        n_above_low = count;
        break;
    }
    while (n_above_low - n_above_high > FEW) {
        const float middle = low + (high - low) / 2;
        if (!(low < middle && middle < high)) break;
        uint32_t count;
        double above = weight_above(keys, weights, n, middle, &count);
        if (above >= wanted) {
            low = middle;
            n_above_low = count;
        } else {
            high = middle;
            n_above_high = count;
            before = above;
        }
    }
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < n; i += LANES) {
        vf k = load_logits(keys, i, n);
        uint32_t bits = vm_bits(vm_and(vf_lt(vf_set(low), k), vf_le(k, vf_set(high))));
        for (; bits != 0; bits &= bits - 1) {
            uint32_t id = i + (uint32_t)__builtin_ctz(bits);
            buffer[n_left++] = (relay_candidate){keys[id], weights[id], id};
        }
    }
    return weight_cut(buffer, n_left, wanted - before);
}

// The threshold of top-n-sigma (Tang et al., "Top-n-sigma: not all logits are you need", 2024): so many standard
// deviations of the finite logits below the largest.
static cut sigma_cut(const row *r, float n_sigma) {
    double sum = 0, squares = 0;
    uint64_t n = 0;
    for (uint32_t first = 0; first < r->n; first += RUN) {
        vf run_sum = vf_set(0), run_squares = vf_set(0);
        for (uint32_t i = first; i < first + RUN && i < r->n; i += LANES) {
            vf logits = load_logits(r->logits, i, r->n);
            vm is_finite = vf_lt(vf_set(-INFINITY), logits);
            vf below = vf_select(is_finite, vf_set(0), vf_sub(logits, vf_set(r->max)));
            run_sum = vf_add(run_sum, below);
            run_squares = vf_fma(below, below, run_squares);
            n += (uint32_t)__builtin_popcount(vm_bits(is_finite));
        }
        sum += vf_sum(run_sum);
        squares += vf_sum(run_squares);
    }
    double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    return (cut){(float)(r->max - (double)n_sigma * sqrt(fmax(variance, 0))), r->n - 1};
}

static bool is_kept(cut c, float logit, uint32_t id) {
    return logit > c.logit || (logit == c.logit && id <= c.id);
}

// top_n_sigma, top_k and top_p.
static cut truncation(const row *r, const relay_sample_params *p, relay_sample_scratch *s) {
    relay_candidate *buffer = s->candidates;
    cut c = p->top_n_sigma > 0 ? sigma_cut(r, p->top_n_sigma) : keep_all;
    if (p->top_k > 0 && p->top_k < r->n) {
        uint32_t n, n_kept = 0;
        cut k_cut = top_k_cut(r, p->top_k, buffer, &n);
        if (is_kept(c, k_cut.logit, k_cut.id)) c = k_cut;
        if (p->top_p >= 1) return c;
        for (uint32_t i = 0; i < n; i++) {
            if (is_kept(c, buffer[i].logit, buffer[i].id)) buffer[n_kept++] = buffer[i];
        }
        weigh_candidates(r, buffer, n_kept);
        double total = 0;
        for (uint32_t i = 0; i < n_kept; i++)
            total += buffer[i].weight;
        return weight_cut(buffer, n_kept, p->top_p * total);
    }
    if (p->top_p >= 1) return c;
    double total = store_weights(r, c, s->weights);
    cut p_cut = share_cut(r->logits, s->weights, r->n, p->top_p * total, buffer);
    return is_kept(c, p_cut.logit, p_cut.id) ? p_cut : c;
}

// ---- Taking ids out: `logits` is the row's, to write to

static void keep_only(row *r, float *logits, cut c, float least) {
    for (uint32_t i = 0; i < r->n; i += LANES) {
        vf l = load_logits(logits, i, r->n);
        vm is_left = vm_and(kept_lanes(c, l, i), vf_le(vf_set(least), weights_of(r, l)));
        uint32_t n = r->n - i < LANES ? r->n - i : LANES;
        vf_store_n(logits + i, vf_select(is_left, vf_set(-INFINITY), l), n);
    }
    find_max(logits, r->n, &r->max);
}

// Locally typical sampling (Meister et al., 2022): those whose surprise is nearest to the entropy, the fewest that have
// typical_p of the weight. A surprise's distance from the entropy is, up to a factor, that of the logit from the mean
// logit.
static void keep_typical(row *r, relay_sample_scratch *s, float typical_p) {
    double total = store_weights(r, keep_all, s->weights), moment = 0;
    for (uint32_t first = 0; first < r->n; first += RUN) {
        vf sum = vf_set(0);
        for (uint32_t i = first; i < first + RUN && i < r->n; i += LANES) {
            vf w = r->n - i >= LANES ? vf_load(s->weights + i) : vf_load_n(s->weights + i, r->n - i);
            vf below = vf_sub(load_logits(r->logits, i, r->n), vf_set(r->max));
            // Not 0 * -infinity of an id that is out.
            sum = vf_add(sum, vf_select(vf_lt(vf_set(0), w), vf_set(0), vf_mul(w, below)));
        }
        moment += vf_sum(sum);
    }
    const float mean = (float)(r->max + moment / total);
    for (uint32_t i = 0; i < r->n; i++)
        s->keys[i] = s->logits[i] == -INFINITY ? -INFINITY : -fabsf(s->logits[i] - mean);
    cut c = share_cut(s->keys, s->weights, r->n, typical_p * total, s->candidates);
    for (uint32_t i = 0; i < r->n; i++) {
        if (!is_kept(c, s->keys[i], i)) s->logits[i] = -INFINITY;
    }
    find_max(s->logits, r->n, &r->max);
}

// XTC (p-e-w, text-generation-webui #6335): of those with at least the threshold's share, all but the least likely go.
static void exclude_top_choices(row *r, float *logits, float threshold, relay_candidate *buffer) {
    uint32_t n = collect(r, keep_all, (float)(threshold * sum_weights(r, keep_all)), buffer), last = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (relay_candidate_comes_first(buffer[last], buffer[i])) last = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i != last) logits[buffer[i].id] = -INFINITY;
    }
    find_max(logits, r->n, &r->max);
}

// ---- Mirostat

// What is drawn from: the cut, and the least weight in *least.
static cut mirostat_cut(const row *r, const relay_sample_params *p, double total, relay_candidate *buffer,
                        float *least) {
    if (p->mirostat == 2) {
        double weight = total * exp2(-(double)p->mirostat_mu);
        if (weight > 1) return (cut){r->max, first_id_of(r, r->max)}; // all surprise more: the first stays
        *least = (float)weight;
        return keep_all;
    }
    double x[RELAY_MIROSTAT_PAIRS + 1];
    uint32_t n;
    top_k_cut(r, RELAY_MIROSTAT_PAIRS + 1, buffer, &n);
    relay_candidates_sort(buffer, n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = ((double)buffer[i].logit - r->max) / r->temperature;
    uint32_t k = relay_sampling_mirostat_k(x, n, r->n, p->mirostat_mu);
    return top_k_cut(r, k, buffer, &n);
}

// ---- Draw

// Lanes of weights that are left to draw from, 0 elsewhere.
RELAY_INLINE vf left_weights(const row *r, cut c, float min_p, uint32_t i, uint32_t *bits) {
    vf logits = load_logits(r->logits, i, r->n);
    vm is_kept = kept_lanes(c, logits, i);
    *bits = vm_bits(is_kept);
    if (*bits == 0) return vf_set(0);
    vf weights = weights_of(r, logits);
    is_kept = vm_and(is_kept, vf_le(vf_set(min_p), weights));
    *bits = vm_bits(is_kept);
    return vf_select(is_kept, vf_set(0), weights);
}

// The id at `u` of the weights that are left; their sum goes to *total, their number to *n_left.
static uint32_t draw(const row *r, cut c, float min_p, double u, double *runs, double *total, uint32_t *n_left) {
    uint32_t bits;
    *total = 0;
    *n_left = 0;
    for (uint32_t first = 0; first < r->n; first += RUN) {
        vf sum = vf_set(0);
        for (uint32_t i = first; i < first + RUN && i < r->n; i += LANES) {
            sum = vf_add(sum, left_weights(r, c, min_p, i, &bits));
            *n_left += (uint32_t)__builtin_popcount(bits);
        }
        *total += runs[first / RUN] = vf_sum(sum);
    }
    // The run in which the target lies, then the id. A run's sum and the sum of its ids one by one may differ by a
    // rounding: then the last id of the run that can be drawn is taken.
    double target = u * *total, before = 0;
    uint32_t run = 0, n_runs = (r->n + RUN - 1) / RUN, last_run = 0;
    for (; run < n_runs; run++) {
        if (runs[run] == 0) continue;
        last_run = run;
        if (before + runs[run] > target) break;
        before += runs[run];
    }
    uint32_t id = 0;
    for (uint32_t i = last_run * RUN; i < (last_run + 1) * RUN && i < r->n; i += LANES) {
        float lanes[LANES];
        vf_store(lanes, left_weights(r, c, min_p, i, &bits));
        for (; bits != 0; bits &= bits - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(bits);
            if (lanes[lane] == 0) continue; // below what a float32 holds
            id = i + lane;
            before += lanes[lane];
            if (before > target) return id;
        }
    }
    return id;
}

// ---- Logprobs

// What is left of a row: ids up to the cut, of at least this weight; how many there are and what they weigh.
typedef struct leftover {
    cut c;
    float least;
    uint32_t n;
    double total;
} leftover;

static bool is_left(const row *r, const leftover *left, uint32_t id) {
    uint32_t bits, first = id / LANES * LANES;
    left_weights(r, left->c, left->least, first, &bits);
    return bits >> (id - first) & 1;
}

static void report(const row *r, const leftover *left, const relay_sample_params *p, const uint32_t *wanted,
                   relay_candidate *buffer, relay_sample_result *out) {
    const double log_total = log(left->total);
    out->logprob = relay_sampling_logprob(r->logits[out->token_id], r->max, r->temperature, log_total);
    for (uint32_t i = 0; i < p->n_wanted; i++) {
        float logit = is_left(r, left, wanted[i]) ? r->logits[wanted[i]] : -INFINITY;
        out->wanted_logprobs[i] = relay_sampling_logprob(logit, r->max, r->temperature, log_total);
    }
    if (p->n_top == 0) return;
    out->rank = rank_of(r, out->token_id);
    uint32_t n;
    top_k_cut(r, p->n_top < left->n ? p->n_top : left->n, buffer, &n);
    relay_candidates_sort(buffer, n);
    out->n_top = n;
    for (uint32_t i = 0; i < n; i++) {
        out->top_ids[i] = buffer[i].id;
        out->top_logprobs[i] = relay_sampling_logprob(buffer[i].logit, r->max, r->temperature, log_total);
    }
}

static void report_raw(const row *r, const relay_sample_params *p, const uint32_t *wanted, relay_candidate *buffer,
                       relay_sample_result *out) {
    const leftover all = {.c = keep_all, .n = r->n, .total = sum_weights(r, keep_all)};
    report(r, &all, p, wanted, buffer, out);
}

// ---- One row

// `r` may be left with its logits in the scratch.
static leftover draw_row(row *r, relay_sample_scratch *s, const relay_sample_params *p, relay_sample_result *out) {
    // The inverse of a temperature near 0 stays finite, so that the largest logit's weight is exp(0).
    r->temperature = p->temperature;
    r->inverse_temperature = fminf(1 / p->temperature, 1e30f);
    leftover left = {.c = keep_all};
    double whole = 0;
    if (p->mirostat != 0) {
        whole = sum_weights(r, keep_all);
        left.c = mirostat_cut(r, p, whole, s->candidates, &left.least);
    } else {
        left.c = truncation(r, p, s);
        left.least = p->min_p;
        bool has_xtc = relay_sampling_xtc_happens(p);
        if (relay_sampling_has_typical(p) || has_xtc) {
            if (r->logits != s->logits) memcpy(s->logits, r->logits, r->n * sizeof *s->logits);
            r->logits = s->logits;
            keep_only(r, s->logits, left.c, left.least);
            left = (leftover){.c = keep_all};
            if (relay_sampling_has_typical(p)) keep_typical(r, s, p->typical_p);
            if (has_xtc) exclude_top_choices(r, s->logits, p->xtc_threshold, s->candidates);
        }
    }
    double u = relay_philox_uniform(p->seed, p->position, p->sequence_index, RELAY_DRAW_TOKEN);
    out->token_id = draw(r, left.c, left.least, u, s->runs, &left.total, &left.n);
    if (p->mirostat != 0) {
        double x = ((double)r->logits[out->token_id] - r->max) / r->temperature;
        out->mirostat_mu = relay_sampling_mirostat_next(p, (log(whole) - x) / log(2));
    }
    return left;
}

static void sample_row(relay_sample_scratch *s, relay_sample_result *out, const float *logits, uint32_t n_vocab,
                       const relay_sample_params *p, const relay_sample_input *in) {
    memset(out, 0, sizeof *out);
    out->mirostat_mu = p->mirostat_mu;
    const uint32_t *wanted = in->d_wanted + p->wanted_begin;
    row raw = {logits, n_vocab, 0, 1, 1}, r = raw;
    if (!find_max(logits, n_vocab, &raw.max)) return;
    r.max = raw.max;
    if (p->is_score_only) {
        out->is_finite = true;
        out->token_id = p->scored_id;
        report_raw(&raw, p, wanted, s->candidates, out);
        return;
    }
    if (relay_sampling_changes_logits(p)) {
        memcpy(s->logits, logits, n_vocab * sizeof *logits);
        relay_sampling_change_logits(s->logits, n_vocab, p, in);
        r.logits = s->logits;
        if (!find_max(s->logits, n_vocab, &r.max)) return;
    }
    out->is_finite = true;
    leftover left;
    if (p->temperature == 0) {
        out->token_id = first_id_of(&r, r.max);
        left = (leftover){.c = {r.max, out->token_id}, .n = 1, .total = 1};
    } else {
        left = draw_row(&r, s, p, out);
    }
    if (p->logprob_mode == RELAY_LOGPROB_PROCESSED) {
        report(&r, &left, p, wanted, s->candidates, out);
    } else if (p->logprob_mode == RELAY_LOGPROB_RAW) {
        report_raw(&raw, p, wanted, s->candidates, out);
    }
}

typedef struct sampling {
    relay_cpu_device *d;
    relay_sample_result *results;
    const float *logits;
    uint32_t n_vocab;
    const relay_sample_input *in;
} sampling;

static void sample_task(void *arg, uint32_t task, uint32_t thread) {
    const sampling *j = arg;
    sample_row(&j->d->sample_scratch[thread], &j->results[task], j->logits + (uint64_t)task * j->n_vocab, j->n_vocab,
               &j->in->d_params[task], j->in);
}

void RELAY_ISA(relay_sample)(relay_device *device, relay_sample_result *results, const float *logits, uint32_t n_vocab,
                             const relay_sample_input *in) {
    relay_cpu_device *d = relay_cpu_device_of(device);
    RELAY_ASSERT(n_vocab <= d->opts.max_vocab && n_vocab > 0);
    sampling job = {d, results, logits, n_vocab, in};
    relay_pool_run(d->pool, sample_task, &job, in->n_samples);
}
