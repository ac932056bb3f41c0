#include "tokenizer_svc/text_methods.h"

#include <stdlib.h>
#include <string.h>

#include "common/message.h"
#include "common/utf8.h"
#include "relay/v1/tokenizer.pb-c.h"
#include "tokenizer_svc/text_stream.h"

// A text longer than this is refused rather than sent: it is what a response may hold.
static const size_t MAX_RESPONSE_TEXT = 60u << 20;

static bool is_over(const relay_text_call *call) {
    return call->watch != NULL && call->watch->is_over(call->watch->arg);
}

// ---- Tokenize

static relay_code check_tokenize_options(const Relay__V1__TokenizeOptions *o, relay_err *e) {
    if (o == NULL) return RELAY_OK;
    bool has_side = o->has_truncate_side && o->truncate_side != RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_UNSPECIFIED;
    if (o->has_truncate_to && o->truncate_to == 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "options.truncate_to is 0; allowed is 1 and more");
    }
    if (has_side && !o->has_truncate_to) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "options.truncate_side is set without options.truncate_to");
    }
    if (o->has_count_only && o->count_only &&
        ((o->has_want_offsets && o->want_offsets) || (o->has_want_pieces && o->want_pieces))) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "options.count_only is set together with want_offsets or want_pieces");
    }
    return RELAY_OK;
}

static relay_code encode_text(const relay_text_model *m, ProtobufCBinaryData text, const Relay__V1__TokenizeOptions *o,
                              relay_encoding *enc, relay_err *e) {
    static const Relay__V1__TokenizeOptions defaults = RELAY__V1__TOKENIZE_OPTIONS__INIT;
    if (o == NULL) o = &defaults;
    relay_text_span span = {
        .text = text.data == NULL ? "" : (const char *)text.data,
        .len = text.len,
        .parse_special = o->has_parse_special_tokens && o->parse_special_tokens,
    };
    relay_encode_opts opts = {
        .add_special_tokens = !o->has_add_special_tokens || o->add_special_tokens,
        .want_offsets = o->has_want_offsets && o->want_offsets,
        .max_tokens = o->has_truncate_to ? o->truncate_to : 0,
        .truncate_left = o->truncate_side == RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_LEFT,
    };
    return relay_tokenizer_encode(relay_text_model_tokenizer(m), &span, 1, &opts, enc, e);
}

// Borrows from `enc`. The pieces are the caller's to free.
static void fill_encoding(const relay_text_model *m, const relay_encoding *enc, const Relay__V1__TokenizeOptions *o,
                          Relay__V1__Encoding *out) {
    relay__v1__encoding__init(out);
    const relay_vocab *v = relay_text_model_vocab(m);
    RELAY_SET(out, token_count, enc->n);
    RELAY_SET(out, tokenizer_fingerprint, relay_message_bytes(relay_vocab_fingerprint(v), RELAY_FINGERPRINT_BYTES));
    if (o != NULL && o->has_count_only && o->count_only) return;
    out->n_token_ids = enc->n;
    out->token_ids = enc->ids;
    if (enc->offset_begin != NULL) {
        out->n_offset_begin = out->n_offset_end = enc->n;
        out->offset_begin = enc->offset_begin;
        out->offset_end = enc->offset_end;
    }
    if (o == NULL || !o->has_want_pieces || !o->want_pieces) return;
    out->n_pieces = enc->n;
    out->pieces = relay_calloc(enc->n == 0 ? 1 : enc->n, sizeof *out->pieces);
    for (uint32_t i = 0; i < enc->n; i++) {
        const relay_token *t = relay_vocab_token(v, enc->ids[i]);
        out->pieces[i] = relay_message_bytes(t->bytes, t->len);
    }
}

static relay_code check_text_bytes(const relay_text_call *call, uint64_t n, const char *field, relay_err *e) {
    if (n <= call->max_text_bytes) return RELAY_OK;
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s has %llu bytes; at most %llu are taken", field,
                      (unsigned long long)n, (unsigned long long)call->max_text_bytes);
}

