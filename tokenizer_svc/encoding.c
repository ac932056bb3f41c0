#include "tokenizer_svc/encoding.h"

#include <stdlib.h>

#include "common/status.h"

enum { FIRST_CAP = 64 };

void relay_encoding_fini(relay_encoding *enc) {
    free(enc->ids);
    free(enc->offset_begin);
    free(enc->offset_end);
    *enc = (relay_encoding){0};
}

void relay_encoding_grow(relay_encoding *enc, uint32_t more) {
    uint64_t need = (uint64_t)enc->n + more;
    uint64_t cap = enc->cap < FIRST_CAP ? FIRST_CAP : 2 * (uint64_t)enc->cap;
    if (cap < need) cap = need;
    if (cap > UINT32_MAX) cap = UINT32_MAX;
    RELAY_ASSERT(need <= cap);
    enc->cap = (uint32_t)cap;
    enc->ids = relay_realloc(enc->ids, cap * sizeof *enc->ids);
    if (!enc->has_offsets) return;
    enc->offset_begin = relay_realloc(enc->offset_begin, cap * sizeof *enc->offset_begin);
    enc->offset_end = relay_realloc(enc->offset_end, cap * sizeof *enc->offset_end);
}
