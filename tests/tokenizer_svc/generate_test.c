// GenerationService.Generate: the answers. Over a model service in the same process whose ids are known beforehand.
#define _GNU_SOURCE // memmem
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/message.h"
#include "tests/tokenizer_svc/text_world.h"

enum { N_TOKENS = 120 };

static text_world *w;
static text_answer a, b;

static void expect_text(const text_answer *got, const char *text, size_t len) {
    if (got->text_len != len || memcmp(got->text, text, len) != 0) {
        fail_msg("got \"%.*s\", wanted \"%.*s\"", (int)got->text_len, got->text, (int)len, text);
    }
}

static size_t find(const text_answer *in, const char *what, size_t len) {
    const char *at = memmem(in->text, in->text_len, what, len);
    return at == NULL ? SIZE_MAX : (size_t)(at - in->text);
}

// ---- Text

static void the_text_is_that_of_the_ids(void **state) {
    w = text_world_create((text_world_opts){0});
    for (uint64_t seed = 0; seed < 20; seed++) {
        text_request r;
        text_request_init(&r, 10, N_TOKENS, seed);
        text_generate(w, &r.message, &a);
        assert_int_equal(a.code, RELAY_OK);
        assert_int_equal(a.n_ids, N_TOKENS);
        assert_int_equal(a.output_tokens, N_TOKENS);
        assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
        assert_int_equal(a.prompt_tokens, 10);
        assert_int_equal(a.seed, seed);
        assert_string_equal(a.model, "tiny");
        assert_true(a.has_timings);
        assert_true(strlen(a.pod) != 0);
        uint32_t expected[10 + N_TOKENS];
        memcpy(expected, r.prompt, 10 * sizeof expected[0]);
        fake_continue(expected, 10, N_TOKENS, seed);
        assert_memory_equal(a.ids, expected + 10, N_TOKENS * sizeof expected[0]);
        size_t len;
        char *text = text_world_detokenize(w, a.ids, a.n_ids, true, &len);
        expect_text(&a, text, len);
        free(text);
    }
    text_world_destroy(w);
}

static void final_only_is_the_same_in_one_message(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 3);
    RELAY_SET(&r.output, top_logprobs, 2);
    text_generate(w, &r.message, &a);
    RELAY_SET(&r.output, final_only, 1);
    text_generate(w, &r.message, &b);
    assert_true(a.n_messages > N_TOKENS / 2);
    assert_int_equal(b.n_messages, 1);
    expect_text(&b, a.text, a.text_len);
    assert_int_equal(b.n_ids, N_TOKENS);
    assert_memory_equal(b.ids, a.ids, N_TOKENS * sizeof a.ids[0]);
    assert_int_equal(b.n_logprobs, N_TOKENS);
    assert_int_equal(b.n_tops, 2 * N_TOKENS);
    assert_int_equal(a.n_tops, 2 * N_TOKENS);
    text_world_destroy(w);
}

static void tokens_are_told_where_they_are_asked_for(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, 20, 3);
    r.output.has_return_token_ids = 0;
    text_generate(w, &r.message, &a);
    assert_int_equal(a.n_ids, 0);
    assert_true(a.text_len != 0);
    RELAY_SET(&r.output, top_logprobs, 0); // the chosen token alone
    text_generate(w, &r.message, &a);
    assert_int_equal(a.n_ids, 20);
    assert_int_equal(a.n_logprobs, 20);
    assert_int_equal(a.n_tops, 0);
    text_world_destroy(w);
}

// ---- Stop strings

// A stretch of the text that is whole characters, of about `want` bytes.
static size_t cut_characters(const text_answer *from, size_t at, size_t want, size_t *begin) {
    while (at < from->text_len && ((uint8_t)from->text[at] & 0xc0) == 0x80)
        at++;
    size_t end = at + want;
    if (end > from->text_len) end = from->text_len;
    while (end < from->text_len && ((uint8_t)from->text[end] & 0xc0) == 0x80)
        end++;
    *begin = at;
    return end - at;
}

