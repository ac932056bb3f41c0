"""The pre-tokenizers of Hugging Face tokenizers that each name in tokenizer.ggml.pre stands for.

Patterns as in the models' tokenizer.json files, in Oniguruma's syntax; the reference for tokenizer_svc/formats/gguf_pre.c.
"""
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split


def splits(*patterns):
    return [Split(Regex(p), "isolated") for p in patterns]


GPT2 = [ByteLevel(add_prefix_space=False, use_regex=True)]
DIGITS = [Digits(individual_digits=True)]
S = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
S_BOTH_CASES = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"
ASCII_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
MARKED_WORD = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
CJK = "[一-龥ࠀ-一가-퟿]+"
CJK_KANA = "[一-龥぀-ゟ゠-ヿ]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK_LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    r"Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")


def cased(end, upper=UPPER, lower=LOWER):
    return BEFORE + upper + "*" + lower + "+" + end + "|" + BEFORE + upper + "+" + lower + "*" + end


def not_han(members):
    return members[:-1] + r"&&[^\p{Han}]]"


PRETOKENIZERS = {
    "gpt-2": GPT2,
    "smollm": DIGITS + GPT2,
    "llama3": splits(S + "|" + WORD + r"|\p{N}{1,3}|" + PUNCTUATION + "|" + SPACES),
    "qwen2": splits(S + "|" + WORD + r"|\p{N}|" + PUNCTUATION + "|" + SPACES),
    "qwen35": splits(S + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES),
    "minicpm5": splits(r"\p{N}{1,3}", S + "|" + WORD + r"|\p{N}+|" + PUNCTUATION + "|" + SPACES),
    "ufakzeka": splits(WORD + r"|\p{N}|" + PUNCTUATION + "|" + SPACES),
    "laguna": splits(r"[^\n]+|[\n]+", S + "|" + WORD + r"|\p{N}|" + PUNCTUATION + "|" + SPACES),
    "seed-coder": splits(S + "|" + WORD + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES),
    "bailingmoe": splits(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"),
    "exaone-moe": splits(S + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"),
    "gpt-4o": splits(cased(S + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES),
    "tekken": splits(cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES),
    "youtu": splits("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + CJK_KANA, cased(S_BOTH_CASES) + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES),
    "deepseek-llm": splits("[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK) + [Digits(individual_digits=False)],
    "deepseek-coder": splits("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK) + DIGITS,
    "kimi-k2": splits("|".join([r"[\p{Han}]+", cased(S + "?", not_han(UPPER), not_han(LOWER)), r"\p{N}{1,3}", PUNCTUATION, SPACES])),
    "deepseek-v3": splits(r"\p{N}{1,3}", CJK_KANA, ASCII_WORD + "|" + MARKED_WORD + r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES),
    "spark2_5": splits(r"\p{N}{1,3}", CJK_KANA, ASCII_WORD + "|" + MARKED_WORD + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"),
    "falcon": splits(r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]"),
    "bloom": splits(BLOOM),
    "viking": splits(BLOOM) + DIGITS,
    "default": splits(r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"),
}

# Other names of the same list.
SAME = {
    "gpt-2": "phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4",
    "smollm": "starcoder refact command-r codeshell exaone minerva-7b mellum2",
    "llama3": "llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe glm4 chatglm-bpe",
    "qwen2": "deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
    "bailingmoe": "bailingmoe2 llada-moe",
    "gpt-4o": "llama4 kanana2 talkie minimax-m2",
    "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
    "bloom": "poro-chat gpt3-finnish",
}
for _name, _others in SAME.items():
    for _other in _others.split():
        PRETOKENIZERS[_other] = PRETOKENIZERS[_name]

# Names of models that take a word that is a token as that token, whatever the merges say.
IGNORE_MERGES = set("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 minicpm5 tekken youtu".split())


def word_lengths(name, texts):
    """Of each text, the lengths in bytes of its words."""
    pretokenizer = Sequence(PRETOKENIZERS[name])
    return [[len(text[begin:end].encode()) for _, (begin, end) in pretokenizer.pre_tokenize_str(text)] for text in texts]


def byte_level(name):
    """The whole pre-tokenizer: words, then bytes in GPT-2's alphabet."""
    stages = PRETOKENIZERS[name]
    if not isinstance(stages[-1], ByteLevel):
        stages = stages + [ByteLevel(add_prefix_space=False, use_regex=False)]
    return Sequence(stages)
