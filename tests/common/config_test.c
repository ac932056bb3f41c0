#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/config.h"

typedef struct settings {
    int64_t queue;
    int64_t any;
    double temperature, scale;
    uint64_t kv_bytes;
    const char *kv_type;
    const char *model;
    bool json;
    bool queue_was_set, json_was_set;
} settings;

enum { N_ENTRIES = 8, MAX_WORDS = 16 };

static const settings defaults = {
    .queue = 64, .any = -1, .temperature = 0.7, .kv_bytes = 1 << 30, .kv_type = "f16", .json = false};

// Parses words (a NULL ends them) over the defaults.
typedef struct run {
    settings s;
    const char *positional[MAX_WORDS];
    int n_positional;
    bool help_shown;
    relay_code code;
    relay_err e;
} run;

static relay_config_entry entries[N_ENTRIES];

static relay_config config_for(settings *s) {
    const relay_config_entry table[N_ENTRIES] = {
        {"max-queue", RELAY_CONFIG_INT, &s->queue, 1, 4096, "N", .help = "Most requests that wait.",
         .was_set = &s->queue_was_set},
        {"any", RELAY_CONFIG_INT, &s->any, 0, 0, "N", .help = "Any number."},
        {"temperature", RELAY_CONFIG_FLOAT, &s->temperature, 0, 2, "T", .help = "How free the choice is."},
        {"scale", RELAY_CONFIG_FLOAT, &s->scale, 0, 0, "X", .help = "Any number.", .has_no_default = true},
        {"kv-bytes", RELAY_CONFIG_BYTES, &s->kv_bytes, 1 << 20, 0x1p40, "SIZE", .help = "Memory for the cache."},
        {"kv-type", RELAY_CONFIG_STRING, &s->kv_type, 0, 0, "TYPE", .help = "Type of the cache.", .choices = "f16|f32"},
        {"model", RELAY_CONFIG_STRING, &s->model, 0, 0, "FILE", .help = "The model."},
        {"json", RELAY_CONFIG_BOOL, &s->json, 0, 0, NULL, .help = "One JSON object a message.",
         .was_set = &s->json_was_set},
    };
    memcpy(entries, table, sizeof table);
    return (relay_config){.program = "relay-test",
                          .env_prefix = "RELAY_TEST",
                          .usage = "[flags] [WORD...]",
                          .summary = "Tests settings.",
                          .entries = entries,
                          .n_entries = N_ENTRIES};
}

static run parse_with(bool takes_words, const char *const *words) {
    static char *argv[MAX_WORDS + 1];
    int argc = 1;
    argv[0] = (char *)"relay-test";
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)words[argc - 1];
    run r = {.s = defaults};
    relay_config c = config_for(&r.s);
    r.code = relay_config_parse(&c, argc, argv, takes_words ? r.positional : NULL, takes_words ? &r.n_positional : NULL,
                                &r.help_shown, &r.e);
    return r;
}

#define PARSE(...) parse_with(true, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void assert_refused(run r, const char *message) {
    assert_int_equal(r.code, RELAY_INVALID_ARGUMENT);
    assert_string_equal(r.e.message, message);
}

static int clear_environment(void **state) {
    unsetenv("RELAY_TEST_MAX_QUEUE");
    unsetenv("RELAY_TEST_KV_TYPE");
    unsetenv("RELAY_TEST_JSON");
    return 0;
}

// ---- What is read

static void without_flags_the_defaults_stay(void **state) {
    run r = PARSE();
    assert_int_equal(r.code, RELAY_OK);
    assert_memory_equal(&r.s, &defaults, sizeof defaults);
    assert_int_equal(r.n_positional, 0);
    assert_false(r.help_shown);
}

