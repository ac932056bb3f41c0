// Values of a template: Python's, as far as templates see them, and where each byte of text came from.
//
// A value is 24 bytes and copied freely; what it points to lives in the run's arena (or in the template, or in the
// caller's memory, both of which outlive the run). Everything but a namespace, a generator, a loop, a cycler and a
// joiner is immutable, as the sandbox demands.
//
// Origin: text knows of each byte whether the template or the caller wrote it, and carries that through every
// operation. A number, a container and a boolean know it as a whole, for the bytes they become when printed. In doubt
// (a number computed from both) it is the caller's.
#ifndef RELAY_TOKENIZER_SVC_JINJA_VALUE_H
#define RELAY_TOKENIZER_SVC_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct jinja_run jinja_run;

typedef enum jinja_kind {
    JINJA_MISSING, // no value at all: a slot not yet set, an argument not given; never seen by a template
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_BIGINT, // an integer of the caller's beyond 64 bits: its digits, to be printed
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_DICT_VIEW, // keys(), values() or items()
    JINJA_RANGE,
    JINJA_GENERATOR, // read once, from front to back
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,   // a builtin method bound to its object
    JINJA_FUNCTION, // a global function
    JINJA_CYCLER,
    JINJA_JOINER,
} jinja_kind;

typedef enum jinja_origin {
    JINJA_TEMPLATE, // all bytes are the template's
    JINJA_CALLER,   // all bytes are the caller's
    JINJA_MIXED,    // each byte has its own: value.from
    // From here on: all bytes are of one text of the caller's, such as a turn of a chat, that is looked for in the
    // result: as JINJA_CALLER, and known apart.
    JINJA_MARK,
    JINJA_MAX_ORIGIN = 255,
} jinja_origin;

// Why a value is undefined; the names for the message are in the value.
typedef enum jinja_undefined_reason {
    JINJA_UNDEFINED_NAME,    // s: the variable
    JINJA_UNDEFINED_ATTR,    // s: the attribute, type_name: of what
    JINJA_UNDEFINED_ELEMENT, // s: the element as text, type_name: of what
    JINJA_UNDEFINED_UNSAFE,  // as ATTR, but refused by the sandbox
    JINJA_UNDEFINED_HINT,    // s: the whole message
} jinja_undefined_reason;

typedef struct jinja_value {
    uint8_t kind;
    uint8_t origin;
    bool is_markup; // of a string: marked safe for HTML, which `+` and some methods act on
    uint8_t reason; // of an undefined value
    uint32_t len;   // of a string, of an undefined value's name, of a BIGINT's digits: bytes
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; // not NUL-terminated; valid UTF-8
        struct jinja_list *list;
        struct jinja_dict *dict; // of a DICT and a NAMESPACE
        struct jinja_dict_view *view;
        struct jinja_range *range;
        struct jinja_generator *generator;
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        const struct jinja_function *function;
        struct jinja_cycler *cycler;
        struct jinja_joiner *joiner;
    };
    union {
        const uint8_t *from;   // of a MIXED string: [len], each as jinja_origin_byte
        const char *type_name; // of an undefined value
    };
} jinja_value;

// How a byte's origin stands in `from`: 0, as in memory that nobody has set, is the caller's.
static inline uint8_t jinja_origin_byte(uint8_t origin) {
    return origin >= JINJA_MARK ? origin : origin == JINJA_TEMPLATE;
}
static inline uint8_t jinja_origin_of_byte(uint8_t byte) {
    return byte >= JINJA_MARK ? byte : byte != 0 ? JINJA_TEMPLATE : JINJA_CALLER;
}

typedef struct jinja_list {
    jinja_value *items; // [n]
    uint32_t n;
    bool is_group; // what groupby gives: a tuple with the attributes grouper and list
} jinja_list;

typedef struct jinja_pair {
    jinja_value key, value;
} jinja_pair;

// In order of insertion. More than a few pairs with only string keys have an index, sorted by key, made at the first
// search: it needs no hash, so no message can make it slow.
typedef struct jinja_dict {
    jinja_pair *pairs; // [n]
    uint32_t n, cap;
    bool has_other_keys; // keys that are no strings: searched one by one
    uint32_t *index;     // [n] or NULL
} jinja_dict;

typedef enum jinja_view_of {
    JINJA_KEYS,
    JINJA_VALUES,
    JINJA_ITEMS,
} jinja_view_of;

typedef struct jinja_dict_view {
    jinja_dict *dict;
    jinja_view_of of;
} jinja_dict_view;

typedef struct jinja_range {
    int64_t start, step;
    int64_t n;
} jinja_range;

// Python's generators are lazy. This one has its items already, and an error that came up on the way to the next one is
// kept until somebody reads as far.
typedef struct jinja_generator {
    const char *type_name;
    jinja_value *items; // [n]
    uint32_t n, pos;
    bool has_error;
    relay_err error;
} jinja_generator;

