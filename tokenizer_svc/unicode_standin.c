// The ranges are what Hugging Face tokenizers 0.23.3 says of each code point where PCRE2 10.42 says something else
// (tests/oracle/pretokenizer_oracle.py compares all of them through the patterns). Characters of one class past U+FFFF
// share a stand-in that no pattern names; below, a neighbour is taken, and one of the script where a pattern may name
// it.
#include "tokenizer_svc/unicode_standin.h"

#include <string.h>

#include "common/status.h"
#include "common/utf8.h"

enum {
    LU = 0x1D400,
    LL = 0x1D41A,
    LM = 0x16B40,
    LO = 0x10000,
    HAN = 0x2B738, // a letter, too
    MARK = 0x10A01,
    DIGIT = 0x104A0,
    NUMBER = 0x10107,
    PUNCT = 0x10100,
    SYMBOL = 0x1D300,
    RUST_DIGIT = 0x104A1, // a digit for Rust only
};

typedef struct range {
    uint32_t first, last, standin;
} range;

static const range ranges[] = {
    {0x0897, 0x0897, 0x0898},   {0x0CF3, 0x0CF3, 0x0CE2},    {0x0ECE, 0x0ECE, 0x0ECD},
    {0x180E, 0x180E, 0x200B},   {0x1B4E, 0x1B4F, 0x1B5A},    {0x1B7F, 0x1B7F, 0x1B5A},
    {0x1C89, 0x1C89, 0xA640},   {0x1C8A, 0x1C8A, 0x1C80},    {0x2427, 0x2429, 0x2400},
    {0x2FFC, 0x2FFF, 0x2FF0},   {0x31E4, 0x31E5, 0x31C0},    {0x31EF, 0x31EF, 0x31C0},
    {0xA7CB, 0xA7CC, 0xA790},   {0xA7CD, 0xA7CD, 0xA791},    {0xA7DA, 0xA7DA, 0xA790},
    {0xA7DB, 0xA7DB, 0xA791},   {0xA7DC, 0xA7DC, 0xA790},    {0x105C0, 0x105F3, LO},
    {0x10D40, 0x10D49, DIGIT},  {0x10D4A, 0x10D4D, LO},      {0x10D4E, 0x10D4E, LM},
    {0x10D4F, 0x10D4F, LO},     {0x10D50, 0x10D65, LU},      {0x10D69, 0x10D6D, MARK},
    {0x10D6E, 0x10D6E, PUNCT},  {0x10D6F, 0x10D6F, LM},      {0x10D70, 0x10D85, LL},
    {0x10D8E, 0x10D8F, SYMBOL}, {0x10EC2, 0x10EC4, LO},      {0x10EFC, 0x10EFF, MARK},
    {0x1123F, 0x11240, LO},     {0x11241, 0x11241, MARK},    {0x11380, 0x11389, LO},
    {0x1138B, 0x1138B, LO},     {0x1138E, 0x1138E, LO},      {0x11390, 0x113B5, LO},
    {0x113B7, 0x113B7, LO},     {0x113B8, 0x113C0, MARK},    {0x113C2, 0x113C2, MARK},
    {0x113C5, 0x113C5, MARK},   {0x113C7, 0x113CA, MARK},    {0x113CC, 0x113D0, MARK},
    {0x113D1, 0x113D1, LO},     {0x113D2, 0x113D2, MARK},    {0x113D3, 0x113D3, LO},
    {0x113D4, 0x113D5, PUNCT},  {0x113D7, 0x113D8, PUNCT},   {0x113E1, 0x113E2, MARK},
    {0x116D0, 0x116E3, DIGIT},  {0x11B00, 0x11B09, PUNCT},   {0x11BC0, 0x11BE0, LO},
    {0x11BE1, 0x11BE1, PUNCT},  {0x11BF0, 0x11BF9, DIGIT},   {0x11DE0, 0x11DE9, RUST_DIGIT},
    {0x11F00, 0x11F01, MARK},   {0x11F02, 0x11F02, LO},      {0x11F03, 0x11F03, MARK},
    {0x11F04, 0x11F10, LO},     {0x11F12, 0x11F33, LO},      {0x11F34, 0x11F3A, MARK},
    {0x11F3E, 0x11F42, MARK},   {0x11F43, 0x11F4F, PUNCT},   {0x11F50, 0x11F59, DIGIT},
    {0x11F5A, 0x11F5A, MARK},   {0x1342F, 0x1342F, LO},      {0x13440, 0x13440, MARK},
    {0x13441, 0x13446, LO},     {0x13447, 0x13455, MARK},    {0x13460, 0x143FA, LO},
    {0x16100, 0x1611D, LO},     {0x1611E, 0x1612F, MARK},    {0x16130, 0x16139, DIGIT},
    {0x16D40, 0x16D42, LM},     {0x16D43, 0x16D6A, LO},      {0x16D6B, 0x16D6C, LM},
    {0x16D6D, 0x16D6F, PUNCT},  {0x16D70, 0x16D79, DIGIT},   {0x16FF4, 0x16FF6, RUST_DIGIT},
    {0x18CFF, 0x18CFF, LO},     {0x1B132, 0x1B132, 0x1B11F}, {0x1B155, 0x1B155, 0x1B164},
    {0x1CC00, 0x1CCEF, SYMBOL}, {0x1CCF0, 0x1CCF9, DIGIT},   {0x1CD00, 0x1CEB3, SYMBOL},
    {0x1D2C0, 0x1D2D3, NUMBER}, {0x1DF25, 0x1DF2A, 0x1DF00}, {0x1E030, 0x1E06D, LM},
    {0x1E08F, 0x1E08F, MARK},   {0x1E4D0, 0x1E4EA, LO},      {0x1E4EB, 0x1E4EB, LM},
    {0x1E4EC, 0x1E4EF, MARK},   {0x1E4F0, 0x1E4F9, DIGIT},   {0x1E5D0, 0x1E5ED, LO},
    {0x1E5EE, 0x1E5EF, MARK},   {0x1E5F0, 0x1E5F0, LO},      {0x1E5F1, 0x1E5FA, DIGIT},
    {0x1E5FF, 0x1E5FF, PUNCT},  {0x1F6DC, 0x1F6DC, SYMBOL},  {0x1F774, 0x1F776, SYMBOL},
    {0x1F77B, 0x1F77F, SYMBOL}, {0x1F7D9, 0x1F7D9, SYMBOL},  {0x1F8B2, 0x1F8BB, SYMBOL},
    {0x1F8C0, 0x1F8C1, SYMBOL}, {0x1FA75, 0x1FA77, SYMBOL},  {0x1FA87, 0x1FA89, SYMBOL},
    {0x1FA8F, 0x1FA8F, SYMBOL}, {0x1FAAD, 0x1FAAF, SYMBOL},  {0x1FABB, 0x1FABF, SYMBOL},
    {0x1FAC6, 0x1FAC6, SYMBOL}, {0x1FACE, 0x1FACF, SYMBOL},  {0x1FADA, 0x1FADC, SYMBOL},
    {0x1FADF, 0x1FADF, SYMBOL}, {0x1FAE8, 0x1FAE9, SYMBOL},  {0x1FAF7, 0x1FAF8, SYMBOL},
    {0x1FBCB, 0x1FBEF, SYMBOL}, {0x2B739, 0x2B739, HAN},     {0x2EBF0, 0x2EE5D, HAN},
    {0x31350, 0x323AF, HAN},
};

