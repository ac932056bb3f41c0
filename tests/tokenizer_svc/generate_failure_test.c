// GenerationService.Generate: what is refused, what goes away, and what is lost.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/message.h"
#include "tests/tokenizer_svc/text_world.h"

static text_world *w;
static text_answer a;

static void expect_refusal(const Relay__V1__GenerateRequest *m, relay_code code, const char *text) {
    text_generate(w, m, &a);
    assert_int_equal(a.n_messages, 0);
    if (a.code != code) fail_msg("%s: %s", relay_code_name(a.code), a.error);
    if (strstr(a.error, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", a.error, text);
}

// ---- Every field of the contract

// How each field is known to reach whoever must honour it: a value that is refused by name, here or in the model
// service. Fields with "" are seen at work in generate_test. One that is in the contract and not in a table fails the
// test.
typedef struct field_case {
    const char *name, *refusal;
} field_case;

static const field_case request_fields[] = {
    {"model", "model \"x\" is not served here"},
    {"prompt", "prompt is empty"},
    {"chat", ""},
    {"token_ids", "token_ids.ids is empty"},
    {"sequence_id", "sequence_id has 300 bytes"},
    {"sampling", "sampling.temperature is 9"},
    {"stop", ""},
    {"output", ""},
    {"cache", "cache.salt has 300 bytes"},
    {"priority", "priority"},
    {"parse_special_tokens", "parse_special_tokens is set with token_ids"},
    {"num_sequences", "num_sequences is 129; allowed is [1, 128]"},
    {"time_limit_ms", "time_limit_ms is 0"},
    {"request_id", "request_id has 300 bytes"},
    {"resume_token_ids", "resume_token_ids[0] is 1000"},
    {"resume_sampler_state", "resume_sampler_state has 1 bytes"},
};
static const field_case stop_fields[] = {
    {"max_new_tokens", "stop.max_new_tokens is 0"},
    {"min_new_tokens", "stop.min_new_tokens is 4000"},
    {"stop_strings", "stop_strings"},
    {"include_stop_string", ""},
    {"stop_token_ids", "stop.stop_token_ids[0] is 1000"},
    {"ignore_eos", ""},
};
static const field_case output_fields[] = {
    {"top_logprobs", "output.top_logprobs is 21"},
    {"prompt_top_logprobs", "output.prompt_top_logprobs is 21"},
    {"logprob_mode", "output.logprob_mode is set without"},
    {"return_token_ids", ""},
    {"echo", ""},
    {"skip_special_tokens", ""},
    {"final_only", ""},
};

static void check_contract(const ProtobufCMessageDescriptor *d, const field_case *cases, size_t n_cases) {
    assert_int_equal(d->n_fields, n_cases);
    for (unsigned i = 0; i < d->n_fields; i++) {
        if (strcmp(d->fields[i].name, cases[i].name) != 0) fail_msg("%s is not in this test", d->fields[i].name);
    }
}

// Makes the named field wrong.
static void spoil(text_request *r, const char *field) {
    static char long_text[300];
    static uint32_t past[] = {FAKE_VOCAB};
    static Relay__V1__CacheOptions cache;
    memset(long_text, 'x', sizeof long_text);
    Relay__V1__GenerateRequest *m = &r->message;
    if (strcmp(field, "model") == 0) {
        RELAY_SET(m, model, relay_message_text("x"));
    } else if (strcmp(field, "prompt") == 0) {
        m->input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
        m->prompt = relay_message_text("");
    } else if (strcmp(field, "token_ids") == 0) {
        r->ids.n_ids = 0;
    } else if (strcmp(field, "sequence_id") == 0) {
        RELAY_SET(m, sequence_id, relay_message_bytes(long_text, sizeof long_text));
    } else if (strcmp(field, "sampling") == 0) {
        RELAY_SET(&r->sampling, temperature, 9);
    } else if (strcmp(field, "cache") == 0) {
        relay__v1__cache_options__init(&cache);
        RELAY_SET(&cache, salt, relay_message_bytes(long_text, sizeof long_text));
        m->cache = &cache;
    } else if (strcmp(field, "parse_special_tokens") == 0) {
        RELAY_SET(m, parse_special_tokens, 1);
    } else if (strcmp(field, "num_sequences") == 0) {
        RELAY_SET(m, num_sequences, 129);
    } else if (strcmp(field, "time_limit_ms") == 0) {
        RELAY_SET(m, time_limit_ms, 0);
    } else if (strcmp(field, "request_id") == 0) {
        RELAY_SET(m, request_id, relay_message_bytes(long_text, sizeof long_text));
    } else if (strcmp(field, "resume_token_ids") == 0) {
        m->n_resume_token_ids = 1;
        m->resume_token_ids = past;
    } else if (strcmp(field, "resume_sampler_state") == 0) {
        RELAY_SET(m, resume_sampler_state, relay_message_text("x"));
    } else if (strcmp(field, "max_new_tokens") == 0) {
        RELAY_SET(&r->stop, max_new_tokens, 0);
    } else if (strcmp(field, "min_new_tokens") == 0) {
        RELAY_SET(&r->stop, min_new_tokens, 4000);
    } else if (strcmp(field, "stop_strings") == 0) {
        text_request_add_stop(r, "", 0);
    } else if (strcmp(field, "stop_token_ids") == 0) {
        r->stop.n_stop_token_ids = 1;
        r->stop.stop_token_ids = past;
    } else if (strcmp(field, "top_logprobs") == 0) {
        RELAY_SET(&r->output, top_logprobs, 21);
    } else if (strcmp(field, "prompt_top_logprobs") == 0) {
        RELAY_SET(&r->output, prompt_top_logprobs, 21);
    } else if (strcmp(field, "logprob_mode") == 0) {
        RELAY_SET(&r->output, logprob_mode, RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_RAW);
    } else {
        fail_msg("%s cannot be made wrong", field);
    }
}

static void check_refusals(const field_case *cases, size_t n_cases) {
    for (size_t i = 0; i < n_cases; i++) {
        if (cases[i].refusal[0] == '\0' || strcmp(cases[i].name, "priority") == 0) continue;
        text_request r;
        text_request_init(&r, 10, 5, 1);
        spoil(&r, cases[i].name);
        text_generate(w, &r.message, &a);
        if (a.code != RELAY_INVALID_ARGUMENT && a.code != RELAY_UNIMPLEMENTED && a.code != RELAY_NOT_FOUND) {
            fail_msg("%s: %s %s", cases[i].name, relay_code_name(a.code), a.error);
        }
        if (strstr(a.error, cases[i].refusal) == NULL) fail_msg("%s: \"%s\"", cases[i].name, a.error);
    }
}

static void every_field_is_used_or_refused(void **state) {
    enum { N_REQUEST = sizeof request_fields / sizeof request_fields[0] };
    enum { N_STOP = sizeof stop_fields / sizeof stop_fields[0] };
    enum { N_OUTPUT = sizeof output_fields / sizeof output_fields[0] };
    check_contract(&relay__v1__generate_request__descriptor, request_fields, N_REQUEST);
    check_contract(&relay__v1__text_stop__descriptor, stop_fields, N_STOP);
    check_contract(&relay__v1__text_output__descriptor, output_fields, N_OUTPUT);
    w = text_world_create((text_world_opts){0});
    check_refusals(request_fields, N_REQUEST);
    check_refusals(stop_fields, N_STOP);
    check_refusals(output_fields, N_OUTPUT);
    service_world_wait_for(w->model, load_is_empty);
    text_world_destroy(w);
}

static void a_higher_priority_runs_first(void **state) {
    w = text_world_create((text_world_opts){.model = {.max_running = 1}});
    service_world_hold(w->model);
    text_request r;
    relay_rpc_stream *s[3];
    static const int32_t priorities[] = {0, 1, 5}; // the first is running when the others come
    for (int i = 0; i < 3; i++) {
        text_request_init(&r, 10, i == 0 ? 300 : 20, (uint64_t)i);
        RELAY_SET(&r.message, priority, priorities[i]);
        s[i] = text_open(w->client, &r.message);
        service_world_step_until(w->model, i == 0   ? load_has_one_running
                                           : i == 1 ? load_has_one_waiting
                                                    : load_has_two_waiting);
    }
    service_world_release(w->model);
    uint64_t queue_us[3];
    for (int i = 0; i < 3; i++) {
        text_read_all(s[i], &a);
        assert_int_equal(a.code, RELAY_OK);
        queue_us[i] = a.queue_us;
    }
    assert_true(queue_us[2] < queue_us[1]); // it came after the second, and began before it
    for (int i = 0; i < 3; i++)
        relay_rpc_stream_release(s[i]);
    text_world_destroy(w);
}

// ---- Other refusals

static void other_wrong_requests_are_refused_by_name(void **state) {
    w = text_world_create((text_world_opts){.max_text_bytes = 1000});
    text_request r;
    text_request_init(&r, 10, 5, 1);
    r.message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT__NOT_SET;
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "none of prompt, chat and token_ids is set");

    text_request_init(&r, 10, 5, 1);
    r.prompt[4] = FAKE_VOCAB;
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "token_ids.ids[4] is 1000");

    text_request_init(&r, 10, 5, 1);
    r.message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
    r.message.prompt = relay_message_bytes("caf\xc3", 4);
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "prompt");
    static char long_prompt[1001];
    memset(long_prompt, 'a', sizeof long_prompt);
    r.message.prompt = relay_message_bytes(long_prompt, sizeof long_prompt);
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "prompt has 1001 bytes; at most 1000");
    r.message.prompt = relay_message_bytes(long_prompt, 999); // 999 tokens and BOS
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "prompt has 1000 ids");

    text_request_init(&r, 10, 5, 1);
    for (int i = 0; i < 17; i++)
        text_request_add_stop(&r, "x", 1);
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "stop.stop_strings has 17 strings; at most 16");
    text_request_init(&r, 10, 5, 1);
    text_request_add_stop(&r, long_prompt, 257);
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "stop.stop_strings[0] has 257 bytes");

    text_request_init(&r, 10, 5, 1);
    uint8_t one = 1;
    ProtobufCMessageUnknownField field = {.tag = 99, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &one};
    r.output.base.n_unknown_fields = 1;
    r.output.base.unknown_fields = &field;
    expect_refusal(&r.message, RELAY_UNIMPLEMENTED, "output holds field number 99");
    text_world_destroy(w);
}

