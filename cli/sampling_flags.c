// Everything about a flag that its field's descriptor knows is taken from there: name, kind, range, place.
#include "cli/sampling_flags.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/buf.h"
#include "common/message.h"

enum { ARENA_BYTES = 1 << 20 };

static const struct flag {
    const ProtobufCMessageDescriptor *message;
    const char *field;
    const char *name; // of the flag; NULL: the field's, with dashes
    const char *metavar;
    const char *help;
    bool is_file; // the value may be a file's name, whose text is meant
} table[RELAY_SAMPLING_FLAGS] = {
#define SAMPLING   &relay__v1__sampling_params__descriptor
#define MIROSTAT   &relay__v1__mirostat__descriptor
#define DRY        &relay__v1__dry__descriptor
#define CONSTRAINT &relay__v1__constraint__descriptor
#define CHOICES    &relay__v1__choices__descriptor
#define STOP       &relay__v1__text_stop__descriptor
#define OUTPUT     &relay__v1__text_output__descriptor
#define REQUEST    &relay__v1__generate_request__descriptor
    {SAMPLING, "temperature", NULL, "T", "randomness, 0 to 2; 0 is greedy", false},
    {SAMPLING, "top_k", NULL, "K", "draw from the K most likely; 0 is off", false},
    {SAMPLING, "top_p", NULL, "P", "draw from the most likely that make up P; 1 is off", false},
    {SAMPLING, "min_p", NULL, "P", "leave out what is less likely than P times the best", false},
    {SAMPLING, "typical_p", NULL, "P", "draw from those whose surprise is typical and that make up P; 1 is off", false},
    {SAMPLING, "top_n_sigma", NULL, "N", "leave out logits more than N deviations below the best; 0 is off", false},
    {SAMPLING, "xtc_probability", NULL, "P", "how often the likeliest choices are left out; 0 is off", false},
    {SAMPLING, "xtc_threshold", NULL, "P", "from which share on a choice counts as one of these, 0 to 0.5", false},
    {MIROSTAT, "version", "mirostat", "V", "hold the surprise at a target in place of truncation: 1 or 2; 0 is off",
     false},
    {MIROSTAT, "tau", "mirostat_tau", "BITS", "that target", false},
    {MIROSTAT, "eta", "mirostat_eta", "R", "how fast it is approached, up to 1", false},
    {SAMPLING, "repetition_penalty", NULL, "R", "over 1 makes what prompt or answer hold less likely; 1 is off", false},
    {SAMPLING, "frequency_penalty", NULL, "F", "taken off for each time the answer has it, -2 to 2", false},
    {SAMPLING, "presence_penalty", NULL, "F", "taken off once the answer has it, -2 to 2", false},
    {SAMPLING, "penalty_window", NULL, "N", "the penalties count the last N tokens; 0 is all", false},
    {SAMPLING, "no_repeat_ngram_size", NULL, "N", "no N tokens in a row come twice; 0 is off", false},
    {DRY, "multiplier", "dry_multiplier", "M", "takes off M times the base to the power of a repeat's length; 0 is off",
     false},
    {DRY, "penalty_base", "dry_base", "B", "that base", false},
    {DRY, "allowed_length", "dry_allowed_length", "N", "repeats shorter than N tokens cost nothing", false},
    {DRY, "breakers", "dry_breaker", "TEXT", "no repeat holds or crosses a token with TEXT in it", false},
    {DRY, "breaker_token_ids", "dry_breaker_ids", "ID,ID", "nor one of these tokens", false},
    {DRY, "window", "dry_window", "N", "repeats of the last N tokens; 0 is all", false},
    {SAMPLING, "logit_bias", NULL, "ID=B,ID=B", "added to the logits of token ids, -100 to 100", false},
    {SAMPLING, "allowed_token_ids", NULL, "ID,ID", "no other tokens are drawn", false},
    {SAMPLING, "banned_token_ids", NULL, "ID,ID", "these tokens are not drawn", false},
    {SAMPLING, "seed", NULL, "N", "the same seed gives the same answer", false},
    {CONSTRAINT, "json_schema", NULL, "FILE|TEXT", "the answer is JSON that this schema allows", true},
    {CONSTRAINT, "regex", NULL, "PATTERN", "the whole answer matches the regular expression", false},
    {CONSTRAINT, "grammar", NULL, "FILE", "the answer is a text of this grammar, in GBNF", true},
    {CHOICES, "choice", "choices", "TEXT", "the answer is this text, or another one given so", false},
    {CONSTRAINT, "any_json", NULL, NULL, "the answer is JSON", false},
    {CONSTRAINT, "start_after", NULL, "TEXT", "the answer is free until it has written TEXT", false},
    {STOP, "max_new_tokens", NULL, "N", "most tokens of the answer", false},
    {STOP, "min_new_tokens", NULL, "N", "tokens before which nothing ends it", false},
    {STOP, "stop_strings", "stop", "TEXT", "ends the answer where TEXT would come", false},
    {STOP, "include_stop_string", NULL, NULL, "the stop string is part of the answer", false},
    {STOP, "stop_token_ids", NULL, "ID,ID", "token ids that end the answer", false},
    {STOP, "ignore_eos", NULL, NULL, "go on behind the model's own end", false},
    {OUTPUT, "top_logprobs", NULL, "N", "logprobs: of the chosen token (0), and the N best", false},
    {OUTPUT, "logprob_mode", NULL, "MODE", "before or after the samplers", false},
    {OUTPUT, "return_token_ids", NULL, NULL, "token ids beside the text", false},
    {OUTPUT, "echo", NULL, NULL, "the prompt's text first", false},
    {OUTPUT, "skip_special_tokens", NULL, NULL, "control tokens give no text; unset: they give none", false},
    {OUTPUT, "final_only", NULL, NULL, "one message at the end", false},
    {REQUEST, "priority", NULL, "N", "higher runs first", false},
    {REQUEST, "time_limit_ms", NULL, "MS", "ends with what there is", false},
    {REQUEST, "sequence_id", NULL, "ID", "names the conversation, for routing", false},
#undef SAMPLING
#undef CONSTRAINT
#undef CHOICES
#undef MIROSTAT
#undef DRY
#undef STOP
#undef OUTPUT
#undef REQUEST
};

