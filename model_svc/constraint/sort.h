// Sorting without memory of its own, for the engine's thread: the C library's qsort may allocate.
//
// Heapsort (Williams, 1964): in place, never worse than n log n, whatever the order.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_SORT_H
#define RELAY_MODEL_SVC_CONSTRAINT_SORT_H

#include <stdint.h>

// `items` are n of `size` bytes; `compare` as for qsort.
void relay_sort(void *items, uint32_t n, uint32_t size, int (*compare)(const void *, const void *));

#endif
