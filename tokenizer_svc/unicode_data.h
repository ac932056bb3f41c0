// The ranges behind unicode_classes.h: ascending, apart.
#ifndef RELAY_TOKENIZER_SVC_UNICODE_DATA_H
#define RELAY_TOKENIZER_SVC_UNICODE_DATA_H

#include <stdint.h>

typedef struct relay_unicode_range {
    uint32_t first, last;
    int32_t value;
} relay_unicode_range;

extern const relay_unicode_range relay_unicode_class_ranges[], relay_unicode_inert_ranges[],
    relay_unicode_lower_ranges[], relay_unicode_script_ranges[];
extern const uint32_t relay_unicode_n_class_ranges, relay_unicode_n_inert_ranges, relay_unicode_n_lower_ranges,
    relay_unicode_n_script_ranges;

#endif