static void a_chat_needs_a_template(void **state) {
    w = text_world_create((text_world_opts){.has_no_template = true});
    text_request r;
    text_request_init(&r, 10, 5, 1);
    Relay__V1__ChatMessage message = RELAY__V1__CHAT_MESSAGE__INIT, *messages = &message;
    RELAY_SET(&message, role, relay_message_text("user"));
    RELAY_SET(&message, content, relay_message_text("hello"));
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = 1;
    chat.messages = &messages;
    r.message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
    r.message.chat = &chat;
    expect_refusal(&r.message, RELAY_FAILED_PRECONDITION, "no chat template");
    text_world_destroy(w);
    w = text_world_create((text_world_opts){.chat_template = "{% if %}"});
    expect_refusal(&r.message, RELAY_FAILED_PRECONDITION, "does not compile");
    RELAY_SET(&chat, template_name, relay_message_text("broken"));
    expect_refusal(&r.message, RELAY_FAILED_PRECONDITION, "does not compile");
    RELAY_SET(&chat, template_name, relay_message_text("none"));
    expect_refusal(&r.message, RELAY_NOT_FOUND, "no template \"none\"");
    RELAY_SET(&chat, template_name, relay_message_text("short"));
    text_generate(w, &r.message, &a);
    assert_int_equal(a.prompt_tokens, 2);
    uint32_t ids[] = {5, 6, FAKE_VOCAB};
    message.n_token_ids = 2;
    message.token_ids = ids;
    text_generate(w, &r.message, &a);
    assert_int_equal(a.prompt_tokens, 3);
    message.n_token_ids = 3;
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "chat.messages[0].token_ids[2] is 1000");
    text_world_destroy(w);
}

