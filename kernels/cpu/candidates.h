// Selection in a buffer of candidates: what the sampler does in place of a sort.
#ifndef RELAY_KERNELS_CPU_CANDIDATES_H
#define RELAY_KERNELS_CPU_CANDIDATES_H

#include "kernels/cpu/device.h"

static inline bool relay_candidate_comes_first(relay_candidate a, relay_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static inline void relay_candidate_swap(relay_candidate *a, relay_candidate *b) {
    relay_candidate t = *a;
    *a = *b;
    *b = t;
}

// Splits [0, n), n >= 1, around its middle element: what comes before it in the order goes to its left. Returns its
// index. Candidates arrive in the order of ids, which has nothing to do with that of logits, so the middle is a fair
// pivot; of three, so that a sorted row is no worst case either.
static inline uint32_t relay_candidates_split(relay_candidate *a, uint32_t n) {
    relay_candidate *x = &a[0], *y = &a[n / 2], *z = &a[n - 1];
    if (relay_candidate_comes_first(*y, *x)) relay_candidate_swap(x, y);
    if (relay_candidate_comes_first(*z, *y)) relay_candidate_swap(y, z);
    if (relay_candidate_comes_first(*y, *x)) relay_candidate_swap(x, y);
    relay_candidate_swap(y, z); // the median is last
    uint32_t left = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (relay_candidate_comes_first(a[i], a[n - 1])) relay_candidate_swap(&a[left++], &a[i]);
    }
    relay_candidate_swap(&a[left], &a[n - 1]);
    return left;
}

// Moves the first k of the order to the front (in any order); the k-th itself is at [k - 1]. 1 <= k <= n.
static inline void relay_candidates_select(relay_candidate *a, uint32_t n, uint32_t k) {
    while (n > 1) {
        uint32_t pivot = relay_candidates_split(a, n);
        if (pivot == k - 1) return;
        if (pivot > k - 1) {
            n = pivot;
        } else {
            a += pivot + 1;
            n -= pivot + 1;
            k -= pivot + 1;
        }
    }
}

// For a few.
static inline void relay_candidates_sort(relay_candidate *a, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t j = i; j > 0 && relay_candidate_comes_first(a[j], a[j - 1]); j--)
            relay_candidate_swap(&a[j], &a[j - 1]);
    }
}

#endif
