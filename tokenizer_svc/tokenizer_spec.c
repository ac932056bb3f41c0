#include "tokenizer_svc/tokenizer_spec.h"

void relay_tokenizer_spec_fini(relay_tokenizer_spec *s) {
    relay_arena_fini(&s->arena);
    if (s->file != NULL) s->file_free(s->file);
    *s = (relay_tokenizer_spec){0};
}
