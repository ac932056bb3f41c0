// What stages do to one closed token.
#include "tokenizer_svc/decode_stage.h"

#include <string.h>

#include "common/byte_level.h"
#include "common/utf8.h"

bool relay_decode_stage_is_pure(relay_stage_kind kind) {
    switch (kind) {
    case RELAY_STAGE_REPLACE:
    case RELAY_STAGE_METASPACE:
    case RELAY_STAGE_STRIP:
    case RELAY_STAGE_WORDPIECE:
    case RELAY_STAGE_JOIN:
        return true;
    default:
        return false;
    }
}

static bool begins_with(const char *s, size_t len, const relay_decode_stage *stage) {
    return len >= stage->pattern_len && memcmp(s, stage->pattern, stage->pattern_len) == 0;
}

static void replace(const relay_decode_stage *stage, const char *s, size_t len, const char *by, size_t by_len,
                    relay_buf *out) {
    size_t from = 0;
    for (size_t i = 0; i + stage->pattern_len <= len;) {
        if (!begins_with(s + i, len - i, stage)) {
            i++;
            continue;
        }
        relay_buf_append(out, s + from, i - from);
        relay_buf_append(out, by, by_len);
        from = i += stage->pattern_len;
    }
    relay_buf_append(out, s + from, len - from);
}

// HF's Strip fails where it would take a character twice; here each is taken once.
static void strip(const relay_decode_stage *stage, const char *s, size_t len, relay_buf *out) {
    size_t begin = 0, end = len;
    for (uint32_t i = 0; i < stage->begin && begins_with(s + begin, len - begin, stage); i++)
        begin += stage->pattern_len;
    for (uint32_t i = 0; i < stage->end && end - begin >= stage->pattern_len; i++) {
        if (!begins_with(s + end - stage->pattern_len, stage->pattern_len, stage)) break;
        end -= stage->pattern_len;
    }
    relay_buf_append(out, s + begin, end - begin);
}

void relay_decode_stage_apply(const relay_decode_stage *s, const char *token, size_t len, bool is_first,
                              relay_buf *out) {
    switch (s->kind) {
    case RELAY_STAGE_REPLACE:
        replace(s, token, len, s->content, s->content_len, out);
        return;
    case RELAY_STAGE_METASPACE:
        replace(s, token, len, " ", is_first && s->drops_first ? 0 : 1, out);
        return;
    case RELAY_STAGE_STRIP:
        strip(s, token, len, out);
        return;
    case RELAY_STAGE_WORDPIECE:
        if (!is_first && begins_with(token, len, s)) {
            relay_buf_append(out, token + s->pattern_len, len - s->pattern_len);
            return;
        }
        // fall through
    case RELAY_STAGE_JOIN:
        if (!is_first) relay_buf_putc(out, ' ');
        relay_buf_append(out, token, len);
        return;
    default:
        RELAY_ASSERT(!"a stage that looks at one token alone");
    }
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int relay_decode_byte_of(const char *token, size_t len) {
    if (len != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    int high = token[3] == '+' ? 0 : hex_digit(token[3]), low = hex_digit(token[4]); // Rust reads "+F" as a number
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void relay_decode_alphabet(const char *token, size_t len, relay_buf *out) {
    size_t before = out->len, n;
    relay_buf_append(out, token, len);
    if (len == 0 || !relay_byte_level_decode(token, len, out->data + before, &n)) {
        out->len = before;
        relay_buf_append(out, token, len);
        return;
    }
    out->len = before + n;
}