static const ProtobufCFieldDescriptor *field_of(int i) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(table[i].message, table[i].field);
    RELAY_ASSERT(f != NULL);
    return f;
}

static void set_range(relay_config_entry *entry, double min, double max) {
    entry->kind = RELAY_CONFIG_INT;
    entry->min = min;
    entry->max = max;
}

static void set_kind(relay_config_entry *entry, const ProtobufCFieldDescriptor *f) {
    bool is_list = f->label == PROTOBUF_C_LABEL_REPEATED;
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        entry->kind = RELAY_CONFIG_FLOAT;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        entry->kind = RELAY_CONFIG_BOOL;
        break;
    case PROTOBUF_C_TYPE_INT32:
        set_range(entry, INT32_MIN, INT32_MAX);
        break;
    case PROTOBUF_C_TYPE_UINT64:
        set_range(entry, 0, (double)INT64_MAX);
        break;
    case PROTOBUF_C_TYPE_UINT32:
        if (!is_list) set_range(entry, 0, UINT32_MAX); // a list of ids is one text
        break;
    case PROTOBUF_C_TYPE_ENUM:
        entry->choices = "raw|processed"; // LogprobMode, the one enum of the requests
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        break; // a list of pairs is one text
    default:
        if (is_list) entry->kind = RELAY_CONFIG_TEXTS;
    }
}

void relay_sampling_flags_init(relay_sampling_flags *flags, relay_config_entry *entries) {
    memset(flags, 0, sizeof *flags);
    relay_arena_init(&flags->set_texts, ARENA_BYTES);
    relay_arena_init(&flags->lists, ARENA_BYTES);
    flags->entries = entries;
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        const char *name = table[i].name != NULL ? table[i].name : table[i].field;
        RELAY_ASSERT(strlen(name) < sizeof flags->names[i]);
        for (size_t k = 0; name[k] != 0; k++)
            flags->names[i][k] = name[k] == '_' ? '-' : name[k];
        entries[i] = (relay_config_entry){
            .name = flags->names[i],
            .kind = RELAY_CONFIG_STRING,
            .value = &flags->values[i],
            .metavar = table[i].metavar,
            .help = table[i].help,
            .was_set = &flags->is_set[i],
            .has_no_default = true,
        };
        set_kind(&entries[i], field_of(i));
    }
}

void relay_sampling_flags_fini(relay_sampling_flags *flags) {
    relay_arena_fini(&flags->set_texts);
    relay_arena_fini(&flags->lists);
}