relay_code relay_text_tokenize(const relay_text_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_text_model *model = call->model;
    const Relay__V1__TokenizeRequest *m = (const Relay__V1__TokenizeRequest *)message;
    relay_code code = relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code == RELAY_OK) code = check_text_bytes(call, m->text.len, "text", e);
    if (code == RELAY_OK) code = check_tokenize_options(m->options, e);
    relay_encoding enc = {0};
    if (code == RELAY_OK) code = encode_text(model, m->text, m->options, &enc, e);
    if (code == RELAY_OK) {
        Relay__V1__Encoding encoding;
        fill_encoding(model, &enc, m->options, &encoding);
        Relay__V1__TokenizeResponse response = RELAY__V1__TOKENIZE_RESPONSE__INIT;
        response.encoding = &encoding;
        call->reply(call->arg, &response.base);
        free(encoding.pieces);
    }
    relay_encoding_fini(&enc);
    return code;
}

relay_code relay_text_tokenize_batch(const relay_text_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_text_model *model = call->model;
    const Relay__V1__TokenizeBatchRequest *m = (const Relay__V1__TokenizeBatchRequest *)message;
    size_t n = m->n_texts;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n; i++)
        n_bytes += m->texts[i].len;
    relay_code code = relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code == RELAY_OK) code = check_text_bytes(call, n_bytes, "texts", e);
    if (code == RELAY_OK) code = check_tokenize_options(m->options, e);
    if (code != RELAY_OK) return code;

    relay_encoding *encs = relay_calloc(n == 0 ? 1 : n, sizeof *encs);
    Relay__V1__Encoding *encodings = relay_calloc(n == 0 ? 1 : n, sizeof *encodings);
    Relay__V1__Encoding **pointers = relay_calloc(n == 0 ? 1 : n, sizeof(Relay__V1__Encoding *));
    for (size_t i = 0; i < n && code == RELAY_OK && !is_over(call); i++) {
        code = encode_text(model, m->texts[i], m->options, &encs[i], e);
        if (code == RELAY_OK) fill_encoding(model, &encs[i], m->options, &encodings[i]);
        pointers[i] = &encodings[i];
    }
    if (code == RELAY_OK && !is_over(call)) {
        Relay__V1__TokenizeBatchResponse response = RELAY__V1__TOKENIZE_BATCH_RESPONSE__INIT;
        response.n_encodings = n;
        response.encodings = pointers;
        call->reply(call->arg, &response.base);
    }
    for (size_t i = 0; i < n; i++) {
        free(encodings[i].pieces);
        relay_encoding_fini(&encs[i]);
    }
    free(pointers);
    free(encodings);
    free(encs);
    return code;
}

// ---- RenderChat

// What turns end with: what the template writes behind an answer, and every id that ends one, with its name where that
// is text.
static void put_stops(const relay_vocab *v, const relay_turn_end *end, Relay__V1__RenderChatResponse *response) {
    uint32_t n;
    const uint32_t *ids = relay_vocab_eos(v, &n);
    response->stop_token_ids = relay_calloc(n + 1, sizeof *response->stop_token_ids);
    response->stop_strings = relay_calloc(n + 2, sizeof *response->stop_strings);
    if (end->string != NULL) {
        response->stop_strings[response->n_stop_strings++] = relay_message_bytes(end->string, end->string_len);
    }
    if (end->has_id) response->stop_token_ids[response->n_stop_token_ids++] = end->id;
    for (uint32_t i = 0; i < n; i++) {
        if (!end->has_id || ids[i] != end->id) response->stop_token_ids[response->n_stop_token_ids++] = ids[i];
    }
    for (size_t i = 0; i < response->n_stop_token_ids; i++) {
        const relay_token *t = relay_vocab_token(v, response->stop_token_ids[i]);
        if (!relay_utf8_is_valid(t->bytes, t->len)) continue;
        response->stop_strings[response->n_stop_strings++] = relay_message_bytes(t->bytes, t->len);
    }
}

// What is rendered, the chat or the context, is set, and only one.
static relay_code check_render(const relay_text_call *call, const Relay__V1__RenderChatRequest *m, relay_err *e) {
    if (m->has_context_json && !m->has_template_) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "context_json is set without template");
    }
    if (m->has_context_json && m->chat != NULL) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "chat and context_json are both set");
    }
    if (m->has_now_unix_seconds && !m->has_context_json) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "now_unix_seconds is set without context_json; a chat has its own");
    }
    if (!m->has_context_json && m->chat == NULL) return relay_fail(e, RELAY_INVALID_ARGUMENT, "chat is not set");
    if (m->has_template_ && m->chat != NULL && m->chat->has_template_name) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "chat.template_name and template are both set");
    }
    if (call->model == NULL && !m->has_template_) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "template is not set, and there is no tokenizer that has one");
    }
    return RELAY_OK;
}

