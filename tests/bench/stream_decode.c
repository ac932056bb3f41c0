// How many tokens a second one thread turns into text, in a stream and one at a time, of a tokenizer file.
//
// usage: stream_decode FILE [SECONDS]     random ids of the vocabulary
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/text_stream.h"

enum { N_IDS = 1 << 16, ROUND = 4096 };

static double tokens_per_second(const relay_text_stream_opts *opts, const uint32_t *ids, double seconds) {
    relay_text_stream *s;
    relay_text_step step;
    relay_buf text;
    relay_buf_init(&text, UINT64_C(1) << 32);
    RELAY_ASSERT(relay_text_stream_create(&s, opts, NULL) == RELAY_OK);
    uint64_t n = 0;
    relay_mono_us begin = relay_mono_now(), now = begin;
    while ((double)(now - begin) < seconds * 1e6) {
        relay_buf_clear(&text);
        for (uint32_t i = 0; i < ROUND; i++, n++)
            relay_text_stream_push(s, &ids[n % N_IDS], 1, true, &text, &step);
        now = relay_mono_now();
    }
    relay_text_stream_destroy(s);
    relay_buf_fini(&text);
    return (double)n * 1e6 / (double)(now - begin);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: stream_decode FILE [SECONDS]\n");
        return 2;
    }
    relay_err e = {0};
    relay_tokenizer_spec spec = {0};
    relay_vocab *vocab = NULL;
    relay_text_decoder *decoder = NULL;
    relay_code code = relay_tokenizer_spec_read(&spec, argv[1], &e);
    if (code == RELAY_OK) code = relay_vocab_create_from_spec(&vocab, &spec, &e);
    if (code == RELAY_OK) code = relay_text_decoder_create(&decoder, &spec, &e);
    if (code != RELAY_OK) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    uint32_t *ids = relay_calloc(N_IDS, sizeof *ids);
    test_random r = {1};
    for (uint32_t i = 0; i < N_IDS; i++)
        ids[i] = test_random_below(&r, relay_vocab_size(vocab));
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;
    relay_text_stream_opts opts = {.vocab = vocab, .decoder = decoder, .skip_special_tokens = true};
    printf("no stop strings: %.1f million tokens/s\n", tokens_per_second(&opts, ids, seconds) / 1e6);
    const relay_stop_string stops[] = {{"\n\nUser:", 7}, {"</answer>", 9}};
    opts.stop_strings = stops;
    opts.n_stop_strings = 2;
    printf("two stop strings: %.1f million tokens/s\n", tokens_per_second(&opts, ids, seconds) / 1e6);
    free(ids);
    relay_text_decoder_destroy(decoder);
    relay_vocab_destroy(vocab);
    relay_tokenizer_spec_fini(&spec);
    return 0;
}
