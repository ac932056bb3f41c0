// The tree of a template. Private to this folder.
//
// Names are resolved when the template is compiled (scope.c): a variable is a slot in the frame of a function (the top
// level, a macro, the body of a call block, a recursive loop), so many frames out, or one of the names that the caller
// gives. Scopes that are no functions (the body of a loop, a set block) have slots of their own in the function's
// frame.
#ifndef RELAY_TOKENIZER_SVC_JINJA_AST_H
#define RELAY_TOKENIZER_SVC_JINJA_AST_H

#include "tokenizer_svc/jinja/value.h"

typedef struct jinja_name {
    const char *s; // in the template's source
    uint32_t len;
} jinja_name;

typedef struct jinja_nodes {
    struct jinja_node **items; // [n]
    uint32_t n;
} jinja_nodes;

// Where a variable is.
typedef enum jinja_place {
    JINJA_SLOT,    // slot `index` of the frame `hops` functions out
    JINJA_CONTEXT, // the caller's variable names[index]
} jinja_place;

typedef struct jinja_ref {
    uint8_t place;
    uint16_t hops;
    uint32_t index;
} jinja_ref;

// How a variable of a scope begins when the scope is entered; parameters are set by who enters it.
typedef enum jinja_load_kind {
    JINJA_LOAD_MISSING, // nothing yet
    JINJA_LOAD_COPY,    // the variable of an outer scope, or of the context
} jinja_load_kind;

typedef struct jinja_load {
    uint8_t kind;
    uint32_t slot;
    jinja_ref from; // of a COPY
} jinja_load;

typedef struct jinja_scope {
    jinja_load *loads; // [n]
    uint32_t n;
} jinja_scope;

typedef enum jinja_node_type {
    // expressions
    JINJA_N_CONST,
    JINJA_N_NAME,
    JINJA_N_LIST,
    JINJA_N_TUPLE,
    JINJA_N_DICT, // items: key, value, key, value
    JINJA_N_ATTR,
    JINJA_N_ITEM,
    JINJA_N_SLICE,
    JINJA_N_CALL,
    JINJA_N_FILTER,
    JINJA_N_TEST,
    JINJA_N_UNARY,
    JINJA_N_BINARY,
    JINJA_N_COMPARE,
    JINJA_N_CONCAT,
    JINJA_N_AND,
    JINJA_N_OR,
    JINJA_N_NOT,
    JINJA_N_COND,
    JINJA_N_CAPTURED, // the text of the block around, in a filter block and a set block with filters
    // a target of an assignment that is not a name or a tuple: an attribute of a namespace
    JINJA_N_NS_ATTR,
    // statements
    JINJA_N_OUTPUT,
    JINJA_N_IF,
    JINJA_N_FOR,
    JINJA_N_SET,
    JINJA_N_SET_BLOCK,
    JINJA_N_MACRO,
    JINJA_N_CALL_BLOCK,
    JINJA_N_FILTER_BLOCK,
    JINJA_N_WITH,
    JINJA_N_GENERATION,
    JINJA_N_BREAK,
    JINJA_N_CONTINUE,
    JINJA_N_NO_LOADER, // include, import, from, extends: an error when it is reached
} jinja_node_type;

typedef enum jinja_operator {
    JINJA_OP_ADD,
    JINJA_OP_SUB,
    JINJA_OP_MUL,
    JINJA_OP_DIV,
    JINJA_OP_FLOORDIV,
    JINJA_OP_MOD,
    JINJA_OP_POW,
    JINJA_OP_EQ,
    JINJA_OP_NE,
    JINJA_OP_LT,
    JINJA_OP_LE,
    JINJA_OP_GT,
    JINJA_OP_GE,
    JINJA_OP_IN,
    JINJA_OP_NOT_IN,
} jinja_operator;

// The arguments of a call, a filter or a test, as written: f(a, b=c, *d, **e).
typedef struct jinja_call_args {
    jinja_nodes pos;
    jinja_name *names; // [values.n]
    jinja_nodes values;
    struct jinja_node *star, *star_star; // or NULL
} jinja_call_args;

// The parameters of a macro or of a call block's body.
typedef struct jinja_params {
    jinja_nodes names;    // JINJA_N_NAME
    jinja_nodes defaults; // of the last ones
} jinja_params;

// The body of a macro or of a call block.
typedef struct jinja_function_body {
    jinja_params params;
    jinja_nodes body;
    jinja_scope scope;
    uint32_t n_slots;
    bool uses_caller, uses_varargs, uses_kwargs; // named in the body and no parameter
    uint32_t caller_slot, varargs_slot, kwargs_slot;
} jinja_function_body;

typedef struct jinja_node {
    uint8_t type;
    uint8_t op;
    uint32_t at; // offset in the source
    union {
        jinja_value constant;
        struct {
            jinja_name name;
            jinja_ref ref;
        } name;
        jinja_nodes items; // LIST, TUPLE, DICT, CONCAT, OUTPUT
        struct {
            struct jinja_node *object;
            jinja_name name;
        } attr; // ATTR, NS_ATTR (whose object is a NAME)
        struct {
            struct jinja_node *object, *index;
        } item;
        struct {
            struct jinja_node *start, *stop, *step; // or NULL
        } slice;
        struct {
            struct jinja_node *callee; // of a CALL
            struct jinja_node *value;  // of a FILTER and a TEST
            const void *function;      // their implementation (builtins.h); NULL: an error when it is reached
            jinja_name name;           // their name
            jinja_call_args *args;
        } call;
        struct {
            struct jinja_node *left, *right; // UNARY and NOT: left only
        } binary;
        struct {
            struct jinja_node *first;
            jinja_nodes rest;
            uint8_t *ops; // [rest.n]
        } compare;
        struct {
            struct jinja_node *test, *yes, *no; // no: or NULL
        } cond;
        struct {
            struct jinja_node *test; // NULL: else
            jinja_nodes body;
            struct jinja_node *otherwise; // IF or NULL
        } branch;                         // IF
        struct jinja_for {
            struct jinja_node *target, *iter, *test; // test: or NULL
            struct jinja_node *test_target;          // the target again, with the slots of the test's scope
            jinja_nodes body, otherwise;
            jinja_scope scope, test_scope, otherwise_scope;
            bool is_recursive, uses_loop;
            uint32_t loop_slot;
            uint32_t n_slots; // of the frame, if it is recursive
        } * loop;
        struct {
            struct jinja_node *target, *value;
        } set;
        struct {
            struct jinja_node *target; // of a SET_BLOCK
            struct jinja_node *filter; // FILTERs around a CAPTURED, or NULL
            jinja_nodes body;
            jinja_scope *scope;
        } block; // SET_BLOCK, FILTER_BLOCK, GENERATION
        struct {
            struct jinja_node *target; // of a MACRO: its name
            struct jinja_node *call;   // of a CALL_BLOCK
            jinja_function_body *function;
        } macro;
        struct {
            jinja_nodes targets, values;
            jinja_nodes body;
            jinja_scope *scope;
        } with;
        jinja_name word; // NO_LOADER
    };
} jinja_node;

#endif