static void a_full_model_server_s_refusal_reaches_the_client(void **state) {
    w = text_world_create((text_world_opts){.model = {.max_running = 1, .max_queued_requests = 1}});
    service_world_hold(w->model);
    text_request r;
    text_request_init(&r, 10, 200, 1);
    relay_rpc_stream *first = text_open(w->client, &r.message);
    service_world_step_until(w->model, load_has_one_running);
    relay_rpc_stream *second = text_open(w->client, &r.message);
    service_world_step_until(w->model, load_has_one_waiting);
    expect_refusal(&r.message, RELAY_RESOURCE_EXHAUSTED, "");
    assert_true(a.retry_after_ms != 0);
    service_world_release(w->model);
    text_read_all(first, &a);
    assert_int_equal(a.n_ids, 200);
    text_read_all(second, &a);
    assert_int_equal(a.n_ids, 200);
    relay_rpc_stream_release(first);
    relay_rpc_stream_release(second);
    text_world_destroy(w);
}

// ---- Who goes away

// The model, held at an answer of 8,000 steps, has nothing to do long before its end. A step is at least a millisecond
// here, which leaves whatever has to reach the model seconds to do so.
static void expect_end_in_mid_answer(void) {
    service_world_step_until(w->model, load_is_empty);
    assert_true(service_world_steps(w->model) < 4000);
}

