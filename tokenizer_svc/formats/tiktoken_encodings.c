// Sources: openai_public.py of tiktoken 0.14 (r50k_base to o200k_harmony); Meta's tokenizer.py of Llama 3 and Llama 4,
// with the names that their tokenizer.json files give to reserved tokens; Moonshot's tokenization_kimi.py and
// tokenizer_config.json; Alibaba's tokenization_qwen.py.
//
// The four files of OpenAI are recognised by their sha256, the others by their number of ranks, which is another for
// each.
#include "tokenizer_svc/formats/tiktoken_encodings.h"

#include <stddef.h>
#include <string.h>

#include "tokenizer_svc/formats/patterns.h"

#define SHA_R50K  "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
#define SHA_P50K  "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
#define SHA_CL100 "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
#define SHA_O200K "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

typedef relay_tiktoken_special special;

static const special r50k[] = {{.name = "<|endoftext|>", .id = 50256}, {0}};
static const special p50k_edit[] = {
    {.name = "<|endoftext|>", .id = 50256},
    {.name = "<|fim_prefix|>", .id = 50281},
    {.name = "<|fim_middle|>", .id = 50282},
    {.name = "<|fim_suffix|>", .id = 50283},
    {0},
};
static const special cl100k[] = {
    {.name = "<|endoftext|>", .id = 100257},   {.name = "<|fim_prefix|>", .id = 100258},
    {.name = "<|fim_middle|>", .id = 100259},  {.name = "<|fim_suffix|>", .id = 100260},
    {.name = "<|endofprompt|>", .id = 100276}, {0},
};
static const special o200k[] = {
    {.name = "<|endoftext|>", .id = 199999}, {.name = "<|endofprompt|>", .id = 200018}, {0}};
static const special harmony[] = {
    {.name = "<|startoftext|>", .id = 199998},
    {.name = "<|endoftext|>", .id = 199999},
    {.name = "<|return|>", .id = 200002},
    {.name = "<|constrain|>", .id = 200003},
    {.name = "<|channel|>", .id = 200005},
    {.name = "<|start|>", .id = 200006},
    {.name = "<|end|>", .id = 200007},
    {.name = "<|message|>", .id = 200008},
    {.name = "<|call|>", .id = 200012},
    {.name = "<|reserved_200018|>", .id = 200018}, // another name, by which text may call it, too
    {.name = "<|endofprompt|>", .id = 200018},
    {.name = "<|reserved_#|>", .id = 200000, .count = 1088, .number = 200000},
    {0},
};
static const special llama3[] = {
    {.name = "<|begin_of_text|>", .id = 128000},
    {.name = "<|end_of_text|>", .id = 128001},
    {.name = "<|reserved_special_token_#|>", .id = 128002, .count = 4, .number = 0},
    {.name = "<|start_header_id|>", .id = 128006},
    {.name = "<|end_header_id|>", .id = 128007},
    {.name = "<|reserved_special_token_#|>", .id = 128008, .count = 1, .number = 4},
    {.name = "<|eot_id|>", .id = 128009},
    {.name = "<|reserved_special_token_#|>", .id = 128010, .count = 246, .number = 5},
    {0},
};
static const special llama31[] = {
    {.name = "<|begin_of_text|>", .id = 128000},
    {.name = "<|end_of_text|>", .id = 128001},
    {.name = "<|reserved_special_token_#|>", .id = 128002, .count = 2, .number = 0},
    {.name = "<|finetune_right_pad_id|>", .id = 128004},
    {.name = "<|reserved_special_token_#|>", .id = 128005, .count = 1, .number = 2},
    {.name = "<|start_header_id|>", .id = 128006},
    {.name = "<|end_header_id|>", .id = 128007},
    {.name = "<|eom_id|>", .id = 128008},
    {.name = "<|eot_id|>", .id = 128009},
    {.name = "<|python_tag|>", .id = 128010},
    {.name = "<|reserved_special_token_#|>", .id = 128011, .count = 245, .number = 3},
    {0},
};
static const special llama4[] = {
    {.name = "<|begin_of_text|>", .id = 200000},
    {.name = "<|end_of_text|>", .id = 200001},
    {.name = "<|fim_prefix|>", .id = 200002},
    {.name = "<|fim_middle|>", .id = 200003},
    {.name = "<|fim_suffix|>", .id = 200004},
    {.name = "<|header_start|>", .id = 200005},
    {.name = "<|header_end|>", .id = 200006},
    {.name = "<|eom|>", .id = 200007},
    {.name = "<|eot|>", .id = 200008},
    {.name = "<|step|>", .id = 200009},
    {.name = "<|text_post_train_reserved_special_token_#|>", .id = 200010, .count = 6, .number = 0},
    {.name = "<|python_start|>", .id = 200016},
    {.name = "<|python_end|>", .id = 200017},
    {.name = "<|finetune_right_pad|>", .id = 200018},
    {.name = "<|text_post_train_reserved_special_token_#|>", .id = 200019, .count = 61, .number = 6},
    {.name = "<|image_start|>", .id = 200080},
    {.name = "<|image_end|>", .id = 200081},
    {.name = "<|vision_reserved_special_token_#|>", .id = 200082, .count = 2, .number = 0},
    {.name = "<|tile_x_separator|>", .id = 200084},
    {.name = "<|tile_y_separator|>", .id = 200085},
    {.name = "<|vision_reserved_special_token_#|>", .id = 200086, .count = 4, .number = 2},
    {.name = "<|image|>", .id = 200090},
    {.name = "<|vision_reserved_special_token_#|>", .id = 200091, .count = 1, .number = 6},
    {.name = "<|patch|>", .id = 200092},
    {.name = "<|vision_reserved_special_token_#|>", .id = 200093, .count = 1041, .number = 7},
    {.name = "<|reserved_special_token_#|>", .id = 201134, .count = 914, .number = 0},
    {0},
};
static const special kimi_k2[] = {
    {.name = "[BOS]", .id = 163584},
    {.name = "[EOS]", .id = 163585},
    {.name = "<|im_end|>", .id = 163586},
    {.name = "<|im_user|>", .id = 163587},
    {.name = "<|im_assistant|>", .id = 163588},
    {.name = "<|start_header_id|>", .id = 163590},
    {.name = "<|end_header_id|>", .id = 163591},
    {.name = "[EOT]", .id = 163593},
    {.name = "<|im_system|>", .id = 163594},
    {.name = "<|tool_calls_section_begin|>", .id = 163595},
    {.name = "<|tool_calls_section_end|>", .id = 163596},
    {.name = "<|tool_call_begin|>", .id = 163597},
    {.name = "<|tool_call_argument_begin|>", .id = 163598},
    {.name = "<|tool_call_end|>", .id = 163599},
    {.name = "<|im_middle|>", .id = 163601},
    {.name = "[UNK]", .id = 163838},
    {.name = "[PAD]", .id = 163839},
    {.name = "<|reserved_token_#|>", .id = 163584, .count = 256, .number = 163584},
    {0},
};
static const special qwen[] = {
    {.name = "<|endoftext|>", .id = 151643},
    {.name = "<|im_start|>", .id = 151644},
    {.name = "<|im_end|>", .id = 151645},
    {.name = "<|extra_#|>", .id = 151646, .count = 205, .number = 0},
    {0},
};