// A template of the caller's, from its source to its text. *turn_end is to be finished in any case.
static relay_code render_custom(const relay_text_call *call, const Relay__V1__RenderChatRequest *m, bool wants_ids,
                                relay_rendered *out, relay_turn_end *turn_end, relay_err *e) {
    relay_chat_template *t = NULL;
    relay_chat_tokens tokens = {0};
    if (call->model != NULL) tokens = relay_text_model_chat_tokens(call->model);
    relay_code code = relay_chat_template_compile(&t, (const char *)m->template_.data, m->template_.len, e);
    if (code == RELAY_OK && m->has_context_json) {
        const int64_t *now = m->has_now_unix_seconds ? &m->now_unix_seconds : NULL;
        code = relay_chat_template_render_context(t, m->context_json, now, call->watch, out, e);
    } else if (code == RELAY_OK) {
        if (wants_ids) code = relay_text_model_check_chat_ids(call->model, m->chat, e);
        if (code == RELAY_OK) code = relay_chat_template_render(t, m->chat, &tokens, call->watch, out, e);
    }
    if (code == RELAY_OK && wants_ids) {
        relay_turn_end_find(turn_end, t, &tokens, relay_text_model_tokenizer(call->model),
                            relay_text_model_vocab(call->model), call->watch);
    }
    relay_chat_template_destroy(t);
    return code;
}

relay_code relay_text_render_chat(const relay_text_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_text_model *model = call->model;
    const Relay__V1__RenderChatRequest *m = (const Relay__V1__RenderChatRequest *)message;
    relay_code code = model == NULL ? RELAY_OK : relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code == RELAY_OK) code = check_render(call, m, e);
    if (code != RELAY_OK) return code;

    relay_rendered rendered = {0};
    relay_encoding enc = {0};
    relay_turn_end custom_end = {0};
    const relay_turn_end *turn_end = &custom_end;
    // A template of the caller's need not be this model's: without a name for the model its text is all that makes
    // sense.
    bool wants_ids = model != NULL && (m->has_model || !m->has_template_);
    bool wants_text = !wants_ids || (m->has_want_text && m->want_text);
    bool parses_special = m->has_parse_special_tokens && m->parse_special_tokens;
    if (m->has_template_)
        code = render_custom(call, m, wants_ids, &rendered, &custom_end, e);
    else
        code = relay_text_model_render(model, m->chat, call->watch, &rendered, &turn_end, e);
    if (code == RELAY_OK && wants_ids) {
        code = relay_text_model_encode_rendered(model, &rendered, m->chat, parses_special, &enc, e);
    }
    if (code == RELAY_OK) {
        Relay__V1__Encoding encoding;
        Relay__V1__RenderChatResponse response = RELAY__V1__RENDER_CHAT_RESPONSE__INIT;
        if (wants_ids) {
            fill_encoding(model, &enc, NULL, &encoding);
            response.encoding = &encoding;
            put_stops(relay_text_model_vocab(model), turn_end, &response);
        }
        if (wants_text) RELAY_SET(&response, text, relay_message_bytes(rendered.text, rendered.len));
        call->reply(call->arg, &response.base);
        free(response.stop_strings);
        free(response.stop_token_ids);
    }
    relay_turn_end_fini(&custom_end);
    relay_encoding_fini(&enc);
    relay_rendered_fini(&rendered);
    return code;
}

// ---- Detokenize

static relay_code check_response_text(const relay_buf *text, relay_err *e) {
    if (!text->is_failed) return RELAY_OK;
    return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the text of token_ids is longer than %zu bytes", MAX_RESPONSE_TEXT);
}