static void flags_take_their_value_behind_them_or_behind_an_equals_sign(void **state) {
    run r = PARSE("--max-queue", "5", "--temperature=1.5", "--kv-bytes", "3MiB", "--kv-type=f32", "--model", "",
                  "--any=-9");
    assert_int_equal(r.code, RELAY_OK);
    assert_int_equal(r.s.queue, 5);
    assert_true(r.s.queue_was_set);
    assert_true(r.s.temperature == 1.5);
    assert_int_equal(r.s.kv_bytes, 3 << 20);
    assert_string_equal(r.s.kv_type, "f32");
    assert_string_equal(r.s.model, "");
    assert_int_equal(r.s.any, -9);
    assert_false(r.s.json_was_set);
    r = PARSE("--model=--odd=name", "--max-queue", "1", "--max-queue", "4096");
    assert_string_equal(r.s.model, "--odd=name");
    assert_int_equal(r.s.queue, 4096);        // the last one
    r = PARSE("--any", "-9", "--model", "-"); // one dash is a value
    assert_int_equal(r.s.any, -9);
    assert_string_equal(r.s.model, "-");
}

static void bools_have_four_spellings(void **state) {
    assert_true(PARSE("--json").s.json);
    assert_true(PARSE("--json=true").s.json);
    assert_true(PARSE("--json=1").s.json);
    assert_false(PARSE("--json", "--no-json").s.json);
    run r = PARSE("--json", "--json=false");
    assert_false(r.s.json);
    assert_true(r.s.json_was_set);
    r = PARSE("--json", "true"); // a word of its own
    assert_true(r.s.json);
    assert_int_equal(r.n_positional, 1);
}

static void sizes_have_units(void **state) {
    assert_int_equal(PARSE("--kv-bytes", "1048576").s.kv_bytes, 1048576);
    assert_int_equal(PARSE("--kv-bytes", "1024KiB").s.kv_bytes, 1048576);
    assert_int_equal(PARSE("--kv-bytes", "2GiB").s.kv_bytes, UINT64_C(2) << 30);
}

static void words_are_left_in_order(void **state) {
    run r = PARSE("one", "--json", "-", "two", "--", "--json", "-x", "--");
    assert_int_equal(r.code, RELAY_OK);
    static const char *const expected[] = {"one", "-", "two", "--json", "-x", "--"};
    assert_int_equal(r.n_positional, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(r.positional[i], expected[i]);
    assert_refused(parse_with(false, (const char *const[]){"one", NULL}), "unexpected argument \"one\"");
}

static void the_environment_gives_way_to_flags(void **state) {
    setenv("RELAY_TEST_MAX_QUEUE", "7", 1);
    setenv("RELAY_TEST_KV_TYPE", "f32", 1);
    setenv("RELAY_TEST_JSON", "true", 1);
    run r = PARSE();
    assert_int_equal(r.s.queue, 7);
    assert_string_equal(r.s.kv_type, "f32");
    assert_true(r.s.json && r.s.json_was_set && r.s.queue_was_set);
    r = PARSE("--max-queue", "9", "--no-json");
    assert_int_equal(r.s.queue, 9);
    assert_false(r.s.json);
    setenv("RELAY_TEST_MAX_QUEUE", "none", 1);
    assert_refused(PARSE(), "RELAY_TEST_MAX_QUEUE is \"none\"; it must be an integer from 1 to 4096");
    assert_int_equal(PARSE("--max-queue", "9").code, RELAY_OK); // not looked at
    setenv("RELAY_TEST_MAX_QUEUE", "", 1);
    r = PARSE();
    assert_int_equal(r.code, RELAY_OK);
    assert_int_equal(r.s.queue, 64);

    settings s = defaults;
    relay_config c = config_for(&s);
    c.env_prefix = NULL;
    bool help;
    char *argv[] = {(char *)"relay-test", NULL};
    assert_int_equal(relay_config_parse(&c, 1, argv, NULL, NULL, &help, NULL), RELAY_OK);
    assert_string_equal(s.kv_type, "f16");
}

// ---- What is refused

static void values_are_refused_by_name_value_and_range(void **state) {
    static const char *const no_integers[] = {"0", "4097", "-1", "", "1.5", "1x", " 1", "0x10", "99999999999999999999"};
    for (size_t i = 0; i < sizeof no_integers / sizeof *no_integers; i++) {
        char message[128];
        snprintf(message, sizeof message, "--max-queue is \"%s\"; it must be an integer from 1 to 4096",
                 no_integers[i]);
        assert_refused(PARSE("--max-queue", no_integers[i]), message);
    }
    static const char *const no_numbers[] = {"-0.1", "2.1", "", "x", "nan", "inf", "1,5", " 1", "1 "};
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        char message[128];
        snprintf(message, sizeof message, "--temperature is \"%s\"; it must be a number from 0 to 2", no_numbers[i]);
        assert_refused(PARSE("--temperature", no_numbers[i]), message);
    }
    static const char *const no_sizes[] = {"1048575", "1025GiB",       "-1", "", "1TiB", "1 MiB", "MiB",
                                           "1.5MiB",  "17179869185GiB"};
    for (size_t i = 0; i < sizeof no_sizes / sizeof *no_sizes; i++) {
        char message[128];
        snprintf(message, sizeof message, "--kv-bytes is \"%s\"; it must be a size such as 512MiB from 1MiB to 1024GiB",
                 no_sizes[i]);
        assert_refused(PARSE("--kv-bytes", no_sizes[i]), message);
    }
    static const char *const no_choices[] = {"f64", "", "f1", "f16|f32", "F16"};
    for (size_t i = 0; i < sizeof no_choices / sizeof *no_choices; i++) {
        char message[128];
        snprintf(message, sizeof message, "--kv-type is \"%s\"; it must be one of f16|f32", no_choices[i]);
        assert_refused(PARSE("--kv-type", no_choices[i]), message);
    }
    assert_refused(PARSE("--json=yes"), "--json is \"yes\"; it must be true or false");
    assert_refused(PARSE("--any=x"), "--any is \"x\"; it must be an integer");
    assert_refused(PARSE("--any=9223372036854775808"), "--any is \"9223372036854775808\"; it must be an integer");
    assert_refused(PARSE("--scale=inf"), "--scale is \"inf\"; it must be a number");
    assert_refused(PARSE("--scale=nan"), "--scale is \"nan\"; it must be a number");
    assert_true(PARSE("--scale=-1e300").s.scale == -1e300);
}

