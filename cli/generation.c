#include "cli/generation.h"

#include <string.h>

#include "cli/message_json.h"
#include "common/message.h"

enum { POLL_US = 50000, MAX_ANSWER = 256 << 20 };

static void take_message(relay_generation *g, const Relay__V1__GenerateResponse *m) {
    if (m->started != NULL) g->prompt_tokens = m->started->prompt_tokens;
    if (m->has_text && m->text.len != 0) {
        relay_mono_us at = relay_mono_now();
        if (g->first_at == 0) g->first_at = at;
        g->last_at = at;
        relay_buf_append(&g->text, m->text.data, m->text.len);
    }
    for (size_t i = 0; i < m->n_tokens; i++)
        relay_buf_append(&g->ids, &m->tokens[i]->token_id, sizeof m->tokens[i]->token_id);
    if (m->finished != NULL) {
        g->finish = m->finished->reason;
        g->output_tokens = m->finished->output_tokens;
        g->last_at = relay_mono_now();
    }
    if (g->as_json) {
        relay_buf line;
        relay_buf_init(&line, MAX_ANSWER);
        relay_message_json(&m->base, &line);
        relay_buf_putc(&line, '\n');
        fwrite(line.data, 1, line.len, stdout);
        relay_buf_fini(&line);
    } else if (m->has_text) {
        fwrite(m->text.data, 1, m->text.len, stdout);
    }
    fflush(stdout);
}

void relay_generation_set_message(Relay__V1__ChatMessage *m, const char *role, const char *text, size_t len) {
    relay__v1__chat_message__init(m);
    RELAY_SET(m, role, relay_message_text(role));
    RELAY_SET(m, content, relay_message_bytes(text, len));
}

int relay_generation_run(relay_generation *g, const Relay__V1__GenerateRequest *request) {
    relay_buf_init(&g->text, MAX_ANSWER);
    relay_buf_init(&g->ids, MAX_ANSWER);
    relay_rpc_stream *stream;
    relay_err e = {0};
    g->started_at = relay_mono_now();
    relay_code code =
        relay_rpc_stream_open(&stream, g->client, "/relay.v1.GenerationService/Generate",
                              &relay__v1__generate_response__descriptor, NULL, 0, g->deadline, NULL, NULL, &e);
    if (code != RELAY_OK) return relay_cli_error(code, &e);
    code = relay_rpc_stream_send(stream, &request->base);
    if (code != RELAY_OK) relay_fail(&e, code, "the request was not sent: it is too large or the server is gone");
    relay_rpc_stream_half_close(stream);
    while (code == RELAY_OK) {
        ProtobufCMessage *m = NULL;
        bool timed_out = false;
        // Signals are looked at between waits: nothing of the call happens in a handler.
        code = relay_rpc_stream_next(stream, relay_mono_now() + POLL_US, &m, &timed_out, &e);
        if (relay_cli_is_interrupted() && !g->was_cancelled) {
            g->was_cancelled = true;
            relay_rpc_stream_cancel(stream);
        }
        if (timed_out) {
            code = RELAY_OK;
            continue;
        }
        if (m == NULL) break;
        if (!g->was_cancelled) take_message(g, (const Relay__V1__GenerateResponse *)m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    relay_rpc_stream_release(stream);
    if (g->was_cancelled) return RELAY_EXIT_INTERRUPTED;
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

void relay_generation_print_stats(const relay_generation *g, FILE *f) {
    const ProtobufCEnumValue *reason =
        protobuf_c_enum_descriptor_get_value(&relay__v1__finish_reason__descriptor, g->finish);
    const char *name = reason != NULL ? reason->name : "FINISH_REASON_UNSPECIFIED";
    fprintf(f, "prompt_tokens=%u time_to_first_token=%.1fms time_per_output_token=%.2fms tokens=%u finish_reason=%s\n",
            g->prompt_tokens, g->first_at != 0 ? (double)(g->first_at - g->started_at) / 1e3 : 0.0,
            g->output_tokens > 1 ? (double)(g->last_at - g->first_at) / 1e3 / (g->output_tokens - 1) : 0.0,
            g->output_tokens, name + strlen("FINISH_REASON_"));
}
