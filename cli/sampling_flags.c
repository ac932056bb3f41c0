#include "cli/sampling_flags.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"

typedef enum { MESSAGE_REQUEST, MESSAGE_SAMPLING, MESSAGE_STOP, MESSAGE_OUTPUT } message_kind;

// Flags by the field they set; the flag's name is the field's with dashes, but for the few that say another.
static const struct flag {
    message_kind message;
    const char *field;
    const char *name;
    relay_config_kind kind;
    const char *metavar;
    const char *help;
} table[RELAY_SAMPLING_FLAGS] = {
    {MESSAGE_SAMPLING, "temperature", "temperature", RELAY_CONFIG_FLOAT, "T", "randomness, 0 to 2; 0 is greedy"},
    {MESSAGE_SAMPLING, "top_k", "top-k", RELAY_CONFIG_INT, "K", "draw from the K most likely; 0 is off"},
    {MESSAGE_SAMPLING, "top_p", "top-p", RELAY_CONFIG_FLOAT, "P", "draw from the most likely that make up P; 1 is off"},
    {MESSAGE_SAMPLING, "min_p", "min-p", RELAY_CONFIG_FLOAT, "P",
     "leave out what is less likely than P times the best"},
    {MESSAGE_SAMPLING, "repetition_penalty", "repetition-penalty", RELAY_CONFIG_FLOAT, "R",
     "over 1 makes what prompt or answer hold less likely; 1 is off"},
    {MESSAGE_SAMPLING, "frequency_penalty", "frequency-penalty", RELAY_CONFIG_FLOAT, "F",
     "taken off for each time the answer has it, -2 to 2"},
    {MESSAGE_SAMPLING, "presence_penalty", "presence-penalty", RELAY_CONFIG_FLOAT, "F",
     "taken off once the answer has it, -2 to 2"},
    {MESSAGE_SAMPLING, "seed", "seed", RELAY_CONFIG_INT, "N", "the same seed gives the same answer"},
    {MESSAGE_STOP, "max_new_tokens", "max-new-tokens", RELAY_CONFIG_INT, "N", "most tokens of the answer"},
    {MESSAGE_STOP, "min_new_tokens", "min-new-tokens", RELAY_CONFIG_INT, "N", "tokens before which nothing ends it"},
    {MESSAGE_STOP, "include_stop_string", "include-stop-string", RELAY_CONFIG_BOOL, NULL,
     "the stop string is part of the answer"},
    {MESSAGE_STOP, "stop_token_ids", "stop-token-ids", RELAY_CONFIG_STRING, "ID,ID", "token ids that end the answer"},
    {MESSAGE_STOP, "ignore_eos", "ignore-eos", RELAY_CONFIG_BOOL, NULL, "go on behind the model's own end"},
    {MESSAGE_OUTPUT, "top_logprobs", "top-logprobs", RELAY_CONFIG_INT, "N",
     "logprobs: of the chosen token (0), and the N best"},
    {MESSAGE_OUTPUT, "logprob_mode", "logprob-mode", RELAY_CONFIG_STRING, "raw|processed",
     "before or after the samplers"},
    {MESSAGE_OUTPUT, "return_token_ids", "return-token-ids", RELAY_CONFIG_BOOL, NULL, "token ids beside the text"},
    {MESSAGE_OUTPUT, "echo", "echo", RELAY_CONFIG_BOOL, NULL, "the prompt's text first"},
    {MESSAGE_OUTPUT, "skip_special_tokens", "skip-special-tokens", RELAY_CONFIG_BOOL, NULL,
     "control tokens give no text; unset: they give none"},
    {MESSAGE_OUTPUT, "final_only", "final-only", RELAY_CONFIG_BOOL, NULL, "one message at the end"},
    {MESSAGE_REQUEST, "priority", "priority", RELAY_CONFIG_INT, "N", "higher runs first"},
    {MESSAGE_REQUEST, "time_limit_ms", "time-limit-ms", RELAY_CONFIG_INT, "MS", "ends with what there is"},
    {MESSAGE_REQUEST, "sequence_id", "sequence-id", RELAY_CONFIG_STRING, "ID", "names the conversation, for routing"},
};