relay_code relay_text_detokenize(const relay_text_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_text_model *model = call->model;
    const Relay__V1__DetokenizeRequest *m = (const Relay__V1__DetokenizeRequest *)message;
    relay_code code = relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code == RELAY_OK) {
        code = relay_text_model_check_fingerprint(model, m->has_tokenizer_fingerprint, m->tokenizer_fingerprint, e);
    }
    if (code == RELAY_OK) code = relay_text_model_check_ids(model, m->token_ids, m->n_token_ids, "token_ids", e);
    if (code != RELAY_OK) return code;

    relay_text_stream_opts opts = {
        .vocab = relay_text_model_vocab(model),
        .decoder = relay_text_model_decoder(model),
        .skip_special_tokens = !m->has_skip_special_tokens || m->skip_special_tokens,
    };
    relay_text_stream *stream = NULL;
    relay_buf text;
    relay_buf_init(&text, MAX_RESPONSE_TEXT);
    code = relay_text_stream_create(&stream, &opts, e);
    if (code == RELAY_OK) {
        relay_text_step step;
        relay_text_stream_push(stream, m->token_ids, (uint32_t)m->n_token_ids, false, &text, &step);
        relay_text_stream_finish(stream, &text);
        code = check_response_text(&text, e);
    }
    if (code == RELAY_OK) {
        Relay__V1__DetokenizeResponse response = RELAY__V1__DETOKENIZE_RESPONSE__INIT;
        RELAY_SET(&response, text, relay_message_bytes(text.data, text.len));
        call->reply(call->arg, &response.base);
    }
    relay_text_stream_destroy(stream);
    relay_buf_fini(&text);
    return code;
}

static relay_code open_step_stream(const relay_text_model *model, const Relay__V1__DetokenizeStepRequest *m,
                                   relay_text_stream **out, relay_err *e) {
    static const Relay__V1__DetokenizeOptions defaults = RELAY__V1__DETOKENIZE_OPTIONS__INIT;
    const Relay__V1__DetokenizeOptions *o = m->options == NULL ? &defaults : m->options;
    bool is_first = !m->has_decode_state || m->decode_state.len == 0;
    if (!is_first && m->n_prompt_tail != 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "prompt_tail is for the first step only; decode_state is set");
    }
    if (m->n_prompt_tail > RELAY_PROMPT_TAIL) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "prompt_tail has %zu ids; at most %d are allowed",
                          m->n_prompt_tail, RELAY_PROMPT_TAIL);
    }
    if (o->n_stop_strings > RELAY_MAX_STOP_STRINGS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "options.stop_strings has %zu strings; at most %d are allowed",
                          o->n_stop_strings, RELAY_MAX_STOP_STRINGS);
    }
    relay_code code =
        relay_text_model_check_fingerprint(model, o->has_tokenizer_fingerprint, o->tokenizer_fingerprint, e);
    if (code == RELAY_OK) code = relay_text_model_check_ids(model, m->prompt_tail, m->n_prompt_tail, "prompt_tail", e);
    if (code == RELAY_OK) code = relay_text_model_check_ids(model, m->token_ids, m->n_token_ids, "token_ids", e);
    if (code != RELAY_OK) return code;
    relay_stop_string stops[RELAY_MAX_STOP_STRINGS];
    for (size_t i = 0; i < o->n_stop_strings; i++) {
        stops[i] = (relay_stop_string){(const char *)o->stop_strings[i].data, o->stop_strings[i].len};
    }
    relay_text_stream_opts opts = {
        .vocab = relay_text_model_vocab(model),
        .decoder = relay_text_model_decoder(model),
        .skip_special_tokens = !o->has_skip_special_tokens || o->skip_special_tokens,
        .stop_strings = stops,
        .n_stop_strings = (uint32_t)o->n_stop_strings,
        .stop_strings_field = "options.stop_strings",
        .include_stop_string = o->has_include_stop_string && o->include_stop_string,
        .prompt_tail = m->prompt_tail,
        .n_prompt_tail = (uint32_t)m->n_prompt_tail,
    };
    code = relay_text_stream_create(out, &opts, e);
    if (code == RELAY_OK && !is_first) {
        code = relay_text_stream_restore(*out, m->decode_state.data, m->decode_state.len, e);
    }
    return code;
}

