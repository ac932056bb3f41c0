// Text fields that come in must be UTF-8, as proto3 says of `string`. The C copy of the contract holds them as bytes
// (protobuf-c cuts strings at a NUL), and protobuf-c checks neither; so it is done here.
//
// A plan a message type says which of its fields are text and which hold text further down; the others are not looked
// at. It is made at the type's first use, from the public descriptors, and kept for good. The table of plans is read
// without a lock: a slot, once set, never changes. Plans are made one at a time under `mu`.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/descriptor_set.h"
#include "common/rpc_server.h"
#include "common/utf8.h"

typedef struct text_plan text_plan;

typedef struct text_field {
    const ProtobufCFieldDescriptor *field;
    const text_plan *inside; // of the submessage; NULL: the field is text itself
} text_field;

struct text_plan {
    const ProtobufCMessageDescriptor *type;
    size_t n_fields;
    text_field fields[];
};

enum { PLANS_CAP = 512, NESTING_MAX = 64 };

static _Atomic(text_plan *) plans[PLANS_CAP]; // open addressing by the type's address
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

// ---- Plans

static _Atomic(text_plan *) *slot_of(const ProtobufCMessageDescriptor *type) {
    size_t start = (uintptr_t)type / sizeof *type;
    for (size_t i = 0; i < PLANS_CAP; i++) {
        _Atomic(text_plan *) *slot = &plans[(start + i) % PLANS_CAP];
        text_plan *plan = atomic_load_explicit(slot, memory_order_acquire);
        if (plan == NULL || plan->type == type) return slot;
    }
    RELAY_ASSERT(!"more message types than PLANS_CAP");
    return NULL;
}

static bool is_text(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field) {
    relay_buf name;
    relay_buf_init(&name, 1024);
    relay_buf_printf(&name, "%s.%s", type->name, field->name);
    const relay_symbol *symbol = relay_descriptor_set_find_symbol(relay_descriptor_set_builtin(), name.data, name.len);
    relay_buf_fini(&name);
    RELAY_ASSERT(symbol != NULL); // a message that is not in the built-in set
    return symbol->kind == RELAY_SYMBOL_TEXT_FIELD;
}

// Under mu.
static const text_plan *make_plan(const ProtobufCMessageDescriptor *type, unsigned depth) {
    RELAY_ASSERT(depth < NESTING_MAX); // the contract has no recursive messages
    text_plan *plan = atomic_load_explicit(slot_of(type), memory_order_relaxed);
    if (plan != NULL) return plan;
    plan = relay_calloc(1, sizeof *plan + type->n_fields * sizeof *plan->fields);
    plan->type = type;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        text_field entry = {.field = field};
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            entry.inside = make_plan(field->descriptor, depth + 1);
            if (entry.inside->n_fields == 0) continue;
        } else if (field->type != PROTOBUF_C_TYPE_BYTES || !is_text(type, field)) {
            continue;
        }
        plan->fields[plan->n_fields++] = entry;
    }
    atomic_store_explicit(slot_of(type), plan, memory_order_release);
    return plan;
}

static const text_plan *plan_of(const ProtobufCMessageDescriptor *type) {
    const text_plan *plan = atomic_load_explicit(slot_of(type), memory_order_acquire);
    if (plan != NULL) return plan;
    pthread_mutex_lock(&mu);
    plan = make_plan(type, 0);
    pthread_mutex_unlock(&mu);
    return plan;
}

// ---- The check

// Where the walk is: one frame a message, on the stack.
typedef struct place {
    const struct place *outer;
    const ProtobufCFieldDescriptor *field;
    size_t index; // of a repeated field
} place;

static void put_path(relay_buf *b, const place *p) {
    if (p->outer != NULL) {
        put_path(b, p->outer);
        relay_buf_putc(b, '.');
    }
    relay_buf_puts(b, p->field->name);
    if (p->field->label == PROTOBUF_C_LABEL_REPEATED) relay_buf_printf(b, "[%zu]", p->index);
}

static relay_code check_text(const ProtobufCBinaryData *text, const place *at, relay_err *e) {
    size_t valid = relay_utf8_valid_prefix((const char *)text->data, text->len);
    if (valid == text->len) return RELAY_OK;
    relay_buf path;
    relay_buf_init(&path, RELAY_ERR_MESSAGE_MAX);
    put_path(&path, at);
    relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is not valid UTF-8: byte %zu of %zu is 0x%02X", path.data, valid,
               text->len, text->data[valid]);
    relay_buf_fini(&path);
    return RELAY_INVALID_ARGUMENT;
}

static relay_code check_message(const text_plan *plan, const ProtobufCMessage *m, const place *outer, relay_err *e);

static relay_code check_value(const text_field *f, const void *value, const place *at, relay_err *e) {
    if (f->inside == NULL) return check_text(value, at, e);
    const ProtobufCMessage *message = *(const ProtobufCMessage *const *)value;
    return message != NULL ? check_message(f->inside, message, at, e) : RELAY_OK;
}

static relay_code check_message(const text_plan *plan, const ProtobufCMessage *m, const place *outer, relay_err *e) {
    for (size_t i = 0; i < plan->n_fields; i++) {
        const text_field *f = &plan->fields[i];
        const ProtobufCFieldDescriptor *field = f->field;
        const char *value = (const char *)m + field->offset, *quantifier = (const char *)m + field->quantifier_offset;
        place at = {.outer = outer, .field = field};
        relay_code code = RELAY_OK;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t size = f->inside != NULL ? sizeof(ProtobufCMessage *) : sizeof(ProtobufCBinaryData);
            size_t n = *(const size_t *)quantifier;
            const char *items = *(const char *const *)value;
            for (; at.index < n && code == RELAY_OK; at.index++)
                code = check_value(f, items + at.index * size, &at, e);
        } else if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
            if (*(const uint32_t *)quantifier == field->id) code = check_value(f, value, &at, e);
        } else if (f->inside != NULL || *(const protobuf_c_boolean *)quantifier) {
            code = check_value(f, value, &at, e);
        }
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

relay_code relay_rpc_check_utf8(const ProtobufCMessage *m, relay_err *e) {
    return check_message(plan_of(m->descriptor), m, NULL, e);
}