#define END_OF_TEXT .eos = "<|endoftext|>"

// Of encodings with one file, the first is the one that it is recognised as.
static const relay_tiktoken_encoding encodings[] = {
    {.name = "r50k_base",
     .sha256 = SHA_R50K,
     .n_ranks = 50256,
     .pattern = RELAY_PATTERN_GPT2,
     END_OF_TEXT,
     .special = r50k},
    {.name = "p50k_base",
     .sha256 = SHA_P50K,
     .n_ranks = 50280,
     .pattern = RELAY_PATTERN_GPT2,
     END_OF_TEXT,
     .special = r50k},
    {.name = "p50k_edit",
     .sha256 = SHA_P50K,
     .n_ranks = 50280,
     .pattern = RELAY_PATTERN_GPT2,
     END_OF_TEXT,
     .special = p50k_edit},
    {.name = "cl100k_base",
     .sha256 = SHA_CL100,
     .n_ranks = 100256,
     .pattern = RELAY_PATTERN_CL100K,
     END_OF_TEXT,
     .special = cl100k},
    {.name = "o200k_base",
     .sha256 = SHA_O200K,
     .n_ranks = 199998,
     .pattern = RELAY_PATTERN_O200K,
     END_OF_TEXT,
     .special = o200k},
    {
        .name = "o200k_harmony",
        .sha256 = SHA_O200K,
        .n_ranks = 199998,
        .pattern = RELAY_PATTERN_O200K,
        .bos = "<|startoftext|>",
        .eos = "<|return|>",
        .pad = "<|endoftext|>",
        .special = harmony,
    },
    {
        .name = "llama3.1",
        .n_ranks = 128000,
        .pattern = RELAY_PATTERN_LLAMA3,
        .adds_bos = true,
        .bos = "<|begin_of_text|>",
        .eos = "<|eot_id|>",
        .pad = "<|finetune_right_pad_id|>",
        .special = llama31,
    },
    {
        .name = "llama3",
        .n_ranks = 128000,
        .pattern = RELAY_PATTERN_LLAMA3,
        .adds_bos = true,
        .bos = "<|begin_of_text|>",
        .eos = "<|eot_id|>",
        .special = llama3,
    },
    {
        .name = "llama4",
        .n_ranks = 200000,
        .pattern = RELAY_PATTERN_O200K,
        .adds_bos = true,
        .bos = "<|begin_of_text|>",
        .eos = "<|eot|>",
        .pad = "<|finetune_right_pad|>",
        .special = llama4,
    },
    {
        .name = "kimi_k2",
        .n_ranks = 163584,
        .pattern = RELAY_PATTERN_KIMI_K2,
        .bos = "[BOS]",
        .eos = "[EOS]",
        .pad = "[PAD]",
        .special = kimi_k2,
    },
    {
        .name = "qwen",
        .n_ranks = 151643,
        .pattern = RELAY_PATTERN_QWEN2,
        .is_nfc = true,
        END_OF_TEXT,
        .special = qwen,
    },
};

enum { N_ENCODINGS = sizeof encodings / sizeof *encodings };

const relay_tiktoken_encoding *relay_tiktoken_encoding_find(const char *name) {
    for (size_t i = 0; i < N_ENCODINGS; i++)
        if (strcmp(encodings[i].name, name) == 0) return &encodings[i];
    return NULL;
}

const relay_tiktoken_encoding *relay_tiktoken_encoding_recognise(const char *sha256, uint32_t n_ranks) {
    for (size_t i = 0; i < N_ENCODINGS; i++) {
        const relay_tiktoken_encoding *enc = &encodings[i];
        if (enc->sha256 != NULL ? strcmp(enc->sha256, sha256) == 0 : enc->n_ranks == n_ranks) return enc;
    }
    return NULL;
}

const char *relay_tiktoken_encoding_names(void) {
    return "r50k_base, p50k_base, p50k_edit, cl100k_base, o200k_base, o200k_harmony, llama3, llama3.1, llama4, "
           "kimi_k2, "
           "qwen";
}