static void reply_step(const relay_text_call *call, const Relay__V1__DetokenizeStepRequest *m,
                       const relay_text_stream *stream, const relay_buf *text, const relay_text_step *step,
                       bool is_end) {
    Relay__V1__DetokenizeStepResponse response = RELAY__V1__DETOKENIZE_STEP_RESPONSE__INIT;
    relay_buf state;
    relay_buf_init(&state, RELAY_MAX_DECODE_STATE_BYTES);
    RELAY_SET(&response, text, relay_message_bytes(text->data, text->len));
    RELAY_SET(&response, stopped, step->is_stopped);
    RELAY_SET(&response, tokens_consumed, step->tokens_consumed);
    RELAY_SET(&response, held_bytes, is_end ? 0 : step->held_bytes);
    if (step->is_stopped) RELAY_SET(&response, matched_stop, m->options->stop_strings[step->stop_index]);
    if (!is_end) {
        relay_text_stream_save(stream, &state);
        RELAY_SET(&response, decode_state, relay_message_bytes(state.data, state.len));
    }
    call->reply(call->arg, &response.base);
    relay_buf_fini(&state);
}

relay_code relay_text_detokenize_step(const relay_text_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_text_model *model = call->model;
    const Relay__V1__DetokenizeStepRequest *m = (const Relay__V1__DetokenizeStepRequest *)message;
    relay_code code = relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code != RELAY_OK) return code;
    relay_text_stream *stream = NULL;
    relay_buf text;
    relay_buf_init(&text, MAX_RESPONSE_TEXT);
    code = open_step_stream(model, m, &stream, e);
    if (code == RELAY_OK) {
        relay_text_step step;
        relay_text_stream_push(stream, m->token_ids, (uint32_t)m->n_token_ids, true, &text, &step);
        bool is_end = step.is_stopped || (m->has_end_of_sequence && m->end_of_sequence);
        if (is_end && !step.is_stopped) relay_text_stream_finish(stream, &text);
        code = check_response_text(&text, e);
        if (code == RELAY_OK) reply_step(call, m, stream, &text, &step, is_end);
    }
    relay_text_stream_destroy(stream);
    relay_buf_fini(&text);
    return code;
}

// ---- GetTokenizerInfo

relay_code relay_text_get_tokenizer_info(const relay_text_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_text_model *model = call->model;
    const Relay__V1__GetTokenizerInfoRequest *m = (const Relay__V1__GetTokenizerInfoRequest *)message;
    relay_code code = relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code != RELAY_OK) return code;

    const relay_vocab *v = relay_text_model_vocab(model);
    const relay_tokenizer *t = relay_text_model_tokenizer(model);
    Relay__V1__GetTokenizerInfoResponse r = RELAY__V1__GET_TOKENIZER_INFO_RESPONSE__INIT;
    RELAY_SET(&r, model, relay_message_text(relay_text_model_name(model)));
    RELAY_SET(&r, tokenizer_fingerprint, relay_message_bytes(relay_vocab_fingerprint(v), RELAY_FINGERPRINT_BYTES));
    RELAY_SET(&r, family, relay_message_text(relay_tokenizer_family(t)));
    RELAY_SET(&r, vocab_size, relay_vocab_size(v));
    RELAY_SET(&r, adds_bos, relay_tokenizer_adds_bos(t));
    RELAY_SET(&r, has_chat_template, relay_text_model_has_chat_template(model));
    RELAY_SET(&r, max_token_bytes, relay_vocab_max_token_bytes(v));
    uint32_t id, n_eos;
    if (relay_vocab_bos(v, &id)) RELAY_SET(&r, bos_token_id, id);
    if (relay_vocab_pad(v, &id)) RELAY_SET(&r, pad_token_id, id);
    r.eos_token_ids = (uint32_t *)(uintptr_t)relay_vocab_eos(v, &n_eos);
    r.n_eos_token_ids = n_eos;
    uint32_t n_names = relay_text_model_template_count(model);
    r.template_names = relay_calloc(n_names == 0 ? 1 : n_names, sizeof *r.template_names);
    for (uint32_t i = 0; i < n_names; i++) {
        r.template_names[r.n_template_names++] = relay_message_text(relay_text_model_template_name(model, i));
    }
    call->reply(call->arg, &r.base);
    free(r.template_names);
    return RELAY_OK;
}
