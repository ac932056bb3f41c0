// One answer, whatever happens around it: 300 random requests, with every sampler, on a generated model of four layers,
// half of them with a window. What each says alone, computed in one go without a cache, is what it says in every other
// way in which it may be computed: the same ids, the same bits of every logprob.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/status.h"
#include "model_svc/model.h"
#include "model_svc/scheduler.h"
#include "tests/model_svc/tiny_model.h"

enum {
    MAX_REQUESTS = 300,
    ONE_LONG_IN = 75, // is of 2,000 ids
    N_FORKED = 60,    // that are asked for several answers
    N_ANSWERS = 3,
    MAX_LIVE = 64,
    CONTEXT = 2048,
    VOCAB = 320, // ids are below it, of a larger vocabulary too
};

static const tiny_model shape = {
    .name = "one-answer",
    .architecture = "llama",
    .n_layers = 4,
    .n_heads = 4,
    .n_kv_heads = 2,
    .width = 64,
    .ffn_width = 96,
    .vocab_size = VOCAB,
    .context = CONTEXT,
    .attention_type = RELAY_GGML_Q4_1,
    .ffn_type = RELAY_GGML_Q8_0,
    .embedding_type = RELAY_GGML_Q8_0,
    .seed = 21,
    .edits = {{.what = TINY_U32, .name = "llama.attention.sliding_window", .number = 90},
              {.what = TINY_U32, .name = "llama.attention.sliding_window_pattern", .number = 2}},
};

// ---- Random requests

static uint64_t random_state;

// xorshift64* (Vigna 2016): the same requests everywhere.
static uint32_t below(uint32_t n) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * UINT64_C(2685821657736338717)) >> 33) % n;
}

static bool chance(uint32_t percent) {
    return below(100) < percent;
}

static float real(float low, float high) {
    return low + (high - low) * (float)below(10000) / 10000;
}

// As many short ones as long ones, by order of magnitude.
static uint32_t length_up_to(uint32_t max) {
    return (uint32_t)exp(log(max + 1.0) * (double)below(10000) / 10000);
}

// What an answer was.
typedef struct answer {
    uint32_t n;
    uint32_t *ids;
    float *logprobs;
    float *mu;     // mirostat's state after each
    uint64_t tops; // hash of all top logprobs
} answer;

typedef struct subject {
    relay_request request; // with one answer; the runs make copies
    uint32_t *ids;         // [n_prompt]
    relay_token_bias bias[3];
    uint32_t *allowed; // [vocab_size / 32], or NULL
    uint32_t stop_ids[2];
    answer expected[N_ANSWERS]; // by index
} subject;

static subject subjects[MAX_REQUESTS];
static uint32_t n_requests;
static relay_kv_type kv_type;
static const char *model_path; // NULL: the generated model
static uint32_t vocab_size = VOCAB;

