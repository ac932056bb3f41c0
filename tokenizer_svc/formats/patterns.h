// Patterns that several formats name: how the text is split into words that no token crosses. In Oniguruma's syntax, as
// the models' tokenizer.json files have them; tiktoken's possessive repeats are left out where they match the same.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_PATTERNS_H
#define RELAY_TOKENIZER_SVC_FORMATS_PATTERNS_H

// 's and the like.
#define RELAY_PATTERN_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
// A word with one character before it that is no letter, digit or line end; punctuation with the line ends behind it.
#define RELAY_PATTERN_WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define RELAY_PATTERN_PUNCTUATION " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
// Line ends with the spaces before them; spaces without the last one, which goes to the next word; spaces.
#define RELAY_PATTERN_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
// Words in which case changes once, as in "fooBar" -> "foo" "Bar".
#define RELAY_PATTERN_CASED_WORD(end)                                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" end                    \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" end

// GPT-2; r50k_base and p50k_base.
#define RELAY_PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
// Llama 3.
#define RELAY_PATTERN_LLAMA3                                                                                           \
    RELAY_PATTERN_CONTRACTION "|" RELAY_PATTERN_WORD "|\\p{N}{1,3}|" RELAY_PATTERN_PUNCTUATION "|" RELAY_PATTERN_SPACES
// cl100k_base: Llama 3's but for blanks at a text's end, which are one word whatever line ends are among them.
#define RELAY_PATTERN_CL100K                                                                                           \
    "'(?i:[sdmt]|ll|ve|re)|" RELAY_PATTERN_WORD "|\\p{N}{1,3}|" RELAY_PATTERN_PUNCTUATION                              \
    "|\\s++\\z|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"
// Qwen to Qwen 3: digits one by one.
#define RELAY_PATTERN_QWEN2                                                                                            \
    RELAY_PATTERN_CONTRACTION "|" RELAY_PATTERN_WORD "|\\p{N}|" RELAY_PATTERN_PUNCTUATION "|" RELAY_PATTERN_SPACES
// o200k_base, o200k_harmony; Llama 4.
#define RELAY_PATTERN_O200K                                                                                            \
    RELAY_PATTERN_CASED_WORD(RELAY_PATTERN_CONTRACTION "?")                                                            \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" RELAY_PATTERN_SPACES
// Mistral's Tekken: o200k_base's without contractions, digits one by one.
#define RELAY_PATTERN_TEKKEN                                                                                           \
    RELAY_PATTERN_CASED_WORD("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" RELAY_PATTERN_SPACES
// Kimi K2: o200k_base's, where runs of Han characters are words of their own. Its makers write (?!\p{Han}) as
// &&[^\p{Han}].
#define RELAY_PATTERN_NO_HAN(set) "(?:(?!\\p{Han})[" set "])"
#define RELAY_PATTERN_KIMI_K2                                                                                                              \
    "[\\p{Han}]+"                                                                                                                          \
    "|[^\\r\\n\\p{L}\\p{N}]?" RELAY_PATTERN_NO_HAN("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}") "*" RELAY_PATTERN_NO_HAN(                         \
        "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}") "+" RELAY_PATTERN_CONTRACTION "?"                                                                   \
                                       "|[^\\r\\n\\p{L}\\p{N}]?" RELAY_PATTERN_NO_HAN(                                                     \
                                           "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}"                                                                  \
                                           "\\p{M}") "+" RELAY_PATTERN_NO_HAN("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}") "*" RELAY_PATTERN_CONTRACTION \
                                                                                                             "?"                           \
                                                                                                             "|\\p{N}"                     \
                                                                                                             "{1,3}| "                     \
                                                                                                             "?[^"                         \
                                                                                                             "\\s\\p{"                     \
                                                                                                             "L}\\p{"                      \
                                                                                                             "N}]+["                       \
                                                                                                             "\\r\\n]"                     \
                                                                                                             "*"                           \
                                                                                                             "|" RELAY_PATTERN_SPACES

#endif
