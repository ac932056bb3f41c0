// The order of the checks is the order of the message's fields, so that the first thing wrong is what a reader of the
// contract would find first.
#include "model_svc/request_read_internal.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/fingerprint.h"
#include "common/ident.h"

enum { MAX_REQUEST_BYTES = 64 << 20 };

relay_code relay_request_too_large(relay_err *e) {
    return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the request needs more than %d bytes", MAX_REQUEST_BYTES);
}

relay_code relay_request_check_ids(const uint32_t *ids, size_t n, const char *field, uint32_t vocab_size,
                                   relay_err *e) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= vocab_size) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%zu] is %u; ids are below %u, the size of the vocabulary",
                              field, i, ids[i], vocab_size);
        }
    }
    return RELAY_OK;
}

static bool holds_id(const uint32_t *ascending, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n && ascending[i] <= id; i++) {
        if (ascending[i] == id) return true;
    }
    return false;
}

static int compare_ids(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

relay_code relay_request_copy_ids(relay_request *r, const uint32_t **out, uint32_t *n_out, const uint32_t *ids,
                                  size_t n, relay_err *e) {
    if (n == 0) return RELAY_OK;
    uint32_t *copy = relay_arena_alloc(&r->arena, n * sizeof *copy);
    if (copy == NULL) return relay_request_too_large(e);
    memcpy(copy, ids, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, compare_ids);
    uint32_t n_different = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_different == 0 || copy[n_different - 1] != copy[i]) copy[n_different++] = copy[i];
    }
    *out = copy;
    *n_out = n_different;
    return RELAY_OK;
}

relay_code relay_request_label(relay_request *r, const char **out, protobuf_c_boolean is_set, ProtobufCBinaryData value,
                               const char *field, relay_err *e) {
    *out = "";
    if (!is_set) return RELAY_OK;
    if (value.len > RELAY_MAX_LABEL_BYTES) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s has %zu bytes; at most %d are allowed", field, value.len,
                          RELAY_MAX_LABEL_BYTES);
    }
    if (value.len != 0 && memchr(value.data, '\0', value.len) != NULL) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s holds a NUL character", field);
    }
    *out = relay_arena_copy(&r->arena, (const char *)value.data, value.len);
    return *out == NULL ? relay_request_too_large(e) : RELAY_OK;
}

// Prompt and resumed output, one behind the other.
static relay_code read_tokens(relay_request *r, const Relay__V1__GenerateTokensRequest *m,
                              const relay_request_rules *rules, relay_err *e) {
    relay_code code;
    size_t n_prompt = m->n_prompt_token_ids;
    size_t n_resumed = m->resume == NULL ? 0 : m->resume->n_generated_token_ids;
    if (n_prompt == 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "prompt_token_ids is empty; at least one id is needed");
    }
    code = relay_request_check_ids(m->prompt_token_ids, n_prompt, "prompt_token_ids", rules->vocab_size, e);
    if (code != RELAY_OK) return code;
    if (n_resumed != 0) {
        code = relay_request_check_ids(m->resume->generated_token_ids, n_resumed, "resume.generated_token_ids",
                                       rules->vocab_size, e);
        if (code != RELAY_OK) return code;
    }
    // One position is left for the next token. Compared one by one: the sum of two lengths might wrap.
    if (n_prompt >= rules->max_context) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "prompt_token_ids has %zu ids; with one token to generate, the context holds %u tokens",
                          n_prompt, rules->max_context);
    }
    if (n_resumed >= rules->max_context - n_prompt) {
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "prompt_token_ids has %zu ids and resume.generated_token_ids %zu; with one token to generate, the "
            "context holds %u tokens",
            n_prompt, n_resumed, rules->max_context);
    }
    uint32_t *ids = relay_arena_alloc(&r->arena, (n_prompt + n_resumed) * sizeof *ids);
    if (ids == NULL) return relay_request_too_large(e);
    memcpy(ids, m->prompt_token_ids, n_prompt * sizeof *ids);
    if (n_resumed != 0) memcpy(ids + n_prompt, m->resume->generated_token_ids, n_resumed * sizeof *ids);
    r->token_ids = ids;
    r->n_prompt = (uint32_t)n_prompt;
    r->n_tokens = (uint32_t)(n_prompt + n_resumed);
    return RELAY_OK;
}