static void pick_samplers(subject *s) {
    relay_request *r = &s->request;
    relay_sample_params *p = &r->sampling;
    *p = (relay_sample_params){.repetition_penalty = 1, .top_p = 1, .typical_p = 1};
    p->seed = below(1u << 30);
    p->temperature = chance(20) ? 0 : real(0.2f, 1.8f);
    if (chance(30)) p->repetition_penalty = real(0.8f, 1.6f);
    if (chance(20)) p->frequency_penalty = real(-1, 1);
    if (chance(20)) p->presence_penalty = real(-1, 1);
    if (chance(20)) r->penalty_window = 1 + below(50);
    if (chance(20)) {
        p->mirostat = 1 + below(2);
        p->mirostat_tau = real(1, 6);
        p->mirostat_eta = 0.1f;
        p->mirostat_mu = 2 * p->mirostat_tau;
    } else {
        if (chance(20)) p->top_n_sigma = real(0.5f, 3);
        if (chance(40)) p->top_k = 1 + below(100);
        if (chance(40)) p->top_p = real(0.3f, 1);
        if (chance(30)) p->min_p = real(0, 0.3f);
        if (chance(20)) p->typical_p = real(0.3f, 1);
        if (chance(20)) {
            p->xtc_probability = 0.5f;
            p->xtc_threshold = real(0.01f, 0.2f);
        }
    }
    if (chance(15)) r->dry = (relay_dry){.multiplier = 0.8f, .base = 1.75f, .allowed_length = 2};
    if (chance(15)) r->no_repeat_ngram_size = 2 + below(3);
    if (chance(15)) {
        for (uint32_t i = 0; i < 3; i++)
            s->bias[i] = (relay_token_bias){.token_id = below(100) + 100 * i, .bias = real(-20, 20)};
        r->logit_bias = s->bias;
        r->n_logit_bias = 3;
    }
    if (chance(10)) {
        s->allowed = relay_calloc(vocab_size / 32, sizeof *s->allowed);
        for (uint32_t i = 0; i < VOCAB / 32; i++)
            s->allowed[i] = 0x55555555u << (i % 2);
        r->allowed = s->allowed;
        r->n_allowed_words = vocab_size / 32;
    }
    if (chance(30)) {
        s->stop_ids[0] = below(100);
        s->stop_ids[1] = 100 + below(200);
        r->stop_ids = s->stop_ids;
        r->n_stop_ids = 2;
        r->min_new_tokens = chance(50) ? 1 + below(r->max_new_tokens) : 0;
    }
    p->logprob_mode = below(3);
    p->n_top = p->logprob_mode == RELAY_LOGPROB_NONE ? 0 : below(6);
}

static void make_subjects(void) {
    random_state = 12345;
    for (uint32_t i = 0; i < n_requests; i++) {
        subject *s = &subjects[i];
        uint32_t n_prompt = i < n_requests / ONE_LONG_IN ? 1900 - 600 * i : length_up_to(600);
        uint32_t n_new = i < n_requests / ONE_LONG_IN ? 100 + 600 * i : length_up_to(i < N_FORKED ? 60 : 150);
        s->ids = relay_calloc(n_prompt, sizeof s->ids[0]);
        // Some begin alike, as conversations do.
        uint32_t common = i % 3 == 0 ? 0 : n_prompt;
        for (uint32_t k = 0; k < n_prompt; k++)
            s->ids[k] = k < common ? (k * 13 + i % 5) % VOCAB : below(VOCAB);
        if (common > 0) s->ids[n_prompt - 1] = below(VOCAB);
        s->request = (relay_request){
            .owner = s,
            .tenant = "",
            .token_ids = s->ids,
            .n_prompt = n_prompt,
            .n_tokens = n_prompt,
            .n_sequences = 1,
            .max_new_tokens = n_new,
            .deadline = RELAY_NEVER_US,
            .time_limit_at = RELAY_NEVER_US,
            .initial_credit = RELAY_UNLIMITED_CREDIT,
            .priority = (int32_t)below(3),
        };
        pick_samplers(s);
    }
}

static void free_subjects(void) {
    for (uint32_t i = 0; i < n_requests; i++) {
        free(subjects[i].ids);
        free(subjects[i].allowed);
        for (uint32_t k = 0; k < N_ANSWERS; k++) {
            free(subjects[i].expected[k].ids);
            free(subjects[i].expected[k].logprobs);
            free(subjects[i].expected[k].mu);
        }
    }
    memset(subjects, 0, sizeof subjects);
}

// ---- Ways to compute them

typedef struct way {
    const char *name;
    uint32_t n_threads, chunk, max_live;
    uint32_t n_blocks;        // of the pool that sees all; 0: as many as can be used
    uint32_t preempt_percent; // a step
    bool by_time, uses_cache, resumes, forks;
} way;

// One request on its way.
typedef struct run {
    relay_request request;
    const subject *s;
    uint32_t n_resumed;
    uint32_t *ids; // of a resumed one
    answer got[N_ANSWERS];
    bool is_live;
    uint32_t place;
} run;

