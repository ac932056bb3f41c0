// Beam search: what it needs, and what it excludes. It draws nothing and looks at the model's own logprobs, so that
// whatever would change a draw or a logprob is refused beside it, never ignored.
#include <math.h>

#include "model_svc/beam_search.h"
#include "model_svc/request_read_internal.h"

static relay_code check_alone(const Relay__V1__GenerateTokensRequest *m, relay_err *e) {
    static const Relay__V1__StopCriteria no_stop = RELAY__V1__STOP_CRITERIA__INIT;
    static const Relay__V1__OutputOptions no_output = RELAY__V1__OUTPUT_OPTIONS__INIT;
    const Relay__V1__SamplingParams *s = m->sampling;
    const Relay__V1__StopCriteria *stop = m->stop != NULL ? m->stop : &no_stop;
    const Relay__V1__OutputOptions *output = m->output != NULL ? m->output : &no_output;
    const struct {
        bool is_set;
        const char *field;
    } excluded[] = {
        {s->has_temperature && s->temperature != 0, "sampling.temperature"},
        {s->has_top_k && s->top_k != 0, "sampling.top_k"},
        {s->has_top_p && s->top_p != 1, "sampling.top_p"},
        {s->has_min_p && s->min_p != 0, "sampling.min_p"},
        {s->has_typical_p && s->typical_p != 1, "sampling.typical_p"},
        {s->has_top_n_sigma && s->top_n_sigma != 0, "sampling.top_n_sigma"},
        {s->has_xtc_probability && s->xtc_probability != 0, "sampling.xtc_probability"},
        {s->mirostat != NULL, "sampling.mirostat"},
        {s->has_seed, "sampling.seed"},
        {s->has_repetition_penalty && s->repetition_penalty != 1, "sampling.repetition_penalty"},
        {s->has_frequency_penalty && s->frequency_penalty != 0, "sampling.frequency_penalty"},
        {s->has_presence_penalty && s->presence_penalty != 0, "sampling.presence_penalty"},
        {s->n_logit_bias != 0, "sampling.logit_bias"},
        {s->n_allowed_token_ids != 0, "sampling.allowed_token_ids"},
        {s->n_banned_token_ids != 0, "sampling.banned_token_ids"},
        {s->constraint != NULL, "sampling.constraint"},
        {s->has_no_repeat_ngram_size && s->no_repeat_ngram_size != 0, "sampling.no_repeat_ngram_size"},
        {s->dry != NULL, "sampling.dry"},
        {stop->has_min_new_tokens && stop->min_new_tokens != 0, "stop.min_new_tokens"},
        {stop->n_stop_token_sequences != 0, "stop.stop_token_sequences"},
        {output->has_top_logprobs, "output.top_logprobs"},
        {output->has_prompt_top_logprobs, "output.prompt_top_logprobs"},
        {output->n_logprob_token_ids != 0, "output.logprob_token_ids"},
        {m->has_num_sequences && m->num_sequences > 1, "num_sequences"},
        {m->resume != NULL && m->resume->n_generated_token_ids != 0, "resume.generated_token_ids"},
    };
    for (uint32_t i = 0; i < sizeof excluded / sizeof excluded[0]; i++) {
        if (!excluded[i].is_set) continue;
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "%s is set beside sampling.beam_search, which goes by the model's own logprobs; leave one of "
                          "them out",
                          excluded[i].field);
    }
    return RELAY_OK;
}

relay_code relay_request_read_beams(relay_request *r, const Relay__V1__GenerateTokensRequest *m,
                                    const relay_request_rules *rules, relay_err *e) {
    const Relay__V1__BeamSearch *b = m->sampling != NULL ? m->sampling->beam_search : NULL;
    if (b == NULL) return RELAY_OK;
    relay_code code = check_alone(m, e);
    if (code != RELAY_OK) return code;
    uint32_t n_beams = b->has_num_beams ? b->num_beams : 0;
    if (n_beams < 2 || n_beams > RELAY_MAX_BEAMS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.beam_search.num_beams is %u; allowed is [2, %d]",
                          n_beams, RELAY_MAX_BEAMS);
    }
    float penalty = b->has_length_penalty ? b->length_penalty : 1;
    if (!isfinite(penalty)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.beam_search.length_penalty is %g; it must be finite",
                          (double)penalty);
    }
    // Among what is told of a beam there must be enough that goes on.
    if (r->n_eos_ids + r->n_stop_ids + n_beams > RELAY_BEAM_CANDIDATES || rules->vocab_size < RELAY_BEAM_CANDIDATES) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "%u ids end an answer; beside sampling.beam_search.num_beams of %u at most %u may",
                          r->n_eos_ids + r->n_stop_ids, n_beams, RELAY_BEAM_CANDIDATES - n_beams);
    }
    uint32_t room = rules->max_context - r->n_prompt;
    uint32_t max_new_tokens = r->max_new_tokens < room ? r->max_new_tokens : room;
    r->beams = relay_beam_search_create(&r->arena, n_beams, penalty, b->has_early_stopping && b->early_stopping,
                                        max_new_tokens);
    if (r->beams == NULL) return relay_request_too_large(e);
    r->n_sequences = n_beams;
    r->sampling = (relay_sample_params){.repetition_penalty = 1, .top_p = 1, .typical_p = 1, .seed = r->sampling.seed};
    r->penalty_window = 0;
    return RELAY_OK;
}