static relay_code read_stop_sequences(relay_request *r, const Relay__V1__StopCriteria *s,
                                      const relay_request_rules *rules, relay_err *e) {
    const size_t n = s->n_stop_token_sequences;
    if (n == 0) return RELAY_OK;
    if (n > RELAY_MAX_STOP_SEQUENCES) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "stop.stop_token_sequences has %zu entries; at most %d are allowed", n,
                          RELAY_MAX_STOP_SEQUENCES);
    }
    relay_stop_sequence *sequences = relay_arena_alloc(&r->arena, n * sizeof *sequences);
    if (sequences == NULL) return relay_request_too_large(e);
    for (size_t i = 0; i < n; i++) {
        const Relay__V1__TokenSequence *q = s->stop_token_sequences[i];
        if (q->n_token_ids == 0 || q->n_token_ids > RELAY_MAX_STOP_SEQUENCE_IDS) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "stop.stop_token_sequences[%zu] has %zu ids; allowed is [1, %d]", i, q->n_token_ids,
                              RELAY_MAX_STOP_SEQUENCE_IDS);
        }
        relay_code code = relay_request_check_ids(q->token_ids, q->n_token_ids, "stop.stop_token_sequences.token_ids",
                                                  rules->vocab_size, e);
        if (code != RELAY_OK) return code;
        uint32_t *ids = relay_arena_alloc(&r->arena, q->n_token_ids * sizeof *ids);
        if (ids == NULL) return relay_request_too_large(e);
        memcpy(ids, q->token_ids, q->n_token_ids * sizeof *ids);
        sequences[i] = (relay_stop_sequence){ids, (uint32_t)q->n_token_ids};
    }
    r->stop_sequences = sequences;
    r->n_stop_sequences = (uint32_t)n;
    return RELAY_OK;
}

static relay_code read_stop(relay_request *r, const Relay__V1__StopCriteria *s, const relay_request_rules *rules,
                            relay_err *e) {
    r->max_new_tokens = rules->max_context; // more than fits: the context's end comes first
    r->eos_ids = rules->eos_ids;
    r->n_eos_ids = rules->n_eos_ids;
    if (s == NULL) return RELAY_OK;

    if (s->has_max_new_tokens) {
        if (s->max_new_tokens == 0) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "stop.max_new_tokens is 0; allowed is 1 and more");
        }
        r->max_new_tokens = s->max_new_tokens;
    }
    if (s->has_min_new_tokens) {
        uint32_t room = rules->max_context - r->n_prompt;
        uint32_t most = r->max_new_tokens < room ? r->max_new_tokens : room;
        if (s->min_new_tokens > most) {
            return relay_fail(
                e, RELAY_INVALID_ARGUMENT,
                "stop.min_new_tokens is %u; allowed is [0, %u], what max_new_tokens and the context of %u "
                "tokens leave",
                s->min_new_tokens, most, rules->max_context);
        }
        r->min_new_tokens = s->min_new_tokens;
    }
    if (s->n_stop_token_ids > RELAY_MAX_STOP_TOKEN_IDS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "stop.stop_token_ids has %zu ids; at most %d are allowed",
                          s->n_stop_token_ids, RELAY_MAX_STOP_TOKEN_IDS);
    }
    relay_code code =
        relay_request_check_ids(s->stop_token_ids, s->n_stop_token_ids, "stop.stop_token_ids", rules->vocab_size, e);
    if (code != RELAY_OK) return code;
    code = relay_request_copy_ids(r, &r->stop_ids, &r->n_stop_ids, s->stop_token_ids, s->n_stop_token_ids, e);
    if (code != RELAY_OK) return code;
    if (s->has_ignore_eos && s->ignore_eos) {
        r->eos_ids = NULL;
        r->n_eos_ids = 0;
    }
    return read_stop_sequences(r, s, rules, e);
}

static relay_code read_output(relay_request *r, const Relay__V1__OutputOptions *o, const relay_request_rules *rules,
                              relay_err *e) {
    if (o == NULL) return RELAY_OK;
    bool has_mode = o->has_logprob_mode && o->logprob_mode != RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_UNSPECIFIED;
    if (o->has_top_logprobs && o->top_logprobs > RELAY_MAX_TOP_LOGPROBS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "output.top_logprobs is %u; allowed is [0, %d]", o->top_logprobs,
                          RELAY_MAX_TOP_LOGPROBS);
    }
    if (o->n_logprob_token_ids > RELAY_MAX_WANTED_LOGPROBS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "output.logprob_token_ids has %zu ids; at most %d are allowed",
                          o->n_logprob_token_ids, RELAY_MAX_WANTED_LOGPROBS);
    }
    relay_code code = relay_request_check_ids(o->logprob_token_ids, o->n_logprob_token_ids, "output.logprob_token_ids",
                                              rules->vocab_size, e);
    if (code != RELAY_OK) return code;
    if (o->has_top_logprobs || o->n_logprob_token_ids != 0) {
        bool is_processed = has_mode && o->logprob_mode == RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_PROCESSED;
        r->sampling.n_top = o->has_top_logprobs ? o->top_logprobs : 0;
        r->sampling.logprob_mode = is_processed ? RELAY_LOGPROB_PROCESSED : RELAY_LOGPROB_RAW;
    } else if (has_mode) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "output.logprob_mode is set without output.top_logprobs or output.logprob_token_ids");
    }
    if (o->n_logprob_token_ids != 0) {
        uint32_t *ids = relay_arena_alloc(&r->arena, o->n_logprob_token_ids * sizeof *ids);
        if (ids == NULL) return relay_request_too_large(e);
        memcpy(ids, o->logprob_token_ids, o->n_logprob_token_ids * sizeof *ids);
        r->wanted_ids = ids;
        r->n_wanted_ids = (uint32_t)o->n_logprob_token_ids;
    }
    if (o->has_prompt_top_logprobs) {
        if (o->prompt_top_logprobs > RELAY_MAX_TOP_LOGPROBS) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "output.prompt_top_logprobs is %u; allowed is [0, %d]",
                              o->prompt_top_logprobs, RELAY_MAX_TOP_LOGPROBS);
        }
        r->scores_prompt = true;
        r->n_prompt_top = o->prompt_top_logprobs;
    }
    r->is_final_only = o->has_final_only && o->final_only;
    return RELAY_OK;
}