void relay_sampling_flags_init(relay_sampling_flags *flags, relay_config_entry *entries) {
    memset(flags, 0, sizeof *flags);
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++)
        entries[i] = (relay_config_entry){
            .name = table[i].name,
            .kind = table[i].kind,
            .value = &flags->values[i],
            .metavar = table[i].metavar,
            .help = table[i].help,
            .choices = strcmp(table[i].name, "logprob-mode") == 0 ? "raw|processed" : NULL,
            .was_set = &flags->is_set[i],
            .has_no_default = true,
        };
}

void relay_sampling_flags_fini(relay_sampling_flags *flags) {
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++)
        free(flags->owned[i]);
}

bool relay_sampling_flags_take_stops(relay_sampling_flags *flags, int *argc, char **argv) {
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        const char *text = NULL;
        if (strcmp(argv[i], "--") == 0) {
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        if (strcmp(argv[i], "--stop") == 0) {
            if (i + 1 == *argc) {
                fprintf(stderr, "relay: --stop wants a text\n");
                return false;
            }
            text = argv[++i];
        } else if (strncmp(argv[i], "--stop=", 7) == 0) {
            text = argv[i] + 7;
        }
        if (text == NULL) {
            argv[kept++] = argv[i];
            continue;
        }
        if (flags->n_stop_strings == RELAY_CLI_MAX_STOPS) {
            fprintf(stderr, "relay: --stop may be given %d times\n", RELAY_CLI_MAX_STOPS);
            return false;
        }
        flags->stop_strings[flags->n_stop_strings++] =
            (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
    }
    *argc = kept;
    return true;
}

static bool parse_bool(const char *value, bool *out) {
    *out = strcmp(value, "true") == 0;
    return *out || strcmp(value, "false") == 0;
}

relay_code relay_sampling_flags_set(relay_sampling_flags *flags, const char *name, const char *value, relay_err *e) {
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        // Both spellings: a chat says top_p as the API does, the command line top-p.
        const char *a = table[i].name, *b = name;
        while (*a != 0 && (*a == *b || (*a == '-' && *b == '_')))
            a++, b++;
        if (*a != 0 || *b != 0) continue;
        flags->is_set[i] = value[0] != 0;
        if (value[0] == 0) return RELAY_OK;
        char *end = NULL;
        errno = 0;
        bool ok = true;
        switch (table[i].kind) {
        case RELAY_CONFIG_FLOAT:
            flags->values[i].number = strtod(value, &end);
            ok = *end == 0;
            break;
        case RELAY_CONFIG_INT:
            flags->values[i].integer = strtoll(value, &end, 10);
            ok = *end == 0 && errno == 0;
            break;
        case RELAY_CONFIG_BOOL:
            ok = parse_bool(value, &flags->values[i].boolean);
            break;
        default:
            free(flags->owned[i]);
            flags->owned[i] = relay_strndup(value, strlen(value));
            flags->values[i].text = flags->owned[i];
        }
        if (ok) return RELAY_OK;
        flags->is_set[i] = false;
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: \"%s\" is not a %s", name, value,
                          table[i].kind == RELAY_CONFIG_BOOL ? "true or false" : "number");
    }
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "there is no parameter \"%s\"", name);
}

char *relay_sampling_flags_describe(const relay_sampling_flags *flags) {
    relay_buf b;
    relay_buf_init(&b, 1 << 16);
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        if (!flags->is_set[i]) continue;
        relay_buf_printf(&b, "%s%s=", b.len == 0 ? "" : " ", table[i].name);
        switch (table[i].kind) {
        case RELAY_CONFIG_FLOAT:
            relay_buf_printf(&b, "%g", flags->values[i].number);
            break;
        case RELAY_CONFIG_INT:
            relay_buf_printf(&b, "%lld", (long long)flags->values[i].integer);
            break;
        case RELAY_CONFIG_BOOL:
            relay_buf_puts(&b, flags->values[i].boolean ? "true" : "false");
            break;
        default:
            relay_buf_puts(&b, flags->values[i].text);
        }
    }
    return relay_buf_take(&b, NULL);
}