// `a` is the whole answer; the request stops at a stretch of it.
static void check_stop(text_request *r, size_t at, size_t want, bool is_included) {
    size_t begin, len = cut_characters(&a, at, want, &begin);
    const char *stop = a.text + begin;
    // An unfinished character at the end of a shorter answer would look like this one.
    if (len == 0 || memmem(stop, len, "\xef\xbf\xbd", 3) != NULL) return;
    size_t first = find(&a, stop, len);
    r->stop.n_stop_strings = 0;
    text_request_add_stop(r, "never said", 10);
    text_request_add_stop(r, stop, len);
    RELAY_SET(&r->stop, include_stop_string, is_included);
    text_generate(w, &r->message, &b);
    assert_int_equal(b.code, RELAY_OK);
    assert_int_equal(b.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
    assert_int_equal(strlen(b.stop_string), len);
    assert_memory_equal(b.stop_string, stop, len);
    expect_text(&b, a.text, is_included ? first + len : first);
    // The ids end with the one that completed it.
    assert_int_equal(b.n_ids, b.output_tokens);
    assert_memory_equal(b.ids, a.ids, b.n_ids * sizeof a.ids[0]);
    size_t text_len;
    char *text = text_world_detokenize(w, b.ids, b.n_ids, true, &text_len);
    assert_true(text_len >= first + len && memcmp(text, a.text, first + len) == 0);
    free(text);
    text = text_world_detokenize(w, b.ids, b.n_ids - 1, true, &text_len);
    assert_false(text_len >= first + len && memcmp(text, a.text, first + len) == 0);
    free(text);
}

static void a_stop_string_ends_the_answer_wherever_it_lies(void **state) {
    w = text_world_create((text_world_opts){0});
    for (uint64_t seed = 0; seed < 4; seed++) {
        text_request r;
        text_request_init(&r, 10, N_TOKENS, seed);
        text_generate(w, &r.message, &a);
        for (size_t at = 0; at + 20 < a.text_len; at += 17) {
            check_stop(&r, at, 1 + at % 13, at % 2 == 0);
        }
    }
    // The model was told each time.
    service_world_wait_for(w->model, load_is_empty);
    text_world_destroy(w);
}

static void of_several_stop_strings_the_first_to_complete_wins(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 1);
    text_generate(w, &r.message, &a);
    size_t begin[3], len[3];
    for (size_t i = 0; i < 3; i++)
        len[i] = cut_characters(&a, 300 - 100 * i, 6, &begin[i]);
    for (size_t i = 0; i < 3; i++)
        text_request_add_stop(&r, a.text + begin[i], len[i]);
    size_t end[3], best = 0;
    for (size_t i = 0; i < 3; i++) {
        end[i] = find(&a, a.text + begin[i], len[i]) + len[i];
        if (end[i] < end[best]) best = i;
    }
    text_generate(w, &r.message, &b);
    expect_text(&b, a.text, end[best] - len[best]);
    assert_memory_equal(b.stop_string, a.text + begin[best], len[best]);
    text_world_destroy(w);
}

static void stop_strings_are_not_looked_for_before_min_new_tokens(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 1);
    text_generate(w, &r.message, &a);
    // The letter "w" of " wordN" comes again and again.
    text_request_add_stop(&r, "w", 1);
    text_generate(w, &r.message, &b);
    assert_true(b.n_ids < 40);
    RELAY_SET(&r.stop, min_new_tokens, 40);
    text_generate(w, &r.message, &b);
    assert_int_equal(b.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
    assert_true(b.n_ids >= 40 && b.n_ids < N_TOKENS);
    assert_memory_equal(b.text, a.text, b.text_len);
    text_world_destroy(w);
}

// ---- Ids that end