// Whose cached blocks the request may share: SHA-256 over the tenant, its length before it, and the salt. A salt parts
// the cache of a tenant further; nobody reaches that of another with it.
static void derive_salt(relay_request *r, const Relay__V1__CacheOptions *c) {
    uint8_t text[4 + 2 * RELAY_MAX_LABEL_BYTES];
    uint32_t n_tenant = (uint32_t)strlen(r->tenant), n = sizeof n_tenant;
    for (uint32_t i = 0; i < sizeof n_tenant; i++)
        text[i] = (uint8_t)(n_tenant >> 8 * i);
    memcpy(text + n, r->tenant, n_tenant);
    n += n_tenant;
    if (c != NULL && c->has_salt && c->salt.len != 0) {
        memcpy(text + n, c->salt.data, c->salt.len);
        n += (uint32_t)c->salt.len;
    }
    RELAY_ASSERT(EVP_Digest(text, n, r->salt, NULL, EVP_sha256(), NULL) == 1);
}

static relay_code read_cache(relay_request *r, const Relay__V1__CacheOptions *c, relay_err *e) {
    if (c != NULL && c->has_salt && c->salt.len > RELAY_MAX_LABEL_BYTES) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "cache.salt has %zu bytes; at most %d are allowed", c->salt.len,
                          RELAY_MAX_LABEL_BYTES);
    }
    derive_salt(r, c);
    r->sequence_key = relay_sequence_key_of(r->tenant, r->sequence_id);
    r->bypass_prefix_cache = c != NULL && c->has_bypass_prefix_cache && c->bypass_prefix_cache;
    r->do_not_store = c != NULL && c->has_do_not_store && c->do_not_store;
    return RELAY_OK;
}

relay_code relay_request_set_tenant(relay_request *r, const Relay__V1__GenerateTokensRequest *m,
                                    protobuf_c_boolean is_set, ProtobufCBinaryData tenant, const char *field,
                                    relay_err *e) {
    relay_code code = relay_request_label(r, &r->tenant, is_set, tenant, field, e);
    if (code != RELAY_OK) return code;
    derive_salt(r, m->cache);
    r->sequence_key = relay_sequence_key_of(r->tenant, r->sequence_id);
    return RELAY_OK;
}

relay_sequence_key relay_sequence_key_of(const char *tenant, const char *sequence_id) {
    if (sequence_id[0] == '\0') return (relay_sequence_key){0};
    char text[2 * RELAY_MAX_LABEL_BYTES + 2];
    // A NUL ends the tenant's name and is in none.
    size_t n = (size_t)snprintf(text, sizeof text, "%s%c%s", tenant, '\0', sequence_id);
    XXH128_hash_t hash = XXH3_128bits(text, n);
    return (relay_sequence_key){.high = hash.high64, .low = hash.low64};
}