relay_code relay_sampling_flags_set(relay_sampling_flags *flags, const char *name, const char *value, relay_err *e) {
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        const char *a = flags->names[i], *b = name;
        while (*a != 0 && (*a == *b || (*a == '-' && *b == '_')))
            a++, b++;
        if (*a != 0 || *b != 0) continue;
        if (value[0] == 0) {
            flags->is_set[i] = false;
            memset(&flags->values[i], 0, sizeof flags->values[i]);
            return RELAY_OK;
        }
        const char *kept = relay_arena_copy(&flags->set_texts, value, strlen(value));
        if (kept == NULL) return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "more than %d bytes of settings", ARENA_BYTES);
        return relay_config_set(&flags->entries[i], name, kept, e);
    }
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "there is no parameter \"%s\"", name);
}

char *relay_sampling_flags_describe(const relay_sampling_flags *flags) {
    relay_buf b;
    relay_buf_init(&b, 2 * ARENA_BYTES);
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        if (!flags->is_set[i]) continue;
        const relay_config_texts *texts = &flags->values[i].texts;
        relay_buf_printf(&b, "%s%s=", b.len == 0 ? "" : " ", flags->names[i]);
        switch (flags->entries[i].kind) {
        case RELAY_CONFIG_FLOAT:
            relay_buf_printf(&b, "%g", flags->values[i].number);
            break;
        case RELAY_CONFIG_INT:
            relay_buf_printf(&b, "%lld", (long long)flags->values[i].integer);
            break;
        case RELAY_CONFIG_BOOL:
            relay_buf_puts(&b, flags->values[i].boolean ? "true" : "false");
            break;
        case RELAY_CONFIG_TEXTS:
            for (uint32_t k = 0; k < texts->n; k++)
                relay_buf_printf(&b, "%s%s", k == 0 ? "" : ",", texts->texts[k]);
            break;
        default:
            relay_buf_puts(&b, flags->values[i].text);
        }
    }
    return relay_buf_take(&b, NULL);
}

// "ID=BIAS,ID=BIAS".
static relay_code apply_biases(relay_sampling_flags *flags, int i, void **elements, size_t *n, relay_err *e) {
    const char *text = flags->values[i].text, *at = text;
    size_t room = 1;
    for (const char *c = text; *c != 0; c++)
        room += *c == ',';
    Relay__V1__TokenBias *biases = relay_arena_alloc(&flags->lists, room * sizeof *biases);
    Relay__V1__TokenBias **pointers = relay_arena_alloc(&flags->lists, room * sizeof *pointers);
    if (biases == NULL || pointers == NULL) return RELAY_OK; // the caller says so
    for (*n = 0; *n < room; ++*n) {
        char *end;
        relay__v1__token_bias__init(&biases[*n]);
        unsigned long id = strtoul(at, &end, 10);
        bool is_pair = *at >= '0' && *at <= '9' && *end == '=' && id <= UINT32_MAX;
        const char *value = end + 1;
        if (is_pair) RELAY_SET(&biases[*n], bias, strtof(value, &end));
        if (!is_pair || end == value || (*end != 0 && *end != ',')) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "--%s is \"%s\"; it must be ID=BIAS,ID=BIAS, ...",
                              flags->names[i], text);
        }
        RELAY_SET(&biases[*n], token_id, (uint32_t)id);
        pointers[*n] = &biases[*n];
        at = end + 1;
    }
    *elements = pointers;
    return RELAY_OK;
}

// A repeated field: token ids or pairs as one text, or texts.
static relay_code apply_list(relay_sampling_flags *flags, int i, ProtobufCMessage *m, relay_err *e) {
    const ProtobufCFieldDescriptor *f = field_of(i);
    void **elements = (void **)((char *)m + f->offset);
    size_t *n = (size_t *)((char *)m + f->quantifier_offset);
    if (f->type == PROTOBUF_C_TYPE_UINT32) {
        uint32_t *ids;
        relay_code code = relay_cli_parse_ids(flags->values[i].text, flags->names[i], &ids, n, e);
        if (code != RELAY_OK) return code;
        *elements = relay_arena_copy(&flags->lists, (const char *)ids, *n * sizeof *ids);
        free(ids);
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        relay_code code = apply_biases(flags, i, elements, n, e);
        if (code != RELAY_OK) return code;
    } else {
        const relay_config_texts *texts = &flags->values[i].texts;
        ProtobufCBinaryData *fields = relay_arena_alloc(&flags->lists, sizeof *fields * texts->n);
        *n = fields != NULL ? texts->n : 0;
        for (size_t k = 0; k < *n; k++)
            fields[k] = relay_message_text(texts->texts[k]);
        *elements = fields;
    }
    if (*elements != NULL) return RELAY_OK;
    return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%s needs more than %d bytes", flags->names[i], ARENA_BYTES);
}

