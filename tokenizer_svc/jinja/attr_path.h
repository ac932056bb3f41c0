// "author.name" or 0: the attribute that sort, map, selectattr and others look up in each item. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_ATTR_PATH_H
#define RELAY_TOKENIZER_SVC_JINJA_ATTR_PATH_H

#include "tokenizer_svc/jinja/value.h"

typedef struct jinja_attr_path {
    jinja_value *parts; // [n]: strings, and integers where a part is digits
    uint32_t n;
    jinja_value otherwise; // stands for an undefined attribute; MISSING: none does
    bool ignore_case;      // strings are lowered
} jinja_attr_path;

// `attribute`: a string, an integer, or not given (the item itself).
bool jinja_attr_path_make(jinja_run *run, jinja_value attribute, jinja_attr_path *path) RELAY_NODISCARD;
bool jinja_attr_path_get(jinja_run *run, const jinja_attr_path *path, jinja_value item,
                         jinja_value *out) RELAY_NODISCARD;

#endif