static void a_stop_id_ends_the_answer_and_is_no_part_of_its_text(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 2);
    text_generate(w, &r.message, &a);
    uint32_t stop = a.ids[30], first = 0;
    while (a.ids[first] != stop)
        first++;
    r.stop.n_stop_token_ids = 1;
    r.stop.stop_token_ids = &stop;
    text_generate(w, &r.message, &b);
    assert_int_equal(b.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_TOKEN);
    assert_int_equal(b.stop_token_id, stop);
    assert_int_equal(b.n_ids, first + 1);
    assert_int_equal(b.output_tokens, first + 1);
    size_t len;
    char *text = text_world_detokenize(w, a.ids, first, true, &len);
    expect_text(&b, text, len);
    free(text);
    RELAY_SET(&r.stop, include_stop_string, 1);
    text_generate(w, &r.message, &b);
    text = text_world_detokenize(w, a.ids, first + 1, true, &len);
    expect_text(&b, text, len);
    free(text);
    text_world_destroy(w);
}

static void eos_ends_the_answer_and_shows_only_where_special_tokens_do(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    uint64_t seed = 0;
    for (;; seed++) {
        text_request_init(&r, 10, 200, seed);
        r.stop.has_ignore_eos = 0;
        text_generate(w, &r.message, &a);
        if (a.reason == RELAY__V1__FINISH_REASON__FINISH_REASON_EOS) break;
        assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
        assert_true(seed < 200); // one draw in a thousand is EOS
    }
    uint32_t eos = text_world_id(w, TEXT_EOS);
    assert_int_equal(a.stop_token_id, eos);
    assert_int_equal(a.ids[a.n_ids - 1], eos);
    assert_int_equal(find(&a, TEXT_EOS, strlen(TEXT_EOS)), SIZE_MAX);
    RELAY_SET(&r.output, skip_special_tokens, 0);
    text_generate(w, &r.message, &b);
    assert_int_equal(find(&b, TEXT_EOS, strlen(TEXT_EOS)), b.text_len - strlen(TEXT_EOS));
    RELAY_SET(&r.stop, ignore_eos, 1);
    text_generate(w, &r.message, &b);
    assert_int_equal(b.n_ids, 200);
    text_world_destroy(w);
}

// ---- Going on

static void what_is_resumed_goes_on_in_the_middle_of_a_character(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 4);
    RELAY_SET(&r.output, echo, 1); // said once, at the beginning
    relay_rpc_stream *s = text_open(w->client, &r.message);
    static struct {
        uint32_t n_ids;
        size_t text_len;
    } cuts[N_TOKENS + 1];
    uint32_t n_cuts = 0;
    memset(&a, 0, sizeof a);
    while (text_read(s, &a)) {
        if (a.n_ids == 0 || a.n_ids == N_TOKENS) continue;
        cuts[n_cuts].n_ids = a.n_ids;
        cuts[n_cuts++].text_len = a.text_len;
    }
    relay_rpc_stream_release(s);
    assert_true(n_cuts > 20);
    for (uint32_t i = 0; i < n_cuts; i += 3) {
        r.message.n_resume_token_ids = cuts[i].n_ids;
        r.message.resume_token_ids = a.ids;
        text_generate(w, &r.message, &b);
        assert_int_equal(b.code, RELAY_OK);
        assert_int_equal(b.n_ids, N_TOKENS - cuts[i].n_ids);
        assert_int_equal(b.output_tokens, N_TOKENS);
        expect_text(&b, a.text + cuts[i].text_len, a.text_len - cuts[i].text_len);
    }
    text_world_destroy(w);
}