static void a_client_that_goes_takes_its_generation_along(void **state) {
    w = text_world_create((text_world_opts){.model = {.max_context = 8192}});
    text_request r;
    text_request_init(&r, 10, 8000, 1);
    for (int from_lost_connection = 0; from_lost_connection < 2; from_lost_connection++) {
        tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(w->server));
        char target[64];
        snprintf(target, sizeof target, "127.0.0.1:%u", tcp_proxy_port(proxy));
        relay_rpc_client *client;
        relay_rpc_client_opts opts = {.target = target};
        assert_int_equal(relay_rpc_client_create(&client, &opts, NULL), RELAY_OK);
        service_world_hold(w->model);
        relay_rpc_stream *s = text_open(client, &r.message);
        service_world_step_until(w->model, load_has_one_running);
        if (from_lost_connection) {
            tcp_proxy_destroy(proxy);
        } else {
            relay_rpc_stream_cancel(s);
        }
        expect_end_in_mid_answer();
        service_world_release(w->model);
        relay_rpc_stream_release(s);
        relay_rpc_client_destroy(client);
        if (!from_lost_connection) tcp_proxy_destroy(proxy);
    }
    text_world_destroy(w);
}

static void a_client_that_does_not_read_is_cut(void **state) {
    // Far more than the windows and the outbox take, and than the model does before it hears of it.
    enum { N_TOKENS = 60000 };
    w = text_world_create((text_world_opts){.outbox_bytes = 16384, .model = {.max_context = N_TOKENS + 10}});
    tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(w->server));
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%u", tcp_proxy_port(proxy));
    relay_rpc_client *client;
    relay_rpc_client_opts opts = {.target = target};
    assert_int_equal(relay_rpc_client_create(&client, &opts, NULL), RELAY_OK);
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 1);
    RELAY_SET(&r.output, top_logprobs, 20);
    service_world_hold(w->model);
    relay_rpc_stream *s = text_open(client, &r.message);
    service_world_step_until(w->model, load_has_one_running);
    tcp_proxy_freeze(proxy);
    service_world_release(w->model);
    service_world_wait_for(w->model, load_is_empty);
    assert_true(service_world_steps(w->model) < N_TOKENS);
    assert_int_equal(relay_counter_value(relay_metrics_counter(w->metrics, "relay_slow_readers_total", "", NULL)), 1);
    relay_rpc_stream_cancel(s);
    relay_rpc_stream_release(s);
    relay_rpc_client_destroy(client);
    tcp_proxy_destroy(proxy);
    text_world_destroy(w);
}

static void a_deadline_reaches_the_model(void **state) {
    w = text_world_create((text_world_opts){.model = {.max_context = 8192}});
    service_world_hold(w->model);
    text_request r;
    text_request_init(&r, 10, 8000, 1);
    relay_rpc_stream *s;
    assert_int_equal(relay_rpc_stream_open(&s, w->client, "/relay.v1.GenerationService/Generate",
                                           &relay__v1__generate_response__descriptor, NULL, 0,
                                           relay_mono_now() + 1000000, NULL, NULL, NULL),
                     RELAY_OK);
    assert_int_equal(relay_rpc_stream_send(s, &r.message.base), RELAY_OK);
    service_world_step_until(w->model, load_has_one_running);
    memset(&a, 0, sizeof a);
    while (text_read(s, &a)) {
    }
    assert_int_equal(a.code, RELAY_DEADLINE_EXCEEDED);
    expect_end_in_mid_answer();
    service_world_release(w->model);
    relay_rpc_stream_release(s);
    text_world_destroy(w);
}

static void a_time_limit_ends_the_answer_with_what_there_is(void **state) {
    w = text_world_create((text_world_opts){0});
    service_world_hold(w->model);
    text_request r;
    text_request_init(&r, 10, 450, 1);
    RELAY_SET(&r.message, time_limit_ms, 1000);
    relay_rpc_stream *s = text_open(w->client, &r.message);
    service_world_step_until(w->model, load_has_one_running);
    usleep(1000000); // which began after the limit did
    service_world_release(w->model);
    text_read_all(s, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_TIME_LIMIT);
    assert_true(a.n_ids < 450);
    relay_rpc_stream_release(s);
    text_world_destroy(w);
}

// ---- What is lost

static void without_a_model_server_text_is_still_served(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    text_request r;
    text_request_init(&r, 10, 5, 1);
    expect_refusal(&r.message, RELAY_FAILED_PRECONDITION, "--model-server");
    Relay__V1__ListModelsRequest m = RELAY__V1__LIST_MODELS_REQUEST__INIT;
    relay_err e;
    ProtobufCMessage *response = text_world_call(w, RELAY_GENERATION_SERVICE_NAME, "ListModels", &m.base,
                                                 &relay__v1__list_models_response__descriptor, &e);
    assert_non_null(response);
    const Relay__V1__ModelSummary *model = ((Relay__V1__ListModelsResponse *)response)->models[0];
    assert_int_equal(model->ready_pods, 0);
    assert_false(model->has_max_context_tokens);
    protobuf_c_message_free_unpacked(response, NULL);
    text_world_destroy(w);
}