static void unknown_flags_and_missing_values_are_refused(void **state) {
    assert_refused(PARSE("--max"), "unknown flag --max (relay-test --help lists them)");
    assert_refused(PARSE("--max-queues=1"), "unknown flag --max-queues (relay-test --help lists them)");
    assert_refused(PARSE("--no-model"), "unknown flag --no-model (relay-test --help lists them)");
    assert_refused(PARSE("--no-json=true"), "unknown flag --no-json (relay-test --help lists them)");
    assert_refused(PARSE("--=x"), "unknown flag -- (relay-test --help lists them)");
    assert_refused(PARSE("-q"), "unknown flag -q (flags begin with two dashes)");
    assert_refused(PARSE("--model"), "--model needs a value (FILE)");
    assert_refused(PARSE("--model", "--json"), "--model needs a value (FILE)");
}

// ---- Help

// What parsing prints to standard output; the caller frees.
static char *catch_output(run *r, const char *const *words) {
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    FILE *f = tmpfile();
    assert_non_null(f);
    dup2(fileno(f), STDOUT_FILENO);
    *r = parse_with(true, words);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    char *text = calloc(1, 1 << 16);
    rewind(f);
    (void)!fread(text, 1, (1 << 16) - 1, f);
    fclose(f);
    return text;
}

