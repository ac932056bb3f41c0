#include "model_svc/constraint/sort.h"

#include <stddef.h>

static void swap(char *a, char *b, uint32_t size) {
    for (uint32_t i = 0; i < size; i++) {
        char c = a[i];
        a[i] = b[i];
        b[i] = c;
    }
}

// Lets the item at `at` sink below those of its children that are greater, among the first n.
static void sink(char *items, uint32_t at, uint32_t n, uint32_t size, int (*compare)(const void *, const void *)) {
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        char *one = items + (size_t)child * size;
        if (child + 1 < n && compare(one, one + size) < 0) {
            child++;
            one += size;
        }
        char *top = items + (size_t)at * size;
        if (compare(top, one) >= 0) return;
        swap(top, one, size);
    }
}

void relay_sort(void *items, uint32_t n, uint32_t size, int (*compare)(const void *, const void *)) {
    char *bytes = items;
    for (uint32_t i = n / 2; i-- > 0;)
        sink(bytes, i, n, size, compare);
    for (uint32_t left = n; left-- > 1;) {
        swap(bytes, bytes + (size_t)left * size, size);
        sink(bytes, 0, left, size, compare);
    }
}