static void the_model_is_listed_with_its_pods(void **state) {
    w = text_world_create((text_world_opts){0});
    Relay__V1__ListModelsRequest m = RELAY__V1__LIST_MODELS_REQUEST__INIT;
    relay_err e;
    ProtobufCMessage *response = text_world_call(w, RELAY_GENERATION_SERVICE_NAME, "ListModels", &m.base,
                                                 &relay__v1__list_models_response__descriptor, &e);
    assert_non_null(response);
    const Relay__V1__ListModelsResponse *list = (Relay__V1__ListModelsResponse *)response;
    assert_int_equal(list->n_models, 1);
    assert_int_equal(list->models[0]->ready_pods, 1);
    assert_int_equal(list->models[0]->max_context_tokens, 512);
    assert_true(list->models[0]->has_chat_template);
    assert_memory_equal(list->models[0]->model.data, "tiny", 4);
    protobuf_c_message_free_unpacked(response, NULL);
    text_world_destroy(w);
}

static void a_model_server_of_another_vocabulary_is_refused(void **state) {
    w = text_world_create((text_world_opts){.model_differs = true});
    text_request r;
    text_request_init(&r, 10, 5, 1);
    relay_mono_us until = relay_mono_now() + 10000000;
    do { // UNAVAILABLE until the first hello was answered
        text_generate(w, &r.message, &a);
        usleep(5000);
    } while (a.code == RELAY_UNAVAILABLE && relay_mono_now() < until);
    assert_int_equal(a.code, RELAY_FAILED_PRECONDITION);
    assert_non_null(strstr(a.error, "another vocabulary"));
    assert_non_null(strstr(a.error, "tokenizer_fingerprint is "));
    text_world_destroy(w);
}

static void a_lost_model_server_ends_answers_and_is_found_again(void **state) {
    w = text_world_create((text_world_opts){.has_proxy = true});
    service_world_hold(w->model);
    text_request r;
    text_request_init(&r, 10, 450, 1);
    relay_rpc_stream *s = text_open(w->client, &r.message);
    service_world_step_until(w->model, load_has_one_running);
    tcp_proxy_cut(w->proxy);
    text_read_all(s, &a);
    assert_int_equal(a.code, RELAY_UNAVAILABLE);
    assert_non_null(strstr(a.error, "was lost"));
    relay_rpc_stream_release(s);
    service_world_step_until(w->model, load_is_empty); // and the model has let go of it
    service_world_release(w->model);
    text_world_wait_for_pods(w->link, 1);
    text_generate(w, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.n_ids, 450);
    text_world_destroy(w);
}

static void a_drained_model_server_ends_answers_as_drained(void **state) {
    w = text_world_create((text_world_opts){0});
    service_world_hold(w->model);
    text_request r;
    text_request_init(&r, 10, 450, 1);
    relay_rpc_stream *s = text_open(w->client, &r.message);
    service_world_step_until(w->model, load_has_one_running);
    service_world_stop(w->model);
    text_read_all(s, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_DRAINED);
    relay_rpc_stream_release(s);
    text_world_wait_for_pods(w->link, 0);
    expect_refusal(&r.message, RELAY_UNAVAILABLE, "none of 1 model servers is ready");
    assert_true(a.retry_after_ms != 0);
    text_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_used_or_refused),
        cmocka_unit_test(a_higher_priority_runs_first),
        cmocka_unit_test(other_wrong_requests_are_refused_by_name),
        cmocka_unit_test(a_chat_needs_a_template),
        cmocka_unit_test(a_full_model_server_s_refusal_reaches_the_client),
        cmocka_unit_test(a_client_that_goes_takes_its_generation_along),
        cmocka_unit_test(a_client_that_does_not_read_is_cut),
        cmocka_unit_test(a_deadline_reaches_the_model),
        cmocka_unit_test(a_time_limit_ends_the_answer_with_what_there_is),
        cmocka_unit_test(without_a_model_server_text_is_still_served),
        cmocka_unit_test(the_model_is_listed_with_its_pods),
        cmocka_unit_test(a_model_server_of_another_vocabulary_is_refused),
        cmocka_unit_test(a_lost_model_server_ends_answers_and_is_found_again),
        cmocka_unit_test(a_drained_model_server_ends_answers_as_drained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
