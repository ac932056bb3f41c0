// Splitting text into the words that a model's merges never cross.
//
// The patterns of a scheme (pretokenizer_scheme.h) run by PCRE2, compiled once. Immutable after creation; any thread,
// each with working memory of its own.
#ifndef RELAY_TOKENIZER_SVC_PRETOKENIZER_H
#define RELAY_TOKENIZER_SVC_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/pretokenizer_scheme.h"

typedef struct relay_pretokenizer relay_pretokenizer;

// `scheme` is borrowed and outlives it.
relay_code relay_pretokenizer_create(relay_pretokenizer **out, const relay_pretokenizer_scheme *scheme,
                                     relay_err *e) RELAY_NODISCARD;
void relay_pretokenizer_destroy(relay_pretokenizer *p);
const relay_pretokenizer_scheme *relay_pretokenizer_get_scheme(const relay_pretokenizer *p);

// Working memory of one thread; all zero at first.
typedef struct relay_pretokenizer_work {
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *limits;
    struct pcre2_real_jit_stack_8 *stack; // NULL while the machine stack is enough
    char *shadow;                         // the text with stand-ins (unicode_standin.h), where it needs them
    size_t shadow_cap;
} relay_pretokenizer_work;

void relay_pretokenizer_work_fini(relay_pretokenizer_work *w);

// Takes a word of the text. A code other than OK ends the splitting and is returned.
typedef relay_code (*relay_word_fn)(void *arg, const char *word, size_t len, relay_err *e);

// Calls `on_word` for each word in order; together they are the text. `text` must be valid UTF-8. RESOURCE_EXHAUSTED if
// matching takes more steps or memory than the limits allow.
relay_code relay_pretokenizer_split(const relay_pretokenizer *p, relay_pretokenizer_work *w, const char *text,
                                    size_t len, relay_word_fn on_word, void *arg, relay_err *e) RELAY_NODISCARD;

#endif
