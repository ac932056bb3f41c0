// How long chat templates take: renders conversations with each template that is named, and prints a line a template.
//
//   render_templates MESSAGES ROUNDS TEMPLATE...
//
// A line: the file's name, its bytes, the text's bytes, and the microseconds of one render on one thread's processor
// time (the median of the rounds), from the chat's message to the text with its origins. The conversation is user and
// assistant in turns, texts of a few sentences, and a tool where the template takes them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/message.h"
#include "tokenizer_svc/chat_template.h"

enum { MAX_MESSAGES = 10000, MAX_ROUNDS = 1000 };

static const char *const texts[] = {
    "What is the capital of France, and how did it become that? Please answer in two or three sentences.",
    "Paris has been the capital of France, with some interruptions, since the end of the tenth century.\n\nIt lies on "
    "the "
    "Seine, and the kings who held the \xC3\x8Ele-de-France made it the seat of their court.",
};

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "render_templates: %s: %s\n", what, why);
    exit(1);
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) die(path, "cannot be opened");
    char *text = relay_calloc(1 << 20, 1);
    *len = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

static void time_template(const char *path, const Relay__V1__Chat *chat, int rounds) {
    static const relay_chat_tokens tokens = {.bos_token = "<s>", .eos_token = "</s>"};
    static double seconds[MAX_ROUNDS];
    size_t len, text_len = 0;
    char *source = read_file(path, &len);
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    relay_chat_template *t;
    relay_err e;
    if (relay_chat_template_compile(&t, source, len, &e) != RELAY_OK) die(path, e.message);
    for (int i = 0; i < rounds; i++) {
        relay_rendered r;
        double begin = processor_seconds();
        relay_code code = relay_chat_template_render(t, chat, &tokens, NULL, &r, &e);
        seconds[i] = processor_seconds() - begin;
        text_len = r.len;
        relay_rendered_fini(&r);
        if (code == RELAY_OK) continue;
        printf("%s\t%zu\t-\t-\t%s\n", name, len, e.message);
        rounds = 0;
    }
    if (rounds > 0) {
        qsort(seconds, (size_t)rounds, sizeof *seconds, compare);
        printf("%s\t%zu\t%zu\t%.1f\n", name, len, text_len, seconds[rounds / 2] * 1e6);
    }
    relay_chat_template_destroy(t);
    free(source);
}

int main(int argc, char **argv) {
    int n = argc > 3 ? atoi(argv[1]) : 0, rounds = argc > 3 ? atoi(argv[2]) : 0;
    if (n < 1 || n > MAX_MESSAGES || rounds < 1 || rounds > MAX_ROUNDS) die("usage", "MESSAGES ROUNDS TEMPLATE...");
    static Relay__V1__ChatMessage messages[MAX_MESSAGES], *list[MAX_MESSAGES];
    for (int i = 0; i < n; i++) {
        relay__v1__chat_message__init(&messages[i]);
        RELAY_SET(&messages[i], role, relay_message_text(i % 2 == 0 ? "user" : "assistant"));
        RELAY_SET(&messages[i], content, relay_message_text(texts[i % 2]));
        list[i] = &messages[i];
    }
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = (size_t)n;
    chat.messages = list;
    RELAY_SET(&chat, tools_json,
              relay_message_text("[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"The "
                                 "weather of a place\",\"parameters\":{\"type\":\"object\",\"properties\":{\"place\":{"
                                 "\"type\":\"string\",\"description\":\"its name\"}},\"required\":[\"place\"]}}}]"));
    for (int i = 3; i < argc; i++)
        time_template(argv[i], &chat, rounds);
    return 0;
}
