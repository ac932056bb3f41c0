// A template's source as tokens. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_LEXER_H
#define RELAY_TOKENIZER_SVC_JINJA_LEXER_H

#include "tokenizer_svc/jinja/template.h"

typedef enum jinja_token_type {
    JINJA_T_END,
    JINJA_T_DATA, // text between the tags, trimmed
    JINJA_T_VARIABLE_BEGIN,
    JINJA_T_VARIABLE_END,
    JINJA_T_BLOCK_BEGIN,
    JINJA_T_BLOCK_END,
    JINJA_T_NAME,
    JINJA_T_STRING, // decoded
    JINJA_T_INTEGER,
    JINJA_T_FLOAT,
    JINJA_T_OPERATOR, // op: its characters
} jinja_token_type;

// An operator is known by its characters.
#define JINJA_OP1(a)    ((uint16_t)(a))
#define JINJA_OP2(a, b) ((uint16_t)((a) << 8 | (b)))

typedef struct jinja_token {
    uint8_t type;
    uint16_t op;
    uint32_t at;
    uint32_t len;
    union {
        const char *s; // DATA, NAME, STRING: [len]
        int64_t i;
        double f;
    };
} jinja_token;

// The tokens of c->t->source, the last one END.
bool jinja_lex(jinja_compiler *c, jinja_token **tokens) RELAY_NODISCARD;

#endif
