// The names are llama.cpp's (src/llama-vocab.cpp), whose converters write them. What they stand for is what the models'
// own tokenizer.json files say; llama.cpp's patterns, where they only come close to these, are not taken. Two things
// are written in another way that matches the same: `\s+$`, which would try each space of a run to its end, and a
// repeated group behind which nothing asks for less, which is possessive.
//
// Left out, and so refused by name:
//   superbpe, tiny_aya, cohere2moe, jais-2: what is split off a long number or run of blanks is found by looking over
//   all
//     of its rest, so the time grows with the square of its length;
//   kimi-k2, afmoe, chameleon: no list of patterns, or one with parts that only their own code has;
//   gemma4, sarvam-moe, whitespace: not byte-level;
//   jina-*, roberta-bpe, modern-bert, granite-embed-*, f2llmv2: embedding models, which add separators.
#include "tokenizer_svc/pretokenizer_scheme.h"

#include <string.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
// A word with one character before it that is no letter, digit or line end; punctuation with the line ends behind it.
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCTUATION " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
// Line ends with the spaces before them; spaces without the last one, which goes to the next word; spaces.
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
// Words in which case changes once, as in "fooBar" -> "foo" "Bar".
#define UPPER           "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER           "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX          "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_WORD(end) PREFIX UPPER "*" LOWER "+" end "|" PREFIX UPPER "+" LOWER "*" end