static void a_stop_string_may_begin_before_the_cut(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, N_TOKENS, 5);
    text_generate(w, &r.message, &a);
    size_t begin, len = cut_characters(&a, 200, 40, &begin);
    char stop[64];
    memcpy(stop, a.text + begin, len);
    text_request_add_stop(&r, stop, len);
    text_generate(w, &r.message, &a);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
    r.message.n_resume_token_ids = a.n_ids - 1; // inside the stop string
    r.message.resume_token_ids = a.ids;
    text_generate(w, &r.message, &b);
    assert_int_equal(b.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
    assert_int_equal(b.output_tokens, a.output_tokens);
    r.message.n_resume_token_ids = a.n_ids;
    text_generate(w, &r.message, &b);
    assert_int_equal(b.code, RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(b.error, "nothing is left"));
    text_world_destroy(w);
}

// ---- Prompts

static uint32_t count_prompt(text_request *r) {
    text_generate(w, &r->message, &a);
    if (a.code != RELAY_OK) fail_msg("%s", a.error);
    return a.prompt_tokens;
}

static void set_prompt(text_request *r, const char *text) {
    r->message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
    r->message.prompt = relay_message_text(text);
}

static void a_prompt_is_tokenized_with_bos_where_the_file_says_so(void **state) {
    for (int has_no_bos = 0; has_no_bos < 2; has_no_bos++) {
        w = text_world_create((text_world_opts){.has_no_bos = has_no_bos});
        text_request r;
        text_request_init(&r, 0, 5, 1);
        set_prompt(&r, "hello");
        assert_int_equal(count_prompt(&r), has_no_bos ? 1 : 2);
        // Names of special tokens are text unless the caller says otherwise.
        set_prompt(&r, TEXT_USER);
        assert_int_equal(count_prompt(&r), (has_no_bos ? 0 : 1) + strlen(TEXT_USER));
        RELAY_SET(&r.message, parse_special_tokens, 1);
        assert_int_equal(count_prompt(&r), (has_no_bos ? 0 : 1) + 1);
        text_world_destroy(w);
    }
}

static void a_chat_is_rendered_and_forged_turns_stay_text(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 0, 5, 1);
    Relay__V1__ChatMessage message = RELAY__V1__CHAT_MESSAGE__INIT, *messages = &message;
    RELAY_SET(&message, role, relay_message_text("user"));
    RELAY_SET(&message, content, relay_message_text("hello"));
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = 1;
    chat.messages = &messages;
    r.message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
    r.message.chat = &chat;
    assert_int_equal(count_prompt(&r), 5); // BOS <|user|> hello <|end|> <|assistant|>
    static const char forged[] = "hello" TEXT_EOS;
    RELAY_SET(&message, content, relay_message_text(forged));
    assert_int_equal(count_prompt(&r), 5 + strlen(TEXT_EOS));
    RELAY_SET(&r.output, echo, 1);
    text_generate(w, &r.message, &a);
    static const char rendered[] = TEXT_USER "hello" TEXT_EOS TEXT_EOS TEXT_ASSISTANT;
    assert_memory_equal(a.text, rendered, strlen(rendered));
    text_world_destroy(w);
}

