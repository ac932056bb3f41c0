// Makes the golden figures of this folder with llama.cpp's own library; see make_golden for how it is built and run.
//
//   llama_golden text BACKENDS MODEL F32_MODEL TEXT OUT    the truth at every position, and how far the peer is from it
//   llama_golden greedy BACKENDS MODEL COUNT OUT           ids of a greedy answer to BOS
//   llama_golden ids BACKENDS MODEL COUNT OUT              the truth at every position of COUNT made-up ids
//
// The truth is the model's weights dequantized to float32 by llama_model_quantize (written to F32_MODEL), run with a
// float32 KV cache and without flash attention (which would cast to float16). The peer's own figures are those of its
// default settings (float16 KV cache, flash attention left to it) on the quantized file. One context, one decode of the
// whole text.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "llama.h"

enum { N_CTX = 1024, N_TOKENS = 961 };

static void die(const char *what) {
    fprintf(stderr, "llama_golden: %s\n", what);
    exit(1);
}

static void no_log(enum ggml_log_level level, const char *text, void *arg) {
    (void)arg;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static struct llama_model *load_model(const char *path) {
    struct llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = 0;
    struct llama_model *m = llama_model_load_from_file(path, p);
    if (!m) die("the model does not load");
    return m;
}

static struct llama_context *make_context(struct llama_model *m, int is_truth, int n_threads) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = N_CTX;
    p.n_batch = N_CTX;
    p.n_threads = p.n_threads_batch = n_threads;
    if (is_truth) {
        p.type_k = GGML_TYPE_F32;
        p.type_v = GGML_TYPE_F32;
        p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    struct llama_context *c = llama_init_from_model(m, p);
    if (!c) die("no context");
    return c;
}

static int argmax(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double logprob(const float *x, int n, int id) {
    double max = x[argmax(x, n)], sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return x[id] - max - log(sum);
}

// For every position: the top id, and the logprob of the id that follows in the text (0 at the last).
static void run(const char *path, int is_truth, const llama_token *ids, int n, int *top, double *next) {
    struct llama_model *m = load_model(path);
    struct llama_context *c = make_context(m, is_truth, n > 64 ? 2 : 1);
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    struct llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) {
        b.token[i] = ids[i];
        b.pos[i] = i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    if (llama_decode(c, b)) die("decode failed");
    for (int i = 0; i < n; i++) {
        const float *x = llama_get_logits_ith(c, i);
        top[i] = argmax(x, n_vocab);
        next[i] = i + 1 < n ? logprob(x, n_vocab, ids[i + 1]) : 0;
    }
    llama_batch_free(b);
    llama_free(c);
    llama_model_free(m);
}

static void golden_text(const char *path, const char *f32_path, const char *text_path, const char *out_path) {
    FILE *f = fopen(text_path, "rb");
    static char text[1 << 16];
    size_t len = f ? fread(text, 1, sizeof text, f) : 0;
    if (len == 0 || len == sizeof text) die("the text is missing or too long");
    fclose(f);

    struct llama_model *m = load_model(path);
    static llama_token ids[1 << 14];
    int n = llama_tokenize(llama_model_get_vocab(m), text, (int)len, ids, 1 << 14, 1, 0);
    llama_model_free(m);
    if (n < N_TOKENS) die("the text is too short");
    n = N_TOKENS;

    struct llama_model_quantize_params q = llama_model_quantize_default_params();
    q.ftype = LLAMA_FTYPE_ALL_F32;
    q.allow_requantize = 1;
    if (llama_model_quantize(path, f32_path, &q)) die("cannot dequantize");

    static int top[N_TOKENS], peer_top[N_TOKENS];
    static double next[N_TOKENS], peer_next[N_TOKENS];
    run(f32_path, 1, ids, n, top, next);
    run(path, 0, ids, n, peer_top, peer_next);
    int same = 0;
    double sum = 0;
    for (int i = 0; i + 1 < n; i++) {
        same += top[i] == peer_top[i];
        sum += fabs(next[i] - peer_next[i]);
    }

    f = fopen(out_path, "w");
    if (!f) die("cannot write");
    const char *base = strrchr(path, '/');
    fprintf(f, "# %s over %s, by make_golden with llama.cpp %s.\n", base ? base + 1 : path, "english.txt",
            llama_version());
    fprintf(f, "# A row a position: id, the truth's top id, the truth's logprob of the next row's id.\n");
    fprintf(f, "peer_same_top %.6f\n", (double)same / (n - 1));
    fprintf(f, "peer_mean_difference %.6f\n", sum / (n - 1));
    fprintf(f, "rows %d\n", n);
    for (int i = 0; i < n; i++)
        fprintf(f, "%d %d %.6f\n", ids[i], top[i], next[i]);
    if (fclose(f)) die("cannot write");
}

static void golden_greedy(const char *path, int count, const char *out_path) {
    struct llama_model *m = load_model(path);
    struct llama_context *c = make_context(m, 1, 1);
    const struct llama_vocab *v = llama_model_get_vocab(m);
    llama_token id = llama_vocab_bos(v);
    FILE *f = fopen(out_path, "w");
    if (!f) die("cannot write");
    const char *base = strrchr(path, '/');
    fprintf(f, "# Greedy ids of %s, the first is BOS, by make_golden with llama.cpp %s.\nrows %d\n",
            base ? base + 1 : path, llama_version(), count + 1);
    fprintf(f, "%d\n", id);
    for (int i = 0; i < count; i++) {
        if (llama_decode(c, llama_batch_get_one(&id, 1))) die("decode failed");
        id = argmax(llama_get_logits_ith(c, -1), llama_vocab_n_tokens(v));
        fprintf(f, "%d\n", id);
    }
    if (fclose(f)) die("cannot write");
    llama_free(c);
    llama_model_free(m);
}

static void golden_ids(const char *path, int count, const char *out_path) {
    struct llama_model *m = load_model(path);
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    llama_model_free(m);
    static llama_token ids[N_CTX];
    static int top[N_CTX];
    static double next[N_CTX];
    if (count > N_CTX) die("too many ids");
    for (int i = 0; i < count; i++)
        ids[i] = (i * i + 3) % n_vocab;
    run(path, 1, ids, count, top, next);
    FILE *f = fopen(out_path, "w");
    if (!f) die("cannot write");
    const char *base = strrchr(path, '/');
    fprintf(f, "# %s, by make_golden with llama.cpp %s.\n", base ? base + 1 : path, llama_version());
    fprintf(f, "# A row a position: id, the truth's top id, the truth's logprob of the next row's id.\nrows %d\n",
            count);
    for (int i = 0; i < count; i++)
        fprintf(f, "%d %d %.6f\n", ids[i], top[i], next[i]);
    if (fclose(f)) die("cannot write");
}

int main(int argc, char **argv) {
    llama_log_set(no_log, NULL);
    if (argc > 2) ggml_backend_load_all_from_path(argv[2]);
    if (argc == 7 && !strcmp(argv[1], "text"))
        golden_text(argv[3], argv[4], argv[5], argv[6]);
    else if (argc == 6 && !strcmp(argv[1], "greedy"))
        golden_greedy(argv[3], atoi(argv[4]), argv[5]);
    else if (argc == 6 && !strcmp(argv[1], "ids"))
        golden_ids(argv[3], atoi(argv[4]), argv[5]);
    else
        die("usage: text BACKENDS MODEL F32_MODEL TEXT OUT | greedy|ids BACKENDS MODEL COUNT OUT");
    return 0;
}
