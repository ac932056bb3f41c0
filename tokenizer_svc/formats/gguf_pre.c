// The names are llama.cpp's (src/llama-vocab.cpp), whose converters write them. What they stand for is what the models'
// own tokenizer.json files say; llama.cpp's patterns, where they only come close to these, are not taken.
//
// Left out, and so refused by name: jais-2, superbpe, tiny_aya, cohere2moe, afmoe, chameleon (no list of patterns that
// their makers published as such, or parts that only their own code has); sarvam-moe, whitespace (not byte-level);
// jina-*, roberta-bpe, modern-bert, granite-embed-*, f2llmv2 (embedding models, which add separators).
#include "tokenizer_svc/formats/gguf_pre.h"

#include <string.h>

#include "tokenizer_svc/formats/patterns.h"
#include "tokenizer_svc/formats/spec_build.h"

#define ASCII_PUNCTUATED_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define MARKED_WORD           "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define CONTRACTION           RELAY_PATTERN_CONTRACTION
#define WORD                  RELAY_PATTERN_WORD
#define PUNCTUATION           RELAY_PATTERN_PUNCTUATION
#define SPACES                RELAY_PATTERN_SPACES
#define CASED_WORD(end)       RELAY_PATTERN_CASED_WORD(end)

#define SPLIT(regex)                                                                                                   \
    {                                                                                                                  \
        .kind = RELAY_PRETOKENIZE_SPLIT,                                                                               \
        .pattern = {.text = {.s = (regex), .len = sizeof(regex) - 1}, .is_regex = true},                               \
        .behavior = RELAY_SPLIT_ISOLATED,                                                                              \
    }
#define DIGITS(each)                                                                                                   \
    { .kind = RELAY_PRETOKENIZE_DIGITS, .individual_digits = (each) }
#define BYTES                                                                                                          \
    { .kind = RELAY_PRETOKENIZE_BYTE_LEVEL, .trim_offsets = true }
// With GPT-2's own pattern.
#define GPT2_BYTES                                                                                                     \
    { .kind = RELAY_PRETOKENIZE_BYTE_LEVEL, .trim_offsets = true, .use_regex = true }

typedef relay_pretokenizer_spec stage;