typedef struct world {
    const way *w;
    relay_model *model;
    relay_scheduler *scheduler;
    relay_step *step;
    relay_sample_result *results;
    run *live[MAX_LIVE]; // by place
    uint32_t n_live;
    uint64_t arrivals;
    relay_mono_us now;
    bool is_first; // what comes out is what is expected from here on
} world;

static void make_room(answer *a) {
    if ((a->n & (a->n - 1)) != 0 && a->n != 0) return;
    uint32_t cap = a->n == 0 ? 1 : 2 * a->n;
    a->ids = relay_realloc(a->ids, cap * sizeof a->ids[0]);
    a->logprobs = relay_realloc(a->logprobs, cap * sizeof a->logprobs[0]);
    a->mu = relay_realloc(a->mu, cap * sizeof a->mu[0]);
}

static uint64_t hash_tops(uint64_t hash, const relay_sample_result *r) {
    for (uint32_t i = 0; i < r->n_top; i++) {
        uint32_t bits;
        memcpy(&bits, &r->top_logprobs[i], sizeof bits);
        hash = (hash ^ r->top_ids[i]) * 0x100000001b3;
        hash = (hash ^ bits) * 0x100000001b3;
    }
    return (hash ^ r->rank) * 0x100000001b3;
}

static void compare(const world *w, const run *r, uint32_t index) {
    const answer *e = &r->s->expected[index], *g = &r->got[index];
    uint32_t from = r->n_resumed;
    bool is_same = g->n == e->n - from && memcmp(g->ids, e->ids + from, g->n * sizeof g->ids[0]) == 0 &&
                   memcmp(g->logprobs, e->logprobs + from, g->n * sizeof g->logprobs[0]) == 0 &&
                   memcmp(g->mu, e->mu + from, g->n * sizeof g->mu[0]) == 0 && (from > 0 || g->tops == e->tops);
    if (!is_same) {
        fail_msg("%s: request %u, answer %u of %u ids (resumed behind %u) is another: %u ids", w->w->name,
                 (uint32_t)(r->s - subjects), index, e->n, from, g->n);
    }
}

static void free_answer(answer *a) {
    free(a->ids);
    free(a->logprobs);
    free(a->mu);
    *a = (answer){0};
}

static void on_event(void *arg, const relay_sequence *q, const relay_event *ev) {
    world *w = arg;
    run *r = ev->request->owner;
    answer *a = &r->got[ev->index];
    if (ev->kind == RELAY_EVENT_TOKEN) {
        make_room(a);
        a->ids[a->n] = ev->sample.token_id;
        a->logprobs[a->n] = ev->sample.logprob;
        a->mu[a->n] = ev->sample.mirostat_mu;
        a->tops = hash_tops(a->tops, &ev->sample);
        a->n++;
    }
    if (ev->kind == RELAY_EVENT_FAILED) fail_msg("%s: %s", w->w->name, ev->message);
    if (ev->is_last) {
        r->is_live = false;
        w->live[r->place] = NULL;
        w->n_live--;
    }
}