enum { N_RANGES = sizeof ranges / sizeof *ranges };

_Static_assert(N_RANGES < 256, "the search below takes 8 steps");

bool relay_unicode_standin(uint32_t cp, bool rust_digits, uint32_t *standin) {
    if (cp < ranges[0].first || cp > RELAY_STANDIN_LAST) return false;
    size_t low = 0, high = N_RANGES; // the range that holds cp, if any, is in [low, high)
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (cp < ranges[middle].first)
            high = middle;
        else
            low = middle;
    }
    const range *r = &ranges[low];
    if (cp > r->last || (r->standin == RUST_DIGIT && !rust_digits)) return false;
    *standin = r->standin;
    return true;
}

size_t relay_unicode_standin_find(const char *s, size_t len, size_t from, bool rust_digits) {
    size_t i = from;
    while (i < len) {
        uint64_t word;
        if (i + 8 <= len && (memcpy(&word, s + i, 8), (word & UINT64_C(0x8080808080808080)) == 0)) {
            i += 8;
            continue;
        }
        uint32_t cp, standin;
        size_t n = relay_utf8_decode(s + i, len - i, &cp);
        if (relay_unicode_standin(cp, rust_digits, &standin)) return i;
        i += n;
    }
    return len;
}

void relay_unicode_standin_replace(char *s, size_t len, bool rust_digits) {
    size_t i = 0;
    while ((i = relay_unicode_standin_find(s, len, i, rust_digits)) < len) {
        uint32_t cp, standin;
        size_t n = relay_utf8_decode(s + i, len - i, &cp);
        char bytes[4];
        bool has_standin = relay_unicode_standin(cp, rust_digits, &standin);
        RELAY_ASSERT(has_standin && relay_utf8_encode(standin, bytes) == n);
        memcpy(s + i, bytes, n);
        i += n;
    }
}
