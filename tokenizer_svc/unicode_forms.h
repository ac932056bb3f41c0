// Unicode's normalization forms, with what became of each character (aligned_text.h).
#ifndef RELAY_TOKENIZER_SVC_UNICODE_FORMS_H
#define RELAY_TOKENIZER_SVC_UNICODE_FORMS_H

#include <stdbool.h>
#include <stddef.h>

#include "tokenizer_svc/aligned_text.h"

// Leaves in *out (emptied first) the characters of the text in NFD, or NFKD where `compatible`; where `compose`, in NFC
// or NFKC. Linear in the text's length, whatever it holds.
void relay_unicode_form(relay_char_changes *out, const char *s, size_t len, bool compatible, bool compose);

#endif