#define ASCII_PUNCTUATED_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define MARKED_WORD           "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static const char *const gpt2[] = {GPT2_PATTERN, NULL};
static const char *const digit_gpt2[] = {"\\p{N}", GPT2_PATTERN, NULL};
static const char *const llama3[] = {CONTRACTION "|" WORD "|\\p{N}{1,3}|" PUNCTUATION "|" SPACES, NULL};
static const char *const minicpm5[] = {
    "\\p{N}{1,3}",
    CONTRACTION "|" WORD "|\\p{N}+|" PUNCTUATION "|" SPACES,
    NULL,
};
static const char *const qwen2[] = {CONTRACTION "|" WORD "|\\p{N}|" PUNCTUATION "|" SPACES, NULL};
static const char *const qwen35[] = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
    NULL,
};
static const char *const ufakzeka[] = {WORD "|\\p{N}|" PUNCTUATION "|" SPACES, NULL};
static const char *const laguna[] = {
    "[^\\n]+|[\\n]+",
    CONTRACTION "|" WORD "|\\p{N}|" PUNCTUATION "|" SPACES,
    NULL,
};
static const char *const seed_coder[] = {
    CONTRACTION "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES,
    NULL,
};
static const char *const bailingmoe[] = {
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
    "\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const exaone_moe[] = {
    CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const gpt4o[] = {
    CASED_WORD(CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
    NULL,
};
static const char *const tekken[] = {CASED_WORD("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES, NULL};
static const char *const youtu[] = {
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    CASED_WORD(
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
    NULL,
};
static const char *const deepseek_llm[] = {
    "[\\r\\n]",
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-Ⴥ"
    "Ꭰ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώ"
    "ᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK"
    "-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ"
    "-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "(?<!\\s)\\s++\\z", // \s+$
    "[一-龥ࠀ-一가-퟿]+",
    "\\p{N}+",
    NULL,
};
static const char *const deepseek_coder[] = {
    "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}", NULL,
};
static const char *const deepseek_v3[] = {
    "\\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    ASCII_PUNCTUATED_WORD "|" MARKED_WORD "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES,
    NULL,
};
static const char *const spark[] = {
    "\\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    ASCII_PUNCTUATED_WORD "|" MARKED_WORD "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+",
    "\\p{N}",
    NULL,
};
static const char *const falcon[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]", NULL};
static const char *const bloom[] = {" ?[^(\\s|.,!?…。，、।۔،)]+", NULL};
static const char *const viking[] = {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}", NULL};
// What llama.cpp's converters called a tokenizer that they did not know.
static const char *const unknown[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2_PATTERN, "\\p{N}+", "[0-9][0-9][0-9]", NULL,
};

enum { IGNORE_MERGES = 1, ADDS_BOS = 2, RUST_DIGITS = 4 };

#define SCHEME(scheme_name, list, flags)                                                                               \
    {                                                                                                                  \
        .name = scheme_name, .patterns = list, .ignore_merges = ((flags)&IGNORE_MERGES) != 0,                          \
        .adds_bos = ((flags)&ADDS_BOS) != 0, .rust_digits = ((flags)&RUST_DIGITS) != 0,                                \
    }

static const relay_pretokenizer_scheme schemes[] = {
    SCHEME("default", unknown, 0),
    SCHEME("gpt-2", gpt2, 0),
    SCHEME("phi-2", gpt2, 0),
    SCHEME("mpt", gpt2, 0),
    SCHEME("olmo", gpt2, 0),
    SCHEME("jais", gpt2, 0),
    SCHEME("trillion", gpt2, 0),
    SCHEME("granite-docling", gpt2, 0),
    SCHEME("gigachat", gpt2, 0),
    SCHEME("a.x-4.0", gpt2, 0),
    SCHEME("mellum", gpt2, 0),
    SCHEME("exaone4", gpt2, 0),
    SCHEME("smollm", digit_gpt2, RUST_DIGITS),
    SCHEME("starcoder", digit_gpt2, RUST_DIGITS),
    SCHEME("refact", digit_gpt2, RUST_DIGITS),
    SCHEME("command-r", digit_gpt2, RUST_DIGITS),
    SCHEME("codeshell", digit_gpt2, RUST_DIGITS),
    SCHEME("exaone", digit_gpt2, RUST_DIGITS),
    SCHEME("minerva-7b", digit_gpt2, RUST_DIGITS),
    SCHEME("mellum2", digit_gpt2, RUST_DIGITS),
    SCHEME("llama3", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("llama-v3", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("llama-bpe", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("falcon3", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("falcon-h1", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("pixtral", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("midm-2.0", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("lfm2", llama3, IGNORE_MERGES | ADDS_BOS),
    SCHEME("dbrx", llama3, 0),
    SCHEME("smaug-bpe", llama3, 0),
    SCHEME("glm4", llama3, 0),
    SCHEME("chatglm-bpe", llama3, 0),
    SCHEME("minicpm5", minicpm5, IGNORE_MERGES),
    SCHEME("qwen2", qwen2, 0),
    SCHEME("deepseek-r1-qwen", qwen2, 0),
    SCHEME("kormo", qwen2, 0),
    SCHEME("megrez", qwen2, 0),
    SCHEME("stablelm2", qwen2, 0),
    SCHEME("hunyuan", qwen2, 0),
    SCHEME("solar-open", qwen2, 0),
    SCHEME("grok-2", qwen2, 0),
    SCHEME("qwen35", qwen35, 0),
    SCHEME("ufakzeka", ufakzeka, 0),
    SCHEME("laguna", laguna, 0),
    SCHEME("seed-coder", seed_coder, 0),
    SCHEME("bailingmoe", bailingmoe, 0),
    SCHEME("bailingmoe2", bailingmoe, 0),
    SCHEME("llada-moe", bailingmoe, 0),
    SCHEME("exaone-moe", exaone_moe, 0),
    SCHEME("gpt-4o", gpt4o, 0),
    SCHEME("llama4", gpt4o, 0),
    SCHEME("kanana2", gpt4o, 0),
    SCHEME("talkie", gpt4o, 0),
    SCHEME("minimax-m2", gpt4o, 0),
    SCHEME("tekken", tekken, IGNORE_MERGES | ADDS_BOS),
    SCHEME("youtu", youtu, IGNORE_MERGES),
    SCHEME("deepseek-llm", deepseek_llm, RUST_DIGITS),
    SCHEME("deepseek-coder", deepseek_coder, RUST_DIGITS),
    SCHEME("deepseek-v3", deepseek_v3, 0),
    SCHEME("hunyuan-dense", deepseek_v3, 0),
    SCHEME("joyai-llm", deepseek_v3, 0),
    SCHEME("hy_v4", deepseek_v3, 0),
    SCHEME("spark2_5", spark, 0),
    SCHEME("falcon", falcon, 0),
    SCHEME("poro-chat", bloom, 0),
    SCHEME("bloom", bloom, 0),
    SCHEME("gpt3-finnish", bloom, 0),
    SCHEME("viking", viking, RUST_DIGITS),
};

enum { N_SCHEMES = sizeof schemes / sizeof *schemes };

const relay_pretokenizer_scheme *relay_pretokenizer_scheme_find(const char *name, size_t len) {
    for (size_t i = 0; i < N_SCHEMES; i++)
        if (strlen(schemes[i].name) == len && memcmp(schemes[i].name, name, len) == 0) return &schemes[i];
    return NULL;
}

const relay_pretokenizer_scheme *relay_pretokenizer_scheme_at(uint32_t i) {
    return i < N_SCHEMES ? &schemes[i] : NULL;
}

uint32_t relay_pretokenizer_scheme_count(void) {
    return N_SCHEMES;
}