static relay_code read_file(relay_sampling_flags *flags, int i, ProtobufCBinaryData *out, relay_err *e) {
    char *data;
    size_t len;
    if (!relay_cli_read(flags->values[i].text, &data, &len)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--%s: no such text", flags->names[i]);
    }
    const char *kept = relay_arena_copy(&flags->lists, data, len);
    free(data);
    if (kept == NULL) {
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%s needs more than %d bytes", flags->names[i], ARENA_BYTES);
    }
    *out = relay_message_bytes(kept, len);
    return RELAY_OK;
}

// Writes a flag's value into its field, whose place and type the descriptor knows.
static relay_code apply_one(relay_sampling_flags *flags, int i, ProtobufCMessage *m, relay_err *e) {
    const ProtobufCFieldDescriptor *f = field_of(i);
    void *field = (char *)m + f->offset;
    char *quantifier = (char *)m + f->quantifier_offset;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        *(uint32_t *)quantifier = f->id;
    } else {
        *(protobuf_c_boolean *)quantifier = 1;
    }
    // What begins with a brace is a schema itself.
    if (table[i].is_file && flags->values[i].text[0] != '{') return read_file(flags, i, field, e);
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        *(float *)field = (float)flags->values[i].number;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)field = flags->values[i].boolean;
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_INT32:
        *(uint32_t *)field = (uint32_t)flags->values[i].integer;
        break;
    case PROTOBUF_C_TYPE_UINT64:
        *(uint64_t *)field = (uint64_t)flags->values[i].integer;
        break;
    case PROTOBUF_C_TYPE_ENUM:
        *(int *)field = strcmp(flags->values[i].text, "raw") == 0 ? RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_RAW
                                                                  : RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_PROCESSED;
        break;
    default:
        *(ProtobufCBinaryData *)field = relay_message_text(flags->values[i].text);
    }
    return RELAY_OK;
}

// At most one of the flags that say what the answer is like; *is_constrained where one is given, or start_after.
static relay_code check_constraints(relay_sampling_flags *flags, bool *is_constrained, relay_err *e) {
    int kind = -1;
    *is_constrained = false;
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        bool is_constraint = table[i].message == &relay__v1__constraint__descriptor;
        bool is_choices = table[i].message == &relay__v1__choices__descriptor;
        if (!flags->is_set[i] || !(is_constraint || is_choices)) continue;
        *is_constrained = true;
        if (!is_choices && !(field_of(i)->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) continue;
        if (kind >= 0) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "--%s and --%s exclude each other", flags->names[kind],
                              flags->names[i]);
        }
        kind = i;
    }
    return RELAY_OK;
}

relay_code relay_sampling_flags_apply(relay_sampling_flags *flags, Relay__V1__GenerateRequest *request, relay_err *e) {
    relay_arena_fini(&flags->lists);
    relay__v1__sampling_params__init(&flags->sampling);
    relay__v1__constraint__init(&flags->constraint);
    relay__v1__choices__init(&flags->choices);
    relay__v1__text_stop__init(&flags->stop);
    relay__v1__text_output__init(&flags->output);
    relay__v1__mirostat__init(&flags->mirostat);
    relay__v1__dry__init(&flags->dry);
    ProtobufCMessage *const messages[] = {&request->base,        &flags->sampling.base,   &flags->stop.base,
                                          &flags->output.base,   &flags->constraint.base, &flags->choices.base,
                                          &flags->mirostat.base, &flags->dry.base};
    bool is_constrained;
    relay_code code = check_constraints(flags, &is_constrained, e);
    if (code != RELAY_OK) return code;
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        if (!flags->is_set[i]) continue;
        ProtobufCMessage *m = NULL;
        for (size_t k = 0; k < sizeof messages / sizeof messages[0]; k++)
            if (messages[k]->descriptor == table[i].message) m = messages[k];
        // These say something by being there.
        if (m == &flags->mirostat.base) flags->sampling.mirostat = &flags->mirostat;
        if (m == &flags->dry.base) flags->sampling.dry = &flags->dry;
        bool is_list = field_of(i)->label == PROTOBUF_C_LABEL_REPEATED;
        code = is_list ? apply_list(flags, i, m, e) : apply_one(flags, i, m, e);
        if (code != RELAY_OK) return code;
    }
    if (flags->choices.n_choice != 0) {
        flags->constraint.kind_case = RELAY__V1__CONSTRAINT__KIND_CHOICES;
        flags->constraint.choices = &flags->choices;
    }
    if (is_constrained) flags->sampling.constraint = &flags->constraint;
    request->sampling = &flags->sampling;
    request->stop = &flags->stop;
    request->output = &flags->output;
    return RELAY_OK;
}
