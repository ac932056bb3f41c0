// What Python's str methods ask of Unicode. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_UNICODE_H
#define RELAY_TOKENIZER_SVC_JINJA_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

bool jinja_is_space(uint32_t cp);
bool jinja_is_printable(uint32_t cp);
bool jinja_is_alpha(uint32_t cp);
bool jinja_is_decimal(uint32_t cp);
bool jinja_is_digit(uint32_t cp);
bool jinja_is_numeric(uint32_t cp);
bool jinja_is_lower(uint32_t cp);
bool jinja_is_upper(uint32_t cp);
bool jinja_is_titlecase(uint32_t cp); // category Lt
bool jinja_is_cased(uint32_t cp);
bool jinja_is_case_ignorable(uint32_t cp); // as the rule for a final sigma asks
bool jinja_is_identifier(uint32_t cp, bool is_first);

// Full case mappings: return how many code points they wrote. The lower case of a capital sigma depends on its
// neighbours and is the caller's business.
uint32_t jinja_to_upper(uint32_t cp, uint32_t out[3]);
uint32_t jinja_to_title(uint32_t cp, uint32_t out[3]);
uint32_t jinja_to_lower(uint32_t cp, uint32_t out[3]);
uint32_t jinja_to_casefold(uint32_t cp, uint32_t out[3]);

#endif
