// The evaluator: expressions, statements, calls, attributes, operators. Private to this folder.
//
// Every function returns false when the run has failed.
#ifndef RELAY_TOKENIZER_SVC_JINJA_EVAL_H
#define RELAY_TOKENIZER_SVC_JINJA_EVAL_H

#include "tokenizer_svc/jinja/ast.h"
#include "tokenizer_svc/jinja/run.h"

// The variables of one call of a function: the top level, a macro, a call block's body, a recursive loop.
typedef struct jinja_frame {
    struct jinja_frame *outer; // where the function was defined
    jinja_value captured;      // the text that JINJA_N_CAPTURED stands for
    jinja_value slots[];
} jinja_frame;

jinja_frame *jinja_frame_make(jinja_run *run, jinja_frame *outer, uint32_t n_slots) RELAY_NODISCARD;

// exec.c
bool jinja_eval_template(jinja_run *run, const jinja_template *t) RELAY_NODISCARD;
// The text that statements output, instead of outputting it.
bool jinja_capture(jinja_run *run, jinja_frame *frame, const jinja_nodes *body, jinja_value *out) RELAY_NODISCARD;
void jinja_enter_scope(jinja_run *run, jinja_frame *frame, const jinja_scope *scope);
// Tests items until `n` have passed or none is left.
bool jinja_loop_fetch(jinja_run *run, jinja_loop *loop, uint32_t n) RELAY_NODISCARD;
// loop(items) of a recursive loop.
bool jinja_loop_call(jinja_run *run, const jinja_loop *loop, jinja_value items, jinja_value *out) RELAY_NODISCARD;

// eval.c
bool jinja_eval(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) RELAY_NODISCARD;
jinja_value jinja_load_ref(const jinja_run *run, jinja_frame *frame, jinja_ref ref);
jinja_value *jinja_slot(jinja_frame *frame, jinja_ref ref);

// call.c
bool jinja_eval_call(jinja_run *run, jinja_frame *frame, const jinja_node *node, const jinja_value *caller,
                     jinja_value *out) RELAY_NODISCARD;
bool jinja_eval_filter_or_test(jinja_run *run, jinja_frame *frame, const jinja_node *node,
                               jinja_value *out) RELAY_NODISCARD;
bool jinja_call(jinja_run *run, jinja_value callee, const jinja_args *args, jinja_value *out) RELAY_NODISCARD;
bool jinja_macro_make(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) RELAY_NODISCARD;

// access.c: as the sandbox does `object.name` and `object[key]`
bool jinja_get_attr(jinja_run *run, jinja_value object, const char *name, uint32_t len,
                    jinja_value *out) RELAY_NODISCARD;
bool jinja_get_item(jinja_run *run, jinja_value object, jinja_value key, jinja_value *out) RELAY_NODISCARD;
// The attribute alone, also a method, or what stands for one that is closed; MISSING where there is none.
bool jinja_find_attr(jinja_run *run, jinja_value object, const char *name, uint32_t len,
                     jinja_value *out) RELAY_NODISCARD;
// Missing bounds are NONE.
bool jinja_get_slice(jinja_run *run, jinja_value object, jinja_value start, jinja_value stop, jinja_value step,
                     jinja_value *out) RELAY_NODISCARD;

// arith.c
bool jinja_binary(jinja_run *run, jinja_operator op, jinja_value a, jinja_value b, jinja_value *out) RELAY_NODISCARD;
bool jinja_unary(jinja_run *run, jinja_operator op, jinja_value a, jinja_value *out) RELAY_NODISCARD;

// format.c: "..." % values, "...".format(...) and format_map
bool jinja_format_percent(jinja_run *run, jinja_value format, jinja_value values, jinja_value *out) RELAY_NODISCARD;
bool jinja_format_braces(jinja_run *run, jinja_value format, const jinja_args *args, jinja_value *out) RELAY_NODISCARD;

#endif