static const stage gpt2[] = {GPT2_BYTES};
static const stage digit_gpt2[] = {DIGITS(true), GPT2_BYTES};
static const stage llama3[] = {SPLIT(RELAY_PATTERN_LLAMA3), BYTES};
static const stage minicpm5[] = {
    SPLIT("\\p{N}{1,3}"),
    SPLIT(CONTRACTION "|" WORD "|\\p{N}+|" PUNCTUATION "|" SPACES),
    BYTES,
};
static const stage qwen2[] = {SPLIT(RELAY_PATTERN_QWEN2), BYTES};
static const stage qwen35[] = {
    SPLIT(CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES),
    BYTES,
};
static const stage ufakzeka[] = {SPLIT(WORD "|\\p{N}|" PUNCTUATION "|" SPACES), BYTES};
static const stage laguna[] = {
    SPLIT("[^\\n]+|[\\n]+"),
    SPLIT(CONTRACTION "|" WORD "|\\p{N}|" PUNCTUATION "|" SPACES),
    BYTES,
};
static const stage seed_coder[] = {
    SPLIT(CONTRACTION "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES),
    BYTES,
};
static const stage bailingmoe[] = {
    SPLIT("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
          "\\s+(?!\\S)|\\s+"),
    BYTES,
};
static const stage exaone_moe[] = {
    SPLIT(CONTRACTION
          "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
          "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"),
    BYTES,
};
static const stage gpt4o[] = {SPLIT(RELAY_PATTERN_O200K), BYTES};
static const stage tekken[] = {SPLIT(RELAY_PATTERN_TEKKEN), BYTES};
static const stage youtu[] = {
    SPLIT("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
    SPLIT(CASED_WORD(
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?") "|\\p{N}| "
                                                                      "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES),
    BYTES,
};
static const stage deepseek_llm[] = {
    SPLIT("[\\r\\n]"),
    SPLIT("\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-Ⴥ"
          "Ꭰ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώ"
          "ᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK"
          "-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ"
          "-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"),
    SPLIT("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
    SPLIT("\\s+$"),
    SPLIT("[一-龥ࠀ-一가-퟿]+"),
    DIGITS(false),
    BYTES,
};
static const stage deepseek_coder[] = {
    SPLIT("[\\r\\n]"),    SPLIT("\\s?\\p{L}+"),
    SPLIT("\\s?\\p{P}+"), SPLIT("[一-龥ࠀ-一가-퟿]+"),
    DIGITS(true),         BYTES,
};
static const stage deepseek_v3[] = {
    SPLIT("\\p{N}{1,3}"),
    SPLIT("[一-龥぀-ゟ゠-ヿ]+"),
    SPLIT(ASCII_PUNCTUATED_WORD "|" MARKED_WORD "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES),
    BYTES,
};
static const stage spark[] = {
    SPLIT("\\p{N}{1,3}"),
    SPLIT("[一-龥぀-ゟ゠-ヿ]+"),
    SPLIT(ASCII_PUNCTUATED_WORD "|" MARKED_WORD "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+"),
    SPLIT("\\p{N}"),
    BYTES,
};
static const stage falcon[] = {
    SPLIT("[\\p{P}\\$\\+<=>\\^~\\|`]+"),
    SPLIT(RELAY_PATTERN_GPT2),
    SPLIT("[0-9][0-9][0-9]"),
    BYTES,
};
static const stage bloom[] = {SPLIT(" ?[^(\\s|[.,!?…。，、।۔،])]+"), BYTES};
static const stage viking[] = {SPLIT(" ?[^(\\s|[.,!?…。，、।۔،])]+"), DIGITS(true), BYTES};
static const stage kimi_k2[] = {SPLIT(RELAY_PATTERN_KIMI_K2), BYTES};
// What llama.cpp's converters called a tokenizer that they did not know.
static const stage unknown[] = {
    SPLIT("[\\p{P}\\$\\+<=>\\^~\\|]+"), SPLIT(RELAY_PATTERN_GPT2), SPLIT("\\p{N}+"), SPLIT("[0-9][0-9][0-9]"), BYTES,
};

enum { IGNORE_MERGES = 1, ADDS_BOS = 2, BY_RANK = 4 };

#define PRE(pre_name, list, flags)                                                                                     \
    {                                                                                                                  \
        .name = pre_name, .stages = list, .n_stages = sizeof(list) / sizeof *(list),                                   \
        .ignore_merges = ((flags)&IGNORE_MERGES) != 0, .adds_bos = ((flags)&ADDS_BOS) != 0,                            \
        .by_rank = ((flags)&BY_RANK) != 0,                                                                             \
    }

static const relay_gguf_pre pres[] = {
    PRE("default", unknown, 0),
    PRE("gpt-2", gpt2, 0),
    PRE("phi-2", gpt2, 0),
    PRE("mpt", gpt2, 0),
    PRE("olmo", gpt2, 0),
    PRE("jais", gpt2, 0),
    PRE("trillion", gpt2, 0),
    PRE("granite-docling", gpt2, 0),
    PRE("gigachat", gpt2, 0),
    PRE("a.x-4.0", gpt2, 0),
    PRE("mellum", gpt2, 0),
    PRE("exaone4", gpt2, 0),
    PRE("smollm", digit_gpt2, 0),
    PRE("starcoder", digit_gpt2, 0),
    PRE("refact", digit_gpt2, 0),
    PRE("command-r", digit_gpt2, 0),
    PRE("codeshell", digit_gpt2, 0),
    PRE("exaone", digit_gpt2, 0),
    PRE("minerva-7b", digit_gpt2, 0),
    PRE("mellum2", digit_gpt2, 0),
    PRE("llama3", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("llama-v3", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("llama-bpe", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("falcon3", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("falcon-h1", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("pixtral", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("midm-2.0", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("lfm2", llama3, IGNORE_MERGES | ADDS_BOS),
    PRE("dbrx", llama3, 0),
    PRE("smaug-bpe", llama3, 0),
    PRE("glm4", llama3, 0),
    PRE("chatglm-bpe", llama3, 0),
    PRE("minicpm5", minicpm5, IGNORE_MERGES),
    PRE("qwen2", qwen2, 0),
    PRE("deepseek-r1-qwen", qwen2, 0),
    PRE("kormo", qwen2, 0),
    PRE("megrez", qwen2, 0),
    PRE("stablelm2", qwen2, 0),
    PRE("hunyuan", qwen2, 0),
    PRE("solar-open", qwen2, 0),
    PRE("grok-2", qwen2, 0),
    PRE("qwen35", qwen35, 0),
    PRE("ufakzeka", ufakzeka, 0),
    PRE("laguna", laguna, 0),
    PRE("seed-coder", seed_coder, 0),
    PRE("bailingmoe", bailingmoe, 0),
    PRE("bailingmoe2", bailingmoe, 0),
    PRE("llada-moe", bailingmoe, 0),
    PRE("exaone-moe", exaone_moe, 0),
    PRE("gpt-4o", gpt4o, 0),
    PRE("llama4", gpt4o, 0),
    PRE("kanana2", gpt4o, 0),
    PRE("talkie", gpt4o, 0),
    PRE("minimax-m2", gpt4o, 0),
    PRE("tekken", tekken, IGNORE_MERGES | ADDS_BOS),
    PRE("youtu", youtu, IGNORE_MERGES),
    PRE("deepseek-llm", deepseek_llm, 0),
    PRE("deepseek-coder", deepseek_coder, 0),
    PRE("deepseek-v3", deepseek_v3, 0),
    PRE("hunyuan-dense", deepseek_v3, 0),
    PRE("joyai-llm", deepseek_v3, 0),
    PRE("hy_v4", deepseek_v3, 0),
    PRE("spark2_5", spark, 0),
    PRE("falcon", falcon, 0),
    PRE("poro-chat", bloom, 0),
    PRE("bloom", bloom, 0),
    PRE("gpt3-finnish", bloom, 0),
    PRE("viking", viking, 0),
    PRE("kimi-k2", kimi_k2, BY_RANK),
};

enum { N_PRES = sizeof pres / sizeof *pres };

const relay_gguf_pre *relay_gguf_pre_find(const char *name, size_t len) {
    for (size_t i = 0; i < N_PRES; i++)
        if (strlen(pres[i].name) == len && memcmp(pres[i].name, name, len) == 0) return &pres[i];
    return NULL;
}

const relay_gguf_pre *relay_gguf_pre_at(uint32_t i) {
    return i < N_PRES ? &pres[i] : NULL;
}

uint32_t relay_gguf_pre_count(void) {
    return N_PRES;
}
