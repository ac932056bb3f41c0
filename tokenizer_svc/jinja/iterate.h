// Going through the items of a value. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_ITERATE_H
#define RELAY_TOKENIZER_SVC_JINJA_ITERATE_H

#include "tokenizer_svc/jinja/value.h"

typedef struct jinja_iter {
    jinja_run *run;
    jinja_value of;
    size_t at; // the next item, or byte of a string
} jinja_iter;

// Refuses what cannot be iterated. The items of a generator are taken from it as they are read.
bool jinja_iter_begin(jinja_run *run, jinja_value v, jinja_iter *it) RELAY_NODISCARD;
// False at the end, and when the run has failed.
bool jinja_iter_next(jinja_iter *it, jinja_value *item) RELAY_NODISCARD;
bool jinja_is_iterable(jinja_value v);

// All items in an array; shared with the value where it has one.
bool jinja_items(jinja_run *run, jinja_value v, jinja_value **items, uint32_t *n) RELAY_NODISCARD;
// len(); false with the error for what has none.
bool jinja_length(jinja_run *run, jinja_value v, int64_t *n) RELAY_NODISCARD;
bool jinja_has_length(jinja_value v);

// Items that grow one by one.
typedef struct jinja_items_builder {
    jinja_run *run;
    jinja_value *items;
    uint32_t n, cap;
} jinja_items_builder;
bool jinja_items_add(jinja_items_builder *b, jinja_value item) RELAY_NODISCARD;
// A generator of the items, the making of which may have failed (`ok`). Python's generators are lazy: what is wrong
// with the template waits until somebody reads as far, what is out of bounds does not.
bool jinja_items_finish_lazily(jinja_items_builder *b, bool ok, jinja_value *out) RELAY_NODISCARD;

#endif
