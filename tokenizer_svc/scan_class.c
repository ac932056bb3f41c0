#include "tokenizer_svc/scan_class.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#include "common/status.h"
#include "tokenizer_svc/unicode_standin.h"

enum {
    PAGE = 128,
    MAX_PAGES = 700, // distinct ones; the rest of the code points share them
};

uint8_t relay_scan_ascii[256];
uint16_t relay_scan_page_of[0x110000 >> 7];
static uint8_t pages[MAX_PAGES][PAGE];
uint8_t (*relay_scan_pages)[128] = pages;

// White_Space of Unicode, which has not changed since 6.3.
static bool is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static uint8_t class_of_category(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return RELAY_SCAN_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return RELAY_SCAN_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return RELAY_SCAN_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return RELAY_SCAN_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return RELAY_SCAN_NUMBER;
    default:
        return 0;
    }
}

static uint8_t class_of(uint32_t cp) {
    if (is_space(cp)) return cp == '\r' || cp == '\n' ? RELAY_SCAN_SPACE | RELAY_SCAN_LINE : RELAY_SCAN_SPACE;
    uint32_t standin = cp, digit = cp;
    relay_unicode_standin(cp, false, &standin);
    relay_unicode_standin(cp, true, &digit);
    uint8_t class = class_of_category(standin);
    return class_of_category(digit) == RELAY_SCAN_NUMBER ? class | RELAY_SCAN_DIGIT : class;
}

static void make_pages(void) {
    uint32_t n_pages = 0;
    for (uint32_t p = 0; p < 0x110000 / PAGE; p++) {
        uint8_t page[PAGE];
        for (uint32_t i = 0; i < PAGE; i++)
            page[i] = class_of(p * PAGE + i);
        // Most pages are like the one before: of one script, or empty.
        uint32_t known = p > 0 ? relay_scan_page_of[p - 1] : 0;
        if (n_pages == 0 || memcmp(pages[known], page, PAGE) != 0) {
            known = 0;
            while (known < n_pages && memcmp(pages[known], page, PAGE) != 0)
                known++;
        }
        if (known == n_pages) {
            RELAY_ASSERT(n_pages < MAX_PAGES);
            memcpy(pages[n_pages++], page, PAGE);
        }
        relay_scan_page_of[p] = (uint16_t)known;
    }
    memcpy(relay_scan_ascii, pages[relay_scan_page_of[0]], PAGE);
}

void relay_scan_class_prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_pages);
}