static void an_address_is_checked(void **state) {
    const char *listen = "x:1", *admin = "y:2";
    const relay_config_entry table[] = {
        {"listen", RELAY_CONFIG_ADDRESS, &listen, .metavar = "HOST:PORT", .help = "Where."},
        {"admin", RELAY_CONFIG_ADDRESS, &admin, .metavar = "HOST:PORT", .help = "Where.", .may_be_empty = true},
    };
    const relay_config c = {.program = "relay-test", .entries = table, .n_entries = 2};
    bool help_shown;
    relay_err e = {0};
    char *good[] = {"relay-test", "--listen", "[::]:0", "--admin", ""};
    assert_int_equal(relay_config_parse(&c, 5, good, NULL, NULL, &help_shown, &e), RELAY_OK);
    assert_string_equal(listen, "[::]:0");
    assert_string_equal(admin, "");
    char *empty[] = {"relay-test", "--listen", ""}, *no_port[] = {"relay-test", "--admin", "z"};
    assert_int_equal(relay_config_parse(&c, 3, empty, NULL, NULL, &help_shown, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "--listen is \"\"; it must be HOST:PORT or [IPV6]:PORT, the port from 0 to 65535");
    assert_int_equal(relay_config_parse(&c, 3, no_port, NULL, NULL, &help_shown, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message,
                        "--admin is \"z\"; it must be HOST:PORT or [IPV6]:PORT, the port from 0 to 65535, or empty");
    assert_string_equal(listen, "[::]:0");
}

static void help_shows_every_flag_with_range_default_and_variable(void **state) {
    run r;
    char *text = catch_output(&r, (const char *const[]){"--max-queue", "9", "--bad", "--help", NULL});
    assert_int_equal(r.code, RELAY_OK);
    assert_true(r.help_shown);
    assert_memory_equal(text, "usage: relay-test [flags] [WORD...]\n\nTests settings.\n", 53);
    static const char *const parts[] = {
        "\n  --max-queue N             Most requests that wait. (an integer from 1 to 4096; default: 64;\n",
        "\n                            RELAY_TEST_MAX_QUEUE)\n",
        "\n  --any N                   Any number. (default: -1; RELAY_TEST_ANY)\n",
        "(a number from 0 to 2; default: 0.7;",
        "\n  --scale X                 Any number. (RELAY_TEST_SCALE)\n",
        "default: 1GiB; RELAY_TEST_KV_BYTES)",
        "(one of f16|f32; default: f16; RELAY_TEST_KV_TYPE)",
        "\n  --model FILE              The model. (default: none; RELAY_TEST_MODEL)\n",
        "\n  --json                    One JSON object a message. (default: false; RELAY_TEST_JSON)\n",
        "\n  --help                    Shows this.\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(text, parts[i]) == NULL) fail_msg("\"%s\" is not in:\n%s", parts[i], text);
    for (const char *line = text; line != NULL && *line != 0; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 100);
    free(text);

    text = catch_output(&r, (const char *const[]){"-h", NULL});
    assert_true(r.help_shown);
    free(text);
    text = catch_output(&r, (const char *const[]){"--", "--help", NULL});
    assert_false(r.help_shown);
    assert_string_equal(text, "");
    free(text);
}

static void texts_are_collected_up_to_their_limit(void **state) {
    relay_config_texts stops = {0};
    const relay_config_entry entry = {
        .name = "stop", .kind = RELAY_CONFIG_TEXTS, .value = &stops, .metavar = "TEXT", .help = "Ends it."};
    const relay_config c = {.program = "relay-test", .usage = "", .summary = "", .entries = &entry, .n_entries = 1};
    char *argv[] = {"relay-test", "--stop", "a", "--stop=", "--stop", "b c"};
    bool help;
    relay_err e;
    assert_int_equal(relay_config_parse(&c, 6, argv, NULL, NULL, &help, &e), RELAY_OK);
    assert_int_equal(stops.n, 3);
    assert_string_equal(stops.texts[0], "a");
    assert_string_equal(stops.texts[1], "");
    assert_string_equal(stops.texts[2], "b c");
    while (stops.n < RELAY_CONFIG_MAX_TEXTS)
        assert_int_equal(relay_config_set(&entry, "stop", "x", &e), RELAY_OK);
    assert_int_equal(relay_config_set(&entry, "stop", "y", &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "stop is \"y\"; it must be given at most 16 times");
    assert_int_equal(stops.n, RELAY_CONFIG_MAX_TEXTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_flags_the_defaults_stay, clear_environment),
        cmocka_unit_test_setup(flags_take_their_value_behind_them_or_behind_an_equals_sign, clear_environment),
        cmocka_unit_test_setup(bools_have_four_spellings, clear_environment),
        cmocka_unit_test_setup(sizes_have_units, clear_environment),
        cmocka_unit_test_setup(words_are_left_in_order, clear_environment),
        cmocka_unit_test_setup_teardown(the_environment_gives_way_to_flags, clear_environment, clear_environment),
        cmocka_unit_test_setup(values_are_refused_by_name_value_and_range, clear_environment),
        cmocka_unit_test_setup(unknown_flags_and_missing_values_are_refused, clear_environment),
        cmocka_unit_test(an_address_is_checked),
        cmocka_unit_test_setup(help_shows_every_flag_with_range_default_and_variable, clear_environment),
        cmocka_unit_test(texts_are_collected_up_to_their_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
