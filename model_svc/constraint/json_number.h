// Numbers between bounds, as decimal text without an exponent.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_JSON_NUMBER_H
#define RELAY_MODEL_SVC_CONSTRAINT_JSON_NUMBER_H

#include <stdbool.h>

#include "model_svc/constraint/grammar.h"

typedef struct relay_json_bound {
    bool is_set;
    bool is_exclusive;
    double value; // finite, of less than 1e18
} relay_json_bound;

// Integers, or any numbers, that keep within both.
relay_expr relay_json_number_between(relay_grammar *g, bool is_integer, const relay_json_bound *min,
                                     const relay_json_bound *max);

#endif