// "1,2,3" into stop.stop_token_ids.
static relay_code apply_ids(relay_sampling_flags *flags, const char *text, relay_err *e) {
    size_t n = 0;
    while (*text != 0) {
        char *end;
        errno = 0;
        unsigned long long id = strtoull(text, &end, 10);
        if (end == text || (*end != 0 && *end != ',') || errno != 0 || id > UINT32_MAX || n == RELAY_CLI_MAX_IDS)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "stop-token-ids: \"%s\" is no list of at most %d ids", text,
                              RELAY_CLI_MAX_IDS);
        flags->stop_token_ids[n++] = (uint32_t)id;
        text = *end == ',' ? end + 1 : end;
    }
    flags->stop.stop_token_ids = flags->stop_token_ids;
    flags->stop.n_stop_token_ids = n;
    return RELAY_OK;
}

// Writes a flag's value into its field, whose place and type the descriptor knows.
static relay_code apply_one(relay_sampling_flags *flags, int i, ProtobufCMessage *m, relay_err *e) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, table[i].field);
    RELAY_ASSERT(f != NULL);
    void *field = (char *)m + f->offset;
    if (f->label == PROTOBUF_C_LABEL_OPTIONAL) *(protobuf_c_boolean *)((char *)m + f->quantifier_offset) = 1;
    int64_t n = flags->values[i].integer;
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        *(float *)field = (float)flags->values[i].number;
        return RELAY_OK;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)field = flags->values[i].boolean;
        return RELAY_OK;
    case PROTOBUF_C_TYPE_UINT32:
        if (n < 0 || n > UINT32_MAX)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: %lld is not in [0, %u]", table[i].name, (long long)n,
                              UINT32_MAX);
        *(uint32_t *)field = (uint32_t)n;
        return RELAY_OK;
    case PROTOBUF_C_TYPE_INT32:
        if (n < INT32_MIN || n > INT32_MAX)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: %lld is not in [%d, %d]", table[i].name, (long long)n,
                              INT32_MIN, INT32_MAX);
        *(int32_t *)field = (int32_t)n;
        return RELAY_OK;
    case PROTOBUF_C_TYPE_UINT64:
        if (n < 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: %lld is negative", table[i].name, (long long)n);
        *(uint64_t *)field = (uint64_t)n;
        return RELAY_OK;
    case PROTOBUF_C_TYPE_ENUM:
        *(int *)field = strcmp(flags->values[i].text, "raw") == 0 ? RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_RAW
                                                                  : RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_PROCESSED;
        return RELAY_OK;
    default:
        *(ProtobufCBinaryData *)field = (ProtobufCBinaryData){.len = strlen(flags->values[i].text),
                                                              .data = (uint8_t *)(uintptr_t)flags->values[i].text};
        return RELAY_OK;
    }
}

relay_code relay_sampling_flags_apply(relay_sampling_flags *flags, Relay__V1__GenerateRequest *request, relay_err *e) {
    relay__v1__sampling_params__init(&flags->sampling);
    relay__v1__text_stop__init(&flags->stop);
    relay__v1__text_output__init(&flags->output);
    ProtobufCMessage *messages[] = {
        [MESSAGE_REQUEST] = &request->base,
        [MESSAGE_SAMPLING] = &flags->sampling.base,
        [MESSAGE_STOP] = &flags->stop.base,
        [MESSAGE_OUTPUT] = &flags->output.base,
    };
    for (int i = 0; i < RELAY_SAMPLING_FLAGS; i++) {
        if (!flags->is_set[i]) continue;
        relay_code code = strcmp(table[i].field, "stop_token_ids") == 0
                              ? apply_ids(flags, flags->values[i].text, e)
                              : apply_one(flags, i, messages[table[i].message], e);
        if (code != RELAY_OK) return code;
    }
    flags->stop.stop_strings = flags->stop_strings;
    flags->stop.n_stop_strings = flags->n_stop_strings;
    request->sampling = &flags->sampling;
    request->stop = &flags->stop;
    request->output = &flags->output;
    return RELAY_OK;
}
