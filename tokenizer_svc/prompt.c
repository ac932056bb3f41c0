#include "tokenizer_svc/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "tokenizer_svc/text_stream.h"

static const size_t MAX_ECHO_BYTES = 60u << 20;

static bool wants_echo(const Relay__V1__GenerateRequest *m) {
    return m->output != NULL && m->output->has_echo && m->output->echo;
}

static relay_code from_text(relay_prompt *out, const relay_text_model *model, const Relay__V1__GenerateRequest *m,
                            uint64_t max_text_bytes, relay_err *e) {
    ProtobufCBinaryData text = m->prompt;
    if (text.len == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "prompt is empty");
    if (text.len > max_text_bytes) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "prompt has %zu bytes; at most %llu are taken", text.len,
                          (unsigned long long)max_text_bytes);
    }
    relay_text_span span = {
        .text = (const char *)text.data,
        .len = text.len,
        .parse_special = m->has_parse_special_tokens && m->parse_special_tokens,
    };
    relay_encode_opts opts = {.add_special_tokens = true};
    if (wants_echo(m)) {
        out->text = relay_strndup(span.text, span.len);
        out->text_len = span.len;
    }
    return relay_tokenizer_encode(relay_text_model_tokenizer(model), &span, 1, &opts, &out->encoding, e);
}

static relay_code from_chat(relay_prompt *out, const relay_text_model *model, const Relay__V1__GenerateRequest *m,
                            const relay_render_watch *watch, relay_err *e) {
    relay_rendered rendered = {0};
    relay_code code = relay_text_model_render(model, m->chat, watch, &rendered, &out->turn_end, e);
    if (code == RELAY_OK) {
        bool parses_special = m->has_parse_special_tokens && m->parse_special_tokens;
        code = relay_text_model_encode_rendered(model, &rendered, m->chat, parses_special, &out->encoding, e);
    }
    if (code == RELAY_OK && out->encoding.n == 0) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "chat renders to an empty prompt");
    }
    if (code == RELAY_OK && wants_echo(m)) {
        out->text = rendered.text;
        out->text_len = rendered.len;
        rendered.text = NULL;
    }
    relay_rendered_fini(&rendered);
    return code;
}

static relay_code echo_ids(relay_prompt *out, const relay_text_model *model, const Relay__V1__GenerateRequest *m,
                           relay_err *e) {
    relay_text_stream_opts opts = {
        .vocab = relay_text_model_vocab(model),
        .decoder = relay_text_model_decoder(model),
        .skip_special_tokens = !m->output->has_skip_special_tokens || m->output->skip_special_tokens,
    };
    relay_text_stream *stream;
    relay_code code = relay_text_stream_create(&stream, &opts, e);
    if (code != RELAY_OK) return code;
    relay_buf text;
    relay_buf_init(&text, MAX_ECHO_BYTES);
    relay_text_step step;
    relay_text_stream_push(stream, out->encoding.ids, out->encoding.n, false, &text, &step);
    relay_text_stream_finish(stream, &text);
    relay_text_stream_destroy(stream);
    if (text.is_failed) {
        code = relay_fail(e, RELAY_RESOURCE_EXHAUSTED,
                          "the text of token_ids, for output.echo, is longer than %zu bytes", MAX_ECHO_BYTES);
        relay_buf_fini(&text);
        return code;
    }
    out->text = relay_buf_take(&text, &out->text_len);
    return RELAY_OK;
}

static relay_code from_ids(relay_prompt *out, const relay_text_model *model, const Relay__V1__GenerateRequest *m,
                           relay_err *e) {
    size_t n = m->token_ids->n_ids;
    if (n == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "token_ids.ids is empty");
    relay_code code = relay_text_model_check_ids(model, m->token_ids->ids, n, "token_ids.ids", e);
    if (code != RELAY_OK) return code;
    out->encoding.ids = relay_calloc(n, sizeof *out->encoding.ids);
    memcpy(out->encoding.ids, m->token_ids->ids, n * sizeof *out->encoding.ids);
    out->encoding.n = out->encoding.cap = (uint32_t)n;
    return wants_echo(m) ? echo_ids(out, model, m, e) : RELAY_OK;
}

relay_code relay_prompt_make(relay_prompt *out, const relay_text_model *model, const Relay__V1__GenerateRequest *m,
                             uint64_t max_text_bytes, const relay_render_watch *watch, relay_err *e) {
    bool is_ids = m->input_case == RELAY__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    if (m->has_parse_special_tokens && m->parse_special_tokens && is_ids) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "parse_special_tokens is set with token_ids, which have no names");
    }
    switch (m->input_case) {
    case RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT:
        return from_text(out, model, m, max_text_bytes, e);
    case RELAY__V1__GENERATE_REQUEST__INPUT_CHAT:
        return from_chat(out, model, m, watch, e);
    case RELAY__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS:
        return from_ids(out, model, m, e);
    default:
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "none of prompt, chat and token_ids is set");
    }
}

void relay_prompt_fini(relay_prompt *p) {
    relay_encoding_fini(&p->encoding);
    free(p->text);
    *p = (relay_prompt){0};
}