static void world_open(world *w, const way *how) {
    *w = (world){.w = how};
    size_t len;
    char *file = tiny_model_write(&shape, &len);
    relay_gguf *g;
    relay_err e = {0};
    if (model_path == NULL) {
        assert_int_equal(relay_gguf_open_memory(&g, file, len, NULL), RELAY_OK);
    } else if (relay_gguf_open(&g, model_path, &e) != RELAY_OK) {
        fail_msg("%s (./run --model fetches models)", e.message);
    }
    relay_model_opts opts = {.n_threads = how->n_threads,
                             .kv_type = kv_type,
                             .max_rows = CONTEXT,
                             .max_sequences = MAX_LIVE,
                             .max_context = CONTEXT};
    if (relay_model_load(&w->model, g, shape.name, &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_gguf_close(g);
    free(file);
    const relay_model_info *info = relay_model_get_info(w->model);
    relay_scheduler_opts so = {
        .n_groups = info->n_groups,
        .vocab_size = vocab_size,
        .max_context = CONTEXT,
        .max_running = MAX_LIVE,
        .max_sequences = MAX_LIVE,
        .token_budget = CONTEXT,
        .prompt_chunk = how->chunk,
        .step_target = how->by_time ? 5000 : 0,
        .emit = on_event,
        .emit_arg = w,
    };
    for (uint32_t i = 0; i < info->n_groups; i++) {
        so.window[i] = info->groups[i].window;
        so.n_blocks[i] = info->groups[i].n_blocks;
        if (how->n_blocks != 0 && how->n_blocks < so.n_blocks[i]) so.n_blocks[i] = how->n_blocks;
    }
    w->scheduler = relay_scheduler_create(&so);
    relay_step_limits limits = relay_scheduler_step_limits(w->scheduler);
    w->step = relay_step_create(&limits);
    w->results = relay_calloc(limits.max_samples, sizeof w->results[0]);
    relay_model_decoder_ops.prepare(w->model, w->step);
}

static void world_close(world *w) {
    relay_scheduler_destroy(w->scheduler);
    relay_step_destroy(w->step);
    free(w->results);
    relay_model_destroy(w->model);
}

static void start(world *w, run *r, const subject *s, uint32_t index) {
    *r = (run){.s = s, .request = s->request, .is_live = true};
    r->request.owner = r;
    r->request.sampling.sequence_index = index;
    if (!w->w->uses_cache) r->request.bypass_prefix_cache = r->request.do_not_store = true;
    if (w->w->forks && s < subjects + N_FORKED) r->request.n_sequences = N_ANSWERS;
    const answer *e = &s->expected[0];
    if (w->w->resumes && e->n > 1) {
        r->n_resumed = 1 + below(e->n - 1);
        uint32_t n_prompt = r->request.n_prompt;
        r->ids = relay_calloc(n_prompt + r->n_resumed, sizeof r->ids[0]);
        memcpy(r->ids, s->ids, n_prompt * sizeof r->ids[0]);
        memcpy(r->ids + n_prompt, e->ids, r->n_resumed * sizeof r->ids[0]);
        r->request.token_ids = r->ids;
        r->request.n_tokens += r->n_resumed;
        r->request.sampling.mirostat_mu = e->mu[r->n_resumed - 1];
    }
    while (w->live[r->place] != NULL)
        r->place++;
    w->live[r->place] = r;
    w->n_live++;
    relay_err err;
    if (relay_scheduler_check_request(w->scheduler, &r->request, &err) != RELAY_OK) fail_msg("%s", err.message);
    relay_scheduler_add(w->scheduler, r->place, &r->request, w->arrivals++, w->now);
}

static void step(world *w) {
    w->now += 100;
    assert_true(relay_scheduler_fill(w->scheduler, w->step, w->now));
    relay_model_decoder_ops.submit(w->model, w->step);
    relay_model_decoder_ops.complete(w->model, w->results);
    w->now += 1000 + 50 * (relay_mono_us)w->step->n_rows;
    relay_scheduler_take(w->scheduler, w->step, w->results, w->now);
    for (uint32_t i = 0; i < MAX_LIVE; i++) {
        if (w->live[i] != NULL && chance(w->w->preempt_percent)) relay_scheduler_preempt_request(w->scheduler, i);
    }
}

static uint32_t answers_live(const world *w) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_LIVE; i++) {
        if (w->live[i] != NULL) n += w->live[i]->request.n_sequences;
    }
    return n;
}

// All requests, as they come and go.
static void run_all(world *w, uint32_t n) {
    static run runs[MAX_REQUESTS];
    uint32_t n_started = 0, order[MAX_REQUESTS];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    while (n_started < n || w->n_live > 0) {
        while (n_started < n && answers_live(w) + N_ANSWERS <= w->w->max_live + N_ANSWERS - 1 &&
               (w->n_live == 0 || chance(40))) {
            if (answers_live(w) + N_ANSWERS > MAX_LIVE) break;
            start(w, &runs[n_started], &subjects[order[n_started]], 0);
            n_started++;
        }
        if (w->n_live > 0) step(w);
    }
    const char *why = relay_scheduler_check(w->scheduler);
    if (why != NULL) fail_msg("%s: %s", w->w->name, why);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < runs[i].request.n_sequences; k++)
            compare(w, &runs[i], k);
        for (uint32_t k = 0; k < N_ANSWERS; k++)
            free_answer(&runs[i].got[k]);
        free(runs[i].ids);
    }
}

