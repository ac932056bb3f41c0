#include "tokenizer_svc/settings.h"

#include <stdlib.h>
#include <string.h>

#include "common/address.h"
#include "common/config.h"

enum { N_OWN_FLAGS = 6 };

// HOST:PORT, with or without one of gRPC's schemes in front: dns:HOST:PORT, dns://[RESOLVER]/HOST:PORT,
// ipv4:HOST:PORT, ipv6:[HOST]:PORT.
static bool is_server(const char *text) {
    static const char *const schemes[] = {"dns:", "ipv4:", "ipv6:"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncmp(text, schemes[i], strlen(schemes[i])) != 0) continue;
        text += strlen(schemes[i]);
        if (i == 0 && strncmp(text, "//", 2) == 0) {
            const char *slash = strchr(text + 2, '/');
            if (slash == NULL) return false;
            text = slash + 1;
        }
        break;
    }
    relay_address a;
    return relay_address_read(&a, text) && a.host_len != 0 && a.port != 0;
}

static relay_code split_servers(relay_tokenizer_settings *s, relay_err *e) {
    if (s->model_server[0] == '\0') return RELAY_OK;
    s->servers_text = relay_strndup(s->model_server, strlen(s->model_server));
    char *rest = s->servers_text;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (!is_server(word)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "--model-server names \"%.100s\"; a server must be HOST:PORT, [IPV6]:PORT or "
                              "dns:///HOST:PORT, the port from 1 to 65535",
                              word);
        }
        if (s->n_model_servers == RELAY_MAX_MODEL_SERVERS) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "--model-server names more than %d servers",
                              RELAY_MAX_MODEL_SERVERS);
        }
        s->model_servers[s->n_model_servers++] = word;
    }
    return RELAY_OK;
}

relay_code relay_tokenizer_settings_read(relay_tokenizer_settings *s, int argc, char **argv, bool *help_shown,
                                         relay_err *e) {
    *s = (relay_tokenizer_settings){
        .tokenizer = "",
        .model_name = "",
        .model_server = "",
        .max_queued_jobs = 1024,
        .max_text_bytes = 4 << 20,
    };
    relay_config_entry entries[N_OWN_FLAGS + RELAY_SERVICE_FLAGS] = {
        {"tokenizer", RELAY_CONFIG_STRING, &s->tokenizer, .metavar = "FILE",
         .help = "the tokenizer's file or folder, whose vocabulary and chat templates are served; required"},
        {"model-name", RELAY_CONFIG_STRING, &s->model_name, .metavar = "NAME",
         .help = "what clients call the model; empty: the file's general.name"},
        {"model-server", RELAY_CONFIG_STRING, &s->model_server, .metavar = "HOST:PORT",
         .help = "the model server, or several with commas between; empty: only tokenizing is served"},
        {"threads", RELAY_CONFIG_INT, &s->threads, 0, 1024, "N",
         .help = "threads that tokenize short requests, and as many for long ones; 0: one a processor"},
        {"max-queued-jobs", RELAY_CONFIG_INT, &s->max_queued_jobs, 1, 1 << 20, "N",
         .help = "calls that may wait for such a thread; more are refused"},
        {"max-text-bytes", RELAY_CONFIG_BYTES, &s->max_text_bytes, 1, 1 << 30, "BYTES",
         .help = "most text of one request"},
    };
    relay_service_settings_init(&s->service, "127.0.0.1:50051", entries + N_OWN_FLAGS);
    const relay_config config = {
        .program = "relay-tokenizer",
        .env_prefix = "RELAY_TOKENIZER",
        .usage = "--tokenizer FILE-OR-FOLDER [--model-server HOST:PORT] [flags]",
        .summary = "Serves text for a model over gRPC: generation (relay.v1.GenerationService), tokenizing and chat "
                   "templates (relay.v1.TokenizerService).",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    relay_code code = relay_config_parse(&config, argc, argv, NULL, NULL, help_shown, e);
    if (code != RELAY_OK || *help_shown) return code;
    if (s->tokenizer[0] == '\0') {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--tokenizer is not set; it names the file or folder to serve");
    }
    return split_servers(s, e);
}

void relay_tokenizer_settings_fini(relay_tokenizer_settings *s) {
    free(s->servers_text);
}