typedef struct jinja_loop {
    jinja_value *items; // [n] that passed the test so far, or all of them
    uint32_t n;
    jinja_value *rest; // [n_rest] not tested yet
    uint32_t n_rest;
    uint32_t index0;
    uint32_t depth0;
    jinja_value changed;           // a tuple: the last arguments of changed(); MISSING before
    const struct jinja_node *node; // the for statement
    struct jinja_frame *frame;     // around it
} jinja_loop;

typedef struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_frame *frame; // where it was defined
    const char *name;          // NULL: a call block's body
    uint32_t name_len;
} jinja_macro;

typedef struct jinja_cycler {
    jinja_value *items; // [n]
    uint32_t n, pos;
} jinja_cycler;

typedef struct jinja_joiner {
    jinja_value separator;
    bool is_used;
} jinja_joiner;

// The arguments of a call, as they were written.
typedef struct jinja_args {
    jinja_value *pos; // [n_pos]
    uint32_t n_pos;
    jinja_pair *named; // [n_named]; the keys are strings
    uint32_t n_named;
} jinja_args;

// ---- making values. Those that allocate return false when memory is out, the error set.

static inline jinja_value jinja_none(void) {
    return (jinja_value){.kind = JINJA_NONE};
}
static inline jinja_value jinja_missing(void) {
    return (jinja_value){.kind = JINJA_MISSING};
}
static inline jinja_value jinja_bool(bool b) {
    return (jinja_value){.kind = JINJA_BOOL, .b = b};
}
static inline jinja_value jinja_int(int64_t i) {
    return (jinja_value){.kind = JINJA_INT, .i = i};
}
static inline jinja_value jinja_float(double f) {
    return (jinja_value){.kind = JINJA_FLOAT, .f = f};
}
// Text of one origin; the bytes are borrowed.
static inline jinja_value jinja_str(const char *s, size_t len, jinja_origin origin) {
    return (jinja_value){.kind = JINJA_STR, .origin = origin, .len = (uint32_t)len, .s = s};
}
// A literal of this program counts as the template's.
#define JINJA_LITERAL(text) jinja_str(text, sizeof(text) - 1, JINJA_TEMPLATE)
static inline jinja_value jinja_undefined_hint(const char *message, size_t len) {
    return (jinja_value){.kind = JINJA_UNDEFINED, .reason = JINJA_UNDEFINED_HINT, .s = message, .len = (uint32_t)len};
}

// n items, all MISSING until they are set.
bool jinja_list_make(jinja_run *run, jinja_kind kind, uint32_t n, jinja_value *out) RELAY_NODISCARD;
// A container around items that exist.
bool jinja_list_wrap(jinja_run *run, jinja_kind kind, jinja_value *items, uint32_t n, jinja_value *out) RELAY_NODISCARD;
bool jinja_generator_make(jinja_run *run, const char *type_name, jinja_value *items, uint32_t n,
                          jinja_value *out) RELAY_NODISCARD;

// ---- dictionaries (dict.c)

bool jinja_dict_make(jinja_run *run, jinja_kind kind, uint32_t cap, jinja_value *out) RELAY_NODISCARD;
// Adds or replaces. The key must be hashable (else the error is set).
bool jinja_dict_set(jinja_run *run, jinja_dict *d, jinja_value key, jinja_value value) RELAY_NODISCARD;
// Adds a key that is known to be new: a string.
bool jinja_dict_append(jinja_run *run, jinja_dict *d, jinja_value key, jinja_value value) RELAY_NODISCARD;
// *found is NULL where there is none. False: the key is not hashable, or steps ran out.
bool jinja_dict_get(jinja_run *run, jinja_dict *d, jinja_value key, jinja_value **found) RELAY_NODISCARD;
bool jinja_dict_get_text(jinja_run *run, jinja_dict *d, const char *key, size_t len,
                         jinja_value **found) RELAY_NODISCARD;

// ---- asking

static inline bool jinja_is_str(jinja_value v, const char *s, size_t len) {
    return v.kind == JINJA_STR && v.len == len && __builtin_memcmp(v.s, s, len) == 0;
}
static inline bool jinja_is_number(jinja_value v) {
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}
// A BOOL or an INT, as Python has it.
static inline bool jinja_is_integer(jinja_value v) {
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT;
}
static inline int64_t jinja_as_int(jinja_value v) {
    return v.kind == JINJA_BOOL ? v.b : v.i;
}
static inline double jinja_as_float(jinja_value v) {
    return v.kind == JINJA_FLOAT ? v.f : (double)jinja_as_int(v);
}
bool jinja_is_true(jinja_value v);
// Python's name of the type: "str", "NoneType".
const char *jinja_type_name(jinja_value v);
// The caller's if either is.
static inline uint8_t jinja_origin_of_both(jinja_value a, jinja_value b) {
    return a.origin != JINJA_TEMPLATE || b.origin != JINJA_TEMPLATE ? JINJA_CALLER : JINJA_TEMPLATE;
}

#endif