// What each says alone, from an empty cache, its prompt in one go, on one thread.
static void expect_alone(void) {
    static const way alone = {.name = "alone", .n_threads = 1, .max_live = 1};
    world w;
    world_open(&w, &alone);
    for (uint32_t i = 0; i < n_requests; i++) {
        for (uint32_t index = 0; index < (i < N_FORKED ? N_ANSWERS : 1); index++) {
            run r;
            start(&w, &r, &subjects[i], index);
            while (r.is_live)
                step(&w);
            subjects[i].expected[index] = r.got[index];
        }
    }
    world_close(&w);
}

static void every_way_gives_the_same_bits(void **state) {
    static const way ways[] = {
        {.name = "chunks of 1, 64 at a time", .n_threads = 2, .chunk = 1, .max_live = 64},
        {.name = "chunks of 7, cached", .n_threads = 1, .chunk = 7, .max_live = 20, .uses_cache = true},
        {.name = "chunks of 64, preempted",
         .n_threads = 1,
         .chunk = 64,
         .max_live = 30,
         .preempt_percent = 3,
         .uses_cache = true},
        {.name = "preempted without a cache, little room",
         .n_threads = 2,
         .chunk = 64,
         .max_live = 64,
         .n_blocks = 140,
         .preempt_percent = 1},
        {.name = "by time", .n_threads = 2, .max_live = 64, .by_time = true, .uses_cache = true},
        {.name = "resumed", .n_threads = 1, .chunk = 64, .max_live = 64, .uses_cache = true, .resumes = true},
        {.name = "forked", .n_threads = 2, .max_live = 60, .uses_cache = true, .forks = true, .preempt_percent = 1},
    };
    make_subjects();
    expect_alone();
    uint32_t n_whole = 0;
    for (uint32_t i = 0; i < n_requests; i++)
        n_whole += subjects[i].expected[0].n == subjects[i].request.max_new_tokens;
    assert_true(n_whole > n_requests / 2); // the others end at a stop id
    for (uint32_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        world w;
        world_open(&w, &ways[i]);
        run_all(&w, n_requests);
        if (ways[i].uses_cache && i == 1) { // once more, warm
            relay_scheduler_state before, after;
            relay_scheduler_get_state(w.scheduler, &before);
            run_all(&w, n_requests / 2);
            relay_scheduler_get_state(w.scheduler, &after);
            assert_true(after.cached_tokens - before.cached_tokens > 3 * n_requests);
        }
        relay_scheduler_state s;
        relay_scheduler_get_state(w.scheduler, &s);
        assert_int_equal(s.used_blocks, 0);
        if (ways[i].preempt_percent > 0) assert_true(s.preemptions > (n_requests == MAX_REQUESTS ? 100 : 0));
        world_close(&w);
    }
    free_subjects();
}

// one_answer_test KV_TYPE REQUESTS [MODEL_FILE VOCAB_SIZE], the file in the cache of models
int main(int argc, char **argv) {
    if (argc != 3 && argc != 5) return 2;
    const char *cache = getenv("RELAY_CACHE"), *home = getenv("HOME");
    static char path[4096];
    if (argc == 5) {
        snprintf(path, sizeof path, "%s%s/models/%s",
                 cache  ? cache
                 : home ? home
                        : "",
                 cache ? "" : "/.cache/relay", argv[3]);
        model_path = path;
        vocab_size = (uint32_t)atoi(argv[4]);
    }
    kv_type = relay_kv_type_of(argv[1]);
    n_requests = (uint32_t)atoi(argv[2]);
    if (n_requests > MAX_REQUESTS) return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way_gives_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
