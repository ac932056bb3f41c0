// Templates with the text that Python's jinja2 makes of them (tests/data/chat_templates).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/tokenizer_svc/jinja_world.h"

#define DATA "tests/data/chat_templates/"

// Counts what differs, and shows it.
static bool same(const char *name, const jinja_result *r, const char *expected, size_t len) {
    if (r->code == RELAY_OK && r->len == len && memcmp(r->text, expected, len) == 0) return true;
    if (r->code != RELAY_OK)
        print_error("%s: %s\n", name, r->error.message);
    else
        print_error("%s: got\n%s\nwant\n%s\n", name, r->text, expected);
    return false;
}

// One case: `expected` is a string, or null or nothing where jinja2 raises an error.
static bool holds(const char *name, yyjson_val *source, yyjson_val *context, yyjson_val *expected) {
    jinja_result r = jinja_world_render(yyjson_get_str(source), yyjson_get_len(source), context, NULL);
    bool ok;
    if (!yyjson_is_str(expected)) {
        ok = r.code == RELAY_INVALID_ARGUMENT || r.code == RELAY_RESOURCE_EXHAUSTED;
        if (!ok) print_error("%s: got %s, want an error\n", name, r.text);
    } else {
        ok = same(name, &r, yyjson_get_str(expected), yyjson_get_len(expected));
    }
    jinja_result_fini(&r);
    return ok;
}

// The cases of huggingface.js, whose targets are JavaScript's ("true" for a boolean): the texts are jinja2's.
static void renders_the_unit_cases(void **state) {
    yyjson_doc *cases = jinja_world_read_json(DATA "unit.json"),
               *texts = jinja_world_read_json(DATA "unit_jinja2.json");
    size_t i, n, failed = 0;
    yyjson_val *c;
    yyjson_arr_foreach(yyjson_doc_get_root(cases), i, n, c) {
        const char *name = yyjson_get_str(yyjson_obj_get(c, "name"));
        yyjson_val *text = yyjson_obj_get(yyjson_doc_get_root(texts), name);
        assert_non_null(text);
        failed += !holds(name, yyjson_obj_get(c, "template"), yyjson_obj_get(c, "context"), text);
    }
    assert_int_equal(n, 100);
    assert_int_equal(failed, 0);
    yyjson_doc_free(cases);
    yyjson_doc_free(texts);
}

// Small templates for every filter, test, method, operator and statement, and for what jinja2 refuses.
static void renders_the_language(void **state) {
    yyjson_doc *doc = jinja_world_read_json(DATA "language.json");
    yyjson_val *context = yyjson_obj_get(yyjson_doc_get_root(doc), "context"), *c;
    size_t i, n, failed = 0;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(doc), "cases"), i, n, c) {
        yyjson_val *source = yyjson_obj_get(c, "template");
        failed += !holds(yyjson_get_str(source), source, context, yyjson_obj_get(c, "text"));
    }
    assert_true(n > 300);
    assert_int_equal(failed, 0);
    yyjson_doc_free(doc);
}

static void renders_real_templates(void **state) {
    yyjson_doc *cases = jinja_world_read_json(DATA "rendered.json");
    size_t i, n, failed = 0, rendered = 0;
    yyjson_val *c;
    yyjson_arr_foreach(yyjson_doc_get_root(cases), i, n, c) {
        const char *name = yyjson_get_str(yyjson_obj_get(c, "name"));
        yyjson_val *context = yyjson_obj_get(c, "data"), *target = yyjson_obj_get(c, "target");
        if (strcmp(name, "MadeAgents/Hammer2.1") == 0) continue; // its target is JavaScript's; see below
        if (context == NULL) continue;                           // a case for a formatter; see below
        failed += !holds(name, yyjson_obj_get(c, "chat_template"), context, target);
        rendered++;
    }
    assert_int_equal(failed, 0);
    assert_int_equal(rendered, 32);
    yyjson_doc_free(cases);
}

static yyjson_val *find_case(yyjson_doc *cases, const char *wanted) {
    size_t i, n;
    yyjson_val *c;
    yyjson_arr_foreach(yyjson_doc_get_root(cases), i, n, c) {
        if (strcmp(yyjson_get_str(yyjson_obj_get(c, "name")), wanted) == 0) return c;
    }
    fail_msg("no case %s", wanted);
    return NULL;
}

// Hammer prints its tools with repr(): single quotes in Python, JSON in JavaScript.
static void prints_a_list_as_python_does(void **state) {
    yyjson_doc *cases = jinja_world_read_json(DATA "rendered.json");
    yyjson_val *c = find_case(cases, "MadeAgents/Hammer2.1"), *source = yyjson_obj_get(c, "chat_template");
    jinja_result r =
        jinja_world_render(yyjson_get_str(source), yyjson_get_len(source), yyjson_obj_get(c, "data"), NULL);
    assert_int_equal(r.code, RELAY_OK);
    assert_non_null(strstr(r.text, "\n[{'type': 'function', 'function': {'name': 'get_current_temperature', "));
    // all but the line with the tools is the target
    const char *target = yyjson_get_str(yyjson_obj_get(c, "target"));
    const char *tools = strstr(r.text, "[{'type'"), *target_tools = strstr(target, "[{\"type\"");
    assert_int_equal(tools - r.text, target_tools - target);
    assert_memory_equal(r.text, target, tools - r.text);
    assert_string_equal(strchr(tools, '\n'), strchr(target_tools, '\n'));
    jinja_result_fini(&r);
    yyjson_doc_free(cases);
}

// The target is the template as a formatter writes it: both must mean the same.
static void a_formatted_template_renders_as_before(void **state) {
    static const char context_json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": "
        "\"What is it?\"}]}, {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"A cat.\"}]}], "
        "\"add_generation_prompt\": true}";
    yyjson_doc *cases = jinja_world_read_json(DATA "rendered.json");
    yyjson_val *c = find_case(cases, "HuggingFaceTB/SmolVLM-Instruct");
    jinja_result a = jinja_world_render_text(yyjson_get_str(yyjson_obj_get(c, "chat_template")), context_json);
    jinja_result b = jinja_world_render_text(yyjson_get_str(yyjson_obj_get(c, "target")), context_json);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(b.code, RELAY_OK);
    assert_string_equal(a.text, "<|im_start|>User:<image>What is it?<end_of_utterance>\nAssistant: A cat."
                                "<end_of_utterance>\nAssistant:");
    assert_string_equal(a.text, b.text);
    jinja_result_fini(&a);
    jinja_result_fini(&b);
    yyjson_doc_free(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_the_unit_cases),
        cmocka_unit_test(renders_the_language),
        cmocka_unit_test(renders_real_templates),
        cmocka_unit_test(prints_a_list_as_python_does),
        cmocka_unit_test(a_formatted_template_renders_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