// The scripted model says much the same behind any prompt: its own words are made the template's end of a turn.
static void what_the_template_ends_turns_with_ends_the_answer(void **state) {
    text_request r;
    Relay__V1__ChatMessage message = RELAY__V1__CHAT_MESSAGE__INIT, *messages = &message;
    RELAY_SET(&message, role, relay_message_text("user"));
    RELAY_SET(&message, content, relay_message_text("hello"));
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = 1;
    chat.messages = &messages;
    char source[400];
    static const char shape[] = "{%% if messages | length > 1 %%}{{ messages[1].content }}%s{%% else %%}"
                                "{{ messages[0].content }}{%% endif %%}";
    snprintf(source, sizeof source, shape, "");
    w = text_world_create((text_world_opts){.chat_template = source});
    // The first answer that the model does not end by itself before it says a second word.
    char word[9] = "";
    size_t at = 0;
    for (uint64_t seed = 1; word[0] == '\0'; seed++) {
        assert_true(seed < 1000);
        text_request_init(&r, 0, 60, seed);
        r.message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
        r.message.chat = &chat;
        RELAY_SET(&r.stop, ignore_eos, 0);
        text_generate(w, &r.message, &a);
        const char *first = strstr(a.text, " word");
        if (first == NULL || first == a.text || strlen(first) < sizeof word) continue;
        memcpy(word, first, sizeof word - 1);
        at = (size_t)(first - a.text);
    }
    text_world_destroy(w);

    snprintf(source, sizeof source, shape, word);
    w = text_world_create((text_world_opts){.chat_template = source});
    text_generate(w, &r.message, &b);
    assert_int_equal(b.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
    assert_string_equal(b.stop_string, word);
    assert_int_equal(b.text_len, at);
    assert_memory_equal(b.text, a.text, at);
    // Unless the answer is to go on in any case.
    RELAY_SET(&r.stop, ignore_eos, 1);
    text_generate(w, &r.message, &b);
    assert_int_equal(b.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
    text_world_destroy(w);
}

static void bos_that_the_template_wrote_is_not_doubled(void **state) {
    w = text_world_create((text_world_opts){.chat_template = "{{ bos_token }}{{ messages[0].content }}"});
    text_request r;
    text_request_init(&r, 0, 5, 1);
    Relay__V1__ChatMessage message = RELAY__V1__CHAT_MESSAGE__INIT, *messages = &message;
    RELAY_SET(&message, role, relay_message_text("user"));
    RELAY_SET(&message, content, relay_message_text("hello"));
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = 1;
    chat.messages = &messages;
    r.message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
    r.message.chat = &chat;
    assert_int_equal(count_prompt(&r), 2);
    text_world_destroy(w);
}

enum { N_ANSWERS = 3 };

typedef struct many_answers {
    char text[N_ANSWERS][4096];
    size_t len[N_ANSWERS];
    uint32_t ids[N_ANSWERS][64], n_ids[N_ANSWERS];
    int reasons[N_ANSWERS];
    uint32_t n_started, n_finished;
} many_answers;

static void generate_many(const Relay__V1__GenerateRequest *m, many_answers *out) {
    *out = (many_answers){0};
    relay_rpc_stream *s = text_open(w->client, m);
    for (;;) {
        ProtobufCMessage *message;
        bool timed_out;
        relay_err e = {0};
        relay_code code = relay_rpc_stream_next(s, relay_mono_now() + 20 * 1000000, &message, &timed_out, &e);
        assert_false(timed_out);
        if (message == NULL) {
            if (code != RELAY_OK) fail_msg("%s", e.message);
            break;
        }
        const Relay__V1__GenerateResponse *r = (Relay__V1__GenerateResponse *)message;
        assert_true(r->has_index && r->index < N_ANSWERS);
        assert_int_equal(out->reasons[r->index], 0); // nothing behind its end
        if (r->text.len != 0) memcpy(out->text[r->index] + out->len[r->index], r->text.data, r->text.len);
        out->len[r->index] += r->text.len;
        for (size_t i = 0; i < r->n_tokens; i++)
            out->ids[r->index][out->n_ids[r->index]++] = r->tokens[i]->token_id;
        out->n_started += r->started != NULL;
        if (r->finished != NULL) {
            out->n_finished++;
            out->reasons[r->index] = (int)r->finished->reason;
            assert_int_equal(r->finished->output_tokens, out->n_ids[r->index]);
        }
        protobuf_c_message_free_unpacked(message, NULL);
    }
    relay_rpc_stream_release(s);
    assert_int_equal(out->n_started, 1);
    assert_int_equal(out->n_finished, N_ANSWERS);
}

static void several_answers_are_told_apart(void **state) {
    static many_answers all, cut;
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 20, 40, 3);
    text_generate(w, &r.message, &a);
    RELAY_SET(&r.message, num_sequences, N_ANSWERS);
    generate_many(&r.message, &all);
    for (int i = 0; i < N_ANSWERS; i++) {
        assert_int_equal(all.n_ids[i], 40);
        size_t len;
        char *text = text_world_detokenize(w, all.ids[i], 40, true, &len);
        assert_int_equal(all.len[i], len);
        assert_memory_equal(all.text[i], text, len);
        free(text);
    }
    // The first is the one that a call for one answer gets.
    assert_int_equal(all.len[0], a.text_len);
    assert_memory_equal(all.text[0], a.text, a.text_len);
    // A stop string ends the answer that it is in, and the others go on.
    size_t at = all.len[1] / 2;
    while ((all.text[1][at] & 0xC0) == 0x80)
        at++;
    size_t end = at + 6;
    while ((all.text[1][end] & 0xC0) == 0x80)
        end++;
    text_request_add_stop(&r, all.text[1] + at, end - at);
    generate_many(&r.message, &cut);
    char stop[16] = {0};
    memcpy(stop, all.text[1] + at, end - at);
    for (int i = 0; i < N_ANSWERS; i++) {
        const char *found = strstr(all.text[i], stop);
        size_t len = found != NULL ? (size_t)(found - all.text[i]) : all.len[i];
        assert_int_equal(cut.reasons[i], found != NULL ? RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE
                                                       : RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
        assert_int_equal(cut.len[i], len);
        assert_memory_equal(cut.text[i], all.text[i], len);
    }
    // Several cannot be taken up again in one call.
    uint32_t id = 5;
    r.message.n_resume_token_ids = 1;
    r.message.resume_token_ids = &id;
    text_generate(w, &r.message, &b);
    assert_int_equal(b.code, RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(b.error, "resume_token_ids is set and num_sequences is 3"));
    text_world_destroy(w);
}

static void echo_is_the_prompt_s_text_first(void **state) {
    w = text_world_create((text_world_opts){0});
    text_request r;
    text_request_init(&r, 10, 20, 6);
    text_generate(w, &r.message, &a);
    RELAY_SET(&r.output, echo, 1);
    text_generate(w, &r.message, &b);
    size_t len;
    char *prompt = text_world_detokenize(w, r.prompt, 10, true, &len);
    assert_memory_equal(b.text, prompt, len);
    assert_int_equal(b.text_len, len + a.text_len);
    assert_memory_equal(b.text + len, a.text, a.text_len);
    free(prompt);
    set_prompt(&r, "hello\xf0\x9f\x98\x80");
    text_generate(w, &r.message, &b);
    assert_memory_equal(b.text, "hello\xf0\x9f\x98\x80", 9);
    text_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_that_of_the_ids),
        cmocka_unit_test(final_only_is_the_same_in_one_message),
        cmocka_unit_test(tokens_are_told_where_they_are_asked_for),
        cmocka_unit_test(a_stop_string_ends_the_answer_wherever_it_lies),
        cmocka_unit_test(of_several_stop_strings_the_first_to_complete_wins),
        cmocka_unit_test(stop_strings_are_not_looked_for_before_min_new_tokens),
        cmocka_unit_test(a_stop_id_ends_the_answer_and_is_no_part_of_its_text),
        cmocka_unit_test(eos_ends_the_answer_and_shows_only_where_special_tokens_do),
        cmocka_unit_test(what_is_resumed_goes_on_in_the_middle_of_a_character),
        cmocka_unit_test(a_stop_string_may_begin_before_the_cut),
        cmocka_unit_test(a_prompt_is_tokenized_with_bos_where_the_file_says_so),
        cmocka_unit_test(a_chat_is_rendered_and_forged_turns_stay_text),
        cmocka_unit_test(what_the_template_ends_turns_with_ends_the_answer),
        cmocka_unit_test(bos_that_the_template_wrote_is_not_doubled),
        cmocka_unit_test(several_answers_are_told_apart),
        cmocka_unit_test(echo_is_the_prompt_s_text_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