// What is resumed must have something left to generate.
static relay_code read_resume(relay_request *r, const Relay__V1__Resume *resume, relay_err *e) {
    if (resume == NULL) return RELAY_OK;
    uint32_t index = resume->has_index ? resume->index : 0;
    if (index >= r->n_sequences) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "resume.index is %u; allowed is [0, %u), what num_sequences says",
                          index, r->n_sequences);
    }
    // One of the answers alone goes on.
    r->sampling.sequence_index = index;
    r->n_sequences = 1;
    uint32_t n_resumed = r->n_tokens - r->n_prompt;
    if (n_resumed == 0) return RELAY_OK;
    if (n_resumed >= r->max_new_tokens) {
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "resume.generated_token_ids has %u ids and stop.max_new_tokens is %u: nothing is left to generate",
            n_resumed, r->max_new_tokens);
    }
    uint32_t last = r->token_ids[r->n_tokens - 1];
    if (n_resumed > r->min_new_tokens &&
        (holds_id(r->eos_ids, r->n_eos_ids, last) || holds_id(r->stop_ids, r->n_stop_ids, last))) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "resume.generated_token_ids ends with %u, which ends an answer: nothing is left to generate",
                          last);
    }
    for (uint32_t i = 0; i < r->n_stop_sequences && n_resumed > r->min_new_tokens; i++) {
        const relay_stop_sequence *q = &r->stop_sequences[i];
        if (q->n <= n_resumed && memcmp(r->token_ids + r->n_tokens - q->n, q->ids, q->n * sizeof *q->ids) == 0) {
            return relay_fail(
                e, RELAY_INVALID_ARGUMENT,
                "resume.generated_token_ids ends with stop.stop_token_sequences[%u]: nothing is left to generate", i);
        }
    }
    return RELAY_OK;
}

static relay_code read_message(relay_request *r, const Relay__V1__GenerateTokensRequest *m,
                               const relay_request_rules *rules, relay_err *e) {
    relay_code code = relay_request_label(r, &r->request_id, m->has_request_id, m->request_id, "request_id", e);
    if (code != RELAY_OK) return code;
    if (m->has_tokenizer_fingerprint) { // before the ids: those of another vocabulary may be out of range
        ProtobufCBinaryData got = m->tokenizer_fingerprint;
        code = relay_fingerprint_check(got.data, got.len, rules->fingerprint, e);
        if (code != RELAY_OK) return code;
    }
    code = read_tokens(r, m, rules, e);
    if (code != RELAY_OK) return code;
    code = relay_request_label(r, &r->sequence_id, m->has_sequence_id, m->sequence_id, "sequence_id", e);
    if (code != RELAY_OK) return code;
    if (m->has_lease_ms && m->lease_ms != 0) {
        if (r->sequence_id[0] == '\0') {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "lease_ms is %u; without a sequence_id it leads to nothing",
                              m->lease_ms);
        }
        uint32_t ms = m->lease_ms < rules->max_lease_ms ? m->lease_ms : rules->max_lease_ms;
        r->lease_us = (int64_t)ms * 1000;
    }
    code = relay_request_read_sampling(r, m->sampling, m->resume, rules, e);
    if (code != RELAY_OK) return code;
    code = read_stop(r, m->stop, rules, e);
    if (code != RELAY_OK) return code;
    code = read_output(r, m->output, rules, e);
    if (code != RELAY_OK) return code;
    code = read_cache(r, m->cache, e);
    if (code != RELAY_OK) return code;
    if (m->has_priority && (m->priority < -RELAY_MAX_PRIORITY || m->priority > RELAY_MAX_PRIORITY)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "priority is %d; allowed is [-%d, %d]", m->priority,
                          RELAY_MAX_PRIORITY, RELAY_MAX_PRIORITY);
    }
    if (m->has_priority) r->priority = m->priority;
    // The scheduler knows how many this server computes; memory for the answers is needed before it is asked.
    if (m->has_num_sequences && (m->num_sequences == 0 || m->num_sequences > RELAY_MAX_SEQUENCES)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "num_sequences is %u; allowed is [1, %d]", m->num_sequences,
                          RELAY_MAX_SEQUENCES);
    }
    r->n_sequences = m->has_num_sequences ? m->num_sequences : 1;
    if (m->has_time_limit_ms) {
        if (m->time_limit_ms == 0) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "time_limit_ms is 0; allowed is 1 and more");
        }
        r->time_limit_at = r->received_at + (int64_t)m->time_limit_ms * 1000;
    }
    code = read_resume(r, m->resume, e);
    return code == RELAY_OK ? relay_request_read_beams(r, m, rules, e) : code;
}

relay_code relay_request_read(relay_request *out, const Relay__V1__GenerateTokensRequest *m,
                              const relay_request_rules *rules, relay_err *e) {
    *out = (relay_request){
        .tenant = "",
        .deadline = RELAY_NEVER_US,
        .time_limit_at = RELAY_NEVER_US,
        .initial_credit = RELAY_UNLIMITED_CREDIT,
        .received_at = relay_mono_now(),
    };
    relay_arena_init(&out->arena, MAX_REQUEST_BYTES);
    relay_code code = read_message(out, m, rules, e);
    if (code != RELAY_OK) relay_request_fini(out);
    return code;
}

void relay_request_fini(relay_request *r) {
    relay_arena_fini(&r->arena);
    relay_constraint_handle_release(r->constraint);
    r->constraint = NULL;
}
