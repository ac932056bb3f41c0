// The proto files as data: a serialized google.protobuf.FileDescriptorSet, indexed by file and by symbol.
//
// Serves reflection (which file declares this symbol, what does it import) and the check of text fields (which fields
// are `string` in the public contract). Immutable after parsing, so any thread may read it. The set's bytes are
// borrowed and outlive it.
#ifndef RELAY_COMMON_DESCRIPTOR_SET_H
#define RELAY_COMMON_DESCRIPTOR_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct relay_descriptor_set relay_descriptor_set;

typedef struct relay_descriptor_file {
    const char *name;    // "relay/v1/chat.proto"
    const uint8_t *data; // its serialized FileDescriptorProto
    size_t size;
    const uint32_t *imports; // indexes of the files it names
    uint32_t n_imports;
} relay_descriptor_file;

typedef enum relay_symbol_kind {
    RELAY_SYMBOL_MESSAGE,
    RELAY_SYMBOL_FIELD,      // a field or an extension
    RELAY_SYMBOL_TEXT_FIELD, // a field of type string
    RELAY_SYMBOL_ONEOF,
    RELAY_SYMBOL_ENUM,
    RELAY_SYMBOL_ENUM_VALUE,
    RELAY_SYMBOL_SERVICE,
    RELAY_SYMBOL_METHOD,
} relay_symbol_kind;

typedef struct relay_symbol {
    const char *name; // full: "relay.v1.Chat.tools_json"
    relay_symbol_kind kind;
    uint32_t file; // index
} relay_symbol;

// INVALID_ARGUMENT when the bytes are malformed, a name appears twice, or an import is not in the set.
relay_code relay_descriptor_set_parse(relay_descriptor_set **out, const uint8_t *data, size_t size,
                                      relay_err *e) RELAY_NODISCARD;
void relay_descriptor_set_destroy(relay_descriptor_set *d);
// The set of all of Relay's files, as built into the binary; lives as long as the process.
const relay_descriptor_set *relay_descriptor_set_builtin(void);

uint32_t relay_descriptor_set_n_files(const relay_descriptor_set *d);
const relay_descriptor_file *relay_descriptor_set_file(const relay_descriptor_set *d, uint32_t index);
// Names need no NUL behind them. False if there is no such file; NULL if there is no such symbol.
bool relay_descriptor_set_find_file(const relay_descriptor_set *d, const char *name, size_t len, uint32_t *index);
const relay_symbol *relay_descriptor_set_find_symbol(const relay_descriptor_set *d, const char *name, size_t len);

#endif
